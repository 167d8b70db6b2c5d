"""The first lines of a report: what happened to the group's newest plan, and whether it was worth it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from evenlag.enums import DecisionKind, Mode, PlanEvent
from evenlag.formatting import count_of, number
from evenlag.report.model import DecisionSummary, LagChange, Verdict, VerdictKind

# What the period's plans came to, as an end of "2 were …".
_ENDS: Final[dict[str | None, str]] = {
    PlanEvent.APPLIED: "followed",
    PlanEvent.IGNORED: "not followed",
    PlanEvent.EXPIRED: "expired",
    PlanEvent.WITHDRAWN: "withdrawn",
    PlanEvent.REJECTED: "rejected",
    PlanEvent.PUBLISHED: "published and still open",
    PlanEvent.APPROVED: "approved and not published yet",
    PlanEvent.PROPOSED: "only proposed",
}

# What happened to a plan that was not followed: with a hint, and without one.
_WITHOUT_EFFECT: Final[dict[str, tuple[str, str]]] = {
    PlanEvent.IGNORED: ("Hint not followed", "Plan not followed"),
    PlanEvent.EXPIRED: ("Hint expired", "Plan expired before its hint was published"),
    PlanEvent.WITHDRAWN: ("Hint withdrawn", "Plan withdrawn before its hint was published"),
    PlanEvent.REJECTED: ("Plan rejected", "Plan rejected"),
    PlanEvent.PUBLISHED: ("Hint published and not followed yet", "Hint published and not followed yet"),
    PlanEvent.APPROVED: ("Plan approved and not published yet", "Plan approved and not published yet"),
}
_OTHER: Final = ("Plan proposed and not decided yet", "Plan proposed and not decided yet")
_WITHOUT_PLAN: Final[dict[str, str]] = {
    DecisionKind.NO_CHANGE: "No plan was needed in the period",
    DecisionKind.BREACH: "No plan yet",
}
_FAILED: Final = frozenset({PlanEvent.IGNORED, PlanEvent.EXPIRED, PlanEvent.WITHDRAWN})
# Nothing happens to such a plan any more.
_OVER: Final = _FAILED | {PlanEvent.REJECTED}


def published_plans(events: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the ids of the plans whose hint was on the hint topic."""
    # A publisher that was killed writes no PUBLISHED event, but the withdrawal contains the sequence number.
    return {
        str(event["plan_id"])
        for event in events
        if event["event"] == PlanEvent.PUBLISHED or event["sequence"] is not None
    }


def build_verdict(
    change: LagChange | None,
    plans: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    evaluation: Mapping[str, Any] | None,
    *,
    now: Mapping[str, Any],
    decisions: Sequence[DecisionSummary],
) -> Verdict:
    """Build the verdict of a report on the plan that it shows, by its row of ``plan_evaluations``, if any."""
    if change is None or change.plan_id is None:
        return _without_plan(now, decisions)
    plan = next(plan for plan in plans if plan["plan_id"] == change.plan_id)
    happened = (change.plan_id, change.status)
    moments = [event["at"] for event in events if (event["plan_id"], event["event"]) == happened]
    at = moments[-1] if moments else None
    is_published = change.plan_id in published_plans(events)
    others = _others(plans)
    when = _when(at, change.before_at, plans)
    if change.status == PlanEvent.APPLIED:
        kind, evaluated = _evaluated(plan, evaluation)
        return Verdict(kind, f"Plan followed{when}: {_effect(change)}", evaluated, others)
    kind, what = _not_followed(change.status, plan, is_published=is_published)
    reason = f" ({plan['reason']})" if plan["reason"] else ""
    is_over = change.status in _OVER
    return Verdict(kind, f"{what}{when}{reason}: {_prospect(change, is_over=is_over)}", "", others)


def _without_plan(now: Mapping[str, Any], decisions: Sequence[DecisionSummary]) -> Verdict:
    last = max(decisions, key=lambda each: each.last_at, default=None)
    lag = ""
    if now["max_member_lag_records"] is not None and now["lag_records"] is not None:
        bound = "at least " if now["num_unknown_partitions"] else ""
        lag = (
            f" The most loaded member has {bound}{number(now['max_member_lag_records'])} of the group's "
            f"{number(now['lag_records'])} records of lag."
        )
    reason = f": {last.reason}" if last is not None and last.reason else ""
    if last is None:
        what = "No plan was made in the period, the group was only observed"
    else:
        what = _WITHOUT_PLAN.get(last.decision, "The group could not be planned")
    is_fault = last is not None and last.decision not in _WITHOUT_PLAN
    return Verdict(VerdictKind.WARN if is_fault else VerdictKind.PLAIN, f"{what}{reason}.{lag}")


