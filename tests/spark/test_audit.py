"""The audit: late, repeated and disordered readings, a killed run, and what it says, held to an oracle."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.arrow_schema import arrow_schema
from spark_jobs.audit_assignments import audit_assignments
from spark_jobs.errors import LakeError
from spark_jobs.lake import Lake
from spark_jobs.tables import CLUSTER_AND_DAY, MEMBERS, OFFSETS, OWNERSHIP, SNAPSHOTS, Table
from tests.spark.audit_histories import expected_ownership, make_readings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.audit_histories import Reading

pytestmark = pytest.mark.jvm

_SEED = 7
_COLUMNS = (
    "group_id", "topic_id", "topic", "partition", "member_id", "state", "reason", "owner_key", "num_owners",
    "first_snapshot_id", "last_snapshot_id", "previous_snapshot_id", "next_snapshot_id", "first_seen_at",
    "last_seen_at", "num_snapshots", "longest_gap_ms",
)  # fmt: skip


def write_readings(lake: Lake, readings: Iterable[Reading]) -> None:
    """Write readings as they would have come; by deltalake, because it starts no job."""
    import pyarrow as pa
    from deltalake import write_deltalake

    chosen = list(readings)
    rows: dict[Table, list[Any]] = {
        MEMBERS: [row for reading in chosen for row in reading.members],
        OFFSETS: [row for reading in chosen for row in reading.offsets],
        SNAPSHOTS: [reading.marker for reading in chosen],
    }
    for table, found in rows.items():
        data = pa.Table.from_pylist(found, schema=arrow_schema(table))
        write_deltalake(lake.paths.table(table), data, mode="append", partition_by=list(CLUSTER_AND_DAY))


def ownership(lake: Lake) -> set[tuple[Any, ...]]:
    from spark_jobs.lake_reader import LakeReader

    rows = LakeReader(lake.paths.root).read(OWNERSHIP, columns=_COLUMNS).to_pylist()
    found = {tuple(row[name] for name in _COLUMNS) for row in rows}
    assert len(found) == len(rows)
    return found


class _KilledLake(Lake):
    """A lake whose process ends while it writes a table."""

    killed_at = OWNERSHIP

    def replace_days(self, table: Table, *arguments: Any, **options: Any) -> None:
        if table is self.killed_at:
            raise LakeError("killed")
        super().replace_days(table, *arguments, **options)


def test_a_late_or_repeated_reading_changes_what_it_touches_and_equals_a_rebuild(
    spark: SparkSession, tmp_path: Path
) -> None:
    readings = make_readings(_SEED)
    order = list(readings)
    random.Random(_SEED).shuffle(order)  # noqa: S311  # repeatable, no secret
    late, early = order[:3], order[3:]
    lake = Lake(spark, str(tmp_path / "lake"))

    write_readings(lake, early)
    assert [str(day) for day in audit_assignments(lake, "c").days] == ["2026-03-01", "2026-03-02"]
    before = ownership(lake)
    assert before == expected_ownership(early)
    assert audit_assignments(lake, "c").days == ()

    write_readings(lake, late)
    with pytest.raises(LakeError, match="killed"):
        audit_assignments(_KilledLake(spark, lake.paths.root), "c")
    days = audit_assignments(lake, "c").days
    after = ownership(lake)
    assert after == expected_ownership(readings)
    assert set(days) == {reading.marker["started_at"].date() for reading in late}

    # What no late reading lies within or next to is as it was.
    times = [reading.marker["started_at"] for reading in late]
    neighbours = {reading.snapshot_id: reading.marker["started_at"] for reading in readings}
    untouched = {row for row in before if not _touched(row, times, neighbours)}
    assert len(untouched) > 30
    assert untouched <= after


def _touched(row: tuple[Any, ...], times: list[Any], started: dict[str, Any]) -> bool:
    named = dict(zip(_COLUMNS, row, strict=True))
    if named["reason"] not in {None, "no member holds it"}:
        # The group did not show its partitions: these are those of the nearest readings that did.
        return True
    day = named["first_seen_at"].date()
    begin = started.get(named["previous_snapshot_id"])
    end = started.get(named["next_snapshot_id"])
    return any(
        at.date() == day and (begin is None or at > begin) and (end is None or at < end) for at in times
    )
