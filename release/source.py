"""The source of a release: a commit of a clean clone, exported into a folder of its own."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

from release.errors import ReleaseError

if TYPE_CHECKING:
    from pathlib import Path

_NUM_SHOWN: Final = 5


def export_commit(clone: Path, target: Path) -> tuple[str, int]:
    """Export the newest commit of a clone.

    Files that are not committed, or are ignored, must not be part of a release.

    Returns the commit's id, and its time in seconds since 1970.
    target: A folder that exists and is empty.
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
