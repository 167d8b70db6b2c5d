"""Members of groups that speak the protocol of KIP-848, in the form that the classic ones are described in.

kafka-python 3.0 lists such groups and cannot describe them: this module asks by its own message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def describe_consumer_groups_request(group_ids: Sequence[str]) -> Any:
    """Ask a coordinator about groups of type ``consumer``."""
    from spark_jobs.kafka_messages import ConsumerGroupDescribeRequest

    return ConsumerGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=False)


def consumer_group(group: Any) -> dict[str, Any]:
    """Bring a described group into the form of a classic one.

    Returns
    -------
    dict
        ``group_state, protocol_data`` (the assignor's name), ``members`` and ``error``. A member has the
        columns of the table ``members``; its subscription is None when it takes topics by an expression:
        which ones does not show.
    """
    import kafka.errors

    error = None
    if group.error_code:
        error = f"{kafka.errors.for_code(group.error_code).__name__}: {group.error_message or ''}"
    return {
        "group_state": group.group_state,
        "protocol_data": group.assignor_name,
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
        "assignment": [
            {"topic": topic.topic_name, "partitions": sorted(topic.partitions)}
            for topic in member.assignment.topic_partitions
        ],
    }
