"""What a hint says: the plan itself, in canonical bytes."""

from __future__ import annotations

import base64
import binascii
import json
import re
import uuid
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from assignor_core.errors import HintFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["HintPayload", "canonical_json", "parse_json", "topic_id_text"]

_UUID_BYTES = 16
_KAFKA_UUID = re.compile(r"[A-Za-z0-9_-]{22}")
_RANGES = re.compile(r"\d{1,10}(?:-\d{1,10})?(?:,\d{1,10}(?:-\d{1,10})?)*", re.ASCII)
_MAX_PARTITION = 2**31 - 1
# Ranges are short and expand: without a bound, twenty bytes could ask for two thousand million numbers.
_MAX_PARTITIONS_IN_ALL = 2_000_000


def canonical_json(content: object) -> bytes:
    """Return JSON bytes that depend on the content alone: keys sorted, no spaces, ASCII."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def parse_json(data: bytes, what: str) -> object:
    """Return the JSON value in `data`, or raise `HintFormatError` whatever is wrong with it."""
    try:
        parsed: object = json.loads(data.decode("utf-8"), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise HintFormatError(f"the {what} is no JSON: {error!s:.200}") from error
    return parsed


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key is repeated in one object")
    return content


def topic_id_text(topic_id: uuid.UUID | bytes | str) -> str:
    """Return a topic id in the one text form that evenlag uses: Kafka's own, 22 characters.

    Parameters
    ----------
    topic_id
        A UUID, its 16 bytes, Kafka's text of it (URL-safe base64 without padding) or the usual text.

    Raises
    ------
    HintFormatError
        If it is none of these.

    Examples
    --------
    >>> topic_id_text("00000000-0000-0000-0000-000000000001")
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    if isinstance(topic_id, str):
        return _topic_id_from_text(topic_id)
    raw = topic_id.bytes if isinstance(topic_id, uuid.UUID) else bytes(topic_id)
    if len(raw) != _UUID_BYTES:
        raise HintFormatError(f"a topic id has {_UUID_BYTES} bytes, not {len(raw)}")
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


@lru_cache(maxsize=16_384)  # the same few topics stand at every member of a group
def _topic_id_from_text(text: str) -> str:
    if _KAFKA_UUID.fullmatch(text):
        try:
            # Through bytes: the last character has four spare bits, so other texts mean the same id.
            return topic_id_text(base64.urlsafe_b64decode(text + "=="))
        except binascii.Error as error:
            raise HintFormatError(f"{text!r} is no topic id") from error
    try:
        return topic_id_text(uuid.UUID(text))
    except ValueError as error:
        raise HintFormatError(f"{text!r:.60} is no topic id") from error


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
        be left out; the encoding leaves empty ones out.
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
        content["assignment"] = {
            key: encoded for key, by_topic in self.assignment.items() if (encoded := _encode_topics(by_topic))
        }
        data = canonical_json(content)
        _check_disjoint(self.assignment)
        return data

    @classmethod
    def decode(cls, data: bytes) -> HintPayload:
        """Read a payload; only the exact bytes that `encode` would write are taken.

        Raises
        ------
        HintFormatError
            If the bytes are anything else.
        """
        content = parse_json(data, "payload")
        if not isinstance(content, dict) or set(content) - {_MEMBER_IDS} != set(_FIELDS):
            raise HintFormatError(f"the payload's fields must be {list(_FIELDS)}, and may be {_MEMBER_IDS}")
        _check_fields(content)
        assignment = _decode_assignment(content["assignment"])
        payload = cls(**{**content, "assignment": assignment})
        if payload.encode() != data:
            raise HintFormatError("the payload is not in its canonical form")
        return payload


_MEMBER_IDS = "member_ids"
_FIELDS = tuple(field.name for field in fields(HintPayload) if field.name != _MEMBER_IDS)
_TEXT_FIELDS = ("cluster_id", "group_id", "snapshot_id", "fingerprint")
_NUMBER_FIELDS = ("count_slack", "max_moves")


