"""Groups as they are this moment: the last look before a hint is published."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from assignor_core.hint import fingerprint, member_key, topic_id_text
from evenlag.errors import KafkaUnreachableError
from evenlag.kafka.groups import describe_consumer_groups
from evenlag.kafka.rate_limit import ReadingLimits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_DEAD: Final = "Dead"
_NOT_THERE: Final = "GroupIdNotFound"


@dataclass(frozen=True, slots=True)
class LiveGroup:
    """A group at this moment.

    Attributes
    ----------
    state, assignor
        As the coordinator tells; the assignor is None while the group rebalances.
    fingerprint
        Who is in it and what it takes; None when that does not show.
    topics
        (name, topic id, number of partitions) of what its members take and what exists, by name.
    held
        Partitions that the members hold, or shall hold by the coordinator's target where it has one: member
        key → topic id → numbers. Every member has an entry.
    """

    state: str
    assignor: str | None
    fingerprint: str | None
    topics: tuple[tuple[str, str, int], ...] = ()
    held: Mapping[str, Mapping[str, list[int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Member:
    """A member, whichever protocol it was described by; what does not show is None."""

    key: str
    subscription: Sequence[str] | None
    held: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class _Described:
    state: str
    assignor: str | None
    members: list[_Member]


def read_live_groups(
    client: Any,
    group_ids: Iterable[str],
    *,
    of_brokers: Iterable[str] = (),
    limits: ReadingLimits | None = None,
) -> dict[str, LiveGroup]:
    """Describe groups in bulk.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``.
    group_ids
        Names of groups of the classic protocol; one that is not there, or speaks another protocol by now, is
        answered with state Dead.
    of_brokers
        Names of groups of the consumer protocol; as above.
    limits
        How gently the latter are asked for.

    Raises
    ------
    KafkaUnreachableError
        When a coordinator does not answer.
    """
    classic, newer = sorted(set(group_ids)), sorted(set(of_brokers))
    described = _describe_classic(client, classic) if classic else {}
    described |= _describe_newer(client, newer, limits or ReadingLimits()) if newer else {}
    names = sorted({name for group in described.values() for name in _subscribed(group)})
    topics = {
        row["name"]: (topic_id_text(row["topic_id"]), len(row["partitions"]))
        for row in (client.describe_topics(names) if names else ())
        if not row.get("error_code")
    }
    return {group_id: _live_group(described.get(group_id), topics) for group_id in (*classic, *newer)}


def _describe_classic(client: Any, group_ids: Sequence[str]) -> dict[str, _Described]:
    return {
        group_id: _Described(
            str(group.get("group_state")),
            group.get("protocol_data") or None,
            [_classic_member(member) for member in group.get("members") or ()],
        )
        for group_id, group in client.describe_groups(group_ids).items()
        if not group.get("error")
    }


def _classic_member(member: Mapping[str, Any]) -> _Member:
    metadata, assignment = member.get("member_metadata"), member.get("member_assignment")
    rows = assignment.get("assigned_partitions") or [] if isinstance(assignment, dict) else []
    return _Member(
        key=member_key(member["member_id"], member.get("group_instance_id")),
        subscription=metadata["topics"] if isinstance(metadata, dict) else None,
        held={row["topic"]: row["partitions"] for row in rows},
    )


def _describe_newer(client: Any, group_ids: Sequence[str], limits: ReadingLimits) -> dict[str, _Described]:
    described: dict[str, _Described] = {}
    for row in describe_consumer_groups(client, group_ids, limits):
        group_id, error = row["group_id"], row["error"]
        if error is not None:
            if _NOT_THERE in error:
                continue
            raise KafkaUnreachableError(f"the group {group_id!r} could not be described: {error}")
        group = described.setdefault(group_id, _Described(row["group_state"], row["assignor"], []))
        if row.get("member_id") is not None:
            group.members.append(_newer_member(row))
    return described


def _newer_member(row: Mapping[str, Any]) -> _Member:
    return _Member(
        key=member_key(row["member_id"], row["group_instance_id"]),
        subscription=row["subscription"],
        held={part["topic"]: part["partitions"] for part in row["target_assignment"]},
    )


def _live_group(group: _Described | None, topics: Mapping[str, tuple[str, int]]) -> LiveGroup:
    if group is None:
        return LiveGroup(_DEAD, None, None)
    if not group.members or any(member.subscription is None for member in group.members):
        return LiveGroup(group.state, group.assignor, None)
    taken = [
        (member.key, [topics[name][0] for name in member.subscription or () if name in topics])
        for member in group.members
    ]
    return LiveGroup(
        state=group.state,
        assignor=group.assignor,
        fingerprint=fingerprint(taken, dict(topics.values())),
        topics=tuple((name, *topics[name]) for name in sorted(_subscribed(group)) if name in topics),
        held={member.key: _held(member.held, topics) for member in group.members},
    )


def _held(held: Mapping[str, Sequence[int]], topics: Mapping[str, tuple[str, int]]) -> dict[str, list[int]]:
    return {
        topics[name][0]: [number for number in numbers if number < topics[name][1]]
        for name, numbers in held.items()
        if name in topics
    }


def _subscribed(group: _Described) -> set[str]:
    return {name for member in group.members for name in member.subscription or ()}
