"""Speeds and costs that Spark joins are those that Arrow joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.lag.speed_rows import with_costs, with_speeds
from evenlag.lake.tables import LAG, MEMBERS, SPEEDS
from spark_jobs.transforms.measured_values import join_partition_values, join_speeds
from tests.support.lakes.snapshots import TOPIC_IDS, arrow, frame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def test_rows_have_the_same_columns_either_way(spark: SparkSession) -> None:
    topic: dict[str, Any] = {"topic_id": TOPIC_IDS["t"], "topic": "t"}
    speeds: list[dict[str, Any]] = [
        {
            "group_id": group,
            "members": [
                {"member_id": "m-1", "speed_records_per_s": speed, "is_bound": True, "confidence": 0.0},
                # Of members that are away there is no row of members.
                {"member_id": None, "speed_records_per_s": 7.0, "is_bound": False, "confidence": 0.9},
            ],
            "partitions": [topic | {"partition": 1, "cost": speed}],
        }
        for group, speed in (("a", 2.0), ("b", 3.0))
    ]
    members = [{"group_id": group, "member_id": name} for group in "abc" for name in ("m-1", "m-2", None)]
    lag = [topic | {"group_id": group, "partition": number} for group in "abc" for number in (0, 1)]
    measured = frame(spark, SPEEDS, speeds)
    for joined, expected in (
        (
            join_speeds(frame(spark, MEMBERS, members), measured).toArrow(),
            with_speeds(arrow(MEMBERS, members), arrow(SPEEDS, speeds)),
        ),
        (
            join_partition_values(frame(spark, LAG, lag), measured, "cost").toArrow(),
            with_costs(arrow(LAG, lag), arrow(SPEEDS, speeds)),
        ),
    ):
        assert _sorted(joined) == _sorted(expected)
        assert sum(row[-1] is not None for row in _sorted(expected)) == 2


def _sorted(rows: pa.Table) -> list[tuple[Any, ...]]:
    keys = ("group_id", "member_id", "topic", "partition")
    values = ("speed_records_per_s", "speed_is_bound", "cost", "speed_confidence")
    names = [name for name in (*keys, *values) if name in rows.column_names]
    return sorted((tuple(row[name] for name in names) for row in rows.to_pylist()), key=str)
