"""Settings of one KRaft node: alone, or as one of several nodes of a cluster."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PLAIN_LISTENER: Final = "PLAINTEXT"
SECURE_LISTENER: Final = "SASL_SSL"
_CONTROLLER_LISTENER: Final = "CONTROLLER"
_MAX_REPLICATION: Final = 3

_COMMON: Final[dict[str, str]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": _CONTROLLER_LISTENER,
    "inter.broker.listener.name": PLAIN_LISTENER,
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    # Few partitions of the internal topics, which are created at first use.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "num.network.threads": "2",
    "num.io.threads": "4",
    # A killed broker can restart only after its old session has ended: 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
_REPLICATED: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
_IN_SYNC: Final = (
    "min.insync.replicas",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.min.isr",
)
_ACLS: Final[dict[str, str]] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Who connects to the plain listener: the brokers, and tests that set up the rights of others.
    "super.users": "User:ANONYMOUS",
}


def new_cluster_id() -> str:
    """Return a new cluster id in Kafka's text form."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # The format tool would parse a leading minus as an option.
    return "A" + text[1:] if text.startswith("-") else text


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """What a node has in common with the other nodes of its cluster.

    cluster_id: Kafka's 22-character id of the cluster.
    node_id: The node's number.
    voters: Addresses ``host:port`` of all controllers, by node. A node that is not among them is a broker
        only.
    rack: The node's rack; None without racks.
    passwords: Users of the secure listener with their passwords; empty: no secure listener.
    certificates: Files ``ca.pem`` and ``server.pem`` of the secure listener, the same for all nodes; None:
        the node writes its own.
    has_acls: Whether an authorizer checks what users of the secure listener may do: nothing without an ACL.
    """

    cluster_id: str
    node_id: int
    voters: Mapping[int, str]
    rack: str | None = None
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificates: tuple[Path, Path] | None = None
    has_acls: bool = False

    @property
    def replication(self) -> int:
        """Replicas of a partition by default: one for each node, three at most."""
        return min(len(self.voters), _MAX_REPLICATION)


def node_properties(
    place: ClusterPlace, data: str, listeners: Mapping[str, str], protocols: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the properties of a node.

    Returns value by property. A write needs all replicas but one, so that one node may be down.
    listeners: Address ``host:port`` by listener name, without the controller's.
    protocols: Security protocol by name of those listeners that are not named after theirs.
    """
    in_sync = max(1, place.replication - 1)
    settings = _COMMON | {
        "node.id": str(place.node_id),
        "log.dirs": data,
        "controller.quorum.voters": ",".join(f"{node}@{address}" for node, address in place.voters.items()),
        **dict.fromkeys(_REPLICATED, str(place.replication)),
        **dict.fromkeys(_IN_SYNC, str(in_sync)),
    }
    if place.rack is not None:
        settings["broker.rack"] = place.rack
    if place.has_acls:
        settings |= _ACLS
    own = dict(listeners)
    if place.node_id in place.voters:
        own[_CONTROLLER_LISTENER] = place.voters[place.node_id]
    else:
        settings["process.roles"] = "broker"
    kinds = (
        {_CONTROLLER_LISTENER: PLAIN_LISTENER} | {name: name for name in listeners} | dict(protocols or {})
    )
    return settings | {
        "listeners": ",".join(f"{name}://{address}" for name, address in own.items()),
        "advertised.listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in kinds.items()),
    }
