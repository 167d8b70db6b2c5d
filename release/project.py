"""A source tree of evenlag: its own data, its newest commit as an export, and archives of its files."""

import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[1]
NOT_RELEASED: Final = ("dev", "docs")
"""Extras that no user installs."""
_NUM_SHOWN: Final = 5


class ReleaseError(RuntimeError):
    """Raised when a release cannot be built or a check fails; the message says what to do."""


@dataclass(frozen=True)
class Project:
    """A source tree of evenlag."""

    root: Path = ROOT

    @cached_property
    def _tree(self) -> dict[str, Any]:
        project: dict[str, Any] = tomllib.loads(self.text("pyproject.toml"))["project"]
        return project

    @property
    def version(self) -> str:
        """The version."""
        return str(self._tree["version"])

    @property
    def licence(self) -> str:
        """The licence, an SPDX identifier."""
        return str(self._tree["license"])

    def released_requirements(self) -> frozenset[str]:
        """Names of the packages that evenlag and its extras ask for, without those for its development."""
        extras = self._tree["optional-dependencies"]
        asked = [text for extra, texts in extras.items() if extra not in NOT_RELEASED for text in texts]
        asked += self._tree["dependencies"]
        return frozenset(canonicalize_name(Requirement(text).name) for text in asked)

    def text(self, path: str) -> str:
        """Return a file of the tree."""
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except OSError as error:
            raise ReleaseError(f"{path} cannot be read: {error.strerror}") from error

    def release_notes(self) -> str:
        """Return the changelog's section of the version, without its heading."""
        sections = re.split(r"^## ", self.text("CHANGELOG.md"), flags=re.MULTILINE)[1:]
        for section in sections:
            heading, _, body = section.partition("\n")
            if re.fullmatch(rf"\[{re.escape(self.version)}\] - \d{{4}}-\d\d-\d\d", heading.strip()):
                if not body.strip():
                    break
                return f"# evenlag {self.version}\n\nReleased {heading.strip()[-10:]}.\n\n{body.strip()}\n"
        raise ReleaseError(
            f"CHANGELOG.md has no notes under '## [{self.version}] - YYYY-MM-DD': write them, or correct the "
            "version in pyproject.toml"
        )


def export_commit(clone: Path, target: Path) -> tuple[str, int]:
    """Export the newest commit of a clone.

    Files that are not committed, or are ignored, must not be part of a release. Returns the commit's id, and
    its time in seconds since 1970.
    """
    changed = _git(clone, "status", "--porcelain").splitlines()
    if changed:
        shown = ", ".join(line[3:] for line in changed[:_NUM_SHOWN])
        raise ReleaseError(
            f"{len(changed)} files differ from the commit ({shown}): a release is built from a commit; "
            "commit or stash them"
        )
    commit, time = _git(clone, "log", "-1", "--format=%H %ct").split()
    with tempfile.NamedTemporaryFile(suffix=".tar.gz") as archive:
        write_archive(Path(archive.name), clone, commit, ())
        shutil.unpack_archive(archive.name, target, filter="tar")
    return commit, int(time)


def _git(clone: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["git failed"])[-1]
        raise ReleaseError(f"a release is built in a git clone of evenlag: {why}")
    return done.stdout.strip("\n")


def write_archive(path: Path, clone: Path, commit: str, names: Iterable[str]) -> None:
    """Write a ``.tar.gz`` with files and folders of a commit, or all, which always has the same bytes."""
    # Modes as everybody's checkout has them, whatever this user's settings are.
    out = f"--output={path}"
    _git(clone, "-c", "tar.umask=0022", "archive", "--format=tar.gz", out, commit, "--", *names)
