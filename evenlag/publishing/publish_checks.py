"""Checks of a publishing run: which approved plans still apply.

They write nothing: each stage takes explicit inputs and returns the plans that passed and the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from assignor_core.objective import Load
from evenlag.enums import EVENLAG_ASSIGNOR, GroupState, GroupType
from evenlag.kafka.connection import request_limits
from evenlag.kafka.live_groups import read_live_groups
from evenlag.publishing.eligibility import is_approved_by_policy
from evenlag.publishing.live_lag import read_live_gains

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evenlag.kafka.live_groups import LiveGroup
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.loader import LoadedPolicy
    from evenlag.publishing.live_lag import LiveGain

Plan: TypeAlias = "Mapping[str, Any]"  # a row of `read_publishable`


@dataclass(frozen=True, slots=True)
class ExpiredPlan:
    """A plan that no longer applies.

    Attributes
    ----------
    plan
        Row of ``read_publishable``.
    reason
        Why it no longer applies.
    at
        When that was found, in UTC.
    """

    plan: Plan
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Checked:
    """Plans, by whether they passed the checks of a stage.

    Attributes
    ----------
    accepted
        Plans that passed, in their order.
    expired
        Plans that did not, with the reason.
    """

    accepted: tuple[Plan, ...]
    expired: tuple[ExpiredPlan, ...]


def expire_stale(loaded: LoadedPolicy, cluster: str, plans: Sequence[Plan], client: Any) -> Checked:
    """Check eligibility and age, then the live groups, then the gain on the current lag.

    Parameters
    ----------
    loaded, cluster
        The policy, and the cluster's name in it.
    plans
        Rows of ``read_publishable`` that are not published yet.
    client
        A ``KafkaAdminClient``.

    Returns
    -------
    Checked
        The plans that may be published now, and the others.

    Raises
    ------
    KafkaUnreachableError
        When a group's coordinator does not answer.
    """
    eligible = check_eligibility(loaded, cluster, plans)
    live = _read_groups(loaded, cluster, eligible.accepted, client)
    unchanged = _check(eligible.accepted, lambda plan: _group_mismatch(plan, live[plan["group_id"]]))
    settings = {
        plan["group_id"]: loaded.policy.group_settings(cluster, plan["group_id"])
        for plan in unchanged.accepted
    }
    gains = read_live_gains(
        client,
        unchanged.accepted,
        {group_id: live[group_id] for group_id in settings},
        settings,
        request_limits(loaded.policy.clusters[cluster]),
    )
    worthwhile = _check(
        unchanged.accepted,
        lambda plan: _insufficient_gain(plan, gains[plan["plan_id"]], settings[plan["group_id"]]),
    )
    expired = (*eligible.expired, *unchanged.expired, *worthwhile.expired)
    return Checked(worthwhile.accepted, expired)


def check_eligibility(loaded: LoadedPolicy, cluster: str, plans: Sequence[Plan]) -> Checked:
    """Check what needs no Kafka: whether a plan may be published at all, and its age.

    Parameters
    ----------
    loaded, cluster
        The policy, and the cluster's name in it.
    plans
        Rows of ``read_publishable``.

    Returns
    -------
    Checked
        The plans that may be published, and the others.
    """
    return _check(
        plans,
        lambda plan: (
            plan["refusal"] or _too_old(plan, loaded.policy.group_settings(cluster, plan["group_id"]))
        ),
    )


def _read_groups(
    loaded: LoadedPolicy, cluster: str, plans: Sequence[Plan], client: Any
) -> dict[str, LiveGroup]:
    group_types = {
        plan["group_id"]: GroupType.CONSUMER
        if plan["group_type"] == GroupType.CONSUMER
        else GroupType.CLASSIC
        for plan in plans
    }
    return read_live_groups(client, group_types, request_limits(loaded.policy.clusters[cluster]))


def _check(plans: Sequence[Plan], blocker: Callable[[Plan], str | None]) -> Checked:
    """Separate the plans that ``blocker`` has a reason against."""
    accepted: list[Plan] = []
    expired: list[ExpiredPlan] = []
    for plan in plans:
        reason = blocker(plan)
        if reason is None:
            accepted.append(plan)
        else:
            expired.append(ExpiredPlan(plan, reason, datetime.now(UTC)))
    return Checked(tuple(accepted), tuple(expired))


def _too_old(plan: Plan, settings: GroupSettings) -> str | None:
    """A plan's age counts from its snapshot; when a user approved it, from the approval."""
    since, what = plan["approved_at"], "approval"
    if is_approved_by_policy(plan):
        since, what = plan["slot"], "plan"
    age_s = (datetime.now(UTC) - since).total_seconds()
    ttl_s = settings.hint_ttl_s
    return f"the {what} is {age_s:.0f} s old, hint_ttl_s is {ttl_s} s" if age_s > ttl_s else None


def _group_mismatch(plan: Plan, group: LiveGroup) -> str | None:
    """Why the group is no longer the one that was planned; None when it is."""
    checks = (
        (group.error is not None, f"the group cannot be described: {group.error}"),
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
    return next((reason for is_mismatch, reason in checks if is_mismatch), None)


def _insufficient_gain(plan: Plan, live: LiveGain, settings: GroupSettings) -> str | None:
    """Why a plan is not worth its moves on the current lag; None when it is.

    A plan that balances rates does not promise to lower lag, so lag does not judge it.
    """
    if settings.load is Load.RATE:
        return None
    if live.num_unknown:
        return f"the current lag of {live.num_unknown} partitions is unknown"
    if live.gain < settings.min_gain:
        return (
            f"on the current lag it lowers the largest load of a member by {live.gain:.1%} "
            f"({plan['gain']:.1%} when planned), min_gain is {settings.min_gain:.1%}"
        )
    return None
