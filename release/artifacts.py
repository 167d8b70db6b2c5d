"""The files of a release, built from an exported commit."""

import filecmp
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from release.project import ROOT, Project, ReleaseError, export_commit, write_archive
from release.sbom import IMAGE_LOCKS, write_bills
from sandbox.jars import cache_dir, ensure_jars

CHECKSUMS: Final = "SHA256SUMS"
NOTES: Final = "RELEASE_NOTES.md"
_OWN_COPY: Final = re.compile(r"^COPY (?!--from)(.+) \S+$", re.MULTILINE)
# What writes jars of our own: modules of the exported source, with the option for the folder.
_JAR_BUILDERS: Final = (
    ("sandbox.kafka.jvm_jars", "--out"),
    ("sandbox.jars", "--log-store"),
)


def build_release(out: Path, *, unchecked: str | None) -> list[Path]:
    """Build all files of a release.

    Wheel and source distribution are built twice, in different folders, and must have the same bytes.
    `unchecked` says in the release notes why vulnerabilities were not looked up; None if they were.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ReleaseError(f"{out} is not empty: name a new folder, or remove it")
    with tempfile.TemporaryDirectory(prefix="evenlag-release-") as temporary:
        source, other = Path(temporary) / "source", Path(temporary) / "other" / "folder"
        for folder in (source, other):
            folder.mkdir(parents=True)
        commit, epoch = export_commit(ROOT, source)
        export_commit(ROOT, other)
        project = Project(source)
        notes = project.release_notes()
        if unchecked is not None:
            notes += f"\n**Known vulnerabilities were not looked up for this release**: {unchecked}\n"
        built = Path(temporary) / "built"
        built.mkdir()
        _build_packages(source, built, epoch)
        _compare(built, _build_packages(other, Path(temporary) / "again", epoch))
        _build_jars(source, built)
        _write_contexts(project, commit, built)
        write_bills(project, built, commit=commit, epoch=epoch)
        (built / NOTES).write_text(notes, encoding="utf-8")
        _write_checksums(built)
        shutil.copytree(built, out, copy_function=shutil.copyfile, dirs_exist_ok=True)
    return sorted(path for path in out.rglob("*") if path.is_file())


def _build_packages(source: Path, target: Path, epoch: int) -> Path:
    """Build the source distribution, and from it the wheel."""
    target.mkdir(exist_ok=True)
    command = ["-m", "build", "--no-isolation", "--outdir", str(target), str(source)]
    _run(command, source, {"SOURCE_DATE_EPOCH": str(epoch)})
    return target


def _compare(built: Path, again: Path) -> None:
    names = sorted(path.name for path in built.iterdir())
    _, different, missing = filecmp.cmpfiles(built, again, names, shallow=False)
    if different or missing or not names:
        shown = ", ".join([*different, *missing]) or "nothing was built"
        raise ReleaseError(f"two builds of the same commit differ: {shown}")


def _build_jars(source: Path, target: Path) -> None:
    # The jars that these compile against are fetched once, and verified.
    ensure_jars()
    for module, option in _JAR_BUILDERS:
        _run(["-m", module, option, str(target)], source, {"EVENLAG_JARS": str(cache_dir())})


def _write_contexts(project: Project, commit: str, target: Path) -> None:
    """Write what each image is built from, and the compose file with what belongs to it."""
    version = project.version
    for image in IMAGE_LOCKS:
        dockerfile = f"docker/{image}/Dockerfile"
        copied = [name for line in _OWN_COPY.findall(project.text(dockerfile)) for name in line.split()]
        path = target / f"evenlag-{image}-image-{version}.tar.gz"
        write_archive(path, ROOT, commit, [dockerfile, ".dockerignore", *copied])
    folder = project.root / "docker"
    others = [f"docker/{path.name}" for path in folder.iterdir() if path.is_file() and path.suffix != ".lock"]
    write_archive(target / f"evenlag-compose-{version}.tar.gz", ROOT, commit, [*others, "LICENSE"])


def _write_checksums(folder: Path) -> None:
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def _run(arguments: list[str], source: Path, variables: Mapping[str, str]) -> None:
    """Run a module with the exported source on its path, not with the clone's."""
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"} | dict(variables)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=source,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(arguments[:2])} failed:\n{done.stdout[-3_000:]}")
