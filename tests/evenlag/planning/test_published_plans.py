"""Published plans from events: each once, in the order of its group's hints, with what ended it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from evenlag.planning.published_plans import COST_COLUMNS, EVENT_COLUMNS, PublishedPlan, find_published
from tests.support.lakes.snapshots import DAY, NOW, SNAPSHOT


def event(
    plan: str, name: str, minute: int, *, group: str = "g", sequence: int | None = None, **cost: Any
) -> dict[str, Any]:
    is_hint = name == "PUBLISHED"
    values = {
        "day": DAY,
        "snapshot_id": SNAPSHOT,
        "plan_id": plan,
        "group_id": group,
        "event": name,
        "reason": f"{name} at {minute}",
        "at": NOW + timedelta(minutes=minute),
        "sequence": sequence,
        "expires_at": NOW + timedelta(hours=1) if is_hint else None,
        **dict.fromkeys(COST_COLUMNS),
        **cost,
    }
    assert set(values) == set(EVENT_COLUMNS)
    return values


def published(plan: str, minute: int, group: str = "g", **more: Any) -> PublishedPlan:
    at = NOW + timedelta(minutes=minute)
    return PublishedPlan(plan, group, SNAPSHOT, DAY, at, NOW + timedelta(hours=1), **more)


def test_plans_follow_each_other_within_their_group() -> None:
    cost: dict[str, Any] = {"follow_ms": 6500, "rebalancing_ms": 2500, "num_triggers": 1}
    events = [
        event("third", "PUBLISHED", 9, sequence=3),
        event("first", "PUBLISHED", 1, sequence=1, **cost),
        event("second", "PUBLISHED", 5, sequence=2),
        event("of h", "PUBLISHED", 2, group="h", sequence=7),
    ]
    later = NOW + timedelta(minutes=5), NOW + timedelta(minutes=9)
    expected = [
        published("first", 1, next_plan_id="second", next_at=later[0], cost=cost),
        published("second", 5, next_plan_id="third", next_at=later[1]),
        published("third", 9),
        published("of h", 2, "h"),
    ]
    assert find_published(events) == find_published(events[::-1]) == expected


def test_the_first_ending_counts_and_a_withdrawal_more_than_any() -> None:
    plans = ("applied", "twice", "withdrawn", "withdrawn first", "open")
    events = [event(plan, "PUBLISHED", 1, group=plan, sequence=1) for plan in plans]
    events += [
        event("applied", "APPLIED", 3, group="applied"),
        event("twice", "EXPIRED", 4, group="twice"),
        event("twice", "APPLIED", 3, group="twice"),
        event("withdrawn", "IGNORED", 3, group="withdrawn"),
        event("withdrawn", "WITHDRAWN", 4, group="withdrawn"),
        event("withdrawn first", "WITHDRAWN", 3, group="withdrawn first"),
        event("withdrawn first", "IGNORED", 4, group="withdrawn first"),
        # The head of a plan that was published elsewhere is not on record here.
        event("never published", "EXPIRED", 3, group="never published"),
    ]
    found = {plan.plan_id: plan for plan in find_published(events)}
    assert {name: plan.ending for name, plan in found.items()} == {
        "applied": ("APPLIED", "APPLIED at 3"),
        "twice": ("APPLIED", "APPLIED at 3"),
        "withdrawn": ("WITHDRAWN", "WITHDRAWN at 4"),
        "withdrawn first": ("WITHDRAWN", "WITHDRAWN at 3"),
        "open": None,
    }
    assert {name for name, plan in found.items() if plan.is_withdrawn} == {"withdrawn", "withdrawn first"}


def test_a_plan_that_is_told_twice_is_there_once() -> None:
    events = [event("p", "PUBLISHED", minute, sequence=1) for minute in (2, 1)]
    assert find_published(events) == [published("p", 1)]
    assert find_published([]) == []