def _not_followed(
    status: str | None, plan: Mapping[str, Any], *, is_published: bool
) -> tuple[VerdictKind, str]:
    if status == PlanEvent.PROPOSED and plan["mode"] == Mode.SHADOW:
        return VerdictKind.PLAIN, "Plan in shadow mode, which publishes nothing"
    published, unpublished = _WITHOUT_EFFECT.get(str(status), _OTHER)
    return (VerdictKind.WARN if status in _FAILED else VerdictKind.PLAIN), (
        published if is_published else unpublished
    )


def _effect(change: LagChange) -> str:
    before, predicted, after = (_lag(change, part) for part in ("before", "predicted", "after"))
    if change.largest("after") is None:
        return (
            f"the most loaded member had {before} records of lag before, {predicted} were predicted; "
            "the lag after is not known."
        )
    return f"the most loaded member went from {before} to {after} records of lag; predicted {predicted}."


def _prospect(change: LagChange, *, is_over: bool) -> str:
    would = "would have taken" if is_over else "would take"
    moves = "" if change.moves is None else f" with {count_of(change.moves, 'move')}"
    sentence = (
        f"it {would} the most loaded member from {_lag(change, 'before')} to "
        f"{_lag(change, 'predicted')} records of lag{moves}"
    )
    if change.largest("after") is None:
        return f"{sentence}."
    return f"{sentence}. When it ended, the most loaded member had {_lag(change, 'after')}."


def _evaluated(plan: Mapping[str, Any], evaluation: Mapping[str, Any] | None) -> tuple[VerdictKind, str]:
    """By the plan's evaluation at its horizon; before that by nothing."""
    if evaluation is None:
        saved, cost = plan.get("record_s_saved"), plan.get("record_s_cost") or 0.0
        expected = "" if saved is None else f" It is expected to save {number(saved - cost)} record-seconds."
        return VerdictKind.PLAIN, f"Whether it was worth it is known at its horizon.{expected}"
    words = {True: "It was worth it", False: "It was not worth it", None: "Whether it was worth it is open"}
    kinds = {True: VerdictKind.GOOD, False: VerdictKind.WARN, None: VerdictKind.PLAIN}
    paid_off: bool | None = evaluation["paid_off"]
    return kinds[paid_off], f"{words[paid_off]}: {evaluation['reason']}.{_lag_predicted(evaluation)}"


def _lag_predicted(evaluation: Mapping[str, Any]) -> str:
    """The interval in which the plan expected the group's lag at its horizon, and where it was."""
    found = {each["measure"]: each for each in evaluation.get("expected") or ()}.get("total_lag_records")
    if found is None or found["held"] is None:
        return ""
    low, high, actual = (number(found[name]) for name in ("lower", "upper", "actual"))
    return f" It expected {low} to {high} records of lag at its horizon, and there were {actual}."


def _others(plans: Sequence[Mapping[str, Any]]) -> str:
    """What became of all plans of the period; empty for one plan, which the verdict is about."""
    if len(plans) <= 1:
        return ""
    counts = Counter(_ENDS.get(plan["status"], "without an event") for plan in plans)
    parts = [f"{counts[end]} {end}" for end in dict.fromkeys([*_ENDS.values(), *counts]) if counts[end]]
    return f"The period has {number(len(plans))} plans: {', '.join(parts)}."


def _when(at: datetime | None, before_at: datetime, plans: Sequence[Mapping[str, Any]]) -> str:
    """The time of an event; with its date if the period's plans are of several days."""
    if at is None:
        return ""
    days = {each.astimezone(UTC).date() for each in (at, before_at, *(plan["slot"] for plan in plans))}
    return f" at {at.astimezone(UTC):%H:%M}" if len(days) == 1 else f" on {at.astimezone(UTC):%Y-%m-%d %H:%M}"


def _lag(change: LagChange, part: str) -> str:
    value = change.largest(part)
    if value is None:
        return "an unknown number of"
    place = ("before", "predicted", "after").index(part)
    # Partitions without an owner may have unknown lag, too: the plan may give them to the most loaded member.
    unknown = change.unknown_after[0] if part == "after" else change.unknown_before[0]
    is_bound = unknown or any(member.unknown[place] for member in change.members)
    return f"at least {number(value)}" if is_bound else number(value)
