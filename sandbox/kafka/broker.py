"""An Apache Kafka broker (KRaft, one node) in its own folder.

It listens on free ports of the loopback interface, does not create topics automatically, has no initial
rebalance delay, and dies with the process that started it. Stop, kill and restart keep the folder and the
ports, so clients can reconnect to it.
"""

from __future__ import annotations

import base64
import os
import secrets
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sandbox.jars import broker_classpath, java_command
from sandbox.kafka.certificates import write_certificates
from sandbox.kafka.readiness import probe
from sandbox.processes import free_ports, kill_process, start_process, stop_process

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 20.0
# Tests need a fast start, not throughput: a C1-only JVM is ready in about half the time.
_JVM_OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
_LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
_PROPERTIES: dict[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    # One node: no replicas, and few partitions of the internal topics, which are created at first use.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "num.network.threads": "2",
    "num.io.threads": "4",
    # A killed broker can restart only after its old session has ended: 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class BrokerError(RuntimeError):
    """Raised when the broker does not start or is not the expected one, with the tail of its log."""


@dataclass(frozen=True, slots=True)
class SaslSsl:
    """Connection settings of the authenticated listener.

    Attributes
    ----------
    bootstrap_servers
        ``localhost:port``.
    ca_file
        PEM file of the authority that signed the broker's certificate.
    username, password
        For SASL mechanism PLAIN; each folder has a new password.
    """

    bootstrap_servers: str
    ca_file: Path
    username: str
    password: str

    def client_config(self) -> dict[str, str]:
        """Return keyword arguments for kafka-python's clients."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.ca_file),
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": self.username,
            "sasl_plain_password": self.password,
        }

    def __repr__(self) -> str:
        return f"SaslSsl({self.bootstrap_servers!r}, username={self.username!r}, password=...)"


class Broker:
    """A running broker; on exit the context manager stops it and keeps its folder.

    Attributes
    ----------
    bootstrap_servers : str
        The plain listener, ``127.0.0.1:port``.
    cluster_id : str
        Kafka's 22-character id, fixed per folder; every start checks that the broker reports it.
    sasl_ssl : SaslSsl or None
        The authenticated listener, if requested.
    log_file : Path
        All output of the broker.

    Examples
    --------
    >>> with Broker.start("/tmp/sandbox") as broker:  # doctest: +SKIP
    ...     KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    """

    def __init__(
        self,
        directory: Path,
        *,
        sasl_ssl: bool = False,
        properties: Mapping[str, str] | None = None,
        class_path: Sequence[Path] = (),
        jvm_options: Sequence[str] = (),
    ) -> None:
        self.directory = directory.resolve()
        self.log_file = self.directory / "broker.log"
        self.cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if self.cluster_id.startswith("-"):  # the format tool would parse it as an option
            self.cluster_id = "A" + self.cluster_id[1:]
        self._extra = dict(properties or {})
        self._class_path = tuple(class_path)
        self._jvm_options = tuple(jvm_options)
        self._process: subprocess.Popen[bytes] | None = None
        port, controller_port, secure_port = free_ports(3)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._controller = f"127.0.0.1:{controller_port}"
        self._password = secrets.token_urlsafe(18)
        self._secure_address = f"localhost:{secure_port}" if sasl_ssl else None
        self.sasl_ssl: SaslSsl | None = None

    @classmethod
    def start(
        cls,
        directory: str | Path,
        *,
        sasl_ssl: bool = False,
        properties: Mapping[str, str] | None = None,
        class_path: Sequence[Path] = (),
        jvm_options: Sequence[str] = (),
    ) -> Self:
        """Format a new broker in `directory` and start it; returns when clients can use it.

        Parameters
        ----------
        directory
            A new or empty folder; it is created.
        sasl_ssl
            Whether to open a SASL_SSL listener (mechanism PLAIN) in addition to the plain one.
        properties
            Broker settings that override the sandbox's own.
        class_path
            Jars of plug-ins, before the broker's own.
        jvm_options
            Further options of the broker's JVM.

        Returns
        -------
        Broker
            The running broker.

        Raises
        ------
        BrokerError
            If the folder is in use, or the broker is not ready within 90 s.
        JarsError
            If there is no Java, or the broker's jars cannot be fetched.
        """
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise BrokerError(f"{path} is not empty: a sandbox broker wants a folder of its own")
        broker = cls(
            path,
            sasl_ssl=sasl_ssl,
            properties=properties,
            class_path=class_path,
            jvm_options=jvm_options,
        )
        try:
            broker._format()
            broker._launch()
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
        """Restart the broker with its folder and ports; a running one is stopped first.

        Raises
        ------
        BrokerError
            If it is not ready within 90 s.
        """
        self.stop()
        try:
            self._launch()
        except BaseException:
            self.kill()
            raise

    def _format(self) -> None:
        self._write_properties()
        with self.log_file.open("ab") as log:
            command = ["kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", self._config_file]
            process = start_process(self._java(command), log=log)
            try:
                status = process.wait(_START_TIMEOUT_S)
            finally:
                kill_process(process)
        if status != 0:
            raise BrokerError(f"formatting the broker's folder failed with status {status}:\n{self._tail()}")

    def _launch(self) -> None:
        with self.log_file.open("ab") as log:
            java, *rest = self._java(["kafka.Kafka", self._config_file])
            # Not for the format tool: if the options contain a port, only one process can listen on it.
            self._process = start_process([java, *self._jvm_options, *rest], log=log)
        self._wait_until_ready(time.monotonic() + _START_TIMEOUT_S)

    @property
    def _config_file(self) -> str:
        return str(self.directory / "server.properties")

    def _java(self, arguments: list[str]) -> list[str]:
        path = os.pathsep.join([*map(str, self._class_path), broker_classpath()])
        return [java_command(), *_JVM_OPTIONS, *_LOG_OPTIONS, "-cp", path, *arguments]

    def _write_properties(self) -> None:
        listeners = {"PLAINTEXT": self.bootstrap_servers}
        settings = _PROPERTIES | {
            "log.dirs": str(self.directory / "data"),
            "controller.quorum.voters": f"1@{self._controller}",
        }
        if self._secure_address is not None:
            listeners["SASL_SSL"] = self._secure_address
            settings |= self._secure_settings()
        settings |= {
            "listeners": ",".join(
                f"{name}://{address}"
                for name, address in {**listeners, "CONTROLLER": self._controller}.items()
            ),
            "advertised.listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
        }
        lines = [f"{key}={value}" for key, value in sorted((settings | self._extra).items())]
        config = Path(self._config_file)
        config.touch(mode=0o600)  # it contains the listener's password
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _secure_settings(self) -> dict[str, str]:
        ca_file, server_file = write_certificates(self.directory)
        self.sasl_ssl = SaslSsl(str(self._secure_address), ca_file, "sandbox", self._password)
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'{login} required user_{self.sasl_ssl.username}="{self._password}";'
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(server_file),
        }

    def _wait_until_ready(self, deadline: float) -> None:
        """Wait until the broker responds, has the expected cluster id, and coordinates groups."""
        problem = "it did not answer"
        while time.monotonic() < deadline:
            if self._process is not None and (status := self._process.poll()) is not None:
                raise BrokerError(f"the broker ended with status {status}:\n{self._tail()}")
            answer = probe(self.bootstrap_servers)
            if answer == self.cluster_id:
                return
            if isinstance(answer, str):
                raise BrokerError(f"{self.bootstrap_servers} is cluster {answer}, not {self.cluster_id}")
            problem = repr(answer)
            time.sleep(0.1)
        raise BrokerError(
            f"the broker was not ready after {_START_TIMEOUT_S:.0f} s: {problem}\n{self._tail()}"
        )

    def _tail(self, lines: int = 20) -> str:
        text = self.log_file.read_text(encoding="utf-8", errors="replace")
        return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])
