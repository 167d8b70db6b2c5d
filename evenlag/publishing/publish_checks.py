"""Checks of a publishing run: which approved plans still apply.

They write nothing: each stage takes explicit inputs and returns the plans that passed and the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from assignor_core.hint import HintPayload
from assignor_core.objective import Load, relative_gain
from evenlag.enums import EVENLAG_ASSIGNOR, GroupState, GroupType
from evenlag.kafka.arrow_rows import member_rows
from evenlag.kafka.broker_requests import Deadline, RequestLimits
from evenlag.kafka.connection import request_limits
from evenlag.kafka.live_groups import LiveGroup, LiveOffsets, read_live_groups, read_live_offsets
from evenlag.kafka.topic_metadata import is_not_authorized
from evenlag.lag.arrays import codes, integers, parts_of
from evenlag.lag.formula import count_lag
from evenlag.lag.group_lag import is_inexact
from evenlag.lag.partitions import join_partitions
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.policy.group_settings import GroupSettings
from evenlag.policy.loader import LoadedPolicy
from evenlag.publishing.answers.actors import POLICY_ACTOR

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
_Value = TypeVar("_Value")
_UNKNOWN: Final = -1
# Plans whose groups' offsets are in memory at once.
_PLANS_PER_READ: Final = 2_000


class RefusedPlan(NamedTuple):
    """A plan that is not published now, and when that was found."""

    plan: Plan
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Checked:
    """Plans, by whether they passed the checks of a stage.

    expired: Plans that no longer apply.
    held: Plans that could not be checked: they stay approved, and wait for the next run.
    """

    accepted: tuple[Plan, ...]
    expired: tuple[RefusedPlan, ...]
    held: tuple[RefusedPlan, ...] = ()


class _Blocker(NamedTuple):
    """Why a plan is not published now, and whether it never will be."""

    reason: str
    is_final: bool = True


def expire_stale(loaded: LoadedPolicy, cluster: str, plans: Sequence[Plan], client: Any) -> Checked:
    """Check eligibility and age, then the live groups, then the gain on the current lag.

    An error of Kafka says nothing about a plan: reading is repeated for a few seconds, then the plan is held.
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
    is_consumer = {plan["group_id"]: plan["group_type"] == GroupType.CONSUMER for plan in plans}
    limits, ignored = request_limits(settings), frozenset({settings.hint_topic})

    def read(names: Collection[str]) -> dict[str, LiveGroup]:
        types = {name: GroupType.CONSUMER if is_consumer[name] else GroupType.CLASSIC for name in names}
        return read_live_groups(client, types, limits, ignored)

    return _read_repeatedly(
        is_consumer, read, lambda group: group.error is not None and not group.is_denied, deadline
    )


def _read_gains(
    loaded: LoadedPolicy,
    cluster: str,
    plans: Sequence[Plan],
    live: Mapping[str, LiveGroup],
    client: Any,
    deadline: Deadline,
) -> dict[str, LiveGain]:
    limits = request_limits(loaded.policy.clusters[cluster])
    settings = {plan["group_id"]: loaded.policy.group_settings(cluster, plan["group_id"]) for plan in plans}
    by_id = {plan["plan_id"]: plan for plan in plans}

    def read(names: Collection[str]) -> dict[str, LiveGain]:
        wanted, found = [by_id[name] for name in names], dict[str, LiveGain]()
        for first in range(0, len(wanted), _PLANS_PER_READ):
            part = wanted[first : first + _PLANS_PER_READ]
            found |= read_live_gains(client, part, live, settings, limits)
        return found

    return _read_repeatedly(
        by_id, read, lambda gain: gain.error is not None and not is_not_authorized(gain.error), deadline
    )


def _read_repeatedly(
    names: Collection[str],
    read: Callable[[Collection[str]], dict[str, _Value]],
    may_pass: Callable[[_Value], bool],
    deadline: Deadline,
) -> dict[str, _Value]:
    """Read values by name; those with an error that may pass again, after growing pauses."""
    found = read(names)
    pause_s = _FIRST_PAUSE_S
    while (failed := [name for name in found if may_pass(found[name])]) and deadline.left_s > pause_s:
        time.sleep(pause_s)
        pause_s *= 2
        found |= read(failed)
    return found


