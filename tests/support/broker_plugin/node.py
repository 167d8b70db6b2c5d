"""A broker with the plug-in, its figures, and how it is secured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.kafka.broker import Broker
from sandbox.kafka.broker_plugin import ASSIGNOR_CLASS
from sandbox.processes import free_ports
from tests.support.hints import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.broker_plugin.harness import Harness

MASTER = b"the master key of these tests"
HINTS = "evenlag-hints"
_VERDICTS = (
    "FollowedTotal", "NoHintTotal", "ColdTotal", "ExpiredTotal", "FingerprintTotal", "MismatchTotal",
    "MaxMovesTotal", "CountSlackTotal", "InvalidTotal",
)  # fmt: skip


class Node:
    """A broker with the plug-in, and its figures."""

    def __init__(self, broker: Broker, key_file: Path, jmx_port: int, harness: Harness) -> None:
        self.broker, self.key_file = broker, key_file
        self._jmx_port, self._harness = jmx_port, harness

    def figures(self) -> dict[str, float]:
        """Return the plug-in's MBean."""
        return self._harness.ask("jmx", port=self._jmx_port)

    def answers(self) -> dict[str, float]:
        """Return how often each verdict was given to the coordinator."""
        figures = self.figures()
        return {name: figures[name] for name in _VERDICTS}

    def wait_for(self, what: str, condition: Callable[[dict[str, float]], bool]) -> None:
        """Wait until the figures are as said."""
        wait_until(lambda: condition(self.figures()), timeout_s=90, what=what)


def start_node(folder: Path, plugin_jar: Path, harness: Harness) -> Node:
    """Start one; it is the caller's to stop."""
    key_file = folder / "master.key"
    key_file.write_bytes(MASTER + b"\n")
    (jmx_port,) = free_ports(1)
    properties = {
        "group.consumer.assignors": f"uniform,range,{ASSIGNOR_CLASS}",
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.heartbeat.interval.ms": "300",
        "group.consumer.assignment.interval.ms": "100",
        "evenlag.signing.key.file": str(key_file),
        "evenlag.check.interval.ms": "500",
        **secured(folder),
    }
    jmx = [f"-Dcom.sun.management.jmxremote.{name}" for name in (
        f"port={jmx_port}", f"rmi.port={jmx_port}", "host=127.0.0.1", "authenticate=false", "ssl=false"
    )]  # fmt: skip
    options = [*jmx, "-Djava.rmi.server.hostname=127.0.0.1", "-Dorg.slf4j.simpleLogger.log.evenlag=info"]
    broker = Broker.start(
        folder / "node", sasl_ssl=True, properties=properties, class_path=[plugin_jar], jvm_options=options
    )
    return Node(broker, key_file, jmx_port, harness)


def secured(folder: Path) -> dict[str, str]:
    """Have the plug-in find the brokers' own listener, an authenticated one; secrets by a config provider."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    secrets = folder / "secrets.properties"
    secrets.write_text(
        f'broker={login} username="broker" password="b" user_broker="b" user_evenlag="e";\n'
        f'plugin={login} username="evenlag" password="e";\n',
        encoding="utf-8",
    )
    return {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"${{file:{secrets}:broker}}",
        "evenlag.consumer.sasl.mechanism": "PLAIN",
        "evenlag.consumer.sasl.jaas.config": f"${{file:{secrets}:plugin}}",
        **{
            f"{prefix}ssl.truststore.{name}": value
            for prefix in ("", "evenlag.consumer.")
            for name, value in (("type", "PEM"), ("location", str(folder / "node" / "ca.pem")))
        },
    }
