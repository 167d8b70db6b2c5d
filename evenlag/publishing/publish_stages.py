"""Stages of a publishing run beside its checks: find published plans, and encode hints.

They write nothing: :func:`evenlag.publishing.publish.publish_hints` owns the transaction and the events.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from assignor_core.hint import encode_hint, hint_key
from assignor_core.loads import MAX_CLOCK_AHEAD_MS
from evenlag.enums import GroupType, PlanEvent
from evenlag.lake.read_bounds import REPEATS
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import PLAN_EVENTS
from evenlag.publishing.hint_topic import MAX_PLAUSIBLE_SEQUENCE, is_plausible
from evenlag.publishing.publish_checks import ExpiredPlan
from evenlag.publishing.sealing.signed_records import group_signing_key, signing_key_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assignor_core.hint import Hint
    from evenlag.lake.file_pruning import Filter
    from evenlag.policy.loader import LoadedPolicy
    from evenlag.publishing.hint_topic import TopicState
    from evenlag.publishing.publish_checks import Plan

# Size of a record beside key and value: Kafka's record and batch headers, at most.
_RECORD_HEADER_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """A plan whose hint is on the topic.

    plan: Row of ``read_publishable``.
    issued_at, expires_at: Validity of the hint, in UTC.
    signing_key_id: Id of the master key that signed it; None if it is unsigned, or an earlier try wrote it.
    """

    plan: Plan
    sequence: int
    issued_at: datetime
    expires_at: datetime
    signing_key_id: str | None = None


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Plans, by whether their hint is already on the topic.

    published: Plans that an earlier, killed try has published without recording it.
    waiting: All others, in their order.
    """

    published: tuple[PublishedPlan, ...]
    waiting: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class EncodedHint:
    """A hint as it is written to the topic.

    plan: Row of ``read_publishable``.
    sequence, issued_at, expires_at, signing_key_id: As in :class:`PublishedPlan`.
    """

    plan: Plan
    value: bytes
    sequence: int
    issued_at: datetime
    expires_at: datetime
    signing_key_id: str | None

    def as_published(self) -> PublishedPlan:
        """Return the plan as published, once the transaction is committed."""
        return PublishedPlan(self.plan, self.sequence, self.issued_at, self.expires_at, self.signing_key_id)


@dataclass(frozen=True, slots=True)
class EncodedHints:
    """Result of :func:`encode_hints`.

    hints: Hints to write, one per group.
    expired: Plans whose hint exceeds the topic's record size.
    """

    hints: tuple[EncodedHint, ...]
    expired: tuple[ExpiredPlan, ...]


@dataclass(frozen=True, slots=True)
class LastSequences:
    """Newest sequence numbers on record in the lake.

    by_group: By group id, of recent events.
    floor: The same for all other groups: no earlier number is larger.
    """

    by_group: Mapping[str, int]
    floor: int = 0

    def next_of(self, group_id: str, state: TopicState) -> int:
        """Return the sequence number of a group's next hint.

        state: State of the hint topic: its hint has the newest number, unless the topic is lost, or the
            hint is not from this publisher.
        """
        current = state.hints.get(group_id)
        if current is None or current.sequence > MAX_PLAUSIBLE_SEQUENCE:
            last = self.by_group.get(group_id, self.floor)
        else:
            last = max(current.sequence, self.by_group.get(group_id, 0))
        # A forged number at the limit ends the counting: from then on time alone decides.
        return min(1 + last, MAX_PLAUSIBLE_SEQUENCE)

    def unrecorded(self, group_id: str, state: TopicState) -> int | None:
        """Return the sequence number of a group's hint if it is larger than all on record, else None."""
        current = state.hints.get(group_id)
        if current is None or not self.by_group.get(group_id, self.floor) < current.sequence:
            return None
        return current.sequence


