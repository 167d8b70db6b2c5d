"""The audit, against an oracle: late, repeated and disordered snapshots, a killed run, and its results."""

from __future__ import annotations

import random
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import LakeError
from evenlag.lake.tables import (
    AUDITED_SNAPSHOTS,
    MEMBERS,
    OFFSETS,
    OWNERSHIP,
    SNAPSHOTS,
    Table,
)
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.audit_ownership import audit_assignments
from spark_jobs.transforms.audit_intervals import build_memberships, build_ownership, number_snapshots
from tests.support.lakes.audit_histories import expected_ownership, make_readings
from tests.support.lakes.snapshots import NOW, frame
from tests.support.spark_tables import delete_rows, together, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.support.lakes.audit_histories import Reading

pytestmark = pytest.mark.jvm

# One history in `make test-all`, more of them in `make soak`.
_SEEDS = (7, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(20, 26)))
_LAST_DAY = date(2026, 3, 2)
_COLUMNS = (
    "group_id", "topic_id", "topic", "partition", "member_id", "state", "reason", "owner_key", "num_owners",
    "first_snapshot_id", "last_snapshot_id", "previous_snapshot_id", "next_snapshot_id", "first_seen_at",
    "last_seen_at", "num_snapshots", "longest_gap_ms",
)  # fmt: skip


def write_readings(lake: Lake, readings: Iterable[Reading]) -> None:
    """Write snapshots in the order in which they would have arrived."""
    chosen = list(readings)
    # What an attempt left that was killed before its marker: it counts for nothing.
    unfinished = [row | {"snapshot_id": "unfinished"} for row in chosen[0].members]
    rows: dict[Table, list[Any]] = {
        MEMBERS: [*unfinished, *(row for reading in chosen for row in reading.members)],
        OFFSETS: [row for reading in chosen for row in reading.offsets],
        SNAPSHOTS: [reading.marker for reading in chosen],
    }
    with together(lake.spark):
        for table, found in rows.items():
            write_rows(lake.paths.root, table, found)


def ownership(lake: Lake) -> set[tuple[Any, ...]]:
    from evenlag.lake.reader import LakeReader

    rows = LakeReader(lake.paths.root).read(OWNERSHIP, columns=_COLUMNS).to_pylist()
    found = {tuple(row[name] for name in _COLUMNS) for row in rows}
    assert len(found) == len(rows)
    return found


class _KilledLake(Lake):
    """A lake whose process ends before it says that the last day is audited."""

    def replace_days(
        self, table: Table, frame: DataFrame, cluster: str, days: Any, *, sort_by: tuple[str, ...] = ()
    ) -> None:
        if table is AUDITED_SNAPSHOTS and _LAST_DAY in days:
            raise LakeError("killed")
        super().replace_days(table, frame, cluster, days, sort_by=sort_by)


def test_readings_in_any_order_give_what_the_oracle_says(spark: SparkSession, tmp_path: Path) -> None:
    readings = make_readings(7)
    random.Random(7).shuffle(order := list(readings))  # noqa: S311  # repeatable, no secret
    lake = Lake(spark, str(tmp_path / "lake"))
    write_readings(lake, order)
    audit_assignments(lake, "c")
    assert ownership(lake) == expected_ownership(readings)


