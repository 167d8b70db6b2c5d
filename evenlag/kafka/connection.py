"""Connections to Kafka from the policy: TLS and SASL pass through, secrets are resolved here alone."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import JobError, KafkaAuthenticationError, KafkaUnreachableError
from evenlag.kafka.admin_client import open_admin_client
from evenlag.kafka.rate_limit import ReadingLimits
from evenlag.policy.secrets import SecretRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from evenlag.policy.cluster_settings import ClusterSettings

CLIENT_ID: Final = "evenlag"

# A connection that is refused is worth asking again for a moment: a broker restarts.
_BOOTSTRAP_TIMEOUT_MS: Final = 15_000
_PROBE_TIMEOUT_S: Final = 2.0
_LIBRDKAFKA_NAMES: Final = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "ssl_crlfile": "ssl.crl.location",
}
_HOW_TO_CONNECT: Final = ("security_", "sasl_", "ssl_", "proxy_", "socks5_")


def request_timeout_s(cluster: ClusterSettings) -> float:
    """How long a request may take, in seconds: as among the settings for kafka-python, else the cluster's."""
    return float(cluster.kafka.get("request_timeout_ms", cluster.request_timeout_ms)) / 1000  # type: ignore[arg-type]  # a number: settings.py looks


def reading_limits(cluster: ClusterSettings) -> ReadingLimits:
    """How gently a cluster is read; a reading takes as long as four requests may, and what pacing adds."""
    timeout_s = request_timeout_s(cluster)
    return ReadingLimits(
        requests_per_s=cluster.reading.requests_per_s,
        request_timeout_s=timeout_s,
        max_broker_failures=cluster.reading.max_broker_failures,
        deadline_s=4 * timeout_s,
    )


def kafka_client_settings(cluster: ClusterSettings) -> dict[str, Any]:
    """Build the keyword arguments for any kafka-python client of a cluster.

    The result holds secrets: it is for the client's constructor only, never for logs, tables or arguments.

    Raises
    ------
    SecretError
        When a secret that the policy refers to is not there.
    """
    resolved = {
        name: value.resolve() if isinstance(value, SecretRef) else value
        for name, value in cluster.kafka.items()
    }
    return {
        "request_timeout_ms": cluster.request_timeout_ms,
        # Nobody who cannot be reached is waited for longer than for an answer.
        "bootstrap_timeout_ms": min(_BOOTSTRAP_TIMEOUT_MS, round(1000 * request_timeout_s(cluster))),
        **resolved,
        "bootstrap_servers": list(cluster.bootstrap_servers),
        "client_id": CLIENT_ID,
    }


def librdkafka_settings(cluster: ClusterSettings) -> dict[str, Any]:
    """The same connection as confluent-kafka's clients take it; holds secrets, as above.

    Raises
    ------
    JobError
        When a setting has no counterpart there.
    SecretError
        When a secret that the policy refers to is not there.
    """
    return to_librdkafka(kafka_client_settings(cluster))


def to_librdkafka(client: Mapping[str, Any]) -> dict[str, Any]:
    """How to connect, as keyword arguments of kafka-python's clients, in confluent-kafka's words.

    Raises
    ------
    JobError
        When a setting has no counterpart there.

    Examples
    --------
    >>> to_librdkafka({"bootstrap_servers": ["a:1", "b:1"], "security_protocol": "SSL", "client_id": "c"})
    {'bootstrap.servers': 'a:1,b:1', 'security.protocol': 'SSL'}
    """
    unknown = sorted(
        name
        for name in client
        # All else (times, sizes) is kafka-python's own tuning, and not needed to connect.
        if name.startswith(_HOW_TO_CONNECT) and name not in {*_LIBRDKAFKA_NAMES, "ssl_check_hostname"}
    )
    if unknown:
        raise JobError(f"confluent-kafka has nothing like these settings: {', '.join(unknown)}")
    servers = client["bootstrap_servers"]
    settings = {"bootstrap.servers": servers if isinstance(servers, str) else ",".join(servers)}
    settings |= {
        _LIBRDKAFKA_NAMES[name]: value for name, value in client.items() if name in _LIBRDKAFKA_NAMES
    }
    if client.get("ssl_check_hostname") is False:
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


@contextmanager
def kafka_errors(cluster: ClusterSettings) -> Iterator[None]:
    """Turn kafka-python's errors into ones that say which cluster and what to do.

    Raises
    ------
    KafkaAuthenticationError
        When credentials or certificates were refused.
    KafkaUnreachableError
        When nobody answered.
    JobError
        For a setting that kafka-python does not know.
    """
    import kafka.errors

    servers = ", ".join(cluster.bootstrap_servers)
    try:
        yield
    except (
        kafka.errors.SaslAuthenticationFailedError,
        kafka.errors.UnsupportedSaslMechanismError,
        kafka.errors.AuthorizationError,
    ) as error:
        raise KafkaAuthenticationError(
            f"{servers} refused evenlag ({type(error).__name__}): "
            "check sasl_mechanism, user, password and ACLs"
        ) from error
    except kafka.errors.KafkaConfigurationError as error:
        raise JobError(f"kafka-python does not take these settings for {servers}: {error}") from error
    except (kafka.errors.KafkaConnectionError, kafka.errors.KafkaTimeoutError, OSError) as error:
        if _is_secured(cluster) and any(map(_accepts_connections, cluster.bootstrap_servers)):
            # kafka-python tells a refused handshake and a dead port alike, as a timeout.
            raise KafkaAuthenticationError(
                f"{servers} takes connections and then ends them: check security_protocol, the certificates "
                "and the credentials"
            ) from error
        raise KafkaUnreachableError(
            f"no broker answered at {servers}: check bootstrap_servers, security_protocol "
            f"and that it runs ({error})"
        ) from error
    except kafka.errors.KafkaError as error:
        raise KafkaUnreachableError(
            f"{servers} could not do what was asked ({type(error).__name__}: {error})"
        ) from error


@contextmanager
def admin_client(cluster: ClusterSettings) -> Iterator[Any]:
    """Hold a ``KafkaAdminClient`` of a cluster; errors are those of :func:`kafka_errors`."""
    settings = kafka_client_settings(cluster)
    with kafka_errors(cluster), open_admin_client(settings) as client:
        yield client


def kafka_cluster_id(client: Any) -> str:
    """Ask the brokers for the cluster's id."""
    return str(client.describe_cluster()["cluster_id"])


def _is_secured(cluster: ClusterSettings) -> bool:
    return str(cluster.kafka.get("security_protocol", "PLAINTEXT")) != "PLAINTEXT"


def _accepts_connections(server: str) -> bool:
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False
