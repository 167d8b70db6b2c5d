"""Scores: each published plan once, by the first snapshot after its horizon, with what it was worth."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, MEMBERS, OUTCOMES, PLAN_EVALUATIONS, PLANS, SNAPSHOTS
from evenlag.policy.group_settings import BackOff, GroupSettings
from evenlag.publishing.event_log import append_plan_events
from evenlag.publishing.plan_outcomes import read_published, score_plans
from spark_jobs.steps.snapshot_rows import SnapshotRows
from tests.support.lakes.snapshots import DAY, HEAD, NOW, TOPIC_IDS, arrow, marker, member
from tests.support.spark_tables import write_rows

if TYPE_CHECKING:
    from spark_jobs.runtime.delta_lake import Lake

pytestmark = pytest.mark.jvm

BEFORE = "20260301T110000000Z-00000000"
SETTINGS = GroupSettings(min_gain=0.1, back_off=BackOff(horizon_s=600))
HELD = {"m-1": {"t": [0]}, "m-2": {"t": [1]}}


def lag_rows(
    group: str, lags: list[int | None], drains: list[int | None], **more: Any
) -> list[dict[str, Any]]:
    return [
        {
            "slot": NOW,
            "group_id": group,
            "topic_id": TOPIC_IDS["t"],
            "topic": "t",
            "partition": number,
            "owner_member_id": f"m-{number + 1}",
            "status": "UNKNOWN" if lag is None else "OK",
            "lag_records": lag,
            "drain_time_ms": drains[number],
            **more,
        }
        for number, lag in enumerate(lags)
    ]


def head(group: str) -> dict[str, Any]:
    metrics = {"mean_member_lag_records": 500.0, "lag_skew": 1.8, "balance_score": 0}
    return {
        "snapshot_id": BEFORE,
        "slot": NOW - timedelta(hours=1),
        "plan_id": group,
        "group_id": group,
        "mode": "auto",
        "settings": SETTINGS.canonical_json(),
        "gain": 0.4,
        "metrics_before": metrics | {"max_member_lag_records": 900},
        "metrics_after": metrics | {"max_member_lag_records": 540},
    }


def event(
    group: str, name: str, *, minutes_ago: float = 11, plan: str | None = None, sequence: int = 1
) -> Any:
    return {
        "cluster": "c",
        "day": DAY,
        "snapshot_id": BEFORE,
        "plan_id": plan or group,
        "group_id": group,
        "event": name,
        "reason": "a person did",
        "actor": "evenlag",
        "at": NOW - timedelta(minutes=minutes_ago),
        "sequence": sequence,
    }


NOW_LAGS: dict[str, tuple[list[int | None], list[int | None]]] = {
    "paid": ([500, 480], [5_000, 9_000]),
    "grew": ([2000, 100], [None, 1_000]),
    "shifted": ([5100, 4900], [None, None]),
    "gone": ([0, 0], [None, None]),
    "ignored": ([900, 100], [1, 1]),
    "withdrawn": ([900, 100], [1, 1]),
    "replaced": ([900, 100], [1, 1]),
    "unknown": ([900, None], [1, 1]),
    # What is known is 0: without the partition that is not, all lag would seem to be gone.
    "unknown-rest": ([0, None], [0, None]),
    # As far as is known, it had the predicted effect: at most 400 of 540.
    "unknown-less": ([400, None], [1, None]),
    "unknown-all": ([None, None], [None, None]),
    "early": ([0, 0], [1, 1]),
    "unsettled": ([0, 0], [1, 1]),
}


def fill(lake: Lake) -> None:
    root = lake.paths.root
    before = [
        row for group in NOW_LAGS for row in lag_rows(group, [900, 100], [60_000, 2_000], snapshot_id=BEFORE)
    ]
    now = [row for group, (lags, drains) in NOW_LAGS.items() for row in lag_rows(group, lags, drains)]
    write_rows(root, LAG, arrow(LAG, before + now))
    people = [member(name, group=group, held=held) for group in NOW_LAGS for name, held in HELD.items()]
    write_rows(root, MEMBERS, arrow(MEMBERS, people))
    write_rows(root, SNAPSHOTS, arrow(SNAPSHOTS, [marker()]))
    write_rows(root, PLANS, arrow(PLANS, [head(group) for group in NOW_LAGS]))
    outcomes = [
        {
            "slot": NOW,
            "plan_id": group,
            "group_id": group,
            "outcome": "IGNORED" if group == "ignored" else "APPLIED",
            "reason": "the group has selected range" if group == "ignored" else None,
        }
        for group in NOW_LAGS
        if group not in {"withdrawn", "unsettled"}
    ]
    write_rows(root, OUTCOMES, arrow(OUTCOMES, outcomes))
    events = [event(group, "PUBLISHED", minutes_ago=9 if group == "early" else 11) for group in NOW_LAGS]
    events += [event("withdrawn", "WITHDRAWN", minutes_ago=5)]
    events += [event("replaced", "PUBLISHED", minutes_ago=3, plan="next", sequence=2)]
    append_plan_events(root, events)


def score(lake: Lake) -> int:
    """Score as a cycle does."""
    reader = LakeReader(lake.paths.root)
    return score_plans(SnapshotRows(lake, reader, HEAD | marker()), read_published(reader, "c"), "r")


def test_plans_are_scored_once_when_their_horizon_has_passed(lake: Lake) -> None:
    assert score(lake) == 0
    fill(lake)
    assert score(lake) == 11
    assert score(lake) == 0
    found = LakeReader(lake.paths.root).read(PLAN_EVALUATIONS).to_pylist()
    rows = {row["plan_id"]: SimpleNamespace(**row) for row in found}
    assert {plan: row.paid_off for plan, row in rows.items()} == {
        "paid": True,
        "grew": False,
        "shifted": True,
        "gone": True,
        "ignored": False,
        "withdrawn": None,
        "replaced": None,
        "unknown": None,
        "unknown-rest": None,
        "unknown-less": None,
        "unknown-all": None,
    }
    paid = rows["paid"]
    assert (paid.max_member_lag_before_records, paid.max_member_lag_predicted_records) == (900, 540)
    assert (paid.max_member_lag_actual_records, paid.total_lag_before_records) == (500, 1000)
    assert paid.gain_actual == pytest.approx(1 - (500 / 980) / 0.9)
    assert (paid.drain_time_before_ms, paid.drain_time_actual_ms) == (60_000, 9_000)
    assert rows["grew"].drain_time_actual_ms is None
    assert rows["gone"].drain_time_actual_ms == 0
    assert (paid.scored_after_ms, paid.outcome) == (11 * 60_000 - 1_000, "APPLIED")
    assert paid.reason == (
        "the most loaded member is 500 records behind (900 when planned, 540 by the plan), "
        "its share of the group's lag fell by 43.3 %, 10.0 % is asked for"
    )
    for plan, lags in (("unknown", 900), ("unknown-rest", 0), ("unknown-less", 400)):
        row = rows[plan]
        assert row.reason == "the lag of 1 of 2 partitions is not known at the horizon"
        assert (row.num_partitions, row.num_unknown_partitions) == (2, 1)
        assert (row.max_member_lag_actual_records, row.total_lag_actual_records) == (lags, lags)
        assert (row.gain_actual, row.drain_time_actual_ms) == (None, None)
    dark = rows["unknown-all"]
    assert dark.reason == "the lag of 2 of 2 partitions is not known at the horizon"
    assert (dark.max_member_lag_actual_records, dark.total_lag_actual_records) == (None, None)
    assert (paid.num_partitions, paid.num_unknown_partitions) == (2, 0)
    assert rows["ignored"].reason == "it was not followed: the group has selected range"
    assert rows["replaced"].reason == "a newer plan took its place before its horizon"
    assert rows["withdrawn"].outcome == "WITHDRAWN"
