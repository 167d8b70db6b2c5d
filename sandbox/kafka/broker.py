"""An Apache Kafka broker (KRaft) in its own folder.

It listens on free ports of the loopback interface, does not create topics automatically, has no initial
rebalance delay, and dies with the process that started it. Stop, kill and restart keep the folder and the
ports, so clients can reconnect to it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sandbox.jars import OTHER_KAFKAS, OWN_KAFKA, broker_classpath, java_command
from sandbox.kafka.certificates import write_certificates
from sandbox.kafka.node_settings import (
    PLAIN_LISTENER,
    SECURE_LISTENER,
    ClusterPlace,
    new_cluster_id,
    node_properties,
)
from sandbox.processes import free_ports, kill_process, start_process, stop_process

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping, Sequence


def probe(bootstrap_servers: str) -> str | Exception:
    """Return the cluster id once the broker coordinates groups; until then the error that prevents it."""
    import socket

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


_START_TIMEOUT_S = 90.0
_STOP_TIMEOUT_S = 20.0
# Tests need a fast start, not throughput: a C1-only JVM is ready in about half the time.
_JVM_OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
_LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
_USER = "sandbox"


class BrokerError(RuntimeError):
    """Raised when the broker does not start or is not the expected one, with the tail of its log."""


@dataclass(frozen=True, slots=True)
class SaslSsl:
    """Connection settings of the authenticated listener.

    bootstrap_servers: ``localhost:port``, of a cluster one for each node.
    ca_file: PEM file of the authority that signed the broker's certificate.
    username, password: For SASL mechanism PLAIN; each folder has a new password.
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


def default_version() -> str | None:
    """Return the version of brokers without an explicit one: ``EVENLAG_KAFKA``; None: the sandbox's own."""
    wanted = os.environ.get("EVENLAG_KAFKA") or OWN_KAFKA
    if wanted not in (OWN_KAFKA, *OTHER_KAFKAS):
        known = ", ".join(sorted((OWN_KAFKA, *OTHER_KAFKAS)))
        raise BrokerError(f"EVENLAG_KAFKA is {wanted!r}: the sandbox has Kafka {known}")
    return None if wanted == OWN_KAFKA else wanted


class Broker:
    """A running broker; on exit the context manager stops it and keeps its folder.

    bootstrap_servers: The plain listener, ``127.0.0.1:port``.
    logins: Connection to the secure listener by user; empty without one.
    addresses: ``localhost:port`` of the listeners given to the constructor, which maps their names to
        protocols.

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
        place: ClusterPlace | None = None,
        kafka: str | None = None,
        listeners: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self._kafka = kafka or default_version()
        self.log_file = self.directory / "broker.log"
        self._extra = dict(properties or {})
        self._class_path = tuple(class_path)
        self._jvm_options = tuple(jvm_options)
        self._process: subprocess.Popen[bytes] | None = None
        self._protocols = dict(listeners or {})
        port, controller_port, secure_port, *own = free_ports(3 + len(self._protocols))
        self.addresses = {name: f"localhost:{own[at]}" for at, name in enumerate(self._protocols)}
        self.bootstrap_servers = f"127.0.0.1:{port}"
        passwords = {_USER: secrets.token_urlsafe(24)} if sasl_ssl else {}
        self.place = place or ClusterPlace(
            new_cluster_id(), 1, {1: f"127.0.0.1:{controller_port}"}, passwords=passwords
        )
        self._secure_address = f"localhost:{secure_port}" if self.place.passwords else None
        self.logins: dict[str, SaslSsl] = {}

    @classmethod
    def start(
        cls,
        directory: str | Path,
        *,
        sasl_ssl: bool = False,
        properties: Mapping[str, str] | None = None,
        class_path: Sequence[Path] = (),
        jvm_options: Sequence[str] = (),
        kafka: str | None = None,
    ) -> Self:
        """Format a new broker in `directory` and start it; returns when clients can use it.

        directory: A new or empty folder; it is created.
        kafka: The version, one of ``sandbox.jars.OTHER_KAFKAS``; None for that of the environment variable
            ``EVENLAG_KAFKA``, and without it the sandbox's own.
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
            kafka=kafka,
        )
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
    def cluster_id(self) -> str:
        """Kafka's 22-character id, fixed per folder; every start checks that the broker reports it."""
        return self.place.cluster_id

    @property
    def sasl_ssl(self) -> SaslSsl | None:
        """The first user's connection to the secure listener; None without one."""
        return next(iter(self.logins.values()), None)

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
        self._write_properties()
        with self.log_file.open("ab") as log:
            identity = ["-t", self.cluster_id, "-c", self._config_file]
            process = start_process(self._java(["kafka.tools.StorageTool", "format", *identity]), log=log)
            try:
                status = process.wait(_START_TIMEOUT_S)
            finally:
                kill_process(process)
        if status != 0:
            raise BrokerError(f"formatting the broker's folder failed with status {status}:\n{self._tail()}")

    def launch(self) -> None:
        """Start the process; :meth:`wait_until_ready` waits for it."""
        with self.log_file.open("ab") as log:
            java, *rest = self._java(["kafka.Kafka", self._config_file])
            # Not for the format tool: if the options contain a port, only one process can listen on it.
            self._process = start_process([java, *self._jvm_options, *rest], log=log)

    def wait_until_ready(self) -> None:
        """Wait until the broker answers, has the expected cluster id, and finds coordinators of groups."""
        deadline = time.monotonic() + _START_TIMEOUT_S
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

    @property
    def _config_file(self) -> str:
        return str(self.directory / "server.properties")

    def _java(self, arguments: list[str]) -> list[str]:
        path = os.pathsep.join([broker_classpath(self._kafka), *map(str, self._class_path)])
        return [java_command(), *_JVM_OPTIONS, *_LOG_OPTIONS, "-cp", path, *arguments]

    def _write_properties(self) -> None:
        listeners = {PLAIN_LISTENER: self.bootstrap_servers} | self.addresses
        secure: dict[str, str] = {}
        if self._secure_address is not None:
            listeners[SECURE_LISTENER] = self._secure_address
            secure = self._secure_settings(self._secure_address)
        settings = (
            node_properties(self.place, str(self.directory / "data"), listeners, self._protocols) | secure
        )
        lines = [f"{key}={value}" for key, value in sorted((settings | self._extra).items())]
        config = Path(self._config_file)
        config.touch(mode=0o600)  # it contains the listener's passwords
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _secure_settings(self, address: str) -> dict[str, str]:
        ca_file, server_file = self.place.certificates or write_certificates(self.directory)
        self.logins = {
            user: SaslSsl(address, ca_file, user, password) for user, password in self.place.passwords.items()
        }
        login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        users = " ".join(f'user_{user}="{password}"' for user, password in self.place.passwords.items())
        return {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{login} required {users};",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(server_file),
        }

    def _tail(self, lines: int = 20) -> str:
        text = self.log_file.read_text(encoding="utf-8", errors="replace")
        return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])
