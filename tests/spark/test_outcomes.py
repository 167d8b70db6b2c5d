"""What became of hints that brokers follow: what the coordinator wants counts beside what is held."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.tables import LAG, MEMBERS, OUTCOMES, PLAN_ASSIGNMENTS, SNAPSHOTS
from spark_jobs.transforms.outcomes import build_outcomes
from tests.spark.snapshots import NOW, TOPIC_IDS, frame, marker, member

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm

Held = dict[str, list[int]]
WANTED: Held = {"m-1": [0, 1], "m-2": [2, 3]}
OLD: Held = {"m-1": [2, 3], "m-2": [0, 1]}
HALF: Held = {"m-1": [0, 2], "m-2": [1, 3]}
_PENDING = """plan_id STRING, group_id STRING, published_at TIMESTAMP, expires_at TIMESTAMP,
    superseded_by STRING, total_lag_before_records BIGINT,
    metrics_before STRUCT<max_member_lag_records: BIGINT, lag_skew: DOUBLE>,
    metrics_after STRUCT<max_member_lag_records: BIGINT, lag_skew: DOUBLE>"""


def people(group: str, held: Mapping[str, Sequence[int]], target: Held | None) -> list[dict[str, Any]]:
    rows = []
    for name, numbers in held.items():
        row = member(name, group=group, held={"t": numbers})
        if target is not None:
            row |= {
                "group_type": "consumer",
                "target_assignment": [{"topic": "t", "partitions": target[name]}],
            }
        rows.append(row)
    return rows


def test_expiry_ends_no_hint_that_the_coordinator_has_taken_up(spark: SparkSession) -> None:
    groups: dict[str, tuple[Held, Held | None, bool]] = {
        "done": (WANTED, WANTED, True),
        "under-way": (OLD, WANTED, True),
        "refused": (OLD, OLD, True),
        "half": (OLD, HALF, True),
        "open": (OLD, OLD, False),
        "classic": (OLD, None, True),
    }
    hour = timedelta(hours=1)
    pending = spark.createDataFrame(
        [
            (name, name, NOW - hour, NOW - hour / 2 if over else NOW + hour, None, 9, (9, 1.0), (5, 1.0))
            for name, (*_, over) in groups.items()
        ],
        _PENDING,
    )
    assignments = [
        {
            "plan_id": name,
            "group_id": name,
            "topic_id": TOPIC_IDS["t"],
            "topic": "t",
            "partition": number,
            "owner_after": owner,
            "owner_after_key": f"m:{owner}",
            "moved": True,
        }
        for name in groups
        for owner, numbers in WANTED.items()
        for number in numbers
    ]
    members = [row for name, (held, target, _) in groups.items() for row in people(name, held, target)]
    built = build_outcomes(
        pending=pending,
        assignments=frame(spark, PLAN_ASSIGNMENTS, assignments),
        members=frame(spark, MEMBERS, members),
        lag=frame(spark, LAG, []),
        snapshot=frame(spark, SNAPSHOTS, [marker()]),
        run_id="r",
    )
    assert built.columns == list(OUTCOMES.column_names)
    found = {row.plan_id: row for row in built.collect()}
    told = {name: (row.outcome, row.adherence, row.target_adherence) for name, row in sorted(found.items())}
    assert told == {
        "classic": ("EXPIRED", 0.0, None),
        "done": ("APPLIED", 1.0, 1.0),
        "half": ("EXPIRED", 0.0, 0.5),
        "refused": ("EXPIRED", 0.0, 0.0),
    }
    over = "the hint's time is over with 0 % of its partitions as hinted"
    assert found["classic"].reason == over
    assert found["half"].reason == f"{over}, and 50 % in the coordinator's target"
