"""Groups of a cluster: which there are, who coordinates them, and who is in them."""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from evenlag.kafka.broker_requests import MAX_ATTEMPTS, BrokerCalls, Call
from evenlag.kafka.consumer_group_describe import consumer_group, describe_consumer_groups_request
from evenlag.kafka.topic_metadata import error_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evenlag.kafka.broker_requests import Answer
    from evenlag.kafka.rate_limit import ReadingLimits

# Groups whose commits and members evenlag understands; Connect and others use the same coordinator.
_CONSUMER_PROTOCOLS: Final = frozenset({"consumer", ""})
_CLASSIC: Final = "classic"
# The protocol of KIP-848.
_CONSUMER: Final = "consumer"
# Loading, not available, not (any longer) the coordinator: ask who is, and ask again.
COORDINATOR_ERRORS: Final = frozenset({14, 15, 16})
_GROUPS_A_REQUEST: Final = 100
_KEYS_A_REQUEST: Final = 500
# The first version of FindCoordinator that takes many keys (KIP-699).
_MANY_KEYS: Final = 4


@dataclass(frozen=True, slots=True)
class Listed:
    """A group as its coordinator lists it.

    Attributes
    ----------
    state, kind, protocol_type
        ``kind`` is ``classic``, ``consumer`` or another.
    error
        Why it could not even be listed: it was there before, and its coordinator does not answer.
    """

    state: str | None
    kind: str
    protocol_type: str
    error: str | None = None


def list_groups(calls: BrokerCalls) -> tuple[dict[str, Listed], dict[int, str]]:
    """List the consumer groups that brokers coordinate.

    Returns
    -------
    tuple of dict
        The groups by id, and why brokers could not list theirs, by broker.
    """
    from kafka.protocol.admin import ListGroupsRequest

    groups: dict[str, Listed] = {}
    failed: dict[int, str] = {}
    pending = calls.brokers()
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            calls.pause(attempt)
        again = []
        for node, answer in zip(
            pending, calls.run([Call(node, ListGroupsRequest) for node in pending]), strict=True
        ):
            failed.pop(node, None)
            if answer.response is None:
                failed[node] = str(answer.error)
            elif answer.response.error_code:
                failed[node] = f"{calls.name_of(node)}: {error_name(answer.response.error_code)}"
                again += [node] if answer.response.error_code in COORDINATOR_ERRORS else []
            else:
                groups |= {row.group_id: _listed(row) for row in answer.response.groups}
        if not (pending := again):
            break
    consumers = {name: row for name, row in groups.items() if row.protocol_type in _CONSUMER_PROTOCOLS}
    return consumers, failed


def find_coordinators(calls: BrokerCalls, group_ids: Sequence[str]) -> dict[str, int | str]:
    """Ask who coordinates groups.

    Returns
    -------
    dict
        By group: the broker's id, or why it is not known.
    """
    from kafka.protocol.metadata import FindCoordinatorRequest

    size = _KEYS_A_REQUEST if calls.api_version(FindCoordinatorRequest) >= _MANY_KEYS else 1

    def make(names: Sequence[str]) -> Callable[[], Any]:
        if size == 1:
            return lambda: FindCoordinatorRequest(key=names[0], key_type=0, max_version=_MANY_KEYS - 1)
        return lambda: FindCoordinatorRequest(
            key_type=0, coordinator_keys=list(names), min_version=_MANY_KEYS
        )

    found: dict[str, int | str] = {}
    pending = list(group_ids)
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            calls.pause(attempt)
        parts = [pending[first : first + size] for first in range(0, len(pending), size)]
        pending = []
        for names, answer in zip(parts, calls.run([Call(None, make(part)) for part in parts]), strict=True):
            found.update(_coordinators(names, answer, is_one=size == 1, again=pending))
        if not pending:
            break
    return found


def asked_again(calls: BrokerCalls, group_ids: Sequence[str]) -> dict[str, int | str]:
    """Find coordinators anew; without the groups whose coordinator is left alone."""
    found = find_coordinators(calls, sorted(group_ids))
    return {name: node for name, node in found.items() if node not in calls.broken}


def describe_groups(
    calls: BrokerCalls, listed: Mapping[str, Listed], coordinators: Mapping[str, int | str]
) -> list[dict[str, Any]]:
    """Describe groups by their coordinators.

    Returns
    -------
    list of dict
        Rows of ``members`` without the snapshot's columns, by group id. A group that could not be described
        has one, with its error.
    """
    details: dict[str, tuple[Mapping[str, Any], datetime]] = {}
    failed: dict[str, str] = {}
    described = {name for name, row in listed.items() if row.kind in {_CLASSIC, _CONSUMER} and not row.error}
    pending = {name: node for name, node in coordinators.items() if name in described}
    again: list[str] = []
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            calls.pause(attempt)
            pending = asked_again(calls, again)
        again = _describe_once(calls, listed, pending, details, failed)
        if not again:
            break
    now = datetime.now().astimezone()
    rows: list[dict[str, Any]] = []
    for group_id in sorted(listed):
        detail, read_at = details.get(group_id, (None, now))
        error = listed[group_id].error or failed.get(group_id)
        rows.extend(_member_rows(group_id, listed[group_id], detail, error, read_at))
    return rows


