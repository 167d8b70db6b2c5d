"""A source tree of evenlag: its own data, its newest commit as an export, and archives of its files."""

import re
import subprocess
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
NOT_RELEASED: Final = ("dev", "docs")
"""Extras that no user installs."""
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")
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
        return frozenset(
            normalized(match[0])
            for text in (*self._tree["dependencies"], *asked)
            if (match := _NAME.match(text))
        )

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


def normalized(name: str) -> str:
    """Return a package's name as the package index compares names.

    Examples
    --------
    >>> normalized("PyYAML.ft")
    'pyyaml-ft'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


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
    # Modes as everybody's checkout has them, whatever this user's settings are.
    archive = subprocess.run(
        ["git", "-C", str(clone), "-c", "tar.umask=0022", "archive", "--format=tar", commit],
        capture_output=True,
        check=False,
    )
    unpacked = subprocess.run(["tar", "-x", "-C", str(target)], input=archive.stdout, check=False)
    if archive.returncode or unpacked.returncode:
        raise ReleaseError(f"commit {commit[:12]} cannot be exported to {target}")
    return commit, int(time)


def _git(clone: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["git failed"])[-1]
        raise ReleaseError(f"a release is built in a git clone of evenlag: {why}")
    return done.stdout.strip("\n")


def write_archive(path: Path, clone: Path, commit: str, names: Iterable[str]) -> None:
    """Write a ``.tar.gz`` with files and folders of a commit, which always has the same bytes."""
    out = f"--output={path}"
    _git(clone, "-c", "tar.umask=0022", "archive", "--format=tar.gz", out, commit, "--", *names)
