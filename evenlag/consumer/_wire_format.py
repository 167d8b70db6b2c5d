"""What a member and its leader tell each other at a join, in kafka-python's types and in plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from assignor_core.members import Member

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# The generation entered in 2 and the rack in 3. Without a generation two claimants cannot be told apart.
_VERSION_WITH_GENERATION = 2
_VERSION_WITH_RACK = 3
_ASSIGNMENT_VERSION = 1


def read_members(members: Iterable[Any]) -> list[Member]:
    """Return the members of a join as values; what a member claims twice counts once."""
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
    ]


def make_subscription(
    topics: Iterable[str], owned: Iterable[tuple[str, int]], generation: int, rack: str | None
) -> Any:
    """Return what a member says about itself at a join; nothing stands in the user data."""
    entry = ConsumerProtocolSubscription.TopicPartition
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(owned):
        by_topic.setdefault(topic, []).append(partition)
    fields: dict[str, Any] = {
        "version": _VERSION_WITH_RACK if rack else _VERSION_WITH_GENERATION,
        "topics": sorted(topics),
        "user_data": b"",
        "owned_partitions": [entry(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()],
        "generation_id": generation,
    }
    return ConsumerProtocolSubscription(**fields, **({"rack_id": rack} if rack else {}))


def make_assignments(by_member: Mapping[str, Sequence[tuple[str, int]]]) -> dict[str, Any]:
    """Return assignments as kafka-python sends them; every member has one."""
    return {member: _make_assignment(pairs) for member, pairs in by_member.items()}


def _make_assignment(pairs: Sequence[tuple[str, int]]) -> Any:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(pairs):
        by_topic.setdefault(topic, []).append(partition)
    return ConsumerProtocolAssignment(_ASSIGNMENT_VERSION, list(by_topic.items()), b"")


def _claims(metadata: Any) -> tuple[tuple[str, int], ...]:
    owned = getattr(metadata, "owned_partitions", None) or ()
    return tuple(dict.fromkeys((entry.topic, number) for entry in owned for number in entry.partitions))


def _generation(metadata: Any) -> int:
    generation = getattr(metadata, "generation_id", None)
    return -1 if generation is None else int(generation)
