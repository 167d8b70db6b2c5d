"""Checks of a cluster's hint topic and of the broker settings that affect it."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from evenlag.doctor.broker_checks import connected
from evenlag.doctor.model import Check, failed, ok, skipped, warning
from evenlag.lake.tables import PLANS
from evenlag.policy.cluster_settings import DEFAULT_HINT_TOPIC
from evenlag.publishing.hint_topic import MAX_KEPT_BYTES, is_plausible
from evenlag.publishing.plugin_memory import MIN_DEFAULT_BYTES, groups_without_room, plugin_bytes
from evenlag.publishing.writing.topic_settings import REQUIRED_SETTINGS, alter_command, wrong_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.doctor.kafka_probe import KafkaView
    from evenlag.doctor.model import Finding
    from evenlag.lake.file_pruning import Filter
    from evenlag.publishing.hint_topic import TopicState

_TOPIC_SETTINGS: Final = (*REQUIRED_SETTINGS, "min.insync.replicas", "max.message.bytes")
# Upper limit of what the envelope, the key and the record headers add to a plan's payload.
_ENVELOPE_BYTES: Final = 1_000
_PLANS_LOOK_BACK: Final = timedelta(days=31)
# Groups that are named one by one.
_MAX_GROUPS: Final = 20
_AUTO_CREATE: Final = "auto.create.topics.enable"


def topic_checks(view: KafkaView, *, probe_writes: bool) -> list[Check]:
    """Return the checks of one cluster's hint topic."""
    checks = [
        Check("topics", "hint_topic", connected(lambda: _check_hint_topic(view))),
        Check("topics", "stop", connected(lambda: _check_stop(view))),
        Check("topics", "records", connected(lambda: _check_records(view))),
        Check("topics", "plugin_memory", connected(lambda: _check_plugin_memory(view))),
        Check("topics", "auto_create", connected(lambda: _check_auto_create(view))),
    ]
    if probe_writes:
        checks.append(Check("topics", "publish", connected(lambda: _try_to_publish(view))))
    return checks


def hint_topic_findings(
    settings: Mapping[str, str | None],
    *,
    replication_factor: int,
    num_brokers: int,
    largest_plan_bytes: int | None,
    name: str = DEFAULT_HINT_TOPIC,
    servers: tuple[str, ...] = ("SERVERS",),
) -> list[Finding]:
    """Check the settings of the hint topic.

    Returns one per problem; empty if there is none.
    settings: ``cleanup.policy``, ``compression.type``, ``min.insync.replicas`` and ``max.message.bytes``;
        None: not visible.
    largest_plan_bytes: Size of the largest plan payload in the lake; None without plans.
    """
    found: list[Finding] = [
        failed(f"it has {reason}; nothing is published", alter_command(servers, name, (setting,)))
        for setting, reason in wrong_settings(settings)
    ]
    if replication_factor == 1 and num_brokers > 1:
        found.append(
            warning(
                f"it has one replica on {num_brokers} brokers: without that broker nothing is published",
                "give it three by kafka-reassign-partitions.sh",
            )
        )
    in_sync = int(settings.get("min.insync.replicas") or 1)
    if in_sync >= replication_factor > 1:
        found.append(
            warning(
                f"min.insync.replicas={in_sync} of {replication_factor} replicas: no broker may be missing",
                f"set it to {replication_factor - 1}",
            )
        )
    limit = settings.get("max.message.bytes")
    if (
        limit is not None
        and largest_plan_bytes is not None
        and largest_plan_bytes + _ENVELOPE_BYTES > int(limit)
    ):
        found.append(
            failed(
                f"the lake's largest plan has {largest_plan_bytes:,} bytes, a record holds {int(limit):,}",
                f"raise its max.message.bytes to {2 * (largest_plan_bytes + _ENVELOPE_BYTES):,}",
            )
        )
    return found


def _check_hint_topic(view: KafkaView) -> list[Finding]:
    name, topic = view.settings.hint_topic, view.hint_topic
    if topic.get("error_code"):
        return [
            skipped(f"the topic {name} does not exist, or may not be described: see permissions.hint_topic")
        ]
    settings = view.settings_of_topic(_TOPIC_SETTINGS)
    partitions = topic["partitions"]
    replicas = min(len(part["replica_nodes"]) for part in partitions)
    found = hint_topic_findings(
        settings,
        replication_factor=replicas,
        num_brokers=len(view.cluster["brokers"]),
        largest_plan_bytes=_largest_plan(view),
        name=name,
        servers=view.servers,
    )
    leaderless = [part["partition_index"] for part in partitions if part["leader_id"] < 0]
    if leaderless:
        found.append(failed(f"partitions {leaderless} have no leader", "bring its brokers back"))
    message = f"{name}: {len(partitions)} partitions, {replicas} replicas"
    planned = view.settings.hint_topic_partitions
    if len(partitions) != planned:
        message += f" (the policy's {planned} count only when it is made)"
    if settings["cleanup.policy"] is None:
        found.append(skipped("its settings do not show: DescribeConfigs is not allowed"))
    return [*found, ok(message)]


def _largest_plan(view: KafkaView) -> int | None:
    import pyarrow.compute as pc

    of_cluster: list[Filter] = [("cluster", "=", view.name)]
    newest = view.reader.read_newest(PLANS, "day", columns=["day"], filters=of_cluster)["day"]
    if not len(newest):
        return None
    recent: Filter = ("day", ">=", newest[0].as_py() - _PLANS_LOOK_BACK)
    rows = view.reader.read(PLANS, columns=["payload_bytes"], filters=[*of_cluster, recent])
    largest: int | None = pc.max(rows["payload_bytes"]).as_py()
    return largest


