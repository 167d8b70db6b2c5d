"""Stages of a publishing run beside its checks: find published plans, and encode hints.

They write nothing: :func:`evenlag.publishing.publish.publish_hints` owns the transaction and the events.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from assignor_core.hint import encode_hint, hint_key
from evenlag.enums import GroupType, PlanEvent
from evenlag.lake.reader import LakeReader
from evenlag.publishing.hint_topic import group_signing_key
from evenlag.publishing.publish_checks import ExpiredPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlag.policy.loader import LoadedPolicy
    from evenlag.publishing.hint_topic import TopicState
    from evenlag.publishing.publish_checks import Plan

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


def _to_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _from_ms(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
