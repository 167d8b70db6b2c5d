"""Names beside the ids of a hint: the clients of its members, by the lake; its topics, by the cluster."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Final

from evenlag.errors import JobError

if TYPE_CHECKING:
    from assignor_core.hint import Hint
    from evenlag.cli.cluster_target import Target

# Seconds for the client ids of one hint: the lake may be a store that is not reachable.
_LAKE_WAIT_S: Final = 5.0


def topic_names(target: Target, hint: Hint) -> dict[str, str]:
    """Ask the cluster for the names of a hint's topics.

    Returns names by topic id, without topics that do not exist any more or may not be described; empty if
    the cluster does not answer: the hint is shown without them.
    """
    from evenlag.kafka.connection import admin_client
    from evenlag.kafka.topic_metadata import read_topic_names

    ids = sorted({topic_id for topics in hint.payload.assignment.values() for topic_id in topics})
    if not ids:
        return {}
    try:
        with admin_client(target.settings) as client:
            return read_topic_names(client, ids)
    except JobError:
        return {}


def client_ids(target: Target, hint: Hint) -> dict[str, str]:
    """Find the client ids of a hint's members in the lake.

    Returns by the members' keys; empty if the lake does not have the hint's snapshot, or does not answer in
    time.
    """
    found: dict[str, str] = {}
    reading = Thread(target=lambda: found.update(_read_client_ids(target, hint)), daemon=True)
    reading.start()
    # The hint is on the topic, whatever the lake is like: a store that does not answer delays it no longer.
    reading.join(_LAKE_WAIT_S)
    return dict(found)


def _read_client_ids(target: Target, hint: Hint) -> dict[str, str]:
    from assignor_core.hint import member_key
    from evenlag.lake.reader import LakeReader
    from evenlag.queries.lag import read_group_members

    payload = hint.payload
    try:
        reader = LakeReader(target.loaded.policy.lake)
        rows = read_group_members(reader, target.name, payload.snapshot_id, payload.group_id)
    except (JobError, ValueError):
        return {}
    return {
        member_key(row["member_id"], row["group_instance_id"]): row["client_id"]
        for row in rows
        if row["member_id"] is not None and row["client_id"] is not None
    }
