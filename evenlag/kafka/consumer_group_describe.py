"""Members of groups of the consumer protocol (KIP-848), in the form that classic groups are described in.

kafka-python 3.0 lists such groups but cannot describe them: this module sends its own message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import GroupType

if TYPE_CHECKING:
    from collections.abc import Sequence

# UNSUPPORTED_VERSION: Kafka 3.9 knows the request, and refuses it while the feature is off.
_UNSUPPORTED: Final = 35
_NO_CONSUMER_PROTOCOL: Final = (
    "the brokers do not have the consumer protocol (Kafka 4.0 and newer, group.version=1)"
)
_MEMBER_TYPES: Final = {0: GroupType.CLASSIC.value, 1: GroupType.CONSUMER.value}


def describe_consumer_groups_request(group_ids: Sequence[str], *, with_operations: bool = False) -> Any:
    """Build a ConsumerGroupDescribe request.

    Parameters
    ----------
    group_ids
        Groups of type ``consumer``, all with the same coordinator.
    with_operations
        Whether to ask for the operations that the principal is authorized for.

    Returns
    -------
    ConsumerGroupDescribeRequest
        The request for their coordinator.
    """
    from evenlag.kafka.messages import ConsumerGroupDescribeRequest

    return ConsumerGroupDescribeRequest(
        group_ids=list(group_ids), include_authorized_operations=with_operations
    )


def consumer_group(group: Any) -> dict[str, Any]:
    """Convert a described group into the form of a classic one.

    Parameters
    ----------
    group
        A group of a ConsumerGroupDescribe response.

    Returns
    -------
    dict
        ``group_state, protocol_data`` (the server-side assignor), ``group_epoch, assignment_epoch, members``
        and ``error``. A member has the columns of the table ``members``; its subscription is None when it
        subscribes by a regular expression, because the matching topics are not reported.
    """
    import kafka.errors

    error = None
    if group.error_code:
        why = _NO_CONSUMER_PROTOCOL if group.error_code == _UNSUPPORTED else group.error_message or ""
        error = f"{kafka.errors.for_code(group.error_code).__name__}: {why}"
    return {
        "group_state": group.group_state,
        "protocol_data": group.assignor_name,
        "group_epoch": None if group.error_code else group.group_epoch,
        "assignment_epoch": None if group.error_code else group.assignment_epoch,
        "members": [_member(member) for member in group.members],
        "error": error,
    }


def _member(member: Any) -> dict[str, Any]:
    has_topic_names = not member.subscribed_topic_regex
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscription": sorted(member.subscribed_topic_names) if has_topic_names else None,
        "assignment": _partitions(member.assignment),
        "target_assignment": _partitions(member.target_assignment),
        "member_epoch": member.member_epoch,
        # Reported since the second version of the message (Kafka 4.1).
        "member_type": _MEMBER_TYPES.get(member.member_type),
        "rack_id": member.rack_id,
    }


def _partitions(assignment: Any) -> list[dict[str, Any]]:
    return [
        {"topic": topic.topic_name, "partitions": sorted(topic.partitions)}
        for topic in assignment.topic_partitions
    ]
