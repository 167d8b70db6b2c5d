"""Checks of the lake: access, permissions, free space, file system and table schemas."""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from evenlag.doctor.model import Check, Finding, failed, ok, skipped, warning
from evenlag.doctor.spark_checks import find_remote
from evenlag.errors import SchemaError
from evenlag.lake.location import LOG_FOLDER
from evenlag.lake.reader import LakeReader
from evenlag.lake.schema_evolution import PROTOCOL, missing_columns, unknown_columns
from evenlag.lake.snapshot_ids import id_prefix
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.tables import OFFSETS, SNAPSHOTS, TABLES, Table
from evenlag.policy.settings import Policy
from evenlag.private_files import OWNER_ONLY
from evenlag.quality.checks import read_results

_LITTLE_ROOM: Final = 0.10
_MOUNTS: Final = Path("/proc/self/mounts")
# Network file systems: a machine may see the commits of another one late.
_SHARED_KINDS: Final = ("nfs", "cifs", "smb", "9p", "fuse.", "glusterfs", "ceph", "lustre", "afs", "gpfs")
# A snapshot takes minutes: without a marker after this time it never gets one.
_UNFINISHED_AFTER: Final = timedelta(hours=1)
# Unfinished snapshots that are older are for maintenance to find: it looks at all files.
_UNFINISHED_LOOK_BACK: Final = timedelta(days=31)
# Read, write or execute, for the group and for others.
_ANYBODY: Final = 0o077


def lake_checks(reader: LakeReader, policy: Policy | None, *, probe_writes: bool) -> list[Check]:
    """Return the checks of one lake."""
    return [
        Check("lake", "log_store", lambda: _check_log_store(reader, policy)),
        Check("lake", "readable", lambda: _check_readable(reader)),
        Check("lake", "writable", lambda: check_writable(reader, probe_writes=probe_writes)),
        Check("lake", "private", lambda: check_private(reader)),
        Check("lake", "space", lambda: _if_local(reader, _check_space)),
        Check("lake", "filesystem", lambda: _if_local(reader, _check_filesystem)),
        Check("lake", "tables", lambda: check_tables(reader)),
        Check("lake", "quality", lambda: check_quality(reader)),
        Check("lake", "unfinished", lambda: check_unfinished(reader, datetime.now(UTC))),
    ]


def _if_local(reader: LakeReader, look: Callable[[Path], list[Finding]]) -> list[Finding]:
    return look(reader.paths.local_root) if reader.paths.is_local else skipped("not a local folder")


def _nearest(root: Path) -> Path:
    """The folder itself, or its nearest parent: before the first cycle it does not exist."""
    return next(folder for folder in (root, *root.parents) if folder.exists())


def _check_log_store(reader: LakeReader, policy: Policy | None) -> list[Finding]:
    from evenlag.lake.spark_storage import log_store_conf, log_store_problem, spark_defaults, writing_drivers

    root = reader.paths.root
    if find_remote(os.environ) is not None:
        return skipped("the Spark Connect server commits: each job checks its settings (spark.connect)")
    given = spark_defaults()
    problem = log_store_problem(root, (given | log_store_conf(given)).get)
    if problem is not None:
        return failed(problem, "jobs refuse this lake before that: commits would be lost")
    drivers = "several drivers" if policy is None else f"{len(writing_drivers(policy))} drivers"
    return ok(f"{drivers} may write to {root}")


def _check_readable(reader: LakeReader) -> list[Finding]:
    if not reader.exists(SNAPSHOTS):
        return warning(f"{reader.paths.root} has no snapshot yet", "evenlag run, or wait for the first cycle")
    rows = reader.read(SNAPSHOTS, columns=["cluster"])
    return ok(f"{reader.paths.root}: {rows.num_rows:,} snapshots")


