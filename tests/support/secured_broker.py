"""One broker with a listener for each way in which a connection can fail, and users without rights."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from sandbox.kafka.broker import new_cluster_id
from sandbox.processes import free_ports
from tests.support.broker_node import BrokerNode, ClusterPlace
from tests.support.certificates import CertificateAuthority

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PASSWORD: Final = "right-pass-phrase"
USERS: Final = ("evenlag", "nobody", "only-cluster", "only-groups", "some")
_PROTOCOLS: Final = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "SASL": "SASL_PLAINTEXT",
}


@dataclass(frozen=True, slots=True)
class SecuredBroker:
    """A running broker with ACLs.

    broker: The broker; who connects to its plain listener may do everything.
    addresses: ``localhost:port`` by listener: PLAINTEXT, SASL_SSL, SASL, TLS, MTLS (asks for a
        certificate), EXPIRED and ELSEWHERE (a certificate that has expired, or has the names of another
        host).
    folder: ``ca.pem`` signed all certificates; ``other-ca.pem`` did not. ``client.pem`` is for MTLS,
        ``locked.pem`` the same with an encrypted key, ``stranger.pem`` of the other authority.
    """

    broker: BrokerNode
    addresses: dict[str, str]
    folder: Path

    def login(self, user: str = "evenlag") -> dict[str, str]:
        """Return kafka-python's settings by which a user connects to SASL_SSL, without its address."""
        return {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.folder / "ca.pem"),
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": PASSWORD,
        }


def start_secured_broker(folder: Path) -> SecuredBroker:
    """Start the broker; see `SecuredBroker`."""
    folder.mkdir(parents=True)
    own, other = (CertificateAuthority(folder / name) for name in ("ca.pem", "other-ca.pem"))
    server = own.issue(folder / "server.pem")
    own.issue(folder / "client.pem", names=("evenlag",))
    own.issue(folder / "locked.pem", names=("evenlag",), password=PASSWORD)
    other.issue(folder / "stranger.pem", names=("evenlag",))
    expired = own.issue(folder / "expired.pem", valid=dt.timedelta(days=-2))
    elsewhere = own.issue(folder / "elsewhere.pem", names=("kafka.example.org",))
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.mtls.ssl.truststore.type": "PEM",
        "listener.name.mtls.ssl.truststore.location": str(own.ca_file),
        "listener.name.expired.ssl.keystore.location": str(expired),
        "listener.name.elsewhere.ssl.keystore.location": str(elsewhere),
        "listener.name.sasl.plain.sasl.jaas.config": f'{login} user_evenlag="{PASSWORD}";',
    }
    place = ClusterPlace(
        new_cluster_id(),
        1,
        {1: f"127.0.0.1:{free_ports(1)[0]}"},
        passwords=dict.fromkeys(USERS, PASSWORD),
        certificates=(own.ca_file, server),
        has_acls=True,
    )
    broker = BrokerNode(folder / "node", properties=properties, place=place, listeners=_PROTOCOLS)
    try:
        broker.prepare()
        broker.restart()
    except BaseException:
        broker.kill()
        raise
    secure = broker.sasl_ssl
    assert secure is not None
    named = {"PLAINTEXT": broker.bootstrap_servers, "SASL_SSL": secure.bootstrap_servers}
    return SecuredBroker(broker, broker.addresses | named, folder)


def grant(secured: SecuredBroker, rights: Mapping[str, Sequence[tuple[ResourceType, str]]]) -> None:
    """Grant Describe on resources to users."""
    admin = KafkaAdminClient(bootstrap_servers=secured.addresses["PLAINTEXT"])
    try:
        admin.create_acls(
            [
                ACL(
                    f"User:{user}",
                    "*",
                    ACLOperation.DESCRIBE,
                    ACLPermissionType.ALLOW,
                    ResourcePattern(kind, name),
                )
                for user, granted in rights.items()
                for kind, name in granted
            ]
        )
    finally:
        admin.close()
