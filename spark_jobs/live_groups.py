"""Groups as they are this moment: the last look before a hint is published."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assignor_core.hint import fingerprint, member_key, topic_id_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
        Partitions that the members hold: member key → topic id → numbers. Every member has an entry.
    """

    state: str
    assignor: str | None
    fingerprint: str | None
    topics: tuple[tuple[str, str, int], ...] = ()
    held: Mapping[str, Mapping[str, list[int]]] = field(default_factory=dict)


def read_live_groups(client: Any, group_ids: Iterable[str]) -> dict[str, LiveGroup]:
    """Describe groups in bulk.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``.
    group_ids
        Names of groups; one that is not there is answered with state Dead.
    """
    wanted = sorted(set(group_ids))
    if not wanted:
        return {}
    described = client.describe_groups(wanted)
    names = sorted({name for group in described.values() for name in _subscribed(group)})
    topics = {
        row["name"]: (topic_id_text(row["topic_id"]), len(row["partitions"]))
        for row in (client.describe_topics(names) if names else ())
        if not row.get("error_code")
    }
    return {group_id: _live_group(described.get(group_id), topics) for group_id in wanted}


def _live_group(group: Mapping[str, Any] | None, topics: Mapping[str, tuple[str, int]]) -> LiveGroup:
    if group is None or group.get("error"):
        return LiveGroup("Dead", None, None)
    state, assignor = str(group.get("group_state")), group.get("protocol_data") or None
    members = group.get("members") or []
    if not members or not all(isinstance(member.get("member_metadata"), dict) for member in members):
        return LiveGroup(state, assignor, None)
    keys = [member_key(member["member_id"], member.get("group_instance_id")) for member in members]
    taken = [
        [topics[name][0] for name in member["member_metadata"]["topics"] if name in topics]
        for member in members
    ]
    return LiveGroup(
        state=state,
        assignor=assignor,
        fingerprint=fingerprint(zip(keys, taken, strict=True), dict(topics.values())),
        topics=tuple((name, *topics[name]) for name in sorted(_subscribed(group)) if name in topics),
        held={key: _held(member, topics) for key, member in zip(keys, members, strict=True)},
    )


def _held(member: Mapping[str, Any], topics: Mapping[str, tuple[str, int]]) -> dict[str, list[int]]:
    assignment = member.get("member_assignment")
    rows = assignment.get("assigned_partitions") or [] if isinstance(assignment, dict) else []
    return {
        topics[row["topic"]][0]: [number for number in row["partitions"] if number < topics[row["topic"]][1]]
        for row in rows
        if row["topic"] in topics
    }


def _subscribed(group: Mapping[str, Any]) -> set[str]:
    names: set[str] = set()
    for member in group.get("members") or ():
        metadata = member.get("member_metadata")
        if isinstance(metadata, dict):
            names.update(metadata["topics"])
    return names