def reconcile_published(plans: Sequence[Plan], state: TopicState) -> Reconciled:
    """Find the plans whose hint is already on the topic: an earlier try was killed before its events."""
    published: list[PublishedPlan] = []
    waiting: list[Plan] = []
    now_ms = _to_ms(datetime.now(UTC))
    for plan in plans:
        hint = state.hints.get(plan["group_id"])
        if hint is None or hint.plan_id != plan["plan_id"] or not is_plausible(hint, now_ms):
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
    last_sequences: LastSequences,
    max_bytes: int | None,
    issued_at: datetime,
) -> EncodedHints:
    """Encode and sign the hints of plans; a hint that exceeds the topic's record size expires its plan.

    plans: Plans to publish, one per group.
    max_bytes: ``max.message.bytes`` of the hint topic; None when it is not known.
    """
    settings = loaded.policy.clusters[cluster]
    signer = signing_key_id(settings)
    hints: list[EncodedHint] = []
    expired: list[ExpiredPlan] = []
    for plan in plans:
        group_id = plan["group_id"]
        sequence = last_sequences.next_of(group_id, state)
        ttl_s = loaded.policy.group_settings(cluster, group_id).hint_ttl_s
        at = _issue_time(issued_at, state.hints.get(group_id))
        expires_at = at + timedelta(seconds=ttl_s)
        value = encode_hint(
            plan["payload"].encode(),
            sequence=sequence,
            issued_at_ms=_to_ms(at),
            expires_at_ms=_to_ms(expires_at),
            group_key=group_signing_key(
                settings, group_id, is_for_brokers=plan["group_type"] == GroupType.CONSUMER
            ),
        )
        size = len(value) + len(hint_key(group_id)) + _RECORD_HEADER_BYTES
        if max_bytes is not None and size > max_bytes:
            reason = f"the hint has {size} bytes, the hint topic allows {max_bytes} per record"
            expired.append(ExpiredPlan(plan, reason, datetime.now(UTC)))
        else:
            hints.append(EncodedHint(plan, value, sequence, at, expires_at, signer))
    return EncodedHints(tuple(hints), tuple(expired))


def read_last_sequences(lake: str, cluster: str, now: datetime) -> LastSequences:
    """Read the newest sequence numbers from the lake: they outlive a withdrawn hint, and a lost topic.

    Only recent events are read. A group without any gets numbers from the time in seconds on, which are
    larger than all earlier ones; in a lake without older events it has had no hint, and begins with 1.

    Returns sequence numbers by group id, and the smallest one of other groups.
    """
    reader, since = LakeReader(lake, skip_unreadable=True), now - REPEATS
    # A hint may be withdrawn although its PUBLISHED event was never written: WITHDRAWN counts too.
    # A number that is not ours may have been recorded by a version that continued from it.
    hints: list[Filter] = [
        ("cluster", "=", cluster),
        ("event", "in", [PlanEvent.PUBLISHED.value, PlanEvent.WITHDRAWN.value]),
    ]
    plausible: list[Filter] = [*hints, ("at", ">=", since), ("sequence", "<=", MAX_PLAUSIBLE_SEQUENCE)]
    columns = ["group_id", "sequence"]
    events = reader.read(PLAN_EVENTS, columns=columns, filters=plausible)
    totals = events.group_by("group_id").aggregate([("sequence", "max")])
    by_group = dict(zip(totals["group_id"].to_pylist(), totals["sequence_max"].to_pylist(), strict=True))
    older = reader.read_newest(PLAN_EVENTS, "at", columns=["at"], filters=[*hints, ("at", "<", since)])
    floor = int(now.timestamp()) if older.num_rows else 0
    return LastSequences({group_id: number for group_id, number in by_group.items() if number}, floor)


def _issue_time(now: datetime, current: Hint | None) -> datetime:
    """When the next hint is issued: now, or right after a hint whose sequence is not counted on.

    Consumers accept the next one by its time alone. A time that they would not believe is not counted on
    either.
    """
    now_ms = _to_ms(now)
    if current is None or current.sequence < MAX_PLAUSIBLE_SEQUENCE:
        return now
    is_ahead = now_ms <= current.issued_at_ms < now_ms + MAX_CLOCK_AHEAD_MS
    return _from_ms(current.issued_at_ms + 1) if is_ahead else now


def _to_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _from_ms(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
