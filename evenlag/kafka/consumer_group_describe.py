"""Members of groups that speak the protocol of KIP-848, in the form that the classic ones are described in.

kafka-python 3.0 lists such groups and cannot describe them: this module asks by its own message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_MEMBER_TYPES: Final = {0: "classic", 1: "consumer"}


def describe_consumer_groups_request(group_ids: Sequence[str]) -> Any:
    """Ask a coordinator about groups of type ``consumer``."""
    from evenlag.kafka.messages import ConsumerGroupDescribeRequest

    return ConsumerGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=False)


def consumer_group(group: Any) -> dict[str, Any]:
    """Bring a described group into the form of a classic one.

    Returns
    -------
    dict
        ``group_state, protocol_data`` (the assignor of the broker's that the members ask for),
        ``group_epoch, assignment_epoch, members`` and ``error``. A member has the columns of the table
        ``members``; its subscription is None when it takes topics by an expression: which ones does not show.
    """
    import kafka.errors

    error = None
    if group.error_code:
        error = f"{kafka.errors.for_code(group.error_code).__name__}: {group.error_message or ''}"
    return {
        "group_state": group.group_state,
        "protocol_data": group.assignor_name,
        "group_epoch": None if group.error_code else group.group_epoch,
        "assignment_epoch": None if group.error_code else group.assignment_epoch,
        "members": [_member(member) for member in group.members],
        "error": error,
    }


def _member(member: Any) -> dict[str, Any]:
    is_shown = not member.subscribed_topic_regex
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscription": sorted(member.subscribed_topic_names) if is_shown else None,
        "assignment": _partitions(member.assignment),
        "target_assignment": _partitions(member.target_assignment),
        "member_epoch": member.member_epoch,
        # Brokers before 4.1 do not tell: the message's second version does.
        "member_type": _MEMBER_TYPES.get(member.member_type),
        "rack_id": member.rack_id,
    }


def _partitions(assignment: Any) -> list[dict[str, Any]]:
    return [
        {"topic": topic.topic_name, "partitions": sorted(topic.partitions)}
        for topic in assignment.topic_partitions
    ]
