"""An Apache Kafka broker (KRaft) in its own folder.

It listens on free ports of the loopback interface, does not create topics automatically, has no initial
rebalance delay, and dies with the process that started it. Stop, kill and restart keep the folder and the
ports, so clients can reconnect to it.
"""

import base64
import contextlib
import logging
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from sandbox.jars import OTHER_KAFKAS, OWN_KAFKA, broker_classpath
from sandbox.java_tools import java_command
from sandbox.processes import SandboxError, free_ports, kill_process, log_tail, start_process, stop_process


def probe(bootstrap_servers: str) -> str | Exception:
    """Return the cluster id once the broker coordinates groups; until then the error that prevents it."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    host, _, port = bootstrap_servers.partition(":")
    try:
        # kafka-python waits long for a first connection and logs a lot: probe the port first.
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError as error:
        return error
    with quiet("kafka"), contextlib.ExitStack() as stack:
        try:
            admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers, bootstrap_timeout_ms=5000)
            stack.callback(admin.close)
            # The first FindCoordinator request creates __consumer_offsets; requests fail until it exists.
            admin.list_group_offsets({"evenlag-sandbox-probe": None})
            return str(admin.describe_cluster()["cluster_id"])
        except (KafkaError, OSError) as error:
            return error


@contextlib.contextmanager
def quiet(name: str) -> Iterator[None]:
    """Hide what a logger reports below ``CRITICAL``, until the block ends."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


# For a process that hangs, also on a busy machine; one that ends is noticed at once.
_START_TIMEOUT_S = 600.0
_STOP_TIMEOUT_S = 20.0
# Tests need a fast start, not throughput: a C1-only JVM is ready in about half the time.
_JVM_OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
_LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
# One node of KRaft, whose internal topics have few partitions: they are created at first use.
_SETTINGS: Final[dict[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "num.network.threads": "2",
    "num.io.threads": "4",
    # A killed broker can restart only after its old session has ended: 9 s by default.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
}


class BrokerError(SandboxError):
    """Raised when the broker does not start or is not the expected one, with the tail of its log."""


def default_version() -> str | None:
    """Return the version of brokers without an explicit one: ``EVENLAG_KAFKA``; None: the sandbox's own."""
    wanted = os.environ.get("EVENLAG_KAFKA") or OWN_KAFKA
    if wanted not in (OWN_KAFKA, *OTHER_KAFKAS):
        known = ", ".join(sorted((OWN_KAFKA, *OTHER_KAFKAS)))
        raise BrokerError(f"EVENLAG_KAFKA is {wanted!r}: the sandbox has Kafka {known}")
    return None if wanted == OWN_KAFKA else wanted


def new_cluster_id() -> str:
    """Return a new cluster id in Kafka's text form."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # The format tool would parse a leading minus as an option.
    return "A" + text[1:] if text.startswith("-") else text


class Broker:
    """A running broker; on exit the context manager stops it and keeps its folder.

    cluster_id: Kafka's 22-character id; every start checks that the broker reports it.
    bootstrap_servers, controller: Addresses ``127.0.0.1:port`` of its listeners.
    """

    def __init__(
        self, directory: Path, *, properties: Mapping[str, str] | None = None, class_path: Sequence[Path] = ()
    ) -> None:
        self.directory = directory.resolve()
        self.log_file = self.directory / "broker.log"
        self.cluster_id = new_cluster_id()
        self.bootstrap_servers, self.controller = (f"127.0.0.1:{port}" for port in free_ports(2))
        self._kafka = default_version()
        self._extra = dict(properties or {})
        self._class_path = tuple(class_path)
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, directory: str | Path, **options: Any) -> Self:
        """Format a new broker in a new or empty folder and start it; returns when clients can use it."""
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise BrokerError(f"{path} is not empty: a sandbox broker wants a folder of its own")
        broker = cls(path, **options)
        try:
            broker.prepare()
            broker.restart()
        except BaseException:
            broker.kill()
            raise
        return broker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether the broker's process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The broker's process id; None if it is stopped."""
        return self._process.pid if self._process is not None and self.is_running else None

    def stop(self) -> None:
        """Shut the broker down cleanly (killed after 20 s); does nothing if it is stopped."""
        if self._process is not None:
            stop_process(self._process, timeout_s=_STOP_TIMEOUT_S)
            self._process = None

    def kill(self) -> None:
        """Kill the broker as in a crash: without a flush or a clean shutdown."""
        if self._process is not None:
            kill_process(self._process)
            self._process = None

    def restart(self) -> None:
        """Restart the broker with its folder and ports; a running one is stopped first."""
        self.stop()
        try:
            self.launch()
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def prepare(self) -> None:
        """Write the properties and format the folder."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}" for key, value in sorted((self.settings() | self._extra).items())]
        config = Path(self._config_file)
        config.touch(mode=0o600)  # it may contain passwords
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        with self.log_file.open("ab") as log:
            identity = ["-t", self.cluster_id, "-c", self._config_file]
            process = start_process(self._java(["kafka.tools.StorageTool", "format", *identity]), log=log)
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_START_TIMEOUT_S)
            finally:
                status = kill_process(process)
        if status != 0:
            raise BrokerError(
                f"formatting the broker's folder failed with status {status}:\n{log_tail(self.log_file)}"
            )

    def settings(self) -> dict[str, str]:
        """Return the broker's properties, without those given to the constructor."""
        plain = f"PLAINTEXT://{self.bootstrap_servers}"
        return _SETTINGS | {
            "log.dirs": str(self.directory / "data"),
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": f"{plain},CONTROLLER://{self.controller}",
            "advertised.listeners": plain,
        }

    def launch(self) -> None:
        """Start the process; :meth:`wait_until_ready` waits for it."""
        with self.log_file.open("ab") as log:
            self._process = start_process(self._java(["kafka.Kafka", self._config_file]), log=log)

    def wait_until_ready(self) -> None:
        """Wait until the broker answers, has the expected cluster id, and finds coordinators of groups."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        problem = "it did not answer"
        while time.monotonic() < deadline:
            if self._process is not None and (status := self._process.poll()) is not None:
                raise BrokerError(f"the broker ended with status {status}:\n{log_tail(self.log_file)}")
            answer = probe(self.bootstrap_servers)
            if answer == self.cluster_id:
                return
            if isinstance(answer, str):
                raise BrokerError(f"{self.bootstrap_servers} is cluster {answer}, not {self.cluster_id}")
            problem = repr(answer)
            time.sleep(0.1)
        raise BrokerError(
            f"the broker was not ready after {_START_TIMEOUT_S:.0f} s: {problem}\n{log_tail(self.log_file)}"
        )

    @property
    def _config_file(self) -> str:
        return str(self.directory / "server.properties")

    def _java(self, arguments: list[str]) -> list[str]:
        path = os.pathsep.join([broker_classpath(self._kafka), *map(str, self._class_path)])
        return [java_command(), *_JVM_OPTIONS, *_LOG_OPTIONS, "-cp", path, *arguments]
