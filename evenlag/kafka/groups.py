"""The reader that lists and describes consumer groups, for the snapshot, the publisher and ``doctor``.

Requests go to the groups' coordinators in batches, by :class:`~evenlag.kafka.broker_requests.BrokerCalls`. An
error of one group or one broker is recorded with that group, and the others are described.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from assignor_core.members import is_temporary_member
from evenlag.enums import GroupType
from evenlag.kafka.broker_requests import BrokerCalls, Call
from evenlag.kafka.consumer_group_describe import consumer_group, describe_consumer_groups_request
from evenlag.kafka.coordinators import COORDINATOR_ERRORS, find_coordinators, refresh_coordinators
from evenlag.kafka.topic_metadata import error_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from evenlag.kafka.rate_limit import RequestLimits

# Client id of the member that joins a classic group for a moment (`evenlag.publishing.asking`).
TEMPORARY_CLIENT_ID: Final = "evenlag-temporary-member"
# protocol_type of consumer groups; Kafka Connect and others use the same coordinator with their own.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"
# "" belongs to groups without members, or with standalone consumers that only commit.
CONSUMER_PROTOCOL_TYPES: Final = frozenset({CONSUMER_PROTOCOL_TYPE, ""})
# Types whose members can be described; share and streams groups assign partitions in other ways.
_DESCRIBED_TYPES: Final = frozenset({GroupType.CLASSIC.value, GroupType.CONSUMER.value})
_GROUPS_PER_REQUEST: Final = 100


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as ListGroups reports it.

    Attributes
    ----------
    state
        State of the group; None when the broker does not report it.
    group_type
        ``classic``, ``consumer`` or another type.
    protocol_type
        ``consumer`` for consumer groups, "" for groups without members.
    error
        Why the group could not be listed: an earlier snapshot has it, and its coordinator does not answer.
    """

    state: str | None
    group_type: str
    protocol_type: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Description:
    """A described group, and when its coordinator answered."""

    fields: Mapping[str, Any]
    read_at: datetime


def list_groups(
    calls: BrokerCalls, brokers: Collection[int] | None = None
) -> tuple[dict[str, GroupListing], dict[int, str]]:
    """List the consumer groups of all brokers.

    Parameters
    ----------
    calls
        Requests to the cluster's brokers.
    brokers
        Ids of the brokers; None: those that the client knows.

    Returns
    -------
    tuple of dict
        The groups by id, and the errors of brokers that could not list theirs, by broker id.
    """
    from kafka.protocol.admin import ListGroupsRequest

    groups: dict[str, GroupListing] = {}
    failed: dict[int, str] = {}
    pending = calls.brokers() if brokers is None else sorted(brokers)
    for _ in calls.rounds():
        retry = []
        answers = calls.run([Call(node, ListGroupsRequest) for node in pending])
        for node, answer in zip(pending, answers, strict=True):
            failed.pop(node, None)
            if answer.response is None:
                failed[node] = str(answer.error)
            elif answer.response.error_code:
                failed[node] = f"{calls.name_of(node)}: {error_name(answer.response.error_code)}"
                retry += [node] if answer.response.error_code in COORDINATOR_ERRORS else []
            else:
                groups |= {row.group_id: _listing(row) for row in answer.response.groups}
        if not (pending := retry):
            break
        calls.failover.begin()
    consumers = {name: row for name, row in groups.items() if row.protocol_type in CONSUMER_PROTOCOL_TYPES}
    return consumers, failed


def describe_groups(
    calls: BrokerCalls,
    listed: Mapping[str, GroupListing],
    coordinators: Mapping[str, int | str],
    *,
    with_operations: bool = False,
) -> list[dict[str, Any]]:
    """Describe groups, each by its coordinator.

    Parameters
    ----------
    calls
        Requests to the cluster's brokers.
    listed
        The groups by id; their type decides which request describes them.
    coordinators
        By group id, as :func:`~evenlag.kafka.coordinators.find_coordinators` returns them.
    with_operations
        Whether to ask for the operations that the principal is authorized for, as ``authorized_operations``:
        sorted names of ACL operations, None when the broker does not report them.

    Returns
    -------
    list of dict
        One row per member, by group id: the columns of the table ``members`` without those of the snapshot. A
        group without members, or with an error, has one row without ``member_id``.
    """
    details: dict[str, _Description] = {}
    failed: dict[str, str] = {}
    supported = {name for name, row in listed.items() if row.group_type in _DESCRIBED_TYPES and not row.error}
    pending = {name: node for name, node in coordinators.items() if name in supported}
    retry: list[str] = []
    for attempt in calls.rounds():
        waiting: list[str] = []
        if attempt:
            pending, waiting = refresh_coordinators(calls, retry)
        retry = _describe_once(calls, listed, pending, details, failed, with_operations=with_operations)
        retry += waiting
        if not retry:
            break
        calls.failover.begin()
    rows: list[dict[str, Any]] = []
    for group_id in sorted(listed):
        error = listed[group_id].error or failed.get(group_id)
        rows.extend(_member_rows(group_id, listed[group_id], details.get(group_id), error))
    return rows


def describe_named_groups(
    client: Any, group_types: Mapping[str, GroupType], limits: RequestLimits
) -> list[dict[str, Any]]:
    """Describe groups whose names and types are known, outside a snapshot.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``.
    group_types
        Type of each group, by its id.
    limits
        Request rate, timeouts and deadline.

    Returns
    -------
    list of dict
        As :func:`describe_groups`.
    """
    calls = BrokerCalls.within(client, limits)
    listed = {
        group_id: GroupListing(None, group_type.value, CONSUMER_PROTOCOL_TYPE)
        for group_id, group_type in group_types.items()
    }
    return describe_groups(calls, listed, find_coordinators(calls, sorted(listed)))


