"""Evaluation of published plans at their horizon: whether they were applied, and whether they paid off.

Lag follows the traffic, whatever the assignment. So a plan is evaluated by the record-seconds that records
waited, beside those of a replay in which nothing moved.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evenlag.enums import Outcome, PlanEvent
from evenlag.formatting import number
from evenlag.planning.expectations import score_expected

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlag.lag.group_lag import GroupLag
    from evenlag.planning.published_plans import PublishedPlan


HEAD_COLUMNS: Final = (
    *("plan_id", "slot", "settings", "group_type", "gain", "metrics_before", "metrics_after", "expected"),
)


class PlanEffect(NamedTuple):
    """Record-seconds that records waited from before a plan's publishing until its horizon.

    stay_record_s: If every partition had stayed with its owner.
    actual_record_s: As it ran, without the stops for following the plan.
    cost_record_s: What these stops cost.
    """

    stay_record_s: float
    actual_record_s: float
    cost_record_s: float

    @property
    def net_record_s(self) -> float:
        """Record-seconds that the plan has saved, its own costs deducted."""
        return self.stay_record_s - self.actual_record_s - self.cost_record_s


@dataclass(frozen=True, slots=True)
class DuePlan:
    """A published plan that ended and whose horizon has passed.

    head: Its row of ``plans`` with :data:`HEAD_COLUMNS`.
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

    @property
    def is_followed(self) -> bool:
        """Whether the group followed it until the horizon, as far as is known."""
        return self.outcome == Outcome.APPLIED and not self.is_superseded


def build_evaluations(
    due: Iterable[DuePlan],
    *,
    now: Mapping[str, GroupLag],
    effects: Mapping[str, PlanEffect | str],
    marker: Mapping[str, Any],
    run_id: str,
) -> list[dict[str, Any]]:
    """Evaluate the plans whose horizon has passed by a snapshot.

    effects: Of the followed plans, or why they are not known, by plan id.
    """
    rows = []
    for one in due:
        plan, actual = one.plan, now.get(one.plan.group_id)
        found = effects.get(plan.plan_id)
        effect = None if isinstance(found, str) else found
        paid_off, reason = _verdict(one, actual, found)
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
                "paid_off": paid_off,
                "reason": reason,
                "max_member_lag_before_records": _measure(one, "metrics_before"),
                "max_member_lag_predicted_records": _measure(one, "metrics_after"),
                "max_member_lag_actual_records": actual and actual.max_member_lag_records,
                "total_lag_actual_records": actual and actual.total_lag_records,
                "gain_predicted": one.head["gain"],
                "stay_record_s": effect and effect.stay_record_s,
                "actual_record_s": effect and effect.actual_record_s,
                "cost_record_s": effect and effect.cost_record_s,
                "expected": score_expected(
                    one.head, marker, actual if one.is_followed else None, is_horizon=True
                ),
                "num_partitions": actual and actual.num_partitions,
                "num_unknown_partitions": actual and actual.num_unknown_partitions,
                "run_id": run_id,
            }
        )
    return rows


def _measure(one: DuePlan, name: str) -> int | None:
    measured: int | None = (one.head[name] or {}).get("max_member_lag_records")
    return measured


def _verdict(
    one: DuePlan, actual: GroupLag | None, effect: PlanEffect | str | None
) -> tuple[bool | None, str]:
    """Whether a plan paid off, and why; None where it was not followed long enough, or that is not known."""
    if one.outcome == PlanEvent.WITHDRAWN:
        return None, "it was withdrawn before its horizon"
    if one.is_superseded:
        return None, "a newer plan took its place before its horizon"
    if one.outcome != Outcome.APPLIED:
        return False, f"it was not followed: {one.outcome_reason or one.outcome.lower()}"
    if (unknown := _unknown(actual)) is not None:
        return None, unknown
    return _worth(one, effect) if isinstance(effect, PlanEffect) else (None, str(effect))


def _unknown(actual: GroupLag | None) -> str | None:
    if actual is None:
        return "the snapshot has no lag of the group"
    if actual.num_unknown_partitions:
        return (
            f"the lag of {actual.num_unknown_partitions} of {actual.num_partitions} partitions is not known "
            "at the horizon"
        )
    return None


def _worth(one: DuePlan, effect: PlanEffect) -> tuple[bool | None, str]:
    actual, stay, cost = (
        number(each) for each in (effect.actual_record_s, effect.stay_record_s, effect.cost_record_s)
    )
    waited = (
        f"until its horizon records waited {actual} record-seconds, {stay} if nothing had moved; "
        f"following it cost {cost}"
    )
    gain = one.head["gain"]
    if gain is None or gain <= 0:
        return None, f"it was not made to save waiting: {waited}"
    least: float = one.settings.get("min_saved_record_s", 0.0)
    return effect.net_record_s > 0 and effect.net_record_s >= least, waited
