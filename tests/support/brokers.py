"""What tests need of brokers: one, or a cluster of several with `pytest --brokers 3`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from evenlag.policy.cluster_settings import ClusterSettings
from tests.support.broker_node import BrokerNode
from tests.support.kafka_cluster import Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_node import SaslSsl

USER = "sandbox"
# What a busy machine delays is not gone. Nobody takes over from a broker that is alone, and no test waits for
# the end of a session of the newer protocols.
_PATIENCE = {"broker.session.timeout.ms": "120000"} | {
    f"group.{kind}.{limit}session.timeout.ms": "300000"
    for kind in ("consumer", "share", "streams")
    for limit in ("", "max.")
}


class Brokers(Protocol):
    """One broker or a cluster: `sandbox.kafka.broker.Broker` or `tests.support.kafka_cluster.Cluster`."""

    @property
    def bootstrap_servers(self) -> str:
        """The plain listeners, ``host:port`` for each node."""

    @property
    def cluster_id(self) -> str:
        """Kafka's id of the cluster."""

    def kill(self) -> None:
        """Kill all nodes."""


class SecureBrokers(Brokers, Protocol):
    """Brokers with secure listeners, if they were asked for them."""

    @property
    def sasl_ssl(self) -> SaslSsl | None:
        """Connection to the secure listeners; None without any."""


def start_brokers(folder: Path, num_brokers: int) -> SecureBrokers:
    """Start one broker or a cluster, with plain listeners and secure ones for :data:`USER`.

    On three nodes a topic has three replicas, unless its creation asks for another number.
    """
    if num_brokers == 1:
        return BrokerNode.start(folder, sasl_ssl=True, properties=_PATIENCE)
    return Cluster.start(folder, num_nodes=num_brokers, users=[USER])


def settings_of(brokers: Brokers) -> ClusterSettings:
    """Return a policy's settings of a cluster that is reached through the plain listeners."""
    return ClusterSettings(bootstrap_servers=tuple(brokers.bootstrap_servers.split(",")))
