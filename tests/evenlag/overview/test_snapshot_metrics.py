"""Metrics of a cluster: each counts what it says, of the newest snapshot."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.tables import LAG, OUTCOMES, PLAN_EVENTS, PLANS, SNAPSHOTS
from evenlag.overview.metrics import read_metrics
from evenlag.publishing.event_log import append_plan_events
from tests.support.lakes.snapshots import DAY, NOW, SNAPSHOT, TOPIC_IDS, append_rows, frame, marker

if TYPE_CHECKING:
    from spark_jobs.runtime.delta_lake import Lake

pytestmark = pytest.mark.jvm

# The snapshot before is of the day before.
BEFORE = {"snapshot_id": "20260228T235500000Z-00000000", "day": DAY - timedelta(days=1)}
NEWEST = {"snapshot_id": SNAPSHOT, "day": DAY}
EVENTS = ("proposed", "rejected", "approved", "published", "applied", "ignored", "expired", "withdrawn")


def plan(name: str, head: dict[str, Any]) -> dict[str, Any]:
    return head | {"slot": NOW, "plan_id": name, "group_id": name}


def event(name: str, what: str, head: dict[str, Any]) -> dict[str, Any]:
    return head | {"plan_id": name, "group_id": name, "event": what, "actor": "a job", "at": NOW}


def append_lag(lake: Lake, lags: list[int | None]) -> None:
    rows = [
        {
            "slot": NOW,
            "group_id": "g",
            "topic_id": TOPIC_IDS["t"],
            "topic": "t",
            "partition": number,
            "status": "UNKNOWN" if lag is None else "OK",
            "lag_records": lag,
        }
        for number, lag in enumerate(lags)
    ]
    lake.append(LAG, frame(lake.spark, LAG, rows))


def append_markers(lake: Lake) -> None:
    before = BEFORE | {"slot": NOW - timedelta(hours=13)}
    append_rows(lake.paths.root, SNAPSHOTS, [marker(**before), marker()])


def test_events_of_the_plans_made_from_the_newest_snapshot_are_counted_whoever_reported_them(
    lake: Lake,
) -> None:
    append_markers(lake)
    plans = [plan("old-1", BEFORE), plan("old-2", BEFORE), plan("new-1", NEWEST), plan("new-2", NEWEST)]
    append_rows(lake.paths.root, PLANS, plans)
    events = [
        event("old-1", "PROPOSED", BEFORE),
        event("old-2", "PROPOSED", BEFORE),
        # The newest snapshot settled what the one before had planned.
        event("old-1", "APPLIED", NEWEST),
        event("old-2", "EXPIRED", NEWEST),
        event("new-1", "PROPOSED", NEWEST),
        event("new-2", "PROPOSED", NEWEST),
        event("new-2", "REJECTED", NEWEST),
    ]
    append_rows(lake.paths.root, PLAN_EVENTS, events)
    # A run that was repeated wrote this one twice, and a person withdraws the hint on the next day.
    append_rows(lake.paths.root, PLAN_EVENTS, [event("new-1", "PROPOSED", NEWEST)])
    values: dict[str, Any] = {
        "cluster": "c",
        "plan_id": "new-1",
        "group_id": "new-1",
        "snapshot_id": SNAPSHOT,
    }
    append_plan_events(
        lake.paths.root,
        [
            {**values, "day": day, "event": what, "actor": "p", "at": NOW, "sequence": 1}
            for what, day in (("PUBLISHED", DAY), ("WITHDRAWN", DAY + timedelta(days=1)))
        ],
    )
    outcomes = [
        plan("old-1", NEWEST) | {"outcome": "APPLIED"},
        plan("old-2", NEWEST) | {"outcome": "EXPIRED"},
        plan("older", BEFORE) | {"outcome": "IGNORED"},
    ]
    append_rows(lake.paths.root, OUTCOMES, outcomes)
    figures = read_metrics(lake.paths.root, "c", NOW)
    assert figures["plans.made"] == 2
    counts = {"proposed": 2, "rejected": 1, "published": 1, "withdrawn": 1}
    assert {name: figures[f"plans.{name}"] for name in EVENTS} == {
        name: counts.get(name, 0) for name in EVENTS
    }
    settled = {name: figures[f"outcomes.{name}"] for name in ("applied", "ignored", "expired")}
    assert settled == {"applied": 1, "ignored": 0, "expired": 1}


def test_a_snapshot_without_groups_has_no_lag(lake: Lake) -> None:
    append_rows(lake.paths.root, SNAPSHOTS, [marker(num_groups=0)])
    figures = read_metrics(lake.paths.root, "c", NOW)
    assert (figures["lag.records"], figures["lag.unknown_partitions"]) == (0, 0)


def test_lag_that_is_not_known_is_counted_and_is_no_lag_of_zero(lake: Lake) -> None:
    append_markers(lake)
    # The snapshot is finished, and its lag is not computed yet.
    figures = read_metrics(lake.paths.root, "c", NOW)
    assert not {"lag.records", "lag.unknown_partitions"} & set(figures)
    append_lag(lake, [None, None])
    figures = read_metrics(lake.paths.root, "c", NOW)
    assert "lag.records" not in figures
    assert figures["lag.unknown_partitions"] == 2
    append_lag(lake, [300, 4])
    figures = read_metrics(lake.paths.root, "c", NOW)
    assert (figures["lag.records"], figures["lag.unknown_partitions"]) == (304, 2)
