"""A broker with the plug-in, its figures, and how it is secured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.kafka.jvm_jars import ASSIGNOR_CLASS
from sandbox.processes import free_ports
from tests.support.broker_node import BrokerNode
from tests.support.brokers import USER
from tests.support.kafka_cluster import Cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.support.broker_plugin.harness import Harness

MASTER = b"the master key of these tests, long enough"
HINTS = "evenlag-hints"
PLUGIN_FIRST = f"{ASSIGNOR_CLASS},uniform,range"
_VERDICTS = (
    "FollowedTotal", "NoHintTotal", "ColdTotal", "ExpiredTotal", "FingerprintTotal", "MismatchTotal",
    "MaxMovesTotal", "CountSlackTotal", "InvalidTotal",
)  # fmt: skip


# Of several nodes the one that is furthest behind counts; what coordinators answer adds up. All other figures
# tell how far a node has read, so the least counts.
_LARGEST = ("IsCold", "LagRecords", "InternalErrorTotal")


class Node:
    """A broker with the plug-in, or a cluster whose nodes all have it, and the figures."""

    def __init__(
        self, broker: BrokerNode | Cluster, key_file: Path, jmx_ports: Sequence[int], harness: Harness
    ) -> None:
        self.broker, self.key_file = broker, key_file
        self._jmx_ports, self._harness = jmx_ports, harness

    def figures(self) -> dict[str, float]:
        """Return the plug-in's MBean; of several nodes, as one that has what they have in common."""
        found = [self._harness.ask("jmx", port=port) for port in self._jmx_ports]
        return {name: _combine(name)([figures[name] for figures in found]) for name in found[0]}

    def restart(self) -> None:
        """Restart the nodes, one after the other."""
        if isinstance(self.broker, BrokerNode):
            self.broker.restart()
        else:
            for node_id in self.broker.nodes:
                self.broker.restart(node_id)

    def answers(self) -> dict[str, float]:
        """Return how often each verdict was given to the coordinator."""
        figures = self.figures()
        return {name: figures[name] for name in _VERDICTS}

    def wait_for(self, what: str, condition: Callable[[dict[str, float]], bool]) -> None:
        """Wait until the figures are as said."""
        wait_until(lambda: condition(self.figures()), what=what)


def _combine(name: str) -> Callable[[list[float]], float]:
    if name in _VERDICTS:
        return sum
    return max if name in _LARGEST else min


def start_node(
    folder: Path,
    plugin_jar: Path,
    harness: Harness,
    *,
    kafka: str | None = None,
    num_brokers: int = 1,
    is_first: bool = False,
    heartbeat_ms: int = 3000,
) -> Node:
    """Start one, of another version of Kafka if asked for, or a cluster; it is the caller's to stop.

    heartbeat_ms: librdkafka waits for an answer about half a second longer. A static member whose heartbeat
        timed out while its epoch changed is fenced, and then refused for its own instance id: fatal.
    is_first: Whether the plug-in assigns groups that request no assignor, by signed hints.
    """
    key_file = folder / "master.key"
    key_file.write_bytes(MASTER + b"\n")
    jmx_ports = free_ports(num_brokers)
    properties = {
        "group.consumer.assignors": PLUGIN_FIRST if is_first else f"uniform,range,{ASSIGNOR_CLASS}",
        "evenlag.required.signing": str(is_first).lower(),
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.heartbeat.interval.ms": str(heartbeat_ms),
        "group.consumer.assignment.interval.ms": "100",
        # A busy machine may stop a process, or start a broker, for longer than the default of 45 s.
        "group.consumer.session.timeout.ms": "300000",
        "group.consumer.max.session.timeout.ms": "300000",
        "evenlag.signing.key.file": str(key_file),
        "evenlag.check.interval.ms": "500",
        **secured(folder),
    }
    place = folder / "node"
    broker: BrokerNode | Cluster
    if num_brokers == 1:
        options = _jvm_options(jmx_ports[0])
        jars = [plugin_jar]
        broker = BrokerNode.start(
            place, sasl_ssl=True, properties=properties, class_path=jars, jvm_options=options, kafka=kafka
        )
    else:
        broker = Cluster.start(
            place,
            num_nodes=num_brokers,
            users=[USER],
            properties=properties,
            class_path=[plugin_jar],
            jvm_options=lambda node_id: _jvm_options(jmx_ports[node_id - 1]),
        )
    return Node(broker, key_file, jmx_ports, harness)


def _jvm_options(jmx_port: int) -> list[str]:
    jmx = [f"-Dcom.sun.management.jmxremote.{name}" for name in (
        f"port={jmx_port}", f"rmi.port={jmx_port}", "host=127.0.0.1", "authenticate=false", "ssl=false"
    )]  # fmt: skip
    return [*jmx, "-Djava.rmi.server.hostname=127.0.0.1", "-Dorg.slf4j.simpleLogger.log.evenlag=info"]


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
