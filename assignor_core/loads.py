"""The loads of a group's partitions as a record of the hint topic: what a leader places by (ADR 63).

A hint is a plan for one membership. Loads outlive it: whoever joins or leaves, the leader places the
partitions by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from assignor_core.errors import HintFormatError
from assignor_core.record import (
    MAX_NUMBER,
    MAX_PARTITIONS_IN_ALL,
    MAX_SEQUENCE,
    MAX_VALUE_BYTES,
    canonical_json,
    check_common_fields,
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

LOADS_KEY_PREFIX = "loads/"
LOADS_VERSION = 1
MAX_CAPACITY = 1000
MAX_TOLERANCE = 1000
MAX_LOAD_SUM = 2**52
"""All loads together; times 1000 they still fit into 63 bits."""
MAX_FLOW_AGE_S = 86_400
"""Loads are brought no further than this from their measurement; a horizon is no longer either."""
MAX_PER_S = 1_000_000
MAX_CLOCK_AHEAD_MS = 300_000
"""A time further in the future is not believed."""
_KIND = "loads"
_HEAD = {"kind": _KIND, "version": LOADS_VERSION}


def loads_key(group_id: str) -> bytes:
    """Return the record key of a group's loads; the record is in the partition of the group's hint.

    Raises
    ------
    HintFormatError
        If the group id holds a lone surrogate.
    """
    return record_key(LOADS_KEY_PREFIX, group_id)


@dataclass(frozen=True, slots=True)
class LoadRacks:
    """Where partitions can be read without crossing racks.

    Attributes
    ----------
    sets
        Different sets of names of racks, ascending.
    topics
        Topic id → index of the set by partition number, None if unknown.
    tolerance
        By how many thousandths of the mean a member may be above it, for partitions near it; up to 1000.
    """

    sets: Sequence[Sequence[str]]
    topics: Mapping[str, Sequence[int | None]]
    tolerance: int


@dataclass(frozen=True, slots=True)
class LoadFlow:
    """What changes loads after their measurement; `present_loads` brings them to a later time (ADR 114).

    Attributes
    ----------
    arrivals
        Topic id → load that arrives in `per_s` seconds, by partition number: for the partitions that have
        loads, 0 if unknown.
    owners
        Topic id → index in `speeds` of the member that processes the partition, None if none does.
    speeds
        Load that a member processes in `per_s` seconds.
    per_s
        Seconds, 1 to 1,000,000.
    horizon_s
        The arrivals of so many seconds are part of a load and always remain of it; up to 86,400.
    """

    arrivals: Mapping[str, Sequence[int]]
    owners: Mapping[str, Sequence[int | None]]
    speeds: Sequence[int]
    per_s: int
    horizon_s: int


@dataclass(frozen=True, slots=True)
class LoadsPayload:
    """What a group's partitions weigh, and what its members can take.

    Attributes
    ----------
    cluster_id, group_id
        Where it holds.
    snapshot_id
        The snapshot that it was measured in.
    measured_at_ms, valid_until_ms
        Milliseconds since the epoch: from when on and until when it is used.
    loads
        Topic id (in Kafka's text form) → relative load by partition number, None if unknown. Together at
        most 2⁵².
    capacities
        Member key → 1 to 1000, of members whose capacity is not the default. The encoding leaves out the
        others.
    default_capacity
        1 to 1000.
    count_slack, max_moves
        The limits of placing by load.
    member_ids
        For a group of the consumer protocol (KIP-848) only: the member ids of the snapshot, by which a
        broker knows the group. None for a group of the classic protocol.
    racks
        None if none is known: the bytes omit the field.
    together
        Lists of topic ids whose equal partition numbers stay with one member; None without any, as `racks`.
    flow
        None if the loads hold for as long as they are valid, as `racks`.
    """

    cluster_id: str
    group_id: str
    snapshot_id: str
    measured_at_ms: int
    valid_until_ms: int
    loads: Mapping[str, Sequence[int | None]]
    capacities: Mapping[str, int]
    default_capacity: int
    count_slack: int
    max_moves: int
    member_ids: Sequence[str] | None = None
    racks: LoadRacks | None = None
    together: Sequence[Sequence[str]] | None = None
    flow: LoadFlow | None = None

    def encode(self) -> bytes:
        """Return the payload as canonical JSON.

        Raises
        ------
        HintFormatError
            If a value is out of its bounds, or the record would be too large.
        """
        content: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        content["loads"] = _encode_topics(self.loads)
        content["capacities"] = {k: c for k, c in self.capacities.items() if c != self.default_capacity}
        if self.member_ids is not None:
            content[_MEMBER_IDS] = sorted(self.member_ids)
        if self.racks is not None:
            content[_RACKS] = {
                "sets": [list(racks) for racks in self.racks.sets],
                "tolerance": self.racks.tolerance,
                "topics": _encode_topics(self.racks.topics),
            }
        if self.together is not None:
            content[_TOGETHER] = together_content(self.together)
        if self.flow is not None:
            content[_FLOW] = {
                "arrivals": _encode_topics(self.flow.arrivals),
                "horizon_s": self.flow.horizon_s,
                "owners": _encode_topics(self.flow.owners),
                "per_s": self.flow.per_s,
                "speeds": list(self.flow.speeds),
            }
        _check_content(content)
        data = canonical_json(content)
        if len(data) > MAX_VALUE_BYTES:
            raise HintFormatError(f"loads of {len(data)} bytes are more than a record may have")
        return data

    @classmethod
    def decode(cls, data: bytes) -> LoadsPayload:
        """Read a payload; only the exact bytes that `encode` would write are taken.

        Raises
        ------
        HintFormatError
            If the bytes are anything else.
        """
        content = read_fields(data, _FIELDS, _OPTIONAL)
        _check_content(content)
        is_canonical = (
            all(
                topic_id_text(topic) == topic and values
                for by_topic in (content["loads"], content.get(_RACKS, {}).get("topics", {}))
                for topic, values in by_topic.items()
            )
            and content["default_capacity"] not in content["capacities"].values()
            and canonical_json(content) == data
        )
        if not is_canonical:
            raise HintFormatError("the payload is not in its canonical form")
        if _RACKS in content:
            content[_RACKS] = LoadRacks(**content[_RACKS])
        if _FLOW in content:
            content[_FLOW] = LoadFlow(**content[_FLOW])
        return cls(**content)


_OPTIONAL = _MEMBER_IDS, _RACKS, _TOGETHER, _FLOW = "member_ids", "racks", "together", "flow"
_FIELDS = tuple(field.name for field in fields(LoadsPayload) if field.name not in _OPTIONAL)


@dataclass(frozen=True, slots=True)
class Loads:
    """A record of loads as read from the hint topic.

    Attributes
    ----------
    payload, payload_bytes
        What it says, as values and as bytes.
    signed
        Whether its signature was checked and holds. Without a key nothing is checked.
    """

    payload: LoadsPayload
    payload_bytes: bytes
    signed: bool

    def is_fresh(self, now_ms: int) -> bool:
        """Return whether it may be used at `now_ms`: measured by now, and still valid.

        A measurement up to five minutes ahead counts as one of now: clocks differ.
        """
        payload = self.payload
        return payload.measured_at_ms <= now_ms + MAX_CLOCK_AHEAD_MS and now_ms < payload.valid_until_ms


def encode_loads(payload_bytes: bytes, *, group_key: bytes | None = None) -> bytes:
    """Return the value of a record of loads: the envelope, a line feed, the payload's bytes.

    Parameters
    ----------
    payload_bytes
        What `LoadsPayload.encode` returned.
    group_key
        From `derive_group_key`, or `derive_broker_key` for a group of the consumer protocol. Without it
        the record is unsigned.

    Raises
    ------
    HintFormatError
        If the payload holds a line feed (then it is not from `encode`), or the value is too large.
    """
    return join_value(_HEAD, payload_bytes, group_key)


def decode_loads(
    value: bytes,
    *,
    group_id: str,
    group_key: bytes | None = None,
    cluster_id: str | None = None,
) -> Loads:
    """Read a record of loads, and make sure that it is whole, signed by who may sign, and for this group.

    The signature is checked before the payload is looked into. Whether it is fresh is the caller's to
    check at each use (`Loads.is_fresh`).

    Parameters
    ----------
    value
        A record's value. A tombstone is no record of loads: the caller tells it by its None.
    group_id
        The group that the reader belongs to.
    group_key
        The group's key. With it, an unsigned record is an error; without it, nothing is verified.
    cluster_id
        The cluster that the reader is connected to, if it knows.

    Returns
    -------
    Loads
        The loads, with `Loads.signed` as checked.

    Raises
    ------
    HintFormatError
        If the bytes are no record of loads of this version.
    HintSignatureError
        If a key is given and the signature is missing or does not hold.
    HintForeignError
        If it is for another group or cluster.
    """
    first, payload_bytes = split_value(value)
    head, signature = read_envelope(first, _HEAD)
    check_number(head["version"], "envelope's version", low=LOADS_VERSION, high=LOADS_VERSION)
    if head["kind"] != _KIND:
        raise HintFormatError("the envelope's kind is not loads")
    if group_key is not None:
        check_signature(group_key, _HEAD, payload_bytes, signature)
    payload = LoadsPayload.decode(payload_bytes)
    check_payload_is_for(payload, group_id, cluster_id)
    return Loads(payload, payload_bytes, signed=group_key is not None)


def _encode_topics(loads: Mapping[str, Sequence[int | None]]) -> dict[str, list[int | None]]:
    encoded = {topic_id_text(topic): list(values) for topic, values in loads.items() if len(values)}
    if len(encoded) != sum(len(values) > 0 for values in loads.values()):
        raise HintFormatError("a topic is repeated in the loads")
    return encoded


def _check_content(content: Mapping[str, Any]) -> None:
    check_common_fields(content)
    for name in ("measured_at_ms", "valid_until_ms"):
        check_number(content[name], name, high=MAX_SEQUENCE)
    check_number(content["default_capacity"], "default_capacity", low=1, high=MAX_CAPACITY)
    if not isinstance(content["capacities"], dict) or not isinstance(content["loads"], dict):
        raise HintFormatError("the payload's capacities or loads are no JSON object")
    for key, capacity in content["capacities"].items():
        if not check_text(key, "member key").startswith(("i:", "m:")):
            raise HintFormatError(f"{key!r:.80} is no member key")
        check_number(capacity, "capacity of a member", low=1, high=MAX_CAPACITY)
    _check_loads(content["loads"])
    if _MEMBER_IDS in content:
        _check_member_ids(content[_MEMBER_IDS])
    if _RACKS in content:
        _check_racks(content[_RACKS])
    if _TOGETHER in content:
        check_together(content[_TOGETHER])
    if _FLOW in content:
        _check_flow(content[_FLOW], content["loads"])


def _check_racks(content: object) -> None:
    if not isinstance(content, dict) or set(content) != {"sets", "tolerance", "topics"}:
        raise HintFormatError(f"the payload's {_RACKS} are no object of sets, tolerance and topics")
    check_number(content["tolerance"], "tolerance of racks", high=MAX_TOLERANCE)
    sets, topics = content["sets"], content["topics"]
    if not isinstance(sets, list) or not sets or not isinstance(topics, dict):
        raise HintFormatError(f"the payload's {_RACKS} have no sets or topics")
    for racks in sets:
        if not isinstance(racks, list) or not racks:
            raise HintFormatError(f"the payload's {_RACKS} have a set without racks")
        if not all(check_text(rack, "rack") for rack in racks) or any(a >= b for a, b in pairwise(racks)):
            raise HintFormatError(f"the payload's {_RACKS} do not ascend in a set")
    room = MAX_PARTITIONS_IN_ALL
    for numbers in topics.values():
        if not isinstance(numbers, list) or (room := room - len(numbers)) < 0:
            raise HintFormatError(f"the payload's {_RACKS} of a topic are no JSON array, or too many")
        known = [number for number in numbers if number is not None]
        _check_numbers(known, "set of racks", len(sets) - 1)


def _check_flow(content: object, loads: Mapping[str, Any]) -> None:
    if not isinstance(content, dict) or set(content) != {field.name for field in fields(LoadFlow)}:
        raise HintFormatError(f"the payload's {_FLOW} is no object of its fields")
    check_number(content["per_s"], "per_s of the flow", low=1, high=MAX_PER_S)
    check_number(content["horizon_s"], "horizon_s of the flow", high=MAX_FLOW_AGE_S)
    arrivals, owners, speeds = content["arrivals"], content["owners"], content["speeds"]
    if not isinstance(arrivals, dict) or not isinstance(owners, dict) or not isinstance(speeds, list):
        raise HintFormatError(f"the payload's {_FLOW} has no arrivals, owners or speeds")
    if not arrivals.keys() == owners.keys() == loads.keys():
        raise HintFormatError(f"the payload's {_FLOW} is not of the topics of the loads")
    if len(speeds) > MAX_PARTITIONS_IN_ALL:
        raise HintFormatError(f"more than {MAX_PARTITIONS_IN_ALL} speeds in one record")
    _check_numbers(speeds, "speed of a member")
    for topic, values in loads.items():
        for by_partition in (arrivals[topic], owners[topic]):
            if not isinstance(by_partition, list) or len(by_partition) != len(values):
                raise HintFormatError(f"the payload's {_FLOW} is not of the partitions of the loads")
        _check_numbers(arrivals[topic], "arrivals of a partition")
        owned = [owner for owner in owners[topic] if owner is not None]
        _check_numbers(owned, "owner of a partition", len(speeds) - 1)


def _check_numbers(numbers: Sequence[object], what: str, high: int = MAX_NUMBER) -> None:
    """Check many numbers by their types, the least and the largest."""
    if not {type(number) for number in numbers} <= {int}:
        raise HintFormatError(f"a {what} is no whole number")
    if numbers:
        check_number(min(numbers), what, high=high)  # type: ignore[type-var]  # all are integers
        check_number(max(numbers), what, high=high)  # type: ignore[type-var]


def _check_loads(loads: Mapping[str, Any]) -> None:
    room, total = MAX_PARTITIONS_IN_ALL, 0
    for values in loads.values():
        if not isinstance(values, list):
            raise HintFormatError("the loads of a topic are no JSON array")
        room -= len(values)
        if room < 0:
            raise HintFormatError(f"more than {MAX_PARTITIONS_IN_ALL} partitions in one record")
        known = [load for load in values if load is not None]
        _check_numbers(known, "load of a partition")
        total += sum(known)
    if total > MAX_LOAD_SUM:
        raise HintFormatError(f"all loads together are {total}, more than {MAX_LOAD_SUM}")


def _check_member_ids(content: object) -> None:
    if not isinstance(content, list):
        raise HintFormatError(f"the payload's {_MEMBER_IDS} are no JSON array")
    for member_id in content:
        if not check_text(member_id, "member id"):
            raise HintFormatError(f"the payload's {_MEMBER_IDS} hold an empty one")
    if any(a >= b for a, b in pairwise(content)):
        raise HintFormatError(f"the payload's {_MEMBER_IDS} do not ascend")