def _check(plans: Sequence[Plan], blocker: Callable[[Plan], _Blocker | None]) -> Checked:
    accepted: list[Plan] = []
    expired: list[RefusedPlan] = []
    held: list[RefusedPlan] = []
    for plan in plans:
        found = blocker(plan)
        if found is None:
            accepted.append(plan)
        else:
            refused = RefusedPlan(plan, found.reason, datetime.now(UTC))
            (expired if found.is_final else held).append(refused)
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
        return _unread(plan, "the group cannot be described", group.error)
    if group.is_gone:
        return _Blocker("the group does not exist, or does not use its protocol any more")
    if group.state in _PASSING_STATES:
        return _Blocker(f"the group is {group.state}", is_final=False)
    if group.unreadable is not None:
        return _unread(plan, "its members cannot be read", group.unreadable)
    checks = (
        (group.state != GroupState.STABLE, f"the group is {group.state}"),
        (
            group.assignor != EVENLAG_ASSIGNOR,
            f"the group has selected {group.assignor}, not {EVENLAG_ASSIGNOR}",
        ),
        (group.fingerprint != plan["fingerprint"], "the group's members, topics or partitions have changed"),
    )
    return next((_Blocker(reason) for is_mismatch, reason in checks if is_mismatch), None)


def _gain_blocker(plan: Plan, live: LiveGain, settings: GroupSettings) -> _Blocker | None:
    """Why a plan is not worth its moves on the current lag, or is not known to be; None when it is.

    A plan that balances rates, prepares for arrivals or is made whatever it saves (it has no gain) does not
    promise to lower lag: it is not checked.
    """
    if settings.load in {Load.RATE, Load.TIME} or plan["gain"] is None:
        return None
    if live.error is not None:
        return _unread(plan, "its offsets cannot be read", live.error)
    if live.num_unknown:
        return _Blocker(f"the current lag of {live.num_unknown} partitions is unknown")
    if live.gain < settings.min_gain:
        return _Blocker(
            f"on the current lag it lowers the largest load of a member by {live.gain:.1%} "
            f"({plan['gain']:.1%} when planned), min_gain is {settings.min_gain:.1%}"
        )
    return None


def _unread(plan: Plan, what: str, error: str) -> _Blocker:
    """Why a plan waits, by the error; one of authorization with the permission that evenlag lacks."""
    if is_not_authorized(error):
        right = f"the ACL operation Describe on the group {plan['group_id']!r}"
        return _Blocker(f"{what}: evenlag lacks {right} ({error})", is_final=False)
    return _Blocker(f"{what}: {error}", is_final=False)


@dataclass(frozen=True, slots=True)
class LiveGain:
    """Effect of a plan on the current lag.

    gain: Relative decrease of the largest lag of a member by its capacity; meaningless if any lag is unknown.
    error: Why offsets could not be read. It says nothing about the plan.
    """

    gain: float
    num_unknown: int
    error: str | None = None


def read_live_gains(
    client: Any,
    plans: Sequence[Mapping[str, Any]],
    live: Mapping[str, LiveGroup],
    settings: Mapping[str, GroupSettings],
    limits: RequestLimits,
) -> dict[str, LiveGain]:
    """Measure plans, one per group with the fingerprint that it was planned with, on the current offsets."""
    if not plans:
        return {}
    topics = {topic for plan in plans for topic, _, _ in live[plan["group_id"]].topics}
    group_ids = [plan["group_id"] for plan in plans]
    policies = {policy for group_id in group_ids if (policy := settings[group_id].reset_policy)}
    offsets = read_live_offsets(client, group_ids, topics, limits, policies)
    return measure_gains(plans, live, settings, offsets)


