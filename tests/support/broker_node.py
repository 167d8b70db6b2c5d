"""A broker with what only tests need: secure listeners, ACLs, racks, other versions, nodes of one cluster."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sandbox.kafka.broker import Broker, new_cluster_id
from sandbox.processes import free_ports
from tests.support.certificates import write_certificates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_USER: Final = "sandbox"
_MAX_REPLICATION: Final = 3
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


class BrokerNode(Broker):
    """A broker, alone or as a node of a cluster.

    logins: Connection to the secure listener by user; empty without one.
    addresses: ``localhost:port`` of the listeners given to the constructor, which maps their names to
        protocols.
    kafka: The version, one of ``sandbox.jars.OTHER_KAFKAS``; None for the default one.
    """

    def __init__(
        self,
        directory: Path,
        *,
        sasl_ssl: bool = False,
        jvm_options: Sequence[str] = (),
        place: ClusterPlace | None = None,
        kafka: str | None = None,
        listeners: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(directory, **options)
        self._kafka = kafka or self._kafka
        self._jvm_options = tuple(jvm_options)
        self._protocols = dict(listeners or {})
        secure_port, *own = free_ports(1 + len(self._protocols))
        self.addresses = {name: f"localhost:{own[at]}" for at, name in enumerate(self._protocols)}
        passwords = {_USER: secrets.token_urlsafe(24)} if sasl_ssl else {}
        self.place = place or ClusterPlace(new_cluster_id(), 1, {1: self.controller}, passwords=passwords)
        self.cluster_id = self.place.cluster_id
        self._secure_address = f"localhost:{secure_port}" if self.place.passwords else None
        self.logins: dict[str, SaslSsl] = {}

    @property
    def sasl_ssl(self) -> SaslSsl | None:
        """The first user's connection to the secure listener; None without one."""
        return next(iter(self.logins.values()), None)

    def settings(self) -> dict[str, str]:
        """Return the properties: a write needs all replicas but one, so that one node may be down."""
        place = self.place
        settings = super().settings() | {
            "node.id": str(place.node_id),
            "controller.quorum.voters": ",".join(f"{id_}@{address}" for id_, address in place.voters.items()),
            **dict.fromkeys(_REPLICATED, str(place.replication)),
            **dict.fromkeys(_IN_SYNC, str(max(1, place.replication - 1))),
        }
        if place.rack is not None:
            settings["broker.rack"] = place.rack
        if place.has_acls:
            settings |= _ACLS
        if place.node_id not in place.voters:
            settings["process.roles"] = "broker"
        return settings | self._listener_settings()

    def _listener_settings(self) -> dict[str, str]:
        listeners = {"PLAINTEXT": self.bootstrap_servers} | self.addresses
        secure: dict[str, str] = {}
        if self._secure_address is not None:
            listeners["SASL_SSL"] = self._secure_address
            secure = self._secure_settings(self._secure_address)
        own = dict(listeners)
        if self.place.node_id in self.place.voters:
            own["CONTROLLER"] = self.place.voters[self.place.node_id]
        kinds = {"CONTROLLER": "PLAINTEXT"} | {name: name for name in listeners} | self._protocols
        return secure | {
            "listeners": ",".join(f"{name}://{address}" for name, address in own.items()),
            "advertised.listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in kinds.items()),
        }

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

    def _java(self, arguments: list[str]) -> list[str]:
        java, *rest = super()._java(arguments)
        # Not for the format tool: if the options contain a port, only one process can listen on it.
        return [java, *(self._jvm_options if "kafka.Kafka" in arguments else ()), *rest]
