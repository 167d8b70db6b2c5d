"""Checks of a publishing run: which approved plans still apply.

They write nothing: each stage takes explicit inputs and returns the plans that passed and the others.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from assignor_core.objective import Load
from evenlag.enums import EVENLAG_ASSIGNOR, GroupState, GroupType
from evenlag.kafka.connection import request_limits
from evenlag.kafka.live_groups import read_live_groups
from evenlag.kafka.rate_limit import Deadline
from evenlag.kafka.topic_metadata import is_not_authorized
from evenlag.publishing.answers.actors import POLICY_ACTOR
from evenlag.publishing.live_lag import read_live_gains

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from evenlag.kafka.live_groups import LiveGroup
    from evenlag.policy.cluster_settings import ClusterSettings
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.loader import LoadedPolicy
    from evenlag.publishing.live_lag import LiveGain

# A coordinator that loads or moves needs seconds. What takes longer waits for the next run.
_RETRY_S: Final = 15.0
_FIRST_PAUSE_S: Final = 0.25
_PASSING_STATES: Final = (
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.ASSIGNING,
    GroupState.RECONCILING,
)

Plan: TypeAlias = "Mapping[str, Any]"  # a row of `read_publishable`


@dataclass(frozen=True, slots=True)
class ExpiredPlan:
    """A plan that no longer applies.

    plan: Row of ``read_publishable``.
    at: When that was found, in UTC.
    """

    plan: Plan
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class HeldPlan:
    """A plan that waits for the next run: whether it still applies is not known now.

    plan: Row of ``read_publishable``.
    """

    plan: Plan
    reason: str


@dataclass(frozen=True, slots=True)
class Checked:
    """Plans, by whether they passed the checks of a stage.

    expired: Plans that did not, with the reason.
    held: Plans that could not be checked: they stay approved.
    """

    accepted: tuple[Plan, ...]
    expired: tuple[ExpiredPlan, ...]
    held: tuple[HeldPlan, ...] = ()


class _Blocker(NamedTuple):
    """Why a plan is not published now, and whether it never will be."""

    reason: str
    is_final: bool = True


def expire_stale(loaded: LoadedPolicy, cluster: str, plans: Sequence[Plan], client: Any) -> Checked:
    """Check eligibility and age, then the live groups, then the gain on the current lag.

    An error of Kafka says nothing about a plan: reading is repeated for a few seconds, then the plan is held.

    Returns the plans that may be published now, those that no longer apply, and those that wait.
    plans: Rows of ``read_publishable`` that are not published yet.
    """
    eligible = check_eligibility(loaded, cluster, plans)
    settings = loaded.policy.clusters[cluster]
    deadline = Deadline(min(_RETRY_S, request_limits(settings).request_timeout_s))
    live = _read_groups(eligible.accepted, client, settings, deadline)
    unchanged = _check(eligible.accepted, lambda plan: _group_blocker(plan, live[plan["group_id"]]))
    gains = _read_gains(loaded, cluster, unchanged.accepted, live, client, deadline)
    worthwhile = _check(
        unchanged.accepted,
        lambda plan: _gain_blocker(
            plan, gains[plan["plan_id"]], loaded.policy.group_settings(cluster, plan["group_id"])
        ),
    )
    return Checked(
        worthwhile.accepted,
        (*eligible.expired, *unchanged.expired, *worthwhile.expired),
        (*unchanged.held, *worthwhile.held),
    )


def check_eligibility(loaded: LoadedPolicy, cluster: str, plans: Sequence[Plan]) -> Checked:
    """Check what needs no Kafka: whether a plan may be published at all, and its age."""

    def blocker(plan: Plan) -> _Blocker | None:
        settings = loaded.policy.group_settings(cluster, plan["group_id"])
        reason = plan["refusal"] or _too_old(plan, settings)
        return None if reason is None else _Blocker(reason)

    return _check(plans, blocker)


def _read_groups(
    plans: Sequence[Plan], client: Any, settings: ClusterSettings, deadline: Deadline
) -> dict[str, LiveGroup]:
    """Describe the groups; those with an error that may pass are described again until the deadline."""
    group_types = {
        plan["group_id"]: GroupType.CONSUMER
        if plan["group_type"] == GroupType.CONSUMER
        else GroupType.CLASSIC
        for plan in plans
    }
    limits, ignored = request_limits(settings), frozenset({settings.hint_topic})
    live = read_live_groups(client, group_types, limits, ignored)
    for pause_s in _pauses(deadline):
        failed = {
            name: group_types[name]
            for name, group in live.items()
            if group.error is not None and not group.is_denied
        }
        if not failed:
            break
        time.sleep(pause_s)
        live |= read_live_groups(client, failed, limits, ignored)
    return live


def _read_gains(
    loaded: LoadedPolicy,
    cluster: str,
    plans: Sequence[Plan],
    live: Mapping[str, LiveGroup],
    client: Any,
    deadline: Deadline,
) -> dict[str, LiveGain]:
    """Measure the plans on the current lag; those whose offsets could not be read again, as above."""
    limits = request_limits(loaded.policy.clusters[cluster])
    settings = {plan["group_id"]: loaded.policy.group_settings(cluster, plan["group_id"]) for plan in plans}
    gains = read_live_gains(client, plans, live, settings, limits)
    for pause_s in _pauses(deadline):
        failed = [plan for plan in plans if _may_pass(gains[plan["plan_id"]].error)]
        if not failed:
            break
        time.sleep(pause_s)
        gains |= read_live_gains(client, failed, live, settings, limits)
    return gains


def _may_pass(error: str | None) -> bool:
    return error is not None and not is_not_authorized(error)


def _pauses(deadline: Deadline) -> Iterator[float]:
    """Growing pauses between tries, while there is time."""
    pause_s = _FIRST_PAUSE_S
    while deadline.left_s > pause_s:
        yield pause_s
        pause_s *= 2


def _check(plans: Sequence[Plan], blocker: Callable[[Plan], _Blocker | None]) -> Checked:
    """Separate the plans that ``blocker`` has a reason against."""
    accepted: list[Plan] = []
    expired: list[ExpiredPlan] = []
    held: list[HeldPlan] = []
    for plan in plans:
        found = blocker(plan)
        if found is None:
            accepted.append(plan)
        elif found.is_final:
            expired.append(ExpiredPlan(plan, found.reason, datetime.now(UTC)))
        else:
            held.append(HeldPlan(plan, found.reason))
    return Checked(tuple(accepted), tuple(expired), tuple(held))


def _too_old(plan: Plan, settings: GroupSettings) -> str | None:
    """A plan's age counts from its snapshot; when a user approved it, from the approval."""
    since, what = plan["approved_at"], "approval"
    if plan["approved_by"] == POLICY_ACTOR:
        since, what = plan["slot"], "plan"
    age_s = (datetime.now(UTC) - since).total_seconds()
    ttl_s = settings.hint_ttl_s
    return f"the {what} is {age_s:.0f} s old, hint_ttl_s is {ttl_s} s" if age_s > ttl_s else None


