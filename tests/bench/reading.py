"""Reading a cluster beside Kafka's own ``kafka-consumer-groups --all-groups --describe``, on the same broker.

``python -m tests.bench.reading [--groups N] [--partitions N] [--runs N]`` makes groups that have committed on
all partitions of a topic, on a broker of its own, and writes ``docs/bench/reading.json``.

The two alternate. Kafka's tool is a process: its time is reported in total, and without start-up and
connecting, which is the time of the same tool for one unknown group. Ours is the snapshot only: a new admin
client, and everything that goes into the tables, as Arrow columns; Python is already running, as in a cycle.
The request budget is the default one, and the number of requests is reported too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from evenlag.kafka.cluster_reader import ClusterReader
from evenlag.kafka.connection import admin_client, request_limits
from evenlag.policy.cluster_settings import ClusterSettings
from sandbox.java_tools import java_command
from sandbox.kafka.broker import Broker
from tests.bench.support.machine import this_machine
from tests.support.java_client.harness import beside_broker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.kafka.cluster_reader import ClusterSnapshot

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "reading.json"
_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_NUM_TOPICS = 5
# Records on each partition, and how many of them are committed.
_NUM_RECORDS, _COMMITTED = 3, 1


def fill(bootstrap_servers: str, num_groups: int, num_partitions: int) -> None:
    """Make topics with records, and groups, each with a commit on all partitions of one topic."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    topics = [f"topic-{number}" for number in range(_NUM_TOPICS)]
    admin.create_topics(
        {topic: {"num_partitions": num_partitions} for topic in topics}, wait_for_metadata=True
    )
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
    for topic in topics:
        for partition in range(num_partitions):
            for _ in range(_NUM_RECORDS):
                producer.send(topic, b"x", partition=partition)
    producer.flush()
    producer.close()
    for number in range(num_groups):
        topic = topics[number % _NUM_TOPICS]
        commits = {
            TopicPartition(topic, partition): OffsetAndMetadata(_COMMITTED, "", -1)
            for partition in range(num_partitions)
        }
        admin.alter_group_offsets(f"group-{number:04d}", commits)
    admin.close()


def time_tool(bootstrap_servers: str, *what: str) -> tuple[float, str]:
    """Run Kafka's tool; returns its seconds and what it printed."""
    command = [
        *(java_command(), "-cp", beside_broker("tools"), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
        *(_TOOL, "--bootstrap-server", bootstrap_servers, "--describe", "--timeout", "120000", *what),
    ]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode and "does not exist" not in done.stdout + done.stderr:
        sys.exit(f"Kafka's tool failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return seconds, done.stdout


def time_ours(settings: ClusterSettings) -> tuple[float, ClusterSnapshot]:
    """Take a snapshot, connecting included; return the seconds and the snapshot."""
    begin = time.perf_counter()
    with admin_client(settings) as client:
        reading = ClusterReader(
            client, ignored_topics=frozenset({settings.hint_topic}), limits=request_limits(settings)
        ).read()
    return time.perf_counter() - begin, reading


def check_alike(printed: str, reading: ClusterSnapshot, num_rows: int) -> None:
    """Both have seen every partition of every group, and nobody failed."""
    num_printed = sum(line.startswith("group-") for line in printed.splitlines())
    if not len(reading.commits) == num_printed == num_rows:
        sys.exit(f"ours has {len(reading.commits)} rows, Kafka's {num_printed}, expected {num_rows}")
    if reading.problems:
        sys.exit(f"problems: {reading.problems[:3]}")


def run(num_groups: int, num_partitions: int, num_runs: int) -> dict[str, Any]:
    """Time both in turn; returns the results."""
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "node") as broker:
        fill(broker.bootstrap_servers, num_groups, num_partitions)
        settings = ClusterSettings(bootstrap_servers=(broker.bootstrap_servers,))
        # Each once before anything is timed: the broker's code and the disk's cache are warm for both.
        time_tool(broker.bootstrap_servers, "--all-groups")
        time_ours(settings)
        for _ in range(num_runs):
            whole_s, printed = time_tool(broker.bootstrap_servers, "--all-groups")
            start_s, _ = time_tool(broker.bootstrap_servers, "--group", "nobody")
            ours_s, reading = time_ours(settings)
            check_alike(printed, reading, num_groups * num_partitions)
            rows.append({"kafka_s": whole_s, "kafka_start_s": start_s, "ours_s": ours_s})
            sys.stdout.write(f"{ {name: round(value, 3) for name, value in rows[-1].items()} }\n")
            sys.stdout.flush()
    return {
        "groups": num_groups,
        "partitions_a_group": num_partitions,
        "runs": rows,
        "requests": reading.num_requests,
        "median": {name: statistics.median(row[name] for row in rows) for name in rows[0]},
        "whole_by_ours": statistics.median(row["kafka_s"] / row["ours_s"] for row in rows),
        "without_start_by_ours": statistics.median(
            (row["kafka_s"] - row["kafka_start_s"]) / row["ours_s"] for row in rows
        ),
        "machine": this_machine() | {"kafka_tools": "4.3.0"},
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write; status 1 when the promise of a tenth is not held."""
    parser = argparse.ArgumentParser(prog="tests.bench.reading", description=__doc__)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args(argv)
    results = run(arguments.groups, arguments.partitions, arguments.runs)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    whole, fair = results["whole_by_ours"], results["without_start_by_ours"]
    sys.stdout.write(f"Kafka's tool takes {whole:.1f} times as long, {fair:.1f} times without its start\n")
    return 0 if fair >= 10 else 1


if __name__ == "__main__":
    sys.exit(main())
