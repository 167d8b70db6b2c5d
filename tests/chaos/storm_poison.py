"""What a storm sends to the hint topic to block, bloat or steer its readers; and what their memory is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from assignor_core.hint import encode_hint, hint_key
from assignor_core.loads import LoadsPayload, encode_loads, loads_key
from tests.support.hints import HOUR_MS, now_ms

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

    from evenlag.kafka.live_groups import LiveGroup
    from tests.support.hints import Cluster

# What one batch expands to; it is some 30 kB on the wire.
_BOMB_BYTES = 32 * 2**20
_LONG = 1_000_000


def loads_of(live: LiveGroup, chance: random.Random, *, cluster_id: str, group_id: str) -> LoadsPayload:
    """Return random loads of a group's partitions, valid for an hour."""
    at_ms = now_ms()
    return LoadsPayload(
        cluster_id=cluster_id,
        group_id=group_id,
        snapshot_id="storm",
        measured_at_ms=at_ms,
        valid_until_ms=at_ms + HOUR_MS,
        loads={
            topic_id: [chance.choice((None, *range(1, 100))) for _ in range(count)]
            for _, topic_id, count in live.topics
        },
        capacities={},
        default_capacity=1,
        count_slack=chance.randrange(3),
        max_moves=chance.randrange(10),
    )


def send_loads(cluster: Cluster, payload: LoadsPayload, key: bytes) -> None:
    """Publish signed loads."""
    record = encode_loads(payload.encode(), group_key=key)
    cluster.send(loads_key(cluster.group_id), record, partition=cluster.hint_partition())


def poisons(cluster: Cluster, key: bytes, valid: bytes | None) -> list[tuple[bytes, bytes]]:
    """Return records (key, value) that every reader must refuse, or ignore, each on its own.

    key: The group's signing key: some records come from who has it.
    valid: The value of a valid hint; None if there is none yet.
    """
    hints, loads = hint_key(cluster.group_id), loads_key(cluster.group_id)
    found = [
        (hints, _with_payload({"assignment": {"m:x": {"A" * 22: "0-1999999"}}})),
        (hints, _with_payload({"fingerprint": "f" * _LONG})),
        (hints, _with_payload({"group_id": "\ud800"})),
        (hints, b"\xff" * _LONG),
        (loads, _with_payload({"loads": {"A" * 22: [2**63] * 1000}})),
        (loads, b"[" * _LONG),
        (f"loads/{cluster.group_id}x".encode(), b"{}"),
        (b"control/\xff", b"{}"),
    ]
    if valid is not None:
        _, _, payload = valid.partition(b"\n")
        far = now_ms() + 1000 * HOUR_MS
        of_future = {"issued_at_ms": far, "expires_at_ms": far + HOUR_MS}
        found += [
            (hints, encode_hint(payload, sequence=1, group_key=key, **of_future)),
            (hints, valid.replace(b'"sequence":', b'"sequence":9223372036854775', 1)),
        ]
    return found


def _with_payload(fields: Mapping[str, Any]) -> bytes:
    at_ms = now_ms()
    envelope = {"version": 1, "sequence": 2**62, "issued_at_ms": at_ms, "expires_at_ms": at_ms + HOUR_MS}
    return b"\n".join(json.dumps(part).encode() for part in (envelope | {"hmac": None}, dict(fields)))


def send_bomb(cluster: Cluster) -> None:
    """Append a compressed batch that expands a thousandfold, as from before the topic refused compression."""
    _set_compression(cluster, "producer")
    try:
        producer = KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            compression_type="gzip",
            max_request_size=2 * _BOMB_BYTES,
        )
        try:
            partition = cluster.hint_partition()
            sent = producer.send(
                cluster.hint_topic,
                key=hint_key(cluster.group_id),
                value=bytes(_BOMB_BYTES),
                partition=partition,
            )
            sent.get(timeout=60)
        finally:
            producer.close()
    finally:
        _set_compression(cluster, "uncompressed")


def _set_compression(cluster: Cluster, value: str) -> None:
    settings = {"cleanup.policy": "compact", "compression.type": value}
    cluster.admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, cluster.hint_topic, configs=settings)]
    )


def peak_mb(pids: Iterable[int]) -> float:
    """Return the largest resident memory that one of the processes ever had, in MB."""
    peaks = [0.0]
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", encoding="ascii") as status:  # noqa: PTH123  # not a file
                lines = dict(line.split(":", 1) for line in status)
        except OSError:
            continue  # it has just ended
        peaks.append(int(lines.get("VmHWM", "0 kB").split()[0]) / 1024)
    return max(peaks)
