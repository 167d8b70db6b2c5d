"""The hint: an approved plan as bytes, its identity, and who it is for.

A hint's value is two lines. The first is a small JSON object, the envelope (version, sequence, times,
signature). The second is the payload, canonical JSON too: the same content always gives the same bytes,
so its hash, the plan id, names what was approved and what is published alike. Two lines rather than one
object inside the other: the payload's bytes stay exactly as they were hashed, and nothing is escaped.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from assignor_core.errors import HintFormatError, HintVersionError
from assignor_core.partition_spans import PartitionSpans
from assignor_core.record import (
    MAX_PARTITIONS_IN_ALL,
    MAX_SEQUENCE,
    MAX_VALUE_BYTES,
    canonical_json,
    check_common_fields,
    check_fingerprint,
    check_number,
    check_payload_is_for,
    check_signature,
    check_text,
    check_together,
    join_value,
    read_envelope,
    read_fields,
    record_key,
    split_value,
    together_content,
    topic_id_text,
)

ENVELOPE_VERSION = 1
GROUP_KEY_PREFIX = "group/"
STOP_KEY = "control/stop"
_KEY_CONTEXT = b"evenlag hint key v1\x00"
_BROKER_KEY_CONTEXT = b"evenlag broker hint key v1\x00"
_LOW_BITS = 2**32 - 1
_ENVELOPE_FIELDS = ("version", "sequence", "issued_at_ms", "expires_at_ms")


def member_key(member_id: str, instance_id: str | None) -> str:
    """Return the key of a member in hints: the instance id, which survives a restart, else the member id.

    Parameters
    ----------
    member_id, instance_id
        Kafka's member id, and the static instance id if it has one.

    Examples
    --------
    >>> member_key("app-1-6f3c", "pod-0"), member_key("app-1-6f3c", None)
    ('i:pod-0', 'm:app-1-6f3c')
    """
    return f"m:{member_id}" if instance_id is None else f"i:{instance_id}"


def hint_key(group_id: str) -> bytes:
    """Return the record key of a group's hint in the hint topic.

    Raises
    ------
    HintFormatError
        If the group id holds a lone surrogate.
    """
    return record_key(GROUP_KEY_PREFIX, group_id)


def fingerprint(members: Iterable[tuple[str, Iterable[str]]], topics: Mapping[str, int]) -> str:
    """Return the identity of a group: who is in it, what they take, how many partitions there are.

    Owners, generations, racks and names do not enter: the fingerprint stays as long as a plan for the
    group stays meaningful. Only topics that exist and that somebody takes count, so the planner, which
    sees all topics, and a group's leader, which sees its own, compute the same.

    Parameters
    ----------
    members
        Pairs of a member's key (`member_key`) and the ids of the topics it takes, in any order.
    topics
        Number of partitions by topic id; a topic with none does not exist.

    Returns
    -------
    str
        SHA-256 in hexadecimal of the canonical JSON.

    Raises
    ------
    HintFormatError
        If a topic id has no known text form.

    Examples
    --------
    >>> fingerprint([("m:a", ["AAAAAAAAAAAAAAAAAAAAAQ"])], {"AAAAAAAAAAAAAAAAAAAAAQ": 3})[:12]
    'cbadcab842b5'
    """
    counts = {topic_id_text(topic): int(count) for topic, count in topics.items() if count > 0}
    rows: list[list[Any]] = []
    taken: set[str] = set()
    for key, topic_ids in members:
        existing = sorted({text for text in map(topic_id_text, topic_ids) if text in counts})
        taken.update(existing)
        rows.append([key, existing])
    rows.sort()
    content = {"members": rows, "topics": [[topic, counts[topic]] for topic in sorted(taken)]}
    return hashlib.sha256(canonical_json(content)).hexdigest()


def plan_id(payload_bytes: bytes) -> str:
    """Return the identity of a plan: SHA-256, in hexadecimal, of its payload's bytes."""
    return hashlib.sha256(payload_bytes).hexdigest()


def derive_group_key(master_key: bytes, group_id: str) -> bytes:
    """Return the key that signs one group's hints, 32 bytes.

    A consumer holds its own group's key only, so no application can sign for another group.

    Parameters
    ----------
    master_key, group_id
        The publisher's secret, and the group.

    Raises
    ------
    ValueError
        If the master key is empty.
    """
    return _derive(master_key, _KEY_CONTEXT, group_id)


def derive_broker_key(master_key: bytes, group_id: str) -> bytes:
    """Return the key that signs the hints of a group of the consumer protocol (KIP-848), 32 bytes.

    Only publisher and brokers hold it. A broker is not told which group asks it, so a key that an
    application holds, that of `derive_group_key`, must not sign what a broker follows.

    Parameters
    ----------
    master_key, group_id
        As for `derive_group_key`.

    Raises
    ------
    ValueError
        If the master key is empty.
    """
    return _derive(master_key, _BROKER_KEY_CONTEXT, group_id)