def _group_blocker(plan: Plan, group: LiveGroup) -> _Blocker | None:
    """Why the group is not the one that was planned, or is not known to be; None when it is.

    A group that rebalances may come back with the same members: its plan waits.
    """
    if group.error is not None:
        return _Blocker(
            _problem_text(plan["group_id"], "the group cannot be described", group.error), is_final=False
        )
    if group.is_gone:
        return _Blocker("the group does not exist, or does not use its protocol any more")
    if group.state in _PASSING_STATES:
        return _Blocker(f"the group is {group.state}", is_final=False)
    if group.unreadable is not None:
        return _Blocker(
            _problem_text(plan["group_id"], "its members cannot be read", group.unreadable), is_final=False
        )
    checks = (
        (group.state != GroupState.STABLE, f"the group is {group.state}"),
        (
            group.assignor != EVENLAG_ASSIGNOR,
            f"the group has selected {group.assignor}, not {EVENLAG_ASSIGNOR}",
        ),
        (
            group.fingerprint != plan["fingerprint"],
            "the group's members, topics or partitions have changed",
        ),
    )
    return next((_Blocker(reason) for is_mismatch, reason in checks if is_mismatch), None)


def _gain_blocker(plan: Plan, live: LiveGain, settings: GroupSettings) -> _Blocker | None:
    """Why a plan is not worth its moves on the current lag, or is not known to be; None when it is.

    A plan that balances rates does not promise to lower lag, so lag does not judge it.
    """
    if settings.load is Load.RATE:
        return None
    if live.error is not None:
        return _Blocker(
            _problem_text(plan["group_id"], "its offsets cannot be read", live.error), is_final=False
        )
    if live.num_unknown:
        return _Blocker(f"the current lag of {live.num_unknown} partitions is unknown")
    if live.gain < settings.min_gain:
        return _Blocker(
            f"on the current lag it lowers the largest load of a member by {live.gain:.1%} "
            f"({plan['gain']:.1%} when planned), min_gain is {settings.min_gain:.1%}"
        )
    return None


def _problem_text(group_id: str, what: str, error: str) -> str:
    """The error; one of authorization with the permission that evenlag lacks."""
    if is_not_authorized(error):
        return f"{what}: evenlag lacks the ACL operation Describe on the group {group_id!r} ({error})"
    return f"{what}: {error}"
