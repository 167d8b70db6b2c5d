"""Publish loads beside hints: at the end of each cycle, and only what has changed materially.

A cycle whose loads did not change reads the topic and writes nothing, so it fences nobody. Errors never fail
a publishing run: loads that are not refreshed end by themselves, and the next cycle tries again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from assignor_core.loads import LOADS_KEY_PREFIX, encode_loads, loads_key
from evenlag.enums import ControlAction, Mode
from evenlag.errors import JobError
from evenlag.kafka.connection import admin_client, kafka_cluster_id
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import CONTROL_ACTIONS
from evenlag.logging_setup import named_logger
from evenlag.publishing.hint_topic import read_hint_topic
from evenlag.publishing.loads.material_change import material_change
from evenlag.publishing.loads.measured_loads import measure_loads
from evenlag.publishing.sealing.signed_records import group_signing_key
from evenlag.publishing.writing.hint_publisher import hint_publisher
from evenlag.publishing.writing.topic_settings import ensure_hint_topic, read_max_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from assignor_core.loads import LoadsPayload
    from evenlag.lake.file_pruning import Filter
    from evenlag.policy.cluster_settings import ClusterSettings
    from evenlag.policy.loader import LoadedPolicy
    from evenlag.publishing.hint_topic import TopicState

_LOG = named_logger(__name__)

# Size of a record beside key and value: Kafka's record and batch headers, at most.
_RECORD_HEADER_BYTES = 100
# Of one transaction: whoever writes to the topic chooses how many groups have loads.
_MAX_REMOVED = 1_000


@dataclass(frozen=True, slots=True)
class LoadsReport:
    """Result of a refresh.

    refreshed, removed: Groups whose loads were written, and groups whose loads the policy no longer
        publishes.
    error: Why loads were not refreshed; None when they were.
    """

    refreshed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    error: str | None = None


def refresh_loads(loaded: LoadedPolicy, cluster: str) -> LoadsReport:
    """Publish the loads of the newest snapshot that differ materially from those on the topic.

    Idempotent: a repeat with the same snapshot writes nothing.

    Returns what was written. Errors are reported, not raised.
    """
    try:
        return _refresh(loaded, cluster)
    except JobError as error:
        _LOG.warning("loads are not refreshed: %s", error)
        return LoadsReport(error=str(error))


def _refresh(loaded: LoadedPolicy, cluster: str) -> LoadsReport:
    reader, settings = LakeReader(loaded.policy.lake), loaded.policy.clusters[cluster]
    snapshot = reader.latest_snapshot(cluster)
    if snapshot is None or not _may_have_loads(loaded, cluster, snapshot):
        return LoadsReport()
    measured = measure_loads(reader, loaded, cluster, snapshot)
    withdrawn = _withdrawn_since(reader, cluster, snapshot["finished_at"], snapshot["day"])
    measured = {group_id: payload for group_id, payload in measured.items() if group_id not in withdrawn}
    with admin_client(settings) as client:
        if measured:
            ensure_hint_topic(client, settings)
        elif settings.hint_topic not in client.list_topics():
            return LoadsReport()
        changes = _changes(loaded, cluster, measured, read_hint_topic(settings, measured))
        if not changes:
            return LoadsReport()
        max_bytes = read_max_bytes(client, settings.hint_topic)
        with hint_publisher(kafka_cluster_id(client), settings) as publisher:
            # Again behind the fence: no other publisher writes from here on.
            changes = _changes(loaded, cluster, measured, read_hint_topic(settings, measured))
            values = _encode(settings, changes, max_bytes)
            publisher.write_loads(values)
    return LoadsReport(
        refreshed=tuple(sorted(group_id for group_id, value in values.items() if value is not None)),
        removed=tuple(sorted(group_id for group_id, value in values.items() if value is None)),
    )


def _may_have_loads(loaded: LoadedPolicy, cluster: str, snapshot: Mapping[str, Any]) -> bool:
    """Whether the topic may have loads: where nothing is published, there is nothing to connect for."""
    ceiling = loaded.policy.max_mode.rank
    is_publishing = any(
        min(rule.mode.rank, ceiling) >= Mode.APPROVE.rank and cluster in (rule.clusters or (cluster,))
        for rule in loaded.policy.groups
    )
    return is_publishing or snapshot["hint_topic_max_bytes"] is not None


def _withdrawn_since(reader: LakeReader, cluster: str, since: datetime, day: Any) -> set[str]:
    """Groups whose hint and loads a person withdrew after the measurement."""
    wanted: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", ">=", day),
        ("action", "=", ControlAction.WITHDRAW.value),
        ("at", ">=", since),
    ]
    found: set[str] = set(
        reader.read(CONTROL_ACTIONS, columns=["group_id"], filters=wanted)["group_id"].to_pylist()
    )
    return found


def _changes(
    loaded: LoadedPolicy, cluster: str, measured: Mapping[str, LoadsPayload], state: TopicState
) -> dict[str, LoadsPayload | None]:
    """Loads to write by group (None: a tombstone); nothing new while all hints are stopped."""
    now_ms = time.time_ns() // 1_000_000
    unwanted = (
        group_id
        for group_id in sorted(state.other_groups(LOADS_KEY_PREFIX))
        if not loaded.policy.group_settings(cluster, group_id).publishes_loads
    )
    changes: dict[str, LoadsPayload | None] = dict.fromkeys(islice(unwanted, _MAX_REMOVED))
    if state.stopped:
        return changes
    for group_id, payload in measured.items():
        if now_ms >= payload.valid_until_ms:
            continue
        current = state.loads.get(group_id)
        if current is None or not current.is_fresh(now_ms):
            # A record from the future, or one that is over, is replaced by whatever was measured.
            reason = None if current is not None and current.payload == payload else "there are none"
        else:
            reason = material_change(current.payload, payload, now_ms)
        if reason is not None:
            _LOG.info("loads are published: %s", reason, extra={"group_id": group_id})
            changes[group_id] = payload
    return changes


def _encode(
    settings: ClusterSettings, changes: Mapping[str, LoadsPayload | None], max_bytes: int | None
) -> dict[str, bytes | None]:
    values: dict[str, bytes | None] = {}
    for group_id, payload in changes.items():
        if payload is None:
            values[group_id] = None
            continue
        key = group_signing_key(settings, group_id, is_for_brokers=payload.member_ids is not None)
        value = encode_loads(payload.encode(), group_key=key)
        size = len(value) + len(loads_key(group_id)) + _RECORD_HEADER_BYTES
        if max_bytes is not None and size > max_bytes:
            reason = f"they have {size} bytes, the hint topic allows {max_bytes} per record"
            _LOG.warning("no loads: %s", reason, extra={"group_id": group_id})
            continue
        values[group_id] = value
    return values