@pytest.mark.extended
@pytest.mark.parametrize("seed", _SEEDS)
def test_a_late_or_repeated_reading_changes_what_it_touches_and_equals_a_rebuild(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    readings = make_readings(seed)
    order = list(readings)
    random.Random(seed).shuffle(order)  # noqa: S311  # repeatable, no secret
    late, early = order[:3], order[3:]
    lake = Lake(spark, str(tmp_path / "lake"))

    write_readings(lake, early)
    with pytest.raises(LakeError, match="killed"):
        audit_assignments(_KilledLake(spark, lake.paths.root), "c")
    before = ownership(lake)
    assert before == expected_ownership(early)

    write_readings(lake, late)
    days = audit_assignments(lake, "c").days
    assert [str(day) for day in days] == ["2026-03-01", "2026-03-02"]
    after = ownership(lake)
    assert after == expected_ownership(readings)

    # A day that has lost a snapshot since is not built again: it would contain less. Nor is the other day,
    # whose snapshots are those that it was built from.
    delete_rows(lake.paths.root, SNAPSHOTS, f"snapshot_id = '{readings[-1].snapshot_id}'")
    trimmed = audit_assignments(lake, "c")
    assert (trimmed.days, [str(day) for day in trimmed.kept_days]) == ((), ["2026-03-02"])
    assert ownership(lake) == after

    # What no late reading lies within or next to is as it was.
    times = [reading.marker["started_at"] for reading in late]
    neighbours = {reading.snapshot_id: reading.marker["started_at"] for reading in readings}
    untouched = {row for row in before if not _touched(row, times, neighbours)}
    assert len(untouched) > 30
    assert untouched <= after


def _touched(row: tuple[Any, ...], times: list[Any], started: dict[str, Any]) -> bool:
    named = dict(zip(_COLUMNS, row, strict=True))
    if named["reason"] not in {None, "no member holds it"}:
        # The group did not show its partitions: these are those of the nearest snapshots that did.
        return True
    day = named["first_seen_at"].date()
    begin = started.get(named["previous_snapshot_id"])
    end = started.get(named["next_snapshot_id"])
    return any(
        at.date() == day and (begin is None or at > begin) and (end is None or at < end) for at in times
    )


def test_groups_of_other_kinds_show_what_they_show(spark: SparkSession) -> None:
    held: dict[str, Any] = {"assignment": [{"topic": "t", "partitions": [0, 1]}], "member_id": "m1"}
    kinds: dict[str, dict[str, Any]] = {
        # KIP-848: members that take topics by an expression show no subscription, and hold what they hold.
        "by-expression": held | {"group_type": "consumer", "subscription": None},
        "rebalancing": held
        | {"group_state": "CompletingRebalance", "subscription": None, "assignment": None},
        # A share group: its members are not shown, so it is not empty.
        "not-described": {"group_type": "share"},
        "dead": {"group_state": "Dead"},
        "failed": {"group_state": None, "error": "the group could not be described"},
        "two-topics": held | {"subscription": ["gone", "t", "u"]},
        "topic-not-read": {
            "member_id": "m1",
            "subscription": ["v"],
            "assignment": [{"topic": "v", "partitions": [7]}],
        },
    }
    head: dict[str, Any] = {"group_state": "Stable", "group_type": "classic", "read_at": NOW}
    members = [head | {"group_id": group_id} | row for group_id, row in kinds.items()]
    offsets = [
        {"topic_id": f"id-{topic}", "topic": topic, "partition": partition}
        for topic in ("t", "u")
        for partition in range(3)
    ]
    readings = number_snapshots(
        frame(
            spark,
            AUDITED_SNAPSHOTS,
            [{"slot": NOW, "started_at": NOW, "finished_at": NOW, "input_hash": "b"}],
        )
    ).cache()
    memberships = build_memberships(
        readings, frame(spark, MEMBERS, members), frame(spark, OFFSETS, offsets)
    ).cache()
    known = {row.group_id: row.is_known for row in memberships.select("group_id", "is_known").collect()}
    assert known == {
        "by-expression": True,
        "rebalancing": False,
        "not-described": False,
        "dead": True,
        "failed": False,
        "two-topics": True,
        "topic-not-read": True,
    }
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in build_ownership(memberships, readings).collect():
        reported = (row.topic, row.topic_id, row.partition, row.member_id)
        found.setdefault(row.group_id, []).append(reported)
    both = [("t", "id-t", 0, "m1"), ("t", "id-t", 1, "m1")]
    free = [("t", "id-t", 2, None), *(("u", "id-u", partition, None) for partition in range(3))]
    assert {group_id: sorted(rows, key=str) for group_id, rows in found.items()} == {
        "by-expression": both,
        "two-topics": sorted([*both, *free], key=str),
        "topic-not-read": [("v", None, 7, "m1")],
    }
    memberships.unpersist()
    readings.unpersist()
