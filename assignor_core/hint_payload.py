"""What a hint says: the plan itself, in canonical bytes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from assignor_core.errors import HintFormatError
from assignor_core.partition_spans import PartitionSpans
from assignor_core.record import (
    MAX_PARTITIONS_IN_ALL,
    MAX_VALUE_BYTES,
    canonical_json,
    check_common_fields,
    check_fingerprint,
    check_text,
    parse_json,
    read_fields,
    topic_id_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["HintPayload", "canonical_json", "parse_json", "topic_id_text"]

_LOW_BITS = 2**32 - 1


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
    """

    cluster_id: str
    group_id: str
    snapshot_id: str
    fingerprint: str
    assignment: Mapping[str, Mapping[str, Sequence[int]]]
    count_slack: int
    max_moves: int
    member_ids: Mapping[str, str] | None = None

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
        content = read_fields(data, _FIELDS, _MEMBER_IDS)
        _check_fields(content)
        assignment = _decode_assignment(content["assignment"])
        _check_assignment(assignment)
        if _canonical(content, assignment) != data:
            raise HintFormatError("the payload is not in its canonical form")
        return cls(**{**content, "assignment": assignment})


_MEMBER_IDS = "member_ids"
_FIELDS = tuple(field.name for field in fields(HintPayload) if field.name != _MEMBER_IDS)


def _canonical(content: Mapping[str, Any], spans: Mapping[str, Mapping[str, PartitionSpans]]) -> bytes:
    texts = {key: {topic: str(part) for topic, part in by_topic.items()} for key, by_topic in spans.items()}
    return canonical_json({**content, "assignment": texts})


def _check_fields(content: Mapping[str, Any]) -> None:
    check_common_fields(content)
    check_fingerprint(content["fingerprint"])
    if _MEMBER_IDS in content:
        _check_member_ids(content[_MEMBER_IDS])


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
