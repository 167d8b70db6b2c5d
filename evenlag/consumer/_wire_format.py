"""Subscriptions and assignments of the classic protocol: between kafka-python's types and plain values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from assignor_core.members import Member, is_temporary_member

# Version 2 adds the generation (KIP-792), version 3 the rack (KIP-881). Without a generation, conflicting
# claims of two members cannot be resolved.
_VERSION_WITH_GENERATION = 2
_VERSION_WITH_RACK = 3
_ASSIGNMENT_VERSION = 1


def read_members(members: Iterable[Any]) -> list[Member]:
    """Convert the members of a join; a partition that a member claims twice counts once.

    evenlag's temporary member, which joins only to make the group rebalance, is left out.

    Returns in the same order. The generation is -1 if the client does not send one.
    """
    return [
        Member(
            member_id=member.member_id,
            instance_id=getattr(member, "group_instance_id", None),
            topics=tuple(dict.fromkeys(member.metadata.topics or ())),
            rack=getattr(member.metadata, "rack_id", None),
            owned=_claims(member.metadata),
            generation=_generation(member.metadata),
        )
        for member in members
        if not is_temporary(member)
    ]


def is_temporary(member: Any) -> bool:
    """Return whether a member of a join is evenlag's temporary member."""
    return is_temporary_member(member.metadata.topics, getattr(member.metadata, "user_data", None))


def make_subscription(
    topics: Iterable[str], owned: Iterable[tuple[str, int]], generation: int, rack: str | None
) -> Any:
    """Build the subscription that a member sends at a join; its user data is empty.

    Returns version 2, or version 3 with a rack.
    owned: The owned (topic, partition) pairs.
    generation: The generation that assigned them; -1 for none.
    rack: The client's rack; None for none. It decides the version.
    """
    entry = ConsumerProtocolSubscription.TopicPartition
    fields: dict[str, Any] = {
        "version": _VERSION_WITH_RACK if rack else _VERSION_WITH_GENERATION,
        "topics": sorted(topics),
        "user_data": b"",
        "owned_partitions": [entry(topic=topic, partitions=numbers) for topic, numbers in _by_topic(owned)],
        "generation_id": generation,
    }
    return ConsumerProtocolSubscription(**fields, **({"rack_id": rack} if rack else {}))


def make_assignments(by_member: Mapping[str, Sequence[tuple[str, int]]]) -> dict[str, Any]:
    """Convert assignments to kafka-python's type.

    Returns by member id; a member without partitions has an empty assignment.
    by_member: (topic, partition) pairs by member id.
    """
    return {
        member: ConsumerProtocolAssignment(_ASSIGNMENT_VERSION, _by_topic(pairs), b"")
        for member, pairs in by_member.items()
    }


def _by_topic(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(pairs):
        found.setdefault(topic, []).append(partition)
    return list(found.items())


def _claims(metadata: Any) -> tuple[tuple[str, int], ...]:
    owned = getattr(metadata, "owned_partitions", None) or ()
    return tuple(dict.fromkeys((entry.topic, number) for entry in owned for number in entry.partitions))


def _generation(metadata: Any) -> int:
    generation = getattr(metadata, "generation_id", None)
    return -1 if generation is None else int(generation)
