"""Our code goes to executors as a zip of what the driver runs, or as the wheel that holds the same."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from evenlag.errors import JobError
from spark_jobs.runtime.code_archive import build_archive, copy_wheel
from spark_jobs.runtime.session_conf import is_local

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel as a release has it."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def imported_from(archive: Path) -> str:
    """Import what plans groups with nothing on the path but the archive and this Python's packages."""
    code = "import spark_jobs.transforms.plan_frames as m, assignor_core as c; print(m.__file__, c.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd="/",
    )
    return done.stdout


def test_the_archive_holds_what_executors_import_and_is_the_same_every_time(tmp_path: Path) -> None:
    archive = build_archive(tmp_path)
    first = archive.read_bytes()
    assert build_archive(tmp_path) == archive
    assert archive.read_bytes() == first
    assert imported_from(archive).count(str(archive)) == 2
    assert [file.name for file in tmp_path.iterdir()] == [archive.name]


def test_a_wheel_is_sent_under_a_name_that_pyspark_puts_on_the_path(wheel: Path, tmp_path: Path) -> None:
    copied = copy_wheel(wheel, tmp_path)
    assert copied.name == f"{wheel.stem}.zip"
    assert imported_from(copied).count(str(copied)) == 2


def test_a_wheel_of_another_evenlag_is_refused(wheel: Path, tmp_path: Path) -> None:
    other = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            changed = b"\n# newer\n" if name == "spark_jobs/runtime/delta_lake.py" else b""
            target.writestr(name, source.read(name) + changed)
    with pytest.raises(JobError, match=r"1 files differ, first: spark_jobs/runtime/delta_lake\.py"):
        copy_wheel(other, tmp_path)


@pytest.mark.parametrize("content", [None, b"not a zip"])
def test_what_is_no_wheel_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "evenlag.whl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(JobError, match=r"EVENLAG_WHEEL=.*is not a readable wheel"):
        copy_wheel(path, tmp_path)


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,4]", True),
        ("local-cluster[2,1,512]", False),
        ("spark://localhost:7077", False),
        ("yarn", False),
        ("k8s://https://localhost:6443", False),
    ],
)
def test_what_is_local(master: str, expected: bool) -> None:
    assert is_local(master) is expected
