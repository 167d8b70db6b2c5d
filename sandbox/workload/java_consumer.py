"""A consumer of Kafka's Java client for the workload, compiled with evenlag's client by javac alone.

It has the configuration, the events and the behavior of `sandbox.workload.consumer`; its sources are in
``sandbox/workload/java``.
"""

import json
import os
from pathlib import Path
from typing import Any

from sandbox.jars import broker_classpath
from sandbox.java_tools import compile_java, java_command
from sandbox.kafka.jvm_jars import CLIENT_ASSIGNOR_CLASS, build_client
from sandbox.workload.consumer import BATCHES_PER_S, ConsumerSpec

MOST_HEAP_MB = 64
"""Heap of a consumer: one that needs more ends at once."""


_SOURCES = sorted((Path(__file__).resolve().parent / "java").glob("*.java"))
_OPTIONS = (
    f"-Xmx{MOST_HEAP_MB}m",
    # Several share a machine with a broker and with Spark: start fast, and have few threads.
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


def build(folder: Path) -> str:
    """Build evenlag's client and the consumer into a folder, and return the class path."""
    classes = folder / "java-classes"
    classes.mkdir(exist_ok=True)
    path = os.pathsep.join([str(build_client(folder)), broker_classpath()])
    compile_java(_SOURCES, classes, path)
    return os.pathsep.join([str(classes), path])


def command(class_path: str, spec: Path) -> list[str]:
    """Return the command of a consumer."""
    return [java_command(), *_OPTIONS, "-cp", class_path, "evenlag.sandbox.JavaConsumer", str(spec)]


def write_spec(spec: ConsumerSpec, path: Path) -> None:
    """Write the specification in the names of Kafka's Java client to a file that only its owner can read."""
    if set(spec.client) - {"bootstrap_servers"}:
        raise ValueError("consumers in Java connect without TLS and without a login here")
    if spec.assignor != "evenlag":
        raise ValueError(f"consumers in Java have evenlag's assignor here, not {spec.assignor}")
    servers = spec.client["bootstrap_servers"]
    configs: dict[str, Any] = {
        "bootstrap.servers": servers if isinstance(servers, str) else ",".join(servers),
        "client.id": spec.name,
        "group.id": spec.group_id,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "heartbeat.interval.ms": spec.heartbeat_interval_ms,
        "session.timeout.ms": spec.session_timeout_ms,
        "max.poll.records": max(1, round(spec.records_per_s / BATCHES_PER_S)),
        "partition.assignment.strategy": CLIENT_ASSIGNOR_CLASS,
        "evenlag.hint.topic": spec.hint_topic,
        **{name.replace("_", "."): value for name, value in spec.extra.items()},
    }
    if spec.instance_id is not None:
        configs["group.instance.id"] = spec.instance_id
    if spec.hint_key_hex is not None:
        key_file = path.with_suffix(".key")
        key_file.touch(mode=0o600)
        key_file.write_text(spec.hint_key_hex + "\n", encoding="ascii")
        configs["evenlag.hint.key.file"] = str(key_file)
    content = {
        "name": spec.name,
        "group_id": spec.group_id,
        "topics": spec.topics,
        "log_file": spec.log_file,
        "records_per_s": spec.records_per_s,
        "listener_delay_s": spec.listener_delay_s,
        "asks": spec.asks,
        "configs": {name: _text(value) for name, value in configs.items()},
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
