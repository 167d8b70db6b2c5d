"""Evaluation of published plans at their horizon: whether they were applied, and whether they paid off.

Lag follows the traffic, whatever the assignment. So a plan is evaluated by the share of the group's lag that
the most loaded member has, before and at the horizon, not by the lag alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from evenlag.enums import Outcome, PlanEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlag.lag.group_lag import GroupLag
    from evenlag.planning.published_plans import PublishedPlan


@dataclass(frozen=True, slots=True)
class DuePlan:
    """A published plan that ended and whose horizon has passed.

    head: Its row of ``plans``: ``settings``, ``gain``, ``metrics_before``, ``metrics_after``.
    outcome, outcome_reason: How it ended: an :class:`~evenlag.enums.Outcome`, or ``WITHDRAWN``.
    """

    plan: PublishedPlan
    head: Mapping[str, Any]
    outcome: str
    outcome_reason: str | None

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings that it was planned by."""
        parsed: Mapping[str, Any] = json.loads(self.head["settings"])
        return parsed

    @property
    def horizon_at(self) -> datetime:
        """When it is due for evaluation."""
        return self.plan.published_at + timedelta(seconds=self.settings["back_off"]["horizon_s"])

    @property
    def is_superseded(self) -> bool:
        """Whether the group got its next hint before the horizon."""
        return self.plan.next_at is not None and self.plan.next_at < self.horizon_at


@dataclass(frozen=True, slots=True)
class _Gain:
    """Relative fall of the most loaded member's share of the group's lag; None: not known."""

    actual: float | None
    needed: float


def build_evaluations(
    due: Iterable[DuePlan],
    *,
    before: Mapping[tuple[str, str], GroupLag],
    now: Mapping[str, GroupLag],
    marker: Mapping[str, Any],
    run_id: str,
) -> list[dict[str, Any]]:
    """Evaluate the plans whose horizon has passed by a snapshot.

    before: Lag of their groups in the snapshots that they were planned from, by (snapshot id, group id).
    """
    rows = []
    for one in due:
        plan = one.plan
        earlier, actual = before.get((plan.snapshot_id, plan.group_id)), now.get(plan.group_id)
        gain = _Gain(_actual_gain(one, earlier, actual), one.settings["min_gain"])
        waited = marker["started_at"] - plan.published_at
        rows.append(
            {
                **{name: marker[name] for name in ("cluster", "day", "snapshot_id", "slot")},
                "plan_id": plan.plan_id,
                "group_id": plan.group_id,
                "settings": one.head["settings"],
                "published_at": plan.published_at,
                "scored_after_ms": waited // timedelta(milliseconds=1),
                "outcome": one.outcome,
                "outcome_reason": one.outcome_reason,
                "paid_off": _paid_off(one, actual, gain),
                "reason": _reason(one, actual, gain),
                "max_member_lag_before_records": _measure(one, "metrics_before"),
                "max_member_lag_predicted_records": _measure(one, "metrics_after"),
                "max_member_lag_actual_records": actual and actual.max_member_lag_records,
                "total_lag_before_records": earlier and earlier.total_lag_records,
                "total_lag_actual_records": actual and actual.total_lag_records,
                "gain_predicted": one.head["gain"],
                "gain_actual": gain.actual,
                "drain_time_before_ms": earlier and earlier.drain_time_ms,
                "drain_time_actual_ms": actual and actual.drain_time_ms,
                "num_partitions": actual and actual.num_partitions,
                "num_unknown_partitions": actual and actual.num_unknown_partitions,
                "run_id": run_id,
            }
        )
    return rows


def _measure(one: DuePlan, name: str) -> int | None:
    measured: int | None = (one.head[name] or {}).get("max_member_lag_records")
    return measured


def _actual_gain(one: DuePlan, earlier: GroupLag | None, actual: GroupLag | None) -> float | None:
    """1.0 when no lag is left.

    None where the lag of any partition is not known: the share of the known part may be misleading.
    """
    if actual is None or actual.num_unknown_partitions:
        return None
    if actual.total_lag_records == 0:
        return 1.0
    largest = _measure(one, "metrics_before")
    if earlier is None or earlier.num_unknown_partitions or not earlier.total_lag_records or not largest:
        return None
    if actual.max_member_lag_records is None or actual.total_lag_records is None:
        return None
    share_before = largest / earlier.total_lag_records
    return 1 - actual.max_member_lag_records / actual.total_lag_records / share_before


def _paid_off(one: DuePlan, actual: GroupLag | None, gain: _Gain) -> bool | None:
    """None where the plan was withdrawn or superseded, or where any lag is not known."""
    if one.is_superseded or one.outcome == PlanEvent.WITHDRAWN:
        return None
    if one.outcome != Outcome.APPLIED:
        return False
    if gain.actual is None or actual is None:
        return None
    largest, predicted = actual.max_member_lag_records, _measure(one, "metrics_after")
    is_as_predicted = largest is not None and predicted is not None and largest <= predicted
    return is_as_predicted or gain.actual >= gain.needed


def _reason(one: DuePlan, actual: GroupLag | None, gain: _Gain) -> str:
    if one.outcome == PlanEvent.WITHDRAWN:
        return "it was withdrawn before its horizon"
    if one.is_superseded:
        return "a newer plan took its place before its horizon"
    if one.outcome != Outcome.APPLIED:
        return f"it was not followed: {one.outcome_reason or one.outcome.lower()}"
    return _effect(one, actual, gain)


def _effect(one: DuePlan, actual: GroupLag | None, gain: _Gain) -> str:
    if actual is None:
        return "the snapshot has no lag of the group"
    if actual.num_unknown_partitions:
        return (
            f"the lag of {actual.num_unknown_partitions} of {actual.num_partitions} partitions is not known "
            "at the horizon"
        )
    if gain.actual is None:
        return "the group's lag when planned is zero or not known"
    return (
        f"the most loaded member is {_number(actual.max_member_lag_records)} records behind "
        f"({_number(_measure(one, 'metrics_before'))} when planned, "
        f"{_number(_measure(one, 'metrics_after'))} by the plan), its share of the group's lag fell by "
        f"{100 * gain.actual:.1f} %, {100 * gain.needed:.1f} % is asked for"
    )


def _number(value: int | None) -> str:
    return "an unknown number of" if value is None else str(value)