@dataclass(frozen=True, slots=True)
class HintPayload:
    """An approved plan as the consumers get it; its bytes are what the plan id is the hash of.

    Attributes
    ----------
    cluster_id, group_id
        Where it holds.
    snapshot_id
        The snapshot that it was planned from.
    fingerprint
        The membership that it was planned for (`assignor_core.hint.fingerprint`).
    assignment
        Member key → topic id (in Kafka's text form) → partition numbers. A member without partitions may
        be left out; the encoding leaves empty ones out. Decoded ones are `PartitionSpans`: expand them
        only against a group, whose partition counts bound them.
    count_slack, max_moves
        The limits that it was planned within, and that every consumer holds it to.
    member_ids
        For a group of the consumer protocol (KIP-848) only: key → member id of its static members at the
        time of the snapshot, by which a broker knows the group. None for a group of the classic protocol:
        its bytes omit the field, and do not change.
    together
        Lists of ids of topics whose equal partition numbers stay with one member; None if there are none.
    """

    cluster_id: str
    group_id: str
    snapshot_id: str
    fingerprint: str
    assignment: Mapping[str, Mapping[str, Sequence[int]]]
    count_slack: int
    max_moves: int
    member_ids: Mapping[str, str] | None = None
    together: Sequence[Sequence[str]] | None = None

    def encode(self) -> bytes:
        """Return the payload as canonical JSON; partitions are written as ranges, ``"0-3,7"``.

        Raises
        ------
        HintFormatError
            If a value is out of its range or a partition is repeated.
        """
        content: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        if self.member_ids is not None:
            content[_MEMBER_IDS] = dict(self.member_ids)
        if self.together is not None:
            content[_TOGETHER] = together_content(self.together)
        _check_fields(content)
        spans = _spans_by_member(self.assignment)
        _check_assignment(spans)
        data = _canonical(content, spans)
        if len(data) > MAX_VALUE_BYTES:
            raise HintFormatError(f"a hint of {len(data)} bytes is more than a record may have")
        return data

    @classmethod
    def decode(cls, data: bytes) -> HintPayload:
        """Read a payload; only the exact bytes that `encode` would write are taken.

        Raises
        ------
        HintFormatError
            If the bytes are anything else.
        """
        content = read_fields(data, _FIELDS, (_MEMBER_IDS, _TOGETHER))
        _check_fields(content)
        assignment = _decode_assignment(content["assignment"])
        _check_assignment(assignment)
        if _canonical(content, assignment) != data:
            raise HintFormatError("the payload is not in its canonical form")
        return cls(**{**content, "assignment": assignment})


_MEMBER_IDS, _TOGETHER = "member_ids", "together"
_FIELDS = tuple(field.name for field in fields(HintPayload) if field.name not in {_MEMBER_IDS, _TOGETHER})


@dataclass(frozen=True, slots=True)
class Hint:
    """A hint as read from the hint topic.

    Attributes
    ----------
    payload_bytes, payload, plan_id
        What is asked for, as bytes, as values, and its identity.
    sequence
        Rises by one with every new hint of a group; a repeat carries the same.
    issued_at_ms, expires_at_ms
        Milliseconds since the epoch; from `expires_at_ms` on nobody may start to follow it.
    signed
        Whether its signature was checked and holds. Without a key nothing is checked.
    """

    payload_bytes: bytes
    payload: HintPayload
    plan_id: str
    sequence: int
    issued_at_ms: int
    expires_at_ms: int
    signed: bool

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the hint's time is over at `now_ms`."""
        return now_ms >= self.expires_at_ms


def encode_hint(
    payload_bytes: bytes,
    *,
    sequence: int,
    issued_at_ms: int,
    expires_at_ms: int,
    group_key: bytes | None = None,
) -> bytes:
    """Return the value of a hint's record: the envelope, a line feed, the payload's bytes.

    Parameters
    ----------
    payload_bytes
        What `HintPayload.encode` returned.
    sequence, issued_at_ms, expires_at_ms
        See `Hint`; from 0 to 2⁵³.
    group_key
        From `derive_group_key`; signs envelope and payload. Without it the hint is unsigned.

    Raises
    ------
    HintFormatError
        If a number is out of its bounds, the payload holds a line feed (then it is not from `encode`), or
        the value is too large.
    """
    head = {
        "expires_at_ms": expires_at_ms,
        "issued_at_ms": issued_at_ms,
        "sequence": sequence,
        "version": ENVELOPE_VERSION,
    }
    for name, number in head.items():
        check_number(number, f"envelope's {name}", high=MAX_SEQUENCE)
    return join_value(head, payload_bytes, group_key)


