"""Check of a local lake: only those may access its files whom its folder admits."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Final

from evenlag.doctor.model import ok, skipped, warning
from evenlag.lake.location import LOG_FOLDER
from evenlag.lake.tables import TABLES
from evenlag.private_files import OWNER_ONLY

if TYPE_CHECKING:
    from pathlib import Path

    from evenlag.doctor.model import Finding
    from evenlag.lake.reader import LakeReader

# Read, write or execute, for the group and for others.
_ANYBODY: Final = 0o077


def check_private(reader: LakeReader) -> list[Finding]:
    """Return whether only those may access the files of a local lake whom its folder admits."""
    if not reader.paths.is_local:
        return [skipped("an object store has its own permissions")]
    root, mask = reader.paths.local_root, reader.paths.umask
    if not root.exists():
        return [skipped("the lake does not exist yet; the first writer creates its folder with mode 0700")]
    # The root of the lake, the tables, and their newest commits: older files are as the folder above admits.
    looked_at = [root, *(path for name in TABLES for path in _newest(root / name))]
    open_ones = [path for path in looked_at if path.stat().st_mode & mask & _ANYBODY]
    if open_ones:
        return [
            warning(
                f"{open_ones[0]} has mode {stat.S_IMODE(open_ones[0].stat().st_mode):04o}, and so have "
                f"{len(open_ones) - 1} more: users may read or write the lake who need not",
                f"chmod -R {_chmod(mask)} {root}",
            )
        ]
    closed = [path for path in looked_at if mask != OWNER_ONLY and _lacks_group(path, mask)]
    if closed:
        return [
            warning(
                f"{root} is shared with its group, and {closed[0]} is not: a process with another umask "
                "wrote it",
                f"chmod -R {_chmod(mask)} {root}, and start that process with umask {mask:03o}",
            )
        ]
    who = "its owner" if mask == OWNER_ONLY else "its owner and group"
    return [ok(f"only {who} may access {root}")]


def _newest(table: Path) -> list[Path]:
    try:
        commits = sorted(path for path in (table / LOG_FOLDER).iterdir() if path.suffix == ".json")
    except OSError:
        return []
    return [table, table / LOG_FOLDER, *commits[-1:]]


def _lacks_group(path: Path, mask: int) -> bool:
    wanted = stat.S_IRGRP | (0 if mask & stat.S_IWGRP else stat.S_IWGRP)
    return bool(~path.stat().st_mode & wanted)


def _chmod(mask: int) -> str:
    if mask == OWNER_ONLY:
        return "go="
    return "g=rX,o=" if mask & stat.S_IWGRP else "g=rwX,o="
