"""Speeds that Spark joins are those that Arrow joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.lag.speed_rows import with_speeds
from evenlag.lake.tables import MEMBERS, SPEEDS
from spark_jobs.transforms.simulations import join_speeds
from tests.support.lakes.snapshots import arrow, frame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def test_replays_have_the_speeds_that_were_measured_at_their_snapshots(spark: SparkSession) -> None:
    speeds: list[dict[str, Any]] = [
        {
            "group_id": group,
            "members": [
                {"member_id": "m-1", "speed_records_per_s": speed, "is_bound": True, "confidence": 0.0},
                # Of members that are away there is no row of members.
                {"member_id": None, "speed_records_per_s": 7.0, "is_bound": False, "confidence": 0.9},
            ],
        }
        for group, speed in (("a", 2.0), ("b", 3.0))
    ]
    members = [{"group_id": group, "member_id": name} for group in "abc" for name in ("m-1", "m-2", None)]
    joined = join_speeds(frame(spark, MEMBERS, members), frame(spark, SPEEDS, speeds)).toArrow()
    expected = with_speeds(arrow(MEMBERS, members), arrow(SPEEDS, speeds))
    assert _sorted(joined) == _sorted(expected)
    assert sum(row[-1] is not None for row in _sorted(expected)) == 2


def _sorted(rows: pa.Table) -> list[tuple[Any, ...]]:
    names = ("group_id", "member_id", "speed_records_per_s", "speed_is_bound")
    return sorted((tuple(row[name] for name in names) for row in rows.to_pylist()), key=str)