def check_writable(reader: LakeReader, *, probe_writes: bool) -> list[Finding]:
    """Check the write permissions of a local lake; those of object stores are known only after a write."""
    if not reader.paths.is_local:
        return skipped("not a local folder: the next cycle tells")
    root = reader.paths.local_root
    nearest = _nearest(root)
    places = [nearest, *(root / table.name for table in TABLES.values() if (root / table.name).is_dir())]
    closed = [str(place) for place in places if not os.access(place, os.W_OK | os.X_OK)]
    if closed:
        return failed(
            f"may not be written: {', '.join(closed[:3])}", "give the user of the jobs the right to"
        )
    if probe_writes and root.is_dir():
        try:
            with tempfile.NamedTemporaryFile(dir=root, prefix=".doctor-"):
                return ok("a file was written and taken away")
        except OSError as error:
            return failed(f"a file could not be written: {error.strerror}", "see lake.space and the mount")
    return ok(f"{nearest} may be written")


def _check_space(root: Path) -> list[Finding]:
    usage = shutil.disk_usage(_nearest(root))
    return space_findings(usage.free, usage.total)


def space_findings(free_bytes: int, total_bytes: int) -> list[Finding]:
    """Check the free space of a disk: failed below 100 MB, a warning below 10 %."""
    share = free_bytes / total_bytes if total_bytes else 0.0
    message = f"{free_bytes / 1e9:,.1f} GB of {total_bytes / 1e9:,.1f} GB are free ({share:.0%})"
    remedy = "shorten raw_days, let table_maintenance run, or give it more room (docs/runbook.md)"
    if free_bytes < 1e8:  # noqa: PLR2004  # not enough for one cycle of a large cluster
        return failed(message, remedy)
    return warning(message, remedy) if share < _LITTLE_ROOM else ok(message)


def _check_filesystem(root: Path) -> list[Finding]:
    if not _MOUNTS.exists():
        return skipped("this system does not tell its mounts")
    # The lake or a folder above it may be a link.
    return filesystem_findings(str(root.resolve()), _MOUNTS.read_text("utf-8", "surrogateescape"))


def filesystem_findings(root: str, mounts: str) -> list[Finding]:
    """Check that a folder is not on a network file system."""
    # Spaces in names are octal numbers.
    rows = [
        [re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), part) for part in line.split(" ")[1:3]]
        for line in mounts.split("\n")
        if line
    ]
    around = [row for row in rows if root == row[0] or root.startswith(row[0].rstrip("/") + "/")]
    # Of several at one place, the last one covers the others.
    place, kind = max(reversed(around), key=lambda row: len(row[0]), default=("", ""))
    if kind.startswith(_SHARED_KINDS):
        return warning(
            f"{root} is on {kind} ({place}): several machines may not see each other's commits at once",
            "let one machine write, or use HDFS or an object store",
        )
    return ok(f"{kind or 'unknown'}, mounted at {place or '?'}")


def check_tables(reader: LakeReader) -> list[Finding]:
    """Check that this version can read and write each table: its protocol and its columns."""
    found: list[Finding] = []
    present = 0
    for table in TABLES.values():
        files = read_table_files(reader, table)
        if files is not None:
            present += 1
            found += table_findings(table, files.protocol, files.types)
    return found or ok(f"{present} of {len(TABLES)} tables are there, each as this version writes it")


def table_findings(table: Table, protocol: tuple[int, int], types: Mapping[str, str]) -> list[Finding]:
    """Check the protocol of a table and its columns, given by name."""
    found: list[Finding] = []
    if protocol != PROTOCOL:
        found += failed(
            f"{table.name}: its protocol is reader {protocol[0]}, writer {protocol[1]}",
            "somebody has turned a table feature on; evenlag reads "
            f"{PROTOCOL[0]} and writes {PROTOCOL[1]}: restore the table",
        )
    try:
        missing = missing_columns(table, types)
    except SchemaError as error:
        return found + failed(str(error), "another program wrote it: restore the table (docs/runbook.md)")
    if foreign := unknown_columns(table, types):
        found += warning(
            f"{table.name}: columns that this version does not know: {', '.join(foreign)}",
            "a newer evenlag has written it: update this one",
        )
    if missing:
        names = ", ".join(column.name for column in missing)
        message = f"{table.name}: written by an older version, without {names}: read as null"
        found += warning(message, "the next write adds them (docs/upgrade.md)")
    return found


