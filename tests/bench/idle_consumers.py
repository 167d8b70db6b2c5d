"""What hints cost idle consumers, beside plain ones: CPU, threads and bytes, and the start beside many hints.

``python -m tests.bench.idle_consumers`` runs processes of plain and of hinted consumers at the same time,
each consumer with a group of its own and kafka-python's defaults, beside 10,000 hints on four partitions,
and writes docs/bench/idle_consumers.json. ``--seconds`` is how long they are idle.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from assignor_core.hint import HintPayload, encode_hint, hint_key
from evenlag.consumer import HintCache, HintedConsumer, HintWatcher
from sandbox.kafka.broker import Broker
from tests.support.hints import HOUR_MS, Cluster, now_ms
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "idle_consumers.json"
_HINT_TOPIC, _TOPIC, _NUM_HINTS, _NUM_PARTITIONS = "idle-hints", "idle", 10_000, 4
_POLL_MS = 1_000
# Joins, first fetches and the session of each connection are over.
_SETTLED_S = 20.0
# As many processes at a time, with as many consumers each.
_SHAPES = {"one_consumer": (4, 1), "twenty_consumers": (1, 20)}


def main(argv: Sequence[str]) -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="tests.bench.idle_consumers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--child", nargs=3, metavar=("KIND", "SERVERS", "COUNT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.child:
        kind, servers, count = arguments.child
        sys.stdout.write(json.dumps(_run(kind, servers, int(count), arguments.seconds)) + "\n")
        return 0
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "node") as broker:
        _fill(broker)
        result: dict[str, Any] = {"hints": _NUM_HINTS, "hint_partitions": _NUM_PARTITIONS}
        for shape, (processes, consumers) in _SHAPES.items():
            result[shape] = _compare(broker, processes, consumers, arguments.seconds)
        result["recreated_topic_followed_s"] = _recreate(broker)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 0


def _fill(broker: Broker) -> None:
    with (
        Cluster(
            broker,
            group_id="idle",
            topics={_TOPIC: _NUM_PARTITIONS},
            hint_topic=_HINT_TOPIC,
            make_topics=False,
        ) as cluster,
        closing(
            # A batch for each hint, as the publisher's transactions make them.
            KafkaProducer(bootstrap_servers=broker.bootstrap_servers, batch_size=0)
        ) as producer,
    ):
        cluster.create({_TOPIC: _NUM_PARTITIONS})
        cluster.create({_HINT_TOPIC: _NUM_PARTITIONS}, {"cleanup.policy": "compact"})
        for number in range(_NUM_HINTS):
            payload = HintPayload(
                cluster_id=cluster.cluster_id, group_id=f"other-{number}", snapshot_id="s",
                fingerprint="0" * 64, count_slack=1, max_moves=9,
                assignment={f"i:pod-{i}": {"A" * 21 + "Q": tuple(range(i, 100, 10))} for i in range(10)},
            )  # fmt: skip
            moment = now_ms()
            value = encode_hint(
                payload.encode(), sequence=1, issued_at_ms=moment, expires_at_ms=moment + HOUR_MS
            )
            producer.send(_HINT_TOPIC, key=hint_key(payload.group_id), value=value)
        producer.flush()


def _recreate(broker: Broker) -> list[float]:
    """Delete the hint topic and create it again; return the seconds from then until a hint is read."""
    took = []
    with Cluster(
        broker, group_id="idle", topics={_TOPIC: 1}, hint_topic=_HINT_TOPIC, make_topics=False
    ) as it:
        cache = HintCache("idle")
        watcher = HintWatcher(cache, {"bootstrap_servers": broker.bootstrap_servers}, topic=_HINT_TOPIC)
        watcher.start()
        for missing_s in (0.0, 2.0, 20.0, 40.0):
            wait_until(lambda: not cache.view.is_cold)
            it.admin.delete_topics([_HINT_TOPIC])
            wait_until(lambda: _HINT_TOPIC not in it.admin.list_topics())
            time.sleep(missing_s)
            started = time.monotonic()
            it.create({_HINT_TOPIC: _NUM_PARTITIONS}, {"cleanup.policy": "compact"})
            it.renew_publisher()
            it.publish(it.payload({"i:pod": {_TOPIC: [0]}}))
            wait_until(lambda: cache.view.hint is not None and cache.view.hint.sequence == it.sequence)
            took.append(round(time.monotonic() - started, 1))
        watcher.stop()
    return took


def _compare(broker: Broker, processes: int, consumers: int, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.idle_consumers", "--seconds", str(seconds), "--child"]
    running = [
        (kind, subprocess.Popen(
            [*command, kind, broker.bootstrap_servers, str(consumers)], stdout=subprocess.PIPE, text=True
        ))
        for _ in range(processes)
        for kind in ("plain", "hinted")
    ]  # fmt: skip
    found: dict[str, list[dict[str, float]]] = {"plain": [], "hinted": []}
    for kind, process in running:
        output, _ = process.communicate()
        found[kind].append(json.loads(output))
    mean = {
        kind: {name: round(sum(row[name] for row in rows) / len(rows), 2) for name in rows[0]}
        for kind, rows in found.items()
    }
    ratio = mean["hinted"]["cpu_percent"] / mean["plain"]["cpu_percent"]
    return {**mean, "cpu_ratio": round(ratio, 2)}


def _run(kind: str, servers: str, count: int, seconds: float) -> dict[str, float]:
    """Start consumers, let them be idle, and return what they took, each figure for the whole process."""
    started, cpu = time.monotonic(), time.process_time()
    consumers = [_make(kind, f"idle-{kind}-{os.getpid()}-{number}", servers) for number in range(count)]
    stopping = threading.Event()
    threads = [threading.Thread(target=_poll, args=(each, stopping), daemon=True) for each in consumers]
    for thread in threads:
        thread.start()
    while kind == "hinted" and any(each.hint_cache.view.is_cold for each in consumers):
        time.sleep(0.01)
    figures = {"start_s": time.monotonic() - started, "start_cpu_s": time.process_time() - cpu}
    time.sleep(_SETTLED_S)
    started, cpu, size = time.monotonic(), time.process_time(), _num_bytes()
    time.sleep(seconds)
    elapsed = time.monotonic() - started
    figures["cpu_percent"] = (time.process_time() - cpu) / elapsed * 100
    figures["kilobytes_per_hour"] = (_num_bytes() - size) / elapsed * 3.6
    # Without the threads that poll, which are the application's.
    figures["threads"] = len([*Path("/proc/self/task").iterdir()]) - len(threads)
    stopping.set()
    for thread in threads:
        thread.join()
    for each in consumers:
        each.close()
    return figures


def _make(kind: str, group_id: str, servers: str) -> Any:
    settings: dict[str, Any] = {"bootstrap_servers": servers, "group_id": group_id}
    if kind == "hinted":
        return HintedConsumer(_TOPIC, hint_topic=_HINT_TOPIC, **settings)
    assignors = [CooperativeStickyAssignor]
    return KafkaConsumer(_TOPIC, partition_assignment_strategy=assignors, **settings)


def _poll(consumer: Any, stopping: threading.Event) -> None:
    while not stopping.is_set():
        consumer.poll(timeout_ms=_POLL_MS)


def _num_bytes() -> int:
    """Return the bytes that all connections of this process have sent and received, as the kernel counts."""
    total = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError), closing(socket.socket(fileno=os.dup(int(path.name)))) as sock:
            if sock.family == socket.AF_INET:
                # struct tcp_info: tcpi_bytes_acked and tcpi_bytes_received.
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
                total += sum(struct.unpack_from("QQ", info, 120))
    return total


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