def _describe_once(
    calls: BrokerCalls,
    listed: Mapping[str, GroupListing],
    coordinators: Mapping[str, int | str],
    details: dict[str, _Description],
    failed: dict[str, str],
    *,
    with_operations: bool,
) -> list[str]:
    """Send each request once; return the groups whose coordinator has changed, or may have."""
    by_node: dict[tuple[int, bool], list[str]] = defaultdict(list)
    for group_id, node in sorted(coordinators.items()):
        if isinstance(node, str):
            failed[group_id] = node
        else:
            by_node[node, listed[group_id].group_type == GroupType.CONSUMER].append(group_id)
    batches = [
        (node, is_consumer, names[first : first + _GROUPS_PER_REQUEST])
        for (node, is_consumer), names in sorted(by_node.items())
        for first in range(0, len(names), _GROUPS_PER_REQUEST)
    ]
    answers = calls.run(
        [
            Call(node, _describe_request(names, is_consumer=is_consumer, with_operations=with_operations))
            for node, is_consumer, names in batches
        ]
    )
    retry: list[str] = []
    for (_, is_consumer, names), answer in zip(batches, answers, strict=True):
        if answer.response is None:
            failed.update(dict.fromkeys(names, str(answer.error)))
            retry += [] if answer.failed_node is None else names
            continue
        for row in answer.response.groups:
            failed.pop(row.group_id, None)
            fields = consumer_group(row) if is_consumer else _classic_group(row)
            if with_operations:
                fields["authorized_operations"] = _operation_names(row.authorized_operations)
            details[row.group_id] = _Description(fields, answer.at)
            retry += [row.group_id] if row.error_code in COORDINATOR_ERRORS else []
    return retry


def _describe_request(names: Sequence[str], *, is_consumer: bool, with_operations: bool) -> Callable[[], Any]:
    from kafka.protocol.admin import DescribeGroupsRequest

    if is_consumer:
        return lambda: describe_consumer_groups_request(names, with_operations=with_operations)
    return lambda: DescribeGroupsRequest(groups=list(names), include_authorized_operations=with_operations)


def _listing(row: Any) -> GroupListing:
    # Brokers before 4.0 do not report the type: all their groups are classic.
    group_type = str(row.group_type or GroupType.CLASSIC).lower()
    return GroupListing(row.group_state or None, group_type, row.protocol_type or "")


def _classic_group(row: Any) -> dict[str, Any]:
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

    members = []
    for member in row.members:
        subscription = _decode(ConsumerProtocolSubscription, member.member_metadata)
        if _is_temporary(member, subscription):
            continue
        members.append(
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "subscription": _topics(subscription),
                "assignment": _assignment(_decode(ConsumerProtocolAssignment, member.member_assignment)),
            }
        )
    return {
        "group_state": row.group_state,
        "protocol_type": row.protocol_type,
        "protocol_data": row.protocol_data,
        "members": members,
        "error": error_name(row.error_code) if row.error_code else None,
    }


def _is_temporary(member: Any, subscription: Any) -> bool:
    """Whether a member is evenlag's own, which joins for a moment to make the group rebalance.

    A group that rebalances reports no subscriptions: then only its client id shows it, and nobody owns
    anything, so nothing is hidden.
    """
    if subscription is None:
        return bool(member.client_id == TEMPORARY_CLIENT_ID and not member.member_metadata)
    return is_temporary_member(subscription.topics, subscription.user_data)


def _decode(message: Any, data: bytes | None) -> Any:
    # A rebalancing group reports empty bytes, not an empty list: unknown is not "subscribed to nothing".
    if not data:
        return None
    try:
        return message.decode(data)
    except (struct.error, ValueError, IndexError):
        return None


def _topics(subscription: Any) -> list[str] | None:
    return None if subscription is None else sorted(subscription.topics)


def _assignment(assignment: Any) -> list[dict[str, Any]] | None:
    if assignment is None:
        return None
    return [
        {"topic": row.topic, "partitions": sorted(row.partitions)} for row in assignment.assigned_partitions
    ]


def _operation_names(codes: Iterable[int] | None) -> list[str] | None:
    from kafka.admin import ACLOperation

    if codes is None:
        return None
    not_operations = (ACLOperation.UNKNOWN, ACLOperation.ANY, ACLOperation.ALL)
    operations = {operation for operation in ACLOperation if operation.value in set(codes)}
    return sorted(operation.name for operation in operations.difference(not_operations))


def _member_rows(
    group_id: str, listed: GroupListing, description: _Description | None, error: str | None
) -> list[dict[str, Any]]:
    fields: Mapping[str, Any] = {} if description is None else description.fields
    head = {
        "group_id": group_id,
        "group_state": fields.get("group_state") or listed.state,
        "group_type": listed.group_type,
        "protocol_type": fields.get("protocol_type") or listed.protocol_type,
        "assignor": fields.get("protocol_data") or None,
        "group_epoch": fields.get("group_epoch"),
        "assignment_epoch": fields.get("assignment_epoch"),
        "read_at": datetime.now(UTC) if description is None else description.read_at,
        "error": fields.get("error") or error,
    }
    if "authorized_operations" in fields:
        head["authorized_operations"] = fields["authorized_operations"]
    if description is None and not error and listed.group_type in _DESCRIBED_TYPES:
        head["error"] = "the group could not be described"
    members = fields.get("members") or []
    return [head | member for member in members] or [head]