def decode_hint(
    value: bytes,
    *,
    group_id: str,
    group_key: bytes | None = None,
    cluster_id: str | None = None,
) -> Hint:
    """Read a hint, and make sure that it is whole, signed by who may sign, and meant for this group.

    The signature is checked before the payload is looked into. Expiry is the caller's to check
    (`Hint.is_expired`): it stops starting, not finishing or keeping.

    Parameters
    ----------
    value
        A record's value. A tombstone is no hint: the caller tells it by its None.
    group_id
        The group that the reader belongs to.
    group_key
        The group's key. With it, an unsigned hint is an error; without it, nothing is verified.
    cluster_id
        The cluster that the reader is connected to, if it knows.

    Returns
    -------
    Hint
        The hint, with `Hint.signed` as checked.

    Raises
    ------
    HintFormatError
        If the bytes are no hint.
    HintVersionError
        If it has a newer format: it replaces older hints, and cannot be followed. It is signed by who may
        sign; its cluster is not known.
    HintSignatureError
        If a key is given and the signature is missing or does not hold.
    HintForeignError
        If it is for another group or cluster.
    """
    first, payload_bytes = split_value(value)
    head, signature = read_envelope(first, _ENVELOPE_FIELDS)
    for name, number in head.items():
        low = ENVELOPE_VERSION if name == "version" else 0
        check_number(number, f"envelope's {name}", low=low, high=MAX_SEQUENCE)
    if group_key is not None:
        check_signature(group_key, head, payload_bytes, signature)
    if head["version"] > ENVELOPE_VERSION:
        raise HintVersionError(plan_id(payload_bytes), head["sequence"], head["issued_at_ms"])
    payload = HintPayload.decode(payload_bytes)
    check_payload_is_for(payload, group_id, cluster_id)
    return Hint(
        payload_bytes=payload_bytes,
        payload=payload,
        plan_id=plan_id(payload_bytes),
        sequence=head["sequence"],
        issued_at_ms=head["issued_at_ms"],
        expires_at_ms=head["expires_at_ms"],
        signed=group_key is not None,
    )


def _derive(master_key: bytes, context: bytes, group_id: str) -> bytes:
    if not master_key:
        raise ValueError("the master key is empty")
    return hmac.new(master_key, context + hint_key(group_id), hashlib.sha256).digest()


def _canonical(content: Mapping[str, Any], spans: Mapping[str, Mapping[str, PartitionSpans]]) -> bytes:
    texts = {key: {topic: str(part) for topic, part in by_topic.items()} for key, by_topic in spans.items()}
    return canonical_json({**content, "assignment": texts})


def _check_fields(content: Mapping[str, Any]) -> None:
    check_common_fields(content)
    check_fingerprint(content["fingerprint"])
    if _MEMBER_IDS in content:
        _check_member_ids(content[_MEMBER_IDS])
    if _TOGETHER in content:
        check_together(content[_TOGETHER])


def _check_member_ids(content: object) -> None:
    if not isinstance(content, dict):
        raise HintFormatError(f"the payload's {_MEMBER_IDS} is no JSON object")
    for key, member_id in content.items():
        if not check_text(key, "member key").startswith("i:"):
            raise HintFormatError(f"the payload's {_MEMBER_IDS} has {key!r:.80}, which is no static member")
        if not check_text(member_id, "member id"):
            raise HintFormatError(f"the payload's {_MEMBER_IDS} has no member id at {key!r:.80}")


def _spans_by_member(
    assignment: Mapping[str, Mapping[str, Sequence[int]]],
) -> dict[str, dict[str, PartitionSpans]]:
    """Return an assignment in ranges, without what is empty."""
    by_member: dict[str, dict[str, PartitionSpans]] = {}
    for key, by_topic in assignment.items():
        spans = {
            topic_id_text(topic): PartitionSpans.of(numbers)
            for topic, numbers in by_topic.items()
            if len(numbers)
        }
        if len(spans) != sum(1 for numbers in by_topic.values() if len(numbers)):
            raise HintFormatError(f"a topic is repeated at {key!r:.80}")
        if spans:
            by_member[key] = spans
    return by_member


def _decode_assignment(content: object) -> dict[str, dict[str, PartitionSpans]]:
    if not isinstance(content, dict):
        raise HintFormatError("the payload's assignment is no JSON object")
    assignment: dict[str, dict[str, PartitionSpans]] = {}
    for key, by_topic in content.items():
        if not isinstance(by_topic, dict) or not by_topic:
            raise HintFormatError(f"the topics of {key!r:.80} are no JSON object, or an empty one")
        if any(topic_id_text(topic) != topic for topic in by_topic):
            raise HintFormatError(f"a topic id at {key!r:.80} is not in its canonical form")
        assignment[key] = {topic: PartitionSpans.parse(text) for topic, text in by_topic.items()}
    return assignment


def _check_assignment(assignment: Mapping[str, Mapping[str, PartitionSpans]]) -> None:
    """Check keys, that no partition is repeated, and how many there are: from ranges alone."""
    by_topic: dict[str, list[PartitionSpans]] = {}
    room = MAX_PARTITIONS_IN_ALL
    for key, shares in assignment.items():
        check_text(key, "member key")
        for topic, numbers in shares.items():
            room -= len(numbers)
            by_topic.setdefault(topic, []).append(numbers)
    if room < 0:
        raise HintFormatError(f"more than {MAX_PARTITIONS_IN_ALL} partitions in one hint")
    for topic, parts in by_topic.items():
        # One number a range, for many ranges in little memory.
        spans = sorted(first << 32 | last for numbers in parts for first, last in numbers.iter_spans())
        for before, after in pairwise(spans):
            if after >> 32 <= before & _LOW_BITS:
                raise HintFormatError(f"partition {after >> 32} of topic {topic} is repeated")