def measure_gains(
    plans: Sequence[Mapping[str, Any]],
    live: Mapping[str, LiveGroup],
    settings: Mapping[str, GroupSettings],
    offsets: LiveOffsets,
) -> dict[str, LiveGain]:
    """Measure plans on the current lag of their groups, by the capacities that they were planned with."""
    groups = {plan["group_id"]: live[plan["group_id"]] for plan in plans}
    lags = live_lags(groups, settings, offsets)
    errors = offsets.errors({name: [topic for topic, _, _ in group.topics] for name, group in groups.items()})
    found = {}
    for plan in plans:
        name = plan["group_id"]
        found[plan["plan_id"]] = _measure_gain(
            plan, groups[name], settings[name], lags[name], errors.get(name)
        )
    return found


def _measure_gain(
    plan: Mapping[str, Any],
    group: LiveGroup,
    settings: GroupSettings,
    lag: NDArray[np.int64],
    error: str | None,
) -> LiveGain:
    payload = HintPayload.decode(plan["payload"].encode())
    sizes = [size for _, _, size in group.topics]
    first_row = dict(
        zip((topic_id for _, topic_id, _ in group.topics), np.cumsum([0, *sizes]).tolist(), strict=False)
    )
    keys = sorted(group.held)
    planned = {each["member_key"]: each["capacity"] for each in plan["capacities"] or ()}
    gain = relative_gain(
        lag.astype(np.float64).clip(min=0.0),
        np.array([planned.get(key, settings.capacity_of(_instance_of(key))) for key in keys]),
        _owners(group.held, keys, first_row, len(lag)),
        _owners(payload.assignment, keys, first_row, len(lag)),
    )
    return LiveGain(gain=gain, num_unknown=int((lag < 0).sum()), error=error)


def live_lags(
    groups: Mapping[str, LiveGroup], settings: Mapping[str, GroupSettings], offsets: LiveOffsets
) -> dict[str, NDArray[np.int64]]:
    """Return groups' current lag in records, by their topics and partitions; -1: unknown, or a bound."""
    described = [
        {
            "group_id": group_id,
            "group_state": group.state,
            "member_id": "",
            "assignment": [],
            "subscription": [topic for topic, _, _ in group.topics],
        }
        for group_id, group in groups.items()
    ]
    is_wanted = pc.is_in(offsets.commits["group_id"], value_set=pa.array(list(groups), pa.string()))
    commits = offsets.commits.filter(is_wanted)
    joined = join_partitions(offsets.offsets, commits, member_rows(described), settings.__getitem__)
    rows = count_lag(joined.partitions, joined.groups, joined.member_ids, 0.0)
    exact = rows.filter(pc.invert(is_inexact(rows)))
    by_group = parts_of(exact.select(["group_id", "topic", "partition", "lag_records"]), "group_id")
    return {name: _by_partition(group, by_group.get(name)) for name, group in groups.items()}


def _by_partition(group: LiveGroup, rows: pa.Table | None) -> NDArray[np.int64]:
    """Lag of a group by its topics and partitions, of the rows that are known."""
    names = [topic for topic, _, _ in group.topics]
    sizes = np.array([size for _, _, size in group.topics], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    lag = np.full(starts[-1], _UNKNOWN, dtype=np.int64)
    if rows is None:
        return lag
    topic, partition = codes(rows["topic"], names), integers(rows["partition"])
    is_planned = (topic >= 0) & (partition < sizes[topic] if len(sizes) else False)
    lag[(starts[topic] + partition)[is_planned]] = integers(rows["lag_records"])[is_planned]
    return lag


def _owners(
    owned: Mapping[str, Mapping[str, Sequence[int]]],
    keys: Sequence[str],
    first_row: Mapping[str, int],
    num_rows: int,
) -> NDArray[np.int32]:
    """Row → index of its owner in ``keys``; loops over (member, topic) pairs, not over partitions."""
    owners = np.full(num_rows, _UNKNOWN, dtype=np.int32)
    for member, key in enumerate(keys):
        for topic_id, numbers in owned.get(key, {}).items():
            if topic_id in first_row:
                owners[first_row[topic_id] + np.asarray(numbers, dtype=np.int64)] = member
    return owners


def _instance_of(key: str) -> str | None:
    return key.removeprefix("i:") if key.startswith("i:") else None
