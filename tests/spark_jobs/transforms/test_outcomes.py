"""What became of hints that brokers follow: what the coordinator wants counts beside what is held."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from spark_jobs.transforms.outcomes import build_outcomes

from evenlag.lake.tables import LAG, MEMBERS, OUTCOMES, PLAN_ASSIGNMENTS, SNAPSHOTS
from tests.support.lakes.snapshots import NOW, TOPIC_IDS, frame, marker, member

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


# Lags by member, None where the lag is not known; then, computed manually: partitions, unknown ones, the
# largest lag of a member, the skew, the total.
LAGS: dict[str, tuple[dict[str, list[int | None]], tuple[Any, ...]]] = {
    "known": ({"m-1": [600, 300], "m-2": [100]}, (3, 0, 900, 1.8, 1000)),
    "idle": ({"m-1": [100, 300], "m-2": []}, (2, 0, 400, 2.0, 400)),
    "partly": ({"m-1": [400, None], "m-2": [30, 10]}, (4, 1, 400, None, 440)),
    "one-dark": ({"m-1": [None, None], "m-2": [30, 10]}, (4, 2, 40, None, 40)),
    "zero-or-dark": ({"m-1": [None], "m-2": [0]}, (2, 1, 0, None, 0)),
    "dark": ({"m-1": [None, None], "m-2": [None]}, (3, 3, None, None, None)),
    "no-rows": ({"m-1": [], "m-2": []}, (None, None, None, None, None)),
}


def test_what_a_snapshot_does_not_know_is_not_counted_as_no_lag(spark: SparkSession) -> None:
    hour = timedelta(hours=1)
    pending = spark.createDataFrame(
        [(name, name, NOW - hour, NOW - hour / 2, None, 9, (9, 1.0), (5, 1.0)) for name in LAGS], _PENDING
    )
    head = {"slot": NOW, "topic_id": TOPIC_IDS["t"], "topic": "t"}
    rows: list[dict[str, Any]] = []
    for group, (by_member, _) in LAGS.items():
        owned = [(member, lag) for member, lags in by_member.items() for lag in lags]
        rows += [
            head
            | {
                "group_id": group,
                "partition": number,
                "owner_member_id": member,
                "status": "UNKNOWN" if lag is None else "OK",
                "lag_records": lag,
            }
            for number, (member, lag) in enumerate(owned)
        ]
        if by_member["m-1"]:
            aside = {"group_id": group, "topic": "u", "topic_id": TOPIC_IDS["u"], "partition": 0}
            rows.append(head | aside | {"status": "NOT_SUBSCRIBED", "lag_records": None})
    members = [row for name in LAGS for row in people(name, OLD, None)]
    built = build_outcomes(
        pending=pending,
        assignments=frame(spark, PLAN_ASSIGNMENTS, []),
        members=frame(spark, MEMBERS, members),
        lag=frame(spark, LAG, rows),
        snapshot=frame(spark, SNAPSHOTS, [marker()]),
        run_id="r",
    )
    told = {
        row.group_id: (
            row.num_partitions,
            row.num_unknown_partitions,
            row.max_member_lag_actual_records,
            row.lag_skew_actual,
            row.total_lag_actual_records,
        )
        for row in built.collect()
    }
    assert told == {name: expected for name, (_, expected) in LAGS.items()}