def describe_consumer_groups(
    client: Any, group_ids: Sequence[str], limits: ReadingLimits
) -> list[dict[str, Any]]:
    """Describe groups of the consumer protocol by their names, outside a reading.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``.
    group_ids, limits
        Which groups, and how gently.

    Returns
    -------
    list of dict
        As :func:`describe_groups`.
    """
    calls = BrokerCalls.within(client, limits)
    listed = dict.fromkeys(group_ids, Listed(None, _CONSUMER, _CONSUMER))
    return describe_groups(calls, listed, find_coordinators(calls, group_ids))


def _describe_once(
    calls: BrokerCalls,
    listed: Mapping[str, Listed],
    coordinators: Mapping[str, int | str],
    details: dict[str, tuple[Mapping[str, Any], datetime]],
    failed: dict[str, str],
) -> list[str]:
    """Ask once; returns the groups whose coordinator has changed, or may have."""
    by_node: dict[tuple[int, bool], list[str]] = defaultdict(list)
    for group_id, node in sorted(coordinators.items()):
        if isinstance(node, str):
            failed[group_id] = node
        else:
            by_node[node, listed[group_id].kind == _CONSUMER].append(group_id)
    parts = [
        (node, is_newer, names[first : first + _GROUPS_A_REQUEST])
        for (node, is_newer), names in sorted(by_node.items())
        for first in range(0, len(names), _GROUPS_A_REQUEST)
    ]
    answers = calls.run(
        [Call(node, _describe_request(names, is_newer=newer)) for node, newer, names in parts]
    )
    again: list[str] = []
    for (_, is_newer, names), answer in zip(parts, answers, strict=True):
        if answer.response is None:
            failed.update(dict.fromkeys(names, str(answer.error)))
            again += [] if answer.failed_node is None else names
            continue
        for row in answer.response.groups:
            failed.pop(row.group_id, None)
            details[row.group_id] = (consumer_group(row) if is_newer else _classic_group(row)), answer.at
            again += [row.group_id] if row.error_code in COORDINATOR_ERRORS else []
    return again


def _describe_request(names: Sequence[str], *, is_newer: bool) -> Callable[[], Any]:
    from kafka.protocol.admin import DescribeGroupsRequest

    if is_newer:
        return lambda: describe_consumer_groups_request(names)
    return lambda: DescribeGroupsRequest(groups=list(names), include_authorized_operations=False)


def _coordinators(
    names: Sequence[str], answer: Answer, *, is_one: bool, again: list[str]
) -> Iterable[tuple[str, int | str]]:
    if answer.response is None:
        return [(name, str(answer.error)) for name in names]
    rows = (
        [(names[0], answer.response)] if is_one else [(row.key, row) for row in answer.response.coordinators]
    )
    again += [name for name, row in rows if row.error_code in COORDINATOR_ERRORS]
    return [(name, error_name(row.error_code) if row.error_code else row.node_id) for name, row in rows]


def _listed(row: Any) -> Listed:
    # Brokers before 4.0 do not tell the type: all their groups are classic.
    kind = str(row.group_type or _CLASSIC).lower()
    return Listed(row.group_state or None, kind, row.protocol_type or "")


def _classic_group(row: Any) -> dict[str, Any]:
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

    return {
        "group_state": row.group_state,
        "protocol_data": row.protocol_data,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "subscription": _topics(_decoded(ConsumerProtocolSubscription, member.member_metadata)),
                "assignment": _held(_decoded(ConsumerProtocolAssignment, member.member_assignment)),
            }
            for member in row.members
        ],
        "error": error_name(row.error_code) if row.error_code else None,
    }


def _decoded(message: Any, data: bytes | None) -> Any:
    # A group that rebalances shows empty bytes, not an empty list: not known is not "takes nothing".
    if not data:
        return None
    try:
        return message.decode(data)
    except (struct.error, ValueError, IndexError):
        return None


def _topics(subscription: Any) -> list[str] | None:
    return None if subscription is None else sorted(subscription.topics)


def _held(assignment: Any) -> list[dict[str, Any]] | None:
    if assignment is None:
        return None
    return [
        {"topic": row.topic, "partitions": sorted(row.partitions)} for row in assignment.assigned_partitions
    ]


def _member_rows(
    group_id: str, listed: Listed, detail: Mapping[str, Any] | None, error: str | None, read_at: datetime
) -> list[dict[str, Any]]:
    head = {
        "group_id": group_id,
        "group_state": (detail or {}).get("group_state") or listed.state,
        "group_type": listed.kind,
        "protocol_type": listed.protocol_type,
        "assignor": (detail or {}).get("protocol_data") or None,
        "group_epoch": (detail or {}).get("group_epoch"),
        "assignment_epoch": (detail or {}).get("assignment_epoch"),
        "read_at": read_at,
        "error": (detail or {}).get("error") or error,
    }
    if detail is None and not error and listed.kind in {_CLASSIC, _CONSUMER}:
        head["error"] = "the group could not be described"
    members = (detail or {}).get("members") or []
    return [head | member for member in members] or [head]
