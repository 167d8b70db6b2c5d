"""Connections to Kafka from the policy: TLS and SASL pass through, secrets are resolved only here."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import (
    JobError,
    KafkaAuthenticationError,
    KafkaAuthorizationError,
    KafkaSettingsError,
    KafkaUnreachableError,
)
from evenlag.kafka.admin_client import open_admin_client, summarize_connection_errors
from evenlag.kafka.connection_failures import Failure, connection_failure, tls_context
from evenlag.kafka.rate_limit import RequestLimits
from evenlag.kafka.request_errors import in_one_line
from evenlag.policy.secrets import SecretRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from evenlag.policy.cluster_settings import ClusterSettings

CLIENT_ID: Final = "evenlag"

# A refused connection is retried for this time: the broker may be restarting.
_BOOTSTRAP_TIMEOUT_MS: Final = 15_000
# Bootstrap servers that are tried once more to explain an error.
_MAX_EXPLAINED: Final = 3
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
}
_HOW_TO_CONNECT: Final = ("security_", "sasl_", "ssl_", "proxy_", "socks5_")


def request_timeout_s(cluster: ClusterSettings) -> float:
    """Return the time limit of one request.

    Returns Seconds: ``request_timeout_ms`` of the settings for kafka-python if set, else the cluster's.
    """
    return float(cluster.kafka.get("request_timeout_ms", cluster.request_timeout_ms)) / 1000  # type: ignore[arg-type]  # a number: checked by settings.py


def request_limits(cluster: ClusterSettings) -> RequestLimits:
    """Return the limits of a snapshot.

    Returns limits with a deadline of four request timeouts; waits of the rate limit do not count.
    """
    timeout_s = request_timeout_s(cluster)
    return RequestLimits(
        requests_per_s=cluster.snapshot.requests_per_s,
        request_timeout_s=timeout_s,
        max_broker_failures=cluster.snapshot.max_broker_failures,
        failover_s=cluster.snapshot.failover_s,
        deadline_s=4 * timeout_s,
    )


def kafka_client_settings(cluster: ClusterSettings) -> dict[str, Any]:
    """Build the keyword arguments for any kafka-python client of a cluster.

    The result contains secrets: pass it only to the client's constructor, never to logs, tables or arguments.
    """
    resolved = {
        name: value.resolve() if isinstance(value, SecretRef) else value
        for name, value in cluster.kafka.items()
    }
    if str(resolved.get("security_protocol", "")).endswith("SSL"):
        # kafka-python would try again until its time is over, and may ask for a password on the terminal.
        tls_context(resolved)
    return {
        "request_timeout_ms": cluster.request_timeout_ms,
        # Connecting takes no longer than a request may.
        "bootstrap_timeout_ms": min(_BOOTSTRAP_TIMEOUT_MS, round(1000 * request_timeout_s(cluster))),
        **resolved,
        "bootstrap_servers": list(cluster.bootstrap_servers),
        "client_id": CLIENT_ID,
    }


def librdkafka_settings(cluster: ClusterSettings) -> dict[str, Any]:
    """Build the settings for confluent-kafka's clients; they contain secrets."""
    return to_librdkafka(kafka_client_settings(cluster))


def to_librdkafka(client: Mapping[str, Any]) -> dict[str, Any]:
    """Convert connection settings from kafka-python's names to librdkafka's.

    Examples
    --------
    >>> to_librdkafka({"bootstrap_servers": ["a:1", "b:1"], "security_protocol": "SSL", "client_id": "c"})
    {'bootstrap.servers': 'a:1,b:1', 'security.protocol': 'SSL'}
    """
    unknown = sorted(
        name
        for name in client
        # The others (timeouts, sizes) tune kafka-python and are not needed to connect.
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
    """Convert kafka-python's errors into errors that name the cluster's servers and a remedy.

    Connection errors of the clients in the block are logged once for each broker
    (`evenlag.kafka.admin_client`).
    """
    import kafka.errors

    servers = ", ".join(cluster.bootstrap_servers)
    summarize_connection_errors()
    try:
        yield
    except kafka.errors.AuthorizationError as error:
        raise KafkaAuthorizationError(
            f"{servers} does not authorize evenlag: {in_one_line(error)}",
            remedy="evenlag doctor --only permissions names the ACL that is missing",
        ) from error
    except kafka.errors.KafkaConfigurationError as error:
        raise KafkaSettingsError(f"kafka-python does not take these settings: {error}") from error
    except (
        kafka.errors.KafkaConnectionError,
        kafka.errors.KafkaTimeoutError,
        kafka.errors.SaslAuthenticationFailedError,
        kafka.errors.UnsupportedSaslMechanismError,
        kafka.errors.IllegalSaslStateError,
        OSError,
    ) as error:
        failed = _connection_error(cluster, error)
        raise failed from error
    except kafka.errors.KafkaError as error:
        raise KafkaUnreachableError(f"{servers} could not do what was asked: {in_one_line(error)}") from error


def _connection_error(cluster: ClusterSettings, error: Exception) -> JobError:
    """Find out why the brokers do not answer: of several causes, the one of a broker that refuses."""
    settings = kafka_client_settings(cluster)
    failures: dict[Failure, list[str]] = {}
    for server in cluster.bootstrap_servers[:_MAX_EXPLAINED]:
        failure = connection_failure(server, settings)
        if failure is None:
            # It answers by now, or the error is one of another broker.
            return KafkaUnreachableError(
                f"{server} answers, and the cluster does not: {in_one_line(error)}",
                remedy="check that all brokers run, and that their advertised.listeners can be reached",
            )
        failures.setdefault(failure, []).append(server)
    failure, servers = max(failures.items(), key=lambda item: item[0].is_refused)
    kind = KafkaAuthenticationError if failure.is_refused else KafkaUnreachableError
    return kind(f"{', '.join(servers)} {failure.cause}", remedy=failure.remedy)


@contextmanager
def admin_client(cluster: ClusterSettings) -> Iterator[Any]:
    """Open a ``KafkaAdminClient`` of a cluster."""
    settings = kafka_client_settings(cluster)
    with kafka_errors(cluster), open_admin_client(settings) as client:
        yield client


def kafka_cluster_id(client: Any) -> str:
    """Return the cluster id that the brokers report."""
    return str(client.describe_cluster()["cluster_id"])
