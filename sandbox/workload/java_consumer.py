"""A consumer of Kafka's Java client for the workload, compiled with evenlag's client by javac alone.

It has the configuration, the events and the behavior of `sandbox.workload.consumer`; its sources are in
``sandbox/workload/java``.
"""

import os
from pathlib import Path

from sandbox.jars import broker_classpath
from sandbox.java_tools import compile_java, java_command
from sandbox.kafka.jvm_jars import CLIENT_ASSIGNOR_CLASS, build_client
from sandbox.workload.consumer import ConsumerSpec

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
    # Kafka's names, in which kafka-python has underscores.
    configs = {name.replace("_", "."): value for name, value in spec.configs().items() if value is not None}
    configs |= {
        "bootstrap.servers": servers if isinstance(servers, str) else ",".join(servers),
        "partition.assignment.strategy": CLIENT_ASSIGNOR_CLASS,
        "evenlag.hint.topic": spec.hint_topic,
    }
    if spec.hint_key_hex is not None:
        key_file = path.with_suffix(".key")
        key_file.touch(mode=0o600)
        key_file.write_text(spec.hint_key_hex + "\n", encoding="ascii")
        configs["evenlag.hint.key.file"] = str(key_file)
    spec.write(path, configs=configs)
