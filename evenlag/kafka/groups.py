"""The reader that lists and describes groups, for the snapshot, the publisher and ``doctor``.

Requests go to the groups' coordinators in batches, by :class:`~evenlag.kafka.broker_requests.BrokerCalls`. An
error of one group or one broker is recorded with that group, and the others are described.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest

from evenlag.enums import GroupType
from evenlag.kafka import messages
from evenlag.kafka.broker_requests import BrokerCalls, Call, RequestLimits
from evenlag.kafka.coordinators import (
    COORDINATOR_ERRORS,
    GroupRequests,
    ask_coordinators,
    find_coordinators,
)
from evenlag.kafka.member_protocol import CONSUMER_PROTOCOL_TYPE, Topics, described_group
from evenlag.kafka.topic_metadata import error_name, read_metadata

# A group of a type that a newer Kafka has is listed, and its members are not known.
_DESCRIBED_TYPES: Final = frozenset(GroupType)
_GROUPS_PER_REQUEST: Final = 100
_NOT_DESCRIBED: Final = "the group could not be described"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as ListGroups reports it; `group_type` may be one that a newer Kafka has.

    protocol_type: ``consumer`` for consumer groups; of other groups their own, as ``connect``; "" for
        classic groups without members, or with standalone consumers that only commit.
    error: Why an earlier snapshot's group could not be listed: its coordinator does not answer.
    """

    state: str | None
    group_type: str
    protocol_type: str
    error: str | None = None


def list_groups(
    calls: BrokerCalls, brokers: Collection[int] | None = None
) -> tuple[dict[str, GroupListing], dict[int, str]]:
    """List the groups of all brokers, of every type, and the errors of brokers that did not list theirs."""
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
                named = [row for row in answer.response.groups or () if row.group_id is not None]
                groups |= {row.group_id: _listing(row) for row in named}
        if not (pending := retry):
            break
        calls.failover.begin()
    return groups, failed


def describe_groups(
    calls: BrokerCalls,
    listed: Mapping[str, GroupListing],
    coordinators: Mapping[str, int | str],
    topics: Topics,
    *,
    with_operations: bool = False,
) -> list[dict[str, Any]]:
    """Describe groups, each by its coordinator: one row per member, by group id, with columns of ``members``.

    A group without members, or with an error, has one row without ``member_id``. What is unknown has its
    reason. `with_operations` asks for ``authorized_operations``, the names of ACL operations, too.
    """
    details: dict[str, dict[str, Any]] = {}
    supported = {name for name, row in listed.items() if row.group_type in _DESCRIBED_TYPES and not row.error}

    def take(group_id: str, row: Any, read_at: datetime) -> tuple[str | None, int]:
        fields = described_group(row, listed[group_id].group_type, topics)
        details[group_id] = fields | {"read_at": read_at}
        return None, row.error_code

    requests = GroupRequests(
        kind_of=lambda group_id: listed[group_id].group_type,
        make=lambda kind: (
            _GROUPS_PER_REQUEST,
            partial(_describe_request, group_type=kind, with_operations=with_operations),
        ),
        take=take,
        missing=_NOT_DESCRIBED,
    )
    asked = {name: node for name, node in coordinators.items() if name in supported}
    failed = ask_coordinators(calls, asked, requests)
    rows: list[dict[str, Any]] = []
    for group_id in sorted(listed):
        error = listed[group_id].error or failed.get(group_id)
        rows.extend(
            _member_rows(
                group_id, listed[group_id], details.get(group_id), error, with_operations=with_operations
            )
        )
    return rows


def describe_named_groups(
    client: Any,
    group_types: Mapping[str, GroupType],
    limits: RequestLimits,
    ignored_topics: frozenset[str] = frozenset(),
) -> list[dict[str, Any]]:
    """Describe groups whose names and types are known; no expression matches the ignored topics."""
    calls = BrokerCalls(client, limits)
    listed = {
        group_id: GroupListing(None, group_type.value, CONSUMER_PROTOCOL_TYPE)
        for group_id, group_type in group_types.items()
    }
    topics = cache(lambda: read_metadata(calls, ignored_topics).partitions.names)
    return describe_groups(calls, listed, find_coordinators(calls, sorted(listed)), topics)


def _describe_request(names: Sequence[str], *, group_type: str, with_operations: bool) -> Any:
    if group_type == GroupType.CLASSIC:
        return DescribeGroupsRequest(groups=list(names), include_authorized_operations=with_operations)
    requests = {
        GroupType.CONSUMER: messages.ConsumerGroupDescribeRequest,
        GroupType.STREAMS: messages.StreamsGroupDescribeRequest,
        GroupType.SHARE: messages.ShareGroupDescribeRequest,
    }
    return requests[GroupType(group_type)](
        group_ids=list(names), include_authorized_operations=with_operations
    )


def _listing(row: Any) -> GroupListing:
    # Brokers before 4.0 do not report the type: all their groups are classic.
    group_type = str(row.group_type or GroupType.CLASSIC).lower()
    return GroupListing(row.group_state or None, group_type, row.protocol_type or "")


def _member_rows(
    group_id: str,
    listed: GroupListing,
    fields: Mapping[str, Any] | None,
    error: str | None,
    *,
    with_operations: bool,
) -> list[dict[str, Any]]:
    is_described, fields = fields is not None, fields or {}
    head = {
        "group_id": group_id,
        "group_state": fields.get("group_state") or listed.state,
        "group_type": listed.group_type,
        "protocol_type": fields.get("protocol_type") or listed.protocol_type,
        "assignor": fields.get("assignor"),
        "group_epoch": fields.get("group_epoch"),
        "assignment_epoch": fields.get("assignment_epoch"),
        "read_at": fields.get("read_at") or datetime.now(UTC),
        "error": fields.get("error") or error,
    }
    if with_operations:
        head["authorized_operations"] = fields.get("authorized_operations")
    if not is_described and not error and listed.group_type in _DESCRIBED_TYPES:
        head["error"] = _NOT_DESCRIBED
    members = fields.get("members") or []
    return [head | member for member in members] or [head]
