"""Members of groups that speak the protocol of KIP-848, in the form that the classic ones are described in.

kafka-python 3.0 lists such groups and cannot describe them. This module asks by its own message, and is the
only one that goes through kafka-python's private parts for it; a test on a real broker holds it to them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def describe_consumer_groups(client: Any, group_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Describe groups in bulk, one request a coordinator.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``.
    group_ids
        Names of groups of type ``consumer``.

    Returns
    -------
    dict
        By group: ``group_state, protocol_data`` (the assignor's name), ``members`` and ``error``. A member
        has the fields of a classic one that are used: ``member_id, group_instance_id, client_id, client_host,
        member_metadata`` (None when it takes topics by an expression: which ones does not show) and
        ``member_assignment``.

    Raises
    ------
    kafka.errors.KafkaError
        When a coordinator does not answer, or is too old for this request.
    """
    manager = client._manager  # noqa: SLF001 - there is no public way to send a message of one's own
    answers: dict[str, dict[str, Any]] = manager.run(_describe, client, manager, list(group_ids))
    return answers


async def _describe(client: Any, manager: Any, group_ids: list[str]) -> dict[str, dict[str, Any]]:
    from spark_jobs.kafka_messages import ConsumerGroupDescribeRequest

    by_node: dict[int, list[str]] = defaultdict(list)
    nodes = await client._find_coordinator_ids(group_ids)  # noqa: SLF001 - as above
    for group_id, node in nodes.items():
        by_node[node].append(group_id)
    found: dict[str, dict[str, Any]] = {}
    for node, names in by_node.items():
        request = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=False)
        response = await manager.send(request, node_id=node)
        found.update((group.group_id, _group(group)) for group in response.groups)
    return found


def _group(group: Any) -> dict[str, Any]:
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
        "member_metadata": {"topics": list(member.subscribed_topic_names)} if is_shown else None,
        "member_assignment": {
            "assigned_partitions": [
                {"topic": topic.topic_name, "partitions": list(topic.partitions)}
                for topic in member.assignment.topic_partitions
            ]
        },
    }