def _check_fields(content: Mapping[str, Any]) -> None:
    for name in _TEXT_FIELDS:
        if not isinstance(content[name], str):
            raise HintFormatError(f"the payload's {name} is no text")
    for name in _NUMBER_FIELDS:
        number = content[name]
        if type(number) is not int or not 0 <= number < 2**63:
            raise HintFormatError(f"the payload's {name} is no whole number from 0 on: {number!r:.40}")
    if _MEMBER_IDS in content:
        _check_member_ids(content[_MEMBER_IDS])


def _check_member_ids(content: object) -> None:
    if not isinstance(content, dict):
        raise HintFormatError(f"the payload's {_MEMBER_IDS} is no JSON object")
    for key, member_id in content.items():
        if not (isinstance(key, str) and key.startswith("i:")):
            raise HintFormatError(f"the payload's {_MEMBER_IDS} has {key!r:.80}, which is no static member")
        if not (isinstance(member_id, str) and member_id):
            raise HintFormatError(f"the payload's {_MEMBER_IDS} has no member id at {key!r:.80}")


def _encode_topics(by_topic: Mapping[str, Sequence[int]]) -> dict[str, str]:
    return {topic_id_text(topic): _encode_ranges(parts) for topic, parts in by_topic.items() if len(parts)}


def _encode_ranges(partitions: Iterable[int]) -> str:
    numbers = sorted(map(int, partitions))
    for number in (*numbers[:1], *numbers[-1:]):
        if not 0 <= number <= _MAX_PARTITION:
            raise HintFormatError(f"{number} is no partition number")
    texts: list[str] = []
    first = last = -2
    for number in numbers:
        if number == last + 1:
            last = number
            continue
        if number == last:
            raise HintFormatError(f"partition {number} is repeated")
        if last >= 0:
            texts.append(str(first) if first == last else f"{first}-{last}")
        first = last = number
    if last >= 0:
        texts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(texts)


def _decode_assignment(content: object) -> dict[str, dict[str, tuple[int, ...]]]:
    if not isinstance(content, dict):
        raise HintFormatError("the payload's assignment is no JSON object")
    room = _MAX_PARTITIONS_IN_ALL
    assignment: dict[str, dict[str, tuple[int, ...]]] = {}
    for key, by_topic in content.items():
        if not isinstance(by_topic, dict):
            raise HintFormatError(f"the topics of {key!r:.80} are no JSON object")
        assignment[key] = {}
        for topic, text in by_topic.items():
            numbers = _decode_ranges(text, room)
            room -= len(numbers)
            assignment[key][topic] = numbers
    return assignment


def _decode_ranges(text: object, room: int) -> tuple[int, ...]:
    if not isinstance(text, str) or not _RANGES.fullmatch(text):
        raise HintFormatError(f"{text!r:.80} is no list of partition ranges")
    spans = [
        (int(first), int(last or first)) for first, _, last in (s.partition("-") for s in text.split(","))
    ]
    if any(first > last or last > _MAX_PARTITION for first, last in spans):
        raise HintFormatError(f"{text!r:.80} has a range that goes nowhere")
    if sum(last - first + 1 for first, last in spans) > room:
        raise HintFormatError(f"more than {_MAX_PARTITIONS_IN_ALL} partitions in one hint")
    return tuple(number for first, last in spans for number in range(first, last + 1))


def _check_disjoint(assignment: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
    seen: dict[str, set[int]] = {}
    for key, by_topic in assignment.items():
        for topic, partitions in by_topic.items():
            taken = seen.setdefault(topic_id_text(topic), set())
            before = len(taken)
            taken.update(partitions)
            if len(taken) != before + len(partitions):
                raise HintFormatError(
                    f"a partition of topic {topic} is repeated, the second time at {key!r:.80}"
                )
