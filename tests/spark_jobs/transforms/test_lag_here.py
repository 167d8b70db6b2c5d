"""Lag that is counted in arrays is that of Spark, in any state of a partition, with its rates and times."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from evenlag.enums import IsolationLevel, LagStatus
from evenlag.lake.tables import LAG
from spark_jobs.steps.snapshot_rows import to_contract
from spark_jobs.transforms.group_partitions import GROUP_PARTITIONS
from spark_jobs.transforms.lag import count_lag
from spark_jobs.transforms.lag_here import count_lag_here
from tests.support.lakes.snapshots import HEAD, NOW, arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm


def random_partition(chance: np.random.Generator, number: int) -> dict[str, Any]:
    """A partition in any state, also in those that no broker reports: each value may be missing."""

    def perhaps(value: Any, share: float = 0.9) -> Any:
        return value if chance.random() < share else None

    def below(limit: int) -> int:
        return int(chance.integers(limit))

    def points(last: int) -> list[dict[str, Any]]:
        ages = sorted((below(2_000_000_000) for _ in range(below(6))), reverse=True)
        # Else as of a topic that was made again.
        limit = last + 1 if chance.random() < 0.8 else scale
        offsets = sorted(below(limit) for _ in ages)
        return [
            {"at": NOW - timedelta(microseconds=age), "offset": perhaps(offset, 0.95)}
            for age, offset in zip(ages, offsets, strict=True)
        ]

    scale = (3, 1_000, 10**9, 10**15)[below(4)]
    policies = ("by_duration:PT1H", "by_duration:P1D")
    end, committed = below(scale), below(scale)
    resets = [{"reset_policy": each, "offset": perhaps(below(scale))} for each in policies]
    levels = [level.value for level in IsolationLevel]
    return {
        **HEAD,
        "slot": NOW,
        "group_id": "g",
        "topic_id": "id",
        "topic": "t",
        "partition": number,
        "owner_member_id": perhaps("m-1"),
        "target_member_id": perhaps("m-2", 0.2),
        "log_start_offset": perhaps(below(scale), 0.95),
        "high_watermark": perhaps(end, 0.95),
        "last_stable_offset": perhaps(below(scale)),
        "reset_offsets": perhaps(resets[below(3) :]),
        "read_at": perhaps(NOW, 0.95),
        "offset_error": perhaps("refused", 0.05),
        "committed_offset": perhaps(committed),
        "commits_read_at": NOW - timedelta(microseconds=below(10**6)),
        "is_subscribed": chance.random() < 0.9,
        "is_unreadable": chance.random() < 0.05,
        "is_empty": chance.random() < 0.05,
        "is_not_described": chance.random() < 0.1,
        "reset_policy": ("earliest", "latest", policies[0], "none", None)[below(5)],
        "isolation_level": perhaps(levels[below(len(levels))], 0.7),
        "end_points": perhaps(points(end)),
        "commit_points": perhaps(points(committed)),
    }


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_count_the_same_of_partitions_in_any_state(spark: SparkSession, seed: int) -> None:
    chance = np.random.default_rng(seed)
    rows = arrow(GROUP_PARTITIONS, [random_partition(chance, number) for number in range(1_000)])
    by_spark = count_lag(spark.createDataFrame(rows, GROUP_PARTITIONS.ddl), 900)
    expected = to_contract(by_spark.toArrow(), LAG).sort_by("partition").to_pylist()
    counted = count_lag_here(rows, 900).to_pylist()
    for one, other in zip(counted, expected, strict=True):
        assert one == other
    assert {row["status"] for row in counted} == set(LagStatus)
    for name in ("time_lag_ms", "drain_time_ms", "arrival_rate_records_per_s", "consume_rate_records_per_s"):
        assert sum(row[name] is not None and row[name] > 0 for row in counted) >= 5, name


def test_a_lag_that_hardly_shrinks_never_drains(spark: SparkSession) -> None:
    """At rates that differ in their last digits it would take longer than a BIGINT of milliseconds."""
    moment = NOW - timedelta(seconds=300)
    row = random_partition(np.random.default_rng(0), 0) | {
        "log_start_offset": 0,
        "high_watermark": 10**15,
        "last_stable_offset": 10**15,
        "committed_offset": 3 * 10**14,
        "read_at": NOW,
        "commits_read_at": NOW - timedelta(microseconds=1),
        "end_points": [{"at": moment, "offset": 10**15 - 3_000}],
        "commit_points": [{"at": moment, "offset": 3 * 10**14 - 3_000}],
        "offset_error": None,
        "is_unreadable": False,
    }
    rows = arrow(GROUP_PARTITIONS, [row])
    [by_spark] = count_lag(spark.createDataFrame(rows, GROUP_PARTITIONS.ddl), 900).collect()
    [here] = count_lag_here(rows, 900).to_pylist()
    assert here["consume_rate_records_per_s"] > here["arrival_rate_records_per_s"]
    assert by_spark.drain_time_ms == here["drain_time_ms"]
    assert by_spark.drain_time_ms is None
