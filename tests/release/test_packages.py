"""What users install: the wheel's contents, and that a build depends on nothing but the source."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from release.project import ROOT, Project, ReleaseError, export_commit, write_archive

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = Project().version
EPOCH = 1_700_000_000


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def build(source: Path, out: Path) -> Mapping[str, bytes]:
    """Build source distribution and wheel of a tree; return their bytes by name."""
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)],
        cwd=source,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH), "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=1_200,
    )
    assert done.returncode == 0, done.stdout[-3_000:]
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the files that git knows, as they are now."""
    copy = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built")
    assert sorted(build(source, out)) == [f"evenlag-{VERSION}-py3-none-any.whl", f"evenlag-{VERSION}.tar.gz"]
    return out


def names_in_wheel(built: Path) -> list[str]:
    with zipfile.ZipFile(built / f"evenlag-{VERSION}-py3-none-any.whl") as wheel:
        return wheel.namelist()


def test_the_wheel_puts_three_names_into_site_packages(built: Path) -> None:
    top = {PurePosixPath(name).parts[0] for name in names_in_wheel(built)}
    assert top == {"assignor_core", "evenlag", "spark_jobs", f"evenlag-{VERSION}.dist-info"}


def test_the_wheel_has_the_bundle_and_nothing_of_the_development(built: Path) -> None:
    names = set(names_in_wheel(built))
    assert {
        "evenlag/_bundled/dags/lag_rebalance.py",
        "evenlag/_bundled/sandbox/demo/run.py",
        "evenlag/_bundled/sandbox/jars.sha256",
        f"evenlag-{VERSION}.dist-info/licenses/LICENSE",
    } <= names
    assert not [name for name in names if re.search(r"(^|/)(tests|release|docs)/|\.pyc$|\.env$|\.key$", name)]


def test_every_module_is_in_the_wheel(built: Path, source: Path) -> None:
    names = set(names_in_wheel(built))
    packages = ("assignor_core", "evenlag", "spark_jobs")
    modules = {
        path.relative_to(source).as_posix() for name in packages for path in (source / name).rglob("*.py")
    }
    assert modules
    assert modules <= names


def test_the_source_distribution_has_what_a_build_and_the_tests_need(built: Path) -> None:
    with tarfile.open(built / f"evenlag-{VERSION}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "Makefile", "requirements.lock", "SECURITY.md", "CHANGELOG.md"} <= names
    assert {".ci/setup.lock", ".ci/make_venv", ".dockerignore", "release/licences.toml"} <= names
    assert "tests/release/test_packages.py" in names
    assert not [name for name in names if name.endswith((".pyc", "/.env"))]


@pytest.mark.extended
def test_a_build_elsewhere_and_later_gives_the_same_bytes(built: Path, source: Path, tmp_path: Path) -> None:
    other = tmp_path / "another" / "place"
    shutil.copytree(source, other)
    for path in other.rglob("*"):
        # Other times and rights than in the first folder, as another user's clone has them.
        os.utime(path, (EPOCH + 7_000, EPOCH + 7_000))
        if path.is_file():
            path.chmod(0o664 if not path.stat().st_mode & 0o100 else 0o775)
    again = build(other, tmp_path / "out")
    assert again == {path.name: path.read_bytes() for path in built.iterdir()}


def test_a_release_is_of_a_commit_without_changes(tmp_path: Path) -> None:
    clone, target = tmp_path / "clone", tmp_path / "target"
    clone.mkdir()
    target.mkdir()
    with pytest.raises(ReleaseError, match="a release is built in a git clone"):
        export_commit(clone, target)
    git(clone, "init", "--quiet")
    (clone / "a.txt").write_text("committed\n", encoding="utf-8")
    (clone / ".gitignore").write_text("ignored.txt\n", encoding="utf-8")
    (clone / "ignored.txt").write_text("ignored\n", encoding="utf-8")
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "--message", "first")
    commit, time = export_commit(clone, target)
    assert f"{commit} {time}" == git(clone, "log", "-1", "--format=%H %ct").strip()
    assert sorted(path.name for path in target.iterdir()) == [".gitignore", "a.txt"]
    (clone / "b.txt").touch()
    with pytest.raises(ReleaseError, match=r"1 files differ from the commit \(b\.txt\)"):
        export_commit(clone, target)


def test_an_archive_is_of_the_commit_whatever_the_folder_has_since(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    (clone / "b").mkdir(parents=True)
    git(clone, "init", "--quiet")
    for name in ("b/two", "a", "b/one", "other"):
        (clone / name).write_text(name, encoding="utf-8")
    (clone / "a").chmod(0o755)
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "--message", "first")
    commit, time = git(clone, "log", "-1", "--format=%H %ct").split()
    write_archive(tmp_path / "0.tar.gz", clone, commit, ["a", "b"])
    (clone / "a").write_text("changed", encoding="utf-8")
    (clone / "b" / "new").touch()
    os.utime(clone / "b" / "one", (EPOCH, EPOCH))
    write_archive(tmp_path / "1.tar.gz", clone, commit, ["b", "a"])
    assert (tmp_path / "0.tar.gz").read_bytes() == (tmp_path / "1.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "0.tar.gz") as archive:
        found = [(one.name, one.mode, one.mtime, one.uid) for one in archive if one.isfile()]
    assert found == [
        ("a", 0o755, int(time), 0),
        ("b/one", 0o644, int(time), 0),
        ("b/two", 0o644, int(time), 0),
    ]
    with pytest.raises(ReleaseError, match="'c' did not match any files"):
        write_archive(tmp_path / "c.tar.gz", clone, commit, ["c"])


# Version and notes ------------------------------------------------------------------------------------------


def test_the_version_is_the_same_everywhere() -> None:
    files = ("docker/compose.yaml", "docker/airflow/Dockerfile", "docker/spark/Dockerfile")
    shown = {
        match
        for name in files
        for match in re.findall(r"(?:evenlag-\w+:|ARG VERSION=)([\w.]+)", (ROOT / name).read_text("utf-8"))
    }
    assert shown == {VERSION}


def test_the_changelog_has_notes_for_the_version() -> None:
    notes = Project().release_notes()
    assert notes.startswith(f"# evenlag {VERSION}\n\nReleased 20")
    assert "### Added" in notes
    assert "Unreleased" not in notes


@pytest.mark.parametrize(
    "changelog", ["", "## [Unreleased]\n\n- a\n", "## [0.1.0]\n\n- a\n", "## [0.1.0] - 2026-11-23\n\n"]
)
def test_a_release_without_notes_is_refused(tmp_path: Path, changelog: str) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n', encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    with pytest.raises(ReleaseError, match=r"no notes under '## \[0\.1\.0\] - YYYY-MM-DD'"):
        Project(tmp_path).release_notes()


def test_the_versions_table_has_the_version_and_its_formats() -> None:
    from assignor_core.hint import ENVELOPE_VERSION

    table = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    [row] = [line for line in table.splitlines() if line.startswith(f"| {VERSION} |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{VERSION}] - {cells[1]}" in changelog
    assert cells[6] == str(ENVELOPE_VERSION)
    minor = ".".join(VERSION.split(".")[:2])
    assert f"| {minor} | yes |" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
