"""Make the class archive of embedded JVMs: ``python -m spark_jobs.class_archive``.

A JVM that runs one short job spends most of its time on loading some 20,000 classes. Java's class data
sharing keeps them in a file, as they are needed in memory. The program rehearses two cycles on a made-up
snapshot in a temporary lake, without Kafka, and the JVM writes the file when it ends. Embedded sessions use
it from then on. With another Java, another PySpark or other jars, the file has another name: make it again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import GroupState, GroupType
from evenlag.errors import JobError
from evenlag.kafka.member_protocol import CONSUMER_PROTOCOL_TYPE
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_ids import floor_to_ms, new_snapshot_id, slot_ms
from evenlag.lake.tables import COMMITS, MEMBERS, OFFSETS, SNAPSHOTS, Table
from evenlag.lake.writer import append_once
from evenlag.logging_setup import named_logger, set_up_logging
from evenlag.policy.loader import LoadedPolicy, parse_policy
from evenlag.spark_installation import class_archive
from spark_jobs.runtime.classic_session import build_session, end_session
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.session_conf import EMBEDDED_CONF, JVM_OPTIONS_KEY
from spark_jobs.steps.compute_lag import compute_lag
from spark_jobs.steps.decide import run_decide
from spark_jobs.steps.snapshot_rows import SnapshotRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

# Run as a program, its name is not that of its module.
_LOG: Final = named_logger("spark_jobs.class_archive")
# The JVM writes the archive before it ends.
_END_TIMEOUT_S: Final = 300.0
_CLUSTER: Final = "rehearsal"
_POLICY: Final = """\
lake: {lake}
clusters: {{rehearsal: {{bootstrap_servers: "localhost:9092", schedule: null}}}}
groups: [{{match: "*", mode: auto, reset_policy: earliest}}]
"""
_TOPIC: Final = {"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "topic": "orders"}
_MEMBERS: Final = ("member-1", "member-2")
_NUM_PARTITIONS: Final = 8
_NUM_CYCLES: Final = 2
_INTERVAL: Final = timedelta(minutes=1)
_END_OFFSET: Final = 1_000
_BACKLOG_RECORDS: Final = 900


def main(argv: Sequence[str] | None = None) -> int:
    """Make the archive, unless it exists.

    Returns 0 when the archive exists; else the exit code of the error.
    argv: Arguments; those of this process when None.
    """
    argparse.ArgumentParser(prog="spark_jobs.class_archive", description=__doc__).parse_args(argv)
    set_up_logging()
    try:
        return _make()
    except JobError as error:
        _LOG.error("%s", error)
        return error.exit_code


def _make() -> int:
    archive = class_archive()
    if archive is None:
        raise JobError(
            "an archive needs Java 17 or newer on the PATH, PySpark, and Delta's jars on this machine"
        )
    if archive.is_file():
        _LOG.info("%s exists", archive)
        return 0
    # In the same folder: renamed when it is complete, so no JVM finds a part of it.
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=".archive-", dir=archive.parent)
    except OSError as error:
        raise JobError(f"{archive.parent} cannot be written: {error.strerror}") from error
    with folder as name:
        fresh = Path(name) / "classes.jsa"
        record = f'"-XX:ArchiveClassesAtExit={fresh}" -Xlog:cds=off -Xlog:cds+dynamic=off'
        options = {JVM_OPTIONS_KEY: f"{EMBEDDED_CONF[JVM_OPTIONS_KEY]} {record}", "spark.master": "local[*]"}
        spark = build_session("evenlag class archive", conf=options)
        with end_session(spark, timeout_s=_END_TIMEOUT_S):
            rehearse(spark, Path(name) / "lake")
        if not fresh.is_file():
            raise JobError("Java wrote no archive: is it 17 or newer?")
        fresh.replace(archive)
    # Of the same PySpark with an earlier Java or earlier jars: 200 MB each.
    for old in archive.parent.glob(f"{archive.name.rpartition('-')[0]}-*.jsa"):
        if old != archive:
            old.unlink(missing_ok=True)
    _LOG.info("%s: %.0f MB", archive, archive.stat().st_size / 1e6)
    return 0


def rehearse(spark: SparkSession, root: Path) -> None:
    """Run cycles on a made-up snapshot: what the steps write, without Kafka and without a hint."""
    loaded = parse_policy(_POLICY.format(lake=root), environ={})
    now = floor_to_ms(datetime.now(UTC))
    for number in range(_NUM_CYCLES):
        _rehearse_cycle(spark, loaded, now - _INTERVAL * (_NUM_CYCLES - number))


def _rehearse_cycle(spark: SparkSession, loaded: LoadedPolicy, slot: datetime) -> None:
    lake = Lake(spark, loaded.policy.lake)
    marker = _marker(slot)
    rows = SnapshotRows(lake, LakeReader(lake.paths.root), marker)
    for table, listed in _snapshot(slot):
        found = _arrow(table, [marker | row for row in listed])
        lake.append(table, found)
        rows.keep(table, found)
    compute_lag(rows, loaded.policy)
    append_once(lake.paths.root, SNAPSHOTS, [marker], f"observe/{_CLUSTER}/{slot_ms(slot)}")
    run_decide(spark, loaded, _CLUSTER, slot, f"rehearsal-{slot_ms(slot)}")


def _marker(slot: datetime) -> dict[str, Any]:
    times = ("started_at", "log_start_read_at", "commits_read_at", "end_read_at", "finished_at")
    return {
        "cluster": _CLUSTER,
        "day": slot.date(),
        "snapshot_id": new_snapshot_id(slot),
        "slot": slot,
        "kafka_cluster_id": _CLUSTER,
        **dict.fromkeys(times, slot),
        "num_groups": 1,
        "num_topics": 1,
        "num_partitions": _NUM_PARTITIONS,
        "num_unread_partitions": 0,
        "completeness": 1.0,
        "problems": [],
        "hint_topic_max_bytes": 1_000_000,
    }


def _snapshot(at: datetime) -> list[tuple[Table, list[dict[str, Any]]]]:
    """Rows of a group of which one member has all of the lag."""
    half = _NUM_PARTITIONS // 2
    offsets, commits, members = [], [], []
    for number in range(_NUM_PARTITIONS):
        place = _TOPIC | {"partition": number}
        ends = dict.fromkeys(("high_watermark", "last_stable_offset"), _END_OFFSET)
        offsets.append(place | ends | {"log_start_offset": 0, "log_start_read_at": at, "end_read_at": at})
        behind = _BACKLOG_RECORDS if number < half else 0
        commits.append(place | {"group_id": "g", "committed_offset": _END_OFFSET - behind, "read_at": at})
    for number, name in enumerate(_MEMBERS):
        held = list(range(number * half, (number + 1) * half))
        members.append(
            {
                "group_id": "g",
                "group_state": GroupState.STABLE,
                "group_type": GroupType.CLASSIC,
                "protocol_type": CONSUMER_PROTOCOL_TYPE,
                "assignor": "evenlag",
                "member_id": name,
                "subscription": [_TOPIC["topic"]],
                "assignment": [{"topic": _TOPIC["topic"], "partitions": held}],
                "read_at": at,
            }
        )
    return [(OFFSETS, offsets), (COMMITS, commits), (MEMBERS, members)]


def _arrow(table: Table, rows: list[Mapping[str, Any]]) -> pa.Table:
    import pyarrow as pa

    schema = arrow_schema(table)
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


if __name__ == "__main__":
    sys.exit(main())