def _check_stop(view: KafkaView) -> list[Finding]:
    if view.hint_topic.get("error_code"):
        return [skipped("there is no hint topic to look at")]
    state = view.hint_topic_state
    if not state.stopped:
        return [ok(f"{len(state.hints)} hints stand, nothing is stopped")]
    if len(state.stopped_partitions) < state.num_partitions:
        return [
            warning(
                f"hints are stopped in {len(state.stopped_partitions)} of {state.num_partitions} partitions",
                "evenlag hints stop-all again, or evenlag hints resume",
            )
        ]
    return [ok("all hints are stopped: nothing is published until evenlag hints resume")]


def _check_records(view: KafkaView) -> list[Finding]:
    if view.hint_topic.get("error_code"):
        return [skipped("there is no hint topic to look at")]
    return records_findings(view.hint_topic_state, time.time_ns() // 1_000_000)


def records_findings(state: TopicState, now_ms: int) -> list[Finding]:
    """Check for records on the hint topic that are not from evenlag: nobody follows them.

    Returns one per kind of record; one finding if there are none.
    state, now_ms: State of the topic, and the time in milliseconds since the epoch.
    """
    odd = sorted(group for group, hint in state.hints.items() if not is_plausible(hint, now_ms))
    kinds = (
        (state.unreadable, "hints that are not valid"),
        (state.unreadable_loads, "loads that are not valid"),
        (odd, "hints with numbers that no publisher of evenlag writes"),
    )
    found = [
        warning(
            f"{what} are on the topic, of {len(groups)} groups, e.g. {min(groups)!r}: others write to it",
            "evenlag hints withdraw GROUP for each; allow Write on the topic to evenlag alone",
        )
        for groups, what in kinds
        if groups
    ]
    if state.foreign.num_keys:
        found.append(
            warning(
                f"{state.foreign.num_keys:,} keys with {state.foreign.num_bytes:,} bytes are on the topic "
                "that nobody reads: others write to it, or it has more partitions than before",
                "evenlag hints purge; allow Write on the topic to evenlag alone",
            )
        )
    if state.num_unkept:
        found.append(
            warning(
                f"{state.num_unkept:,} records are not checked: hints and loads have more than "
                f"{MAX_KEPT_BYTES // 2**20} MiB",
                "evenlag hints GROUP checks one group; allow Write on the topic to evenlag alone",
            )
        )
    if state.num_compressed:
        found.append(
            warning(
                f"{state.num_compressed} compressed batches are on the topic; readers skip them",
                "they go with compaction; allow Write on the topic to evenlag alone",
            )
        )
    count = len(state.hints) + len(state.loads)
    return found or [ok(f"all {count} hints and loads are valid, and in their group's partition")]


def _check_plugin_memory(view: KafkaView) -> list[Finding]:
    if view.hint_topic.get("error_code"):
        return [skipped("there is no hint topic to look at")]
    return plugin_memory_findings(view.hint_topic_state)


def plugin_memory_findings(state: TopicState) -> list[Finding]:
    """Check that the brokers' plug-in holds all records by its least default: a broker reports no limit."""
    sizes = plugin_bytes(state)
    total, limit = sum(sizes.values()), MIN_DEFAULT_BYTES
    message = f"the records of {len(sizes):,} groups of the consumer protocol take {-(-total // 2**20):,} MiB"
    if total <= limit:
        return [ok(f"{message} of heap in each broker with the plug-in")]
    largest = sorted(sizes, key=lambda group_id: (-sizes[group_id], group_id))[:3]
    remedy = "compare MaxBytes and NoRoomTotal of the MBean evenlag:type=BrokerAssignor on each broker"
    without = groups_without_room(state)
    left = len(without) - _MAX_GROUPS
    return [
        warning(
            f"{message} of heap in each broker with the plug-in, the most {', '.join(map(repr, largest))}: "
            f"without {8 * -(-total // 2**20):,} MiB of heap or a larger evenlag.max.bytes some do not fit",
            remedy,
        ),
        *(
            warning(f"group {group_id!r}: {reason}", remedy)
            for group_id, reason in islice(without.items(), _MAX_GROUPS)
        ),
        *([warning(f"{left:,} more groups: the same", remedy)] if left > 0 else []),
    ]


def _check_auto_create(view: KafkaView) -> list[Finding]:
    import kafka.errors

    try:
        value = view.settings_of_broker((_AUTO_CREATE,))[_AUTO_CREATE]
    except kafka.errors.KafkaError as error:
        return [skipped(f"the brokers' settings do not show ({type(error).__name__})")]
    return auto_create_findings(value, hint_topic=view.settings.hint_topic)


def auto_create_findings(value: Any, *, hint_topic: str) -> list[Finding]:
    """Check that clients do not create topics automatically: the hint topic would not be compacted.

    value: Value of ``auto.create.topics.enable``; None: not visible.
    """
    if value is None:
        return [skipped("the brokers' settings do not show: DescribeConfigs on the cluster is not allowed")]
    if str(value).lower() != "true":
        return [ok(f"{_AUTO_CREATE}={value}")]
    return [
        warning(
            f"{_AUTO_CREATE}=true: whoever names the topic {hint_topic} first makes it, uncompacted",
            f"set it to false, or make the topic {hint_topic} by hand before consumers ask for it",
        )
    ]


def _try_to_publish(view: KafkaView) -> list[Finding]:
    """Open a transaction as the publisher and abort it: read_committed consumers see nothing."""
    from evenlag.publishing.writing.hint_publisher import hint_publisher

    if view.hint_topic.get("error_code"):
        return [skipped("there is no hint topic to write to")]
    with hint_publisher(view.cluster["cluster_id"], view.settings) as publisher:
        publisher.check_fence()
    return [ok("a transaction on the hint topic was opened and taken back")]