def check_quality(reader: LakeReader) -> list[Finding]:
    """Check the verdicts on the newest snapshot of each cluster."""
    found: list[Finding] = []
    num_checks = 0
    for cluster in reader.clusters(SNAPSHOTS):
        snapshot = reader.latest_snapshot(cluster)
        results = [] if snapshot is None else read_results(reader, snapshot)
        num_checks += len(results)
        wrong = [f"{one['check_name']}: {one['message']}" for one in results if not one["passed"]]
        if wrong:
            message = f"the newest snapshot of {cluster} fails {len(wrong)} of {len(results)} checks"
            found += warning(f"{message}: {'; '.join(sorted(wrong))}", "see docs/quality.md")
    if not num_checks:
        return skipped("no snapshot has been checked yet")
    return found or ok(f"the newest snapshots pass all {num_checks} checks of their data")


def check_unfinished(reader: LakeReader, now: datetime) -> list[Finding]:
    """Check for rows of incomplete snapshots: readers ignore them, but they use space."""
    offsets = read_table_files(reader, OFFSETS)
    if offsets is None:
        return skipped("nothing has been read yet")
    # The files' statistics are sufficient: no row is read.
    since = now.astimezone(UTC).date() - _UNFINISHED_LOOK_BACK
    files = [file for day in offsets.by_part.values() for file in day if file.first_day >= since]
    attempts = {name for file in files for name in (file.first_snapshot, file.last_snapshot) if name}
    finished = reader.read(SNAPSHOTS, columns=["snapshot_id"], filters=[("day", ">=", since)])
    return unfinished_findings(attempts - set(finished["snapshot_id"].to_pylist()), now)


def unfinished_findings(unfinished: Iterable[str], now: datetime) -> list[Finding]:
    """Check for snapshots without a marker that are too old to be in progress."""
    limit = id_prefix(now - _UNFINISHED_AFTER)
    old = sorted(snapshot_id for snapshot_id in unfinished if snapshot_id[: len(limit)] < limit)
    if not old:
        return ok("no attempt to read was left unfinished")
    return warning(
        f"{len(old)} attempts to read were never finished, the last one {old[-1]}: runs were killed",
        "table_maintenance takes their rows away; look why in the logs of observe",
    )


def check_private(reader: LakeReader) -> list[Finding]:
    """Return whether only those may access the files of a local lake whom its folder admits."""
    if not reader.paths.is_local:
        return skipped("an object store has its own permissions")
    root, mask = reader.paths.local_root, reader.paths.umask
    if not root.exists():
        return skipped("the lake does not exist yet; the first writer creates its folder with mode 0700")
    # The root of the lake, the tables, and their newest commits: older files are as the folder above admits.
    looked_at = [root, *(path for name in TABLES for path in _newest(root / name))]
    open_ones = [path for path in looked_at if path.stat().st_mode & mask & _ANYBODY]
    if open_ones:
        return warning(
            f"{open_ones[0]} has mode {stat.S_IMODE(open_ones[0].stat().st_mode):04o}, and so have "
            f"{len(open_ones) - 1} more: users may read or write the lake who need not",
            f"chmod -R {_chmod(mask)} {root}",
        )
    closed = [path for path in looked_at if mask != OWNER_ONLY and _lacks_group(path, mask)]
    if closed:
        return warning(
            f"{root} is shared with its group, and {closed[0]} is not: a process with another umask wrote it",
            f"chmod -R {_chmod(mask)} {root}, and start that process with umask {mask:03o}",
        )
    who = "its owner" if mask == OWNER_ONLY else "its owner and group"
    return ok(f"only {who} may access {root}")


def _newest(table: Path) -> list[Path]:
    log = table / LOG_FOLDER
    return [table, log, *sorted(log.glob("*.json"))[-1:]] if log.is_dir() else []


def _lacks_group(path: Path, mask: int) -> bool:
    wanted = stat.S_IRGRP | (0 if mask & stat.S_IWGRP else stat.S_IWGRP)
    return bool(~path.stat().st_mode & wanted)


def _chmod(mask: int) -> str:
    if mask == OWNER_ONLY:
        return "go="
    return "g=rX,o=" if mask & stat.S_IWGRP else "g=rwX,o="
