"""The stages of a publishing run: each takes explicit inputs and returns a frozen result.

None of them writes anything: :func:`evenlag.publishing.publish.publish_hints` owns the transaction and the
events.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from assignor_core.hint import encode_hint, hint_key
from assignor_core.objective import Load
from evenlag.enums import GroupState, GroupType, PlanEvent
from evenlag.kafka.connection import reading_limits
from evenlag.kafka.live_groups import read_live_groups
from evenlag.lake.reader import LakeReader
from evenlag.publishing.eligibility import is_approved_by_policy
from evenlag.publishing.gates import EVENLAG_ASSIGNOR
from evenlag.publishing.hint_topic import group_signing_key
from evenlag.publishing.live_lag import read_live_gains

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evenlag.kafka.live_groups import LiveGroup
    from evenlag.policy.loader import LoadedPolicy
    from evenlag.policy.settings import GroupSettings
    from evenlag.publishing.hint_topic import TopicState
    from evenlag.publishing.live_lag import LiveGain

Plan: TypeAlias = "Mapping[str, Any]"  # a row of `read_publishable`

# Size of a record beside key and value: Kafka's record and batch headers, at most.
_RECORD_HEADER_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """A plan whose hint is on the topic.

    Attributes
    ----------
    plan
        Row of ``read_publishable``.
    sequence
        Sequence number of the hint.
    issued_at, expires_at
        Validity of the hint, in UTC.
    """

    plan: Plan
    sequence: int
    issued_at: datetime
    expires_at: datetime


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
class Reconciled:
    """Plans, by whether their hint is already on the topic.

    Attributes
    ----------
    published
        Plans that an earlier, killed try has published without recording it.
    waiting
        All others, in their order.
    """

    published: tuple[PublishedPlan, ...]
    waiting: tuple[Plan, ...]


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


@dataclass(frozen=True, slots=True)
class EncodedHint:
    """A hint as it is written to the topic.

    Attributes
    ----------
    plan
        Row of ``read_publishable``.
    value
        Value of the record.
    sequence, issued_at, expires_at
        As in :class:`PublishedPlan`.
    """

    plan: Plan
    value: bytes
    sequence: int
    issued_at: datetime
    expires_at: datetime

    def as_published(self) -> PublishedPlan:
        """Return the plan as published, once the transaction is committed.

        Returns
        -------
        PublishedPlan
            The same plan, without the encoded value.
        """
        return PublishedPlan(self.plan, self.sequence, self.issued_at, self.expires_at)


@dataclass(frozen=True, slots=True)
class EncodedHints:
    """Result of :func:`encode_hints`.

    Attributes
    ----------
    hints
        Hints to write, one per group.
    expired
        Plans whose hint exceeds the topic's record size.
    """

    hints: tuple[EncodedHint, ...]
    expired: tuple[ExpiredPlan, ...]


def reconcile_published(plans: Sequence[Plan], state: TopicState) -> Reconciled:
    """Find the plans whose hint is already on the topic: an earlier try was killed before its events.

    Parameters
    ----------
    plans
        Rows of ``read_publishable``.
    state
        State of the hint topic, read behind the fence.

    Returns
    -------
    Reconciled
        The plans that are published already, and those that wait.
    """
    published: list[PublishedPlan] = []
    waiting: list[Plan] = []
    for plan in plans:
        hint = state.hints.get(plan["group_id"])
        if hint is None or hint.plan_id != plan["plan_id"]:
            waiting.append(plan)
        else:
            issued_at, expires_at = _from_ms(hint.issued_at_ms), _from_ms(hint.expires_at_ms)
            published.append(PublishedPlan(plan, hint.sequence, issued_at, expires_at))
    return Reconciled(tuple(published), tuple(waiting))


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
        reading_limits(loaded.policy.clusters[cluster]),
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


def encode_hints(
    loaded: LoadedPolicy,
    cluster: str,
    plans: Sequence[Plan],
    state: TopicState,
    *,
    last_sequences: Mapping[str, int],
    max_bytes: int | None,
    issued_at: datetime,
) -> EncodedHints:
    """Encode and sign the hints of plans; a hint that exceeds the topic's record size expires its plan.

    Parameters
    ----------
    loaded, cluster
        The policy, and the cluster's name in it.
    plans
        Plans to publish, one per group.
    state
        State of the hint topic, read behind the fence.
    last_sequences
        By group, the newest sequence number on record in the lake.
    max_bytes
        ``max.message.bytes`` of the hint topic; None when it is not known.
    issued_at
        Time from which the hints are valid.

    Returns
    -------
    EncodedHints
        The hints to write, and the plans without one.

    Raises
    ------
    SecretError
        When the signing key cannot be resolved.
    """
    hints: list[EncodedHint] = []
    expired: list[ExpiredPlan] = []
    for plan in plans:
        group_id = plan["group_id"]
        current = state.hints.get(group_id)
        sequence = 1 + max(last_sequences.get(group_id, 0), 0 if current is None else current.sequence)
        ttl_s = loaded.policy.group_settings(cluster, group_id).hint_ttl_s
        expires_at = issued_at + timedelta(seconds=ttl_s)
        value = encode_hint(
            plan["payload"].encode(),
            sequence=sequence,
            issued_at_ms=_to_ms(issued_at),
            expires_at_ms=_to_ms(expires_at),
            group_key=group_signing_key(
                loaded.policy.clusters[cluster],
                group_id,
                is_for_brokers=plan["group_type"] == GroupType.CONSUMER,
            ),
        )
        size = len(value) + len(hint_key(group_id)) + _RECORD_HEADER_BYTES
        if max_bytes is not None and size > max_bytes:
            reason = f"the hint has {size} bytes, the hint topic allows {max_bytes} per record"
            expired.append(ExpiredPlan(plan, reason, datetime.now(UTC)))
        else:
            hints.append(EncodedHint(plan, value, sequence, issued_at, expires_at))
    return EncodedHints(tuple(hints), tuple(expired))


def read_last_sequences(lake: str, cluster: str) -> dict[str, int]:
    """Read the newest sequence number of each group from the lake; it outlives a withdrawn hint.

    Parameters
    ----------
    lake, cluster
        Root of the lake, and the cluster's name.

    Returns
    -------
    dict
        Sequence numbers by group id.

    Raises
    ------
    LakeError
        When the events cannot be read.
    """
    # A hint may be withdrawn although its PUBLISHED event was never written: WITHDRAWN counts too.
    kinds = ("event", "in", [PlanEvent.PUBLISHED.value, PlanEvent.WITHDRAWN.value])
    events = LakeReader(lake).read_events(filters=[("cluster", "=", cluster), kinds])
    totals = events.group_by("group_id").aggregate([("sequence", "max")])
    return dict(zip(totals["group_id"].to_pylist(), totals["sequence_max"].to_pylist(), strict=True))


def _read_groups(
    loaded: LoadedPolicy, cluster: str, plans: Sequence[Plan], client: Any
) -> dict[str, LiveGroup]:
    group_types = {
        plan["group_id"]: GroupType.CONSUMER
        if plan["group_type"] == GroupType.CONSUMER
        else GroupType.CLASSIC
        for plan in plans
    }
    return read_live_groups(client, group_types, reading_limits(loaded.policy.clusters[cluster]))


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
    """A plan's age counts from its snapshot; when a person approved it, from the approval."""
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


def _to_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _from_ms(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
