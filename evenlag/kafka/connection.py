"""Connections to Kafka from the policy: TLS and SASL pass through, secrets are resolved only here."""

import logging
import random
import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import kafka.errors
from kafka.admin import KafkaAdminClient

from evenlag.errors import (
    JobError,
    KafkaAuthenticationError,
    KafkaAuthorizationError,
    KafkaSettingsError,
    KafkaUnreachableError,
)
from evenlag.kafka.broker_requests import RequestLimits, in_one_line
from evenlag.kafka.connection_failures import Failure, connection_failure, tls_context
from evenlag.logging_setup import named_logger
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.policy.kafka_settings import LIBRDKAFKA_NAMES
from evenlag.policy.secrets import SecretRef

_UNKNOWN: Final = "User:NAME-OF-EVENLAG"


def operation_name(operation: str) -> str:
    """Return the name of an operation in messages and commands, e.g. ``DescribeConfigs``."""
    return operation.title().replace("_", "")


@dataclass(frozen=True, slots=True)
class Grants:
    """Builds the ``kafka-acls`` command that grants missing operations."""

    servers: tuple[str, ...]
    principal: str

    @classmethod
    def of(cls, servers: Sequence[str], settings: Mapping[str, Any]) -> Self:
        """Return the commands for who connects with these settings, as far as they show it."""
        user = settings.get("sasl_plain_username")
        is_anonymous = not user and not settings.get("ssl_certfile") and not settings.get("sasl_mechanism")
        return cls(tuple(servers), f"User:{user}" if user else "User:ANONYMOUS" if is_anonymous else _UNKNOWN)

    def line(self, operations: tuple[str, ...], resource: str) -> str:
        """Return the command for operations, named as in Kafka's ``AclOperation``, on a resource."""
        wanted = " ".join(f"--operation {operation_name(operation)}" for operation in operations)
        return (
            f"kafka-acls.sh --bootstrap-server {','.join(self.servers)} --add "
            f"--allow-principal '{self.principal}' {wanted} {resource}"
        )

    def missing_describe(self, name: str, resource: str) -> KafkaAuthorizationError:
        """Return the error that ``Describe`` is missing."""
        return KafkaAuthorizationError(
            f"{self.principal} lacks the ACL Describe on {name}",
            remedy=self.line(("DESCRIBE",), resource),
        )


INTERVAL_S: Final = 60.0
"""A broker whose errors go on has one line in so many seconds."""

_log = named_logger(__name__)

_ADDRESS: Final = re.compile(r"\[(.+)<-")


# What a line of kafka-python says: the transport that knows an address comes first in its arguments, or the
# connection that was lost and its error; another line reports the same as the others.
_TRANSPORT, _LOST, _REPEATED = range(3)
# By logger and format. What a later version of kafka-python words in another way stays as it is.
_LINES: Final[dict[str, dict[str, int]]] = {
    "kafka.net.transport": {
        "%s: socket disconnected": _TRANSPORT,
        "%s: Abort (%s)": _TRANSPORT,
        "%s: Error sending request data: %s": _TRANSPORT,
        "%s: Error receiving network data closing socket": _TRANSPORT,
    },
    "kafka.net.connection": {
        "%s: Connection lost: %s": _LOST,
        "%s: Request timed out after %d ms. Closing connection.": _REPEATED,
    },
    "kafka.net.manager": {
        "Connection failed: %s": _REPEATED,
        "Bootstrap connection to %s failed: %s (backoff %.2f secs)": _REPEATED,
        "Bootstrap %s not ready; waiting %.2f secs": _REPEATED,
        # The caller gets it as an exception.
        "Bootstrap failed: %s": _REPEATED,
    },
    "kafka.cluster": {
        "Metadata refresh: failed %s": _REPEATED,
        "No node available for metadata refresh - backoff/retry": _REPEATED,
    },
    "kafka.producer.sender": {
        "%s: Error sending produce request to node %d: %s": _REPEATED,
    },
    # Formatted by the client: that a task "is blocking the event loop" for more than 100 ms. It measures
    # elapsed time, so on a busy machine any task is named.
    "kafka.net.selector": {},
}
_SLOW_TASK: Final = re.compile(r"Task .* ran for .*threshold")


@dataclass(slots=True)
class _Broker:
    """What was reported of a broker."""

    address: str | None = None
    reported_at: float | None = None
    unreported: int = 0


class _Summary(logging.Filter):
    """Moves errors of connections to level ``DEBUG``, and reports each broker's."""

    def __init__(self) -> None:
        super().__init__()
        # By the client's event loop, so that the brokers of two clusters are not taken for one another.
        # Clients that have been connected to the same address share what was reported.
        self._brokers: weakref.WeakKeyDictionary[Any, dict[Any, _Broker]] = weakref.WeakKeyDictionary()
        self._by_address: dict[str, _Broker] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        # kafka-python also logs exceptions, which have no hash.
        message = str(record.msg)
        line = _LINES.get(record.name, {}).get(message)
        if record.name == "kafka.net.selector" and _SLOW_TASK.match(message):
            line = _REPEATED
        arguments: tuple[Any, ...] = record.args if isinstance(record.args, tuple) else ()
        try:
            if line is None:
                return True
            if line == _TRANSPORT:
                self._note_address(arguments[0])
            elif line == _LOST:
                self._note_error(arguments[0], arguments[1], record.created)
        except (AttributeError, IndexError):
            # Another version of kafka-python, whose objects are not known: an error in a filter would end its
            # I/O loop.
            return True
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)

    def _note_address(self, transport: Any) -> None:
        """Remember the address: when the connection reports its loss, it has no transport any more."""
        connection = transport.get_protocol()
        address = _ADDRESS.search(str(transport))
        if address is not None and connection is not None:
            broker = self._by_address.setdefault(address[1], _Broker(address[1]))
            self._brokers.setdefault(connection.net, {})[connection.node_id] = broker

    def _note_error(self, connection: Any, error: Exception, at_s: float) -> None:
        if isinstance(connection.node_id, str):
            # A bootstrap server, of which kafka-python tells a number only. Without any, the caller gets an
            # exception with the addresses.
            return
        broker = self._brokers.setdefault(connection.net, {}).setdefault(connection.node_id, _Broker())
        name = f"broker {connection.node_id}" + ("" if broker.address is None else f" ({broker.address})")
        if broker.reported_at is not None and at_s - broker.reported_at < INTERVAL_S:
            broker.unreported += 1
            return
        more = f", {broker.unreported} more errors since the last report" if broker.unreported else ""
        _log.warning("no connection to %s (%s%s); the client tries again", name, in_one_line(error), more)
        broker.reported_at, broker.unreported = at_s, 0


_SUMMARY: Final = _Summary()


def summarize_connection_errors() -> None:
    """Report connection errors of this process's kafka-python clients once for each broker."""
    for name in _LINES:
        logging.getLogger(name).addFilter(_SUMMARY)


def _connect(settings: Mapping[str, Any]) -> Any:
    """Return a ``KafkaAdminClient``.

    kafka-python waits for one of the ``bootstrap_servers`` even when it hangs and another one would answer.
    Here the servers are tried in random order, each for its share of ``bootstrap_timeout_ms``.
    """
    servers = list(settings["bootstrap_servers"])
    random.shuffle(servers)
    timeout_ms = settings["bootstrap_timeout_ms"] / len(servers)
    while True:
        server = servers.pop()
        own = {**settings, "bootstrap_servers": [server], "bootstrap_timeout_ms": timeout_ms}
        try:
            return KafkaAdminClient(**own)
        except (kafka.errors.KafkaConnectionError, kafka.errors.KafkaTimeoutError, OSError) as error:
            if not servers:
                raise
            _log.warning("no answer from %s (%s); trying another server", server, in_one_line(error))


CLIENT_ID: Final = "evenlag"

# A refused connection is retried for this time: the broker may be restarting.
_BOOTSTRAP_TIMEOUT_MS: Final = 15_000
# Bootstrap servers that are tried once more to explain an error.
_MAX_EXPLAINED: Final = 3
_HOW_TO_CONNECT: Final = ("security_", "sasl_", "ssl_", "proxy_", "socks5_")


def request_timeout_s(cluster: ClusterSettings) -> float:
    """Return the time limit of one request: kafka-python's setting in the policy, else the cluster's."""
    return float(cluster.kafka.get("request_timeout_ms", cluster.request_timeout_ms)) / 1000  # type: ignore[arg-type]  # a number: checked by settings.py


def request_limits(cluster: ClusterSettings) -> RequestLimits:
    """Return the limits of a snapshot; waits of the rate limit do not count for its deadline."""
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


def to_librdkafka(client: Mapping[str, Any]) -> dict[str, Any]:
    """Convert connection settings, secrets included, from kafka-python's names to librdkafka's.

    Examples
    --------
    >>> to_librdkafka({"bootstrap_servers": ["a:1", "b:1"], "security_protocol": "SSL", "client_id": "c"})
    {'bootstrap.servers': 'a:1,b:1', 'security.protocol': 'SSL'}
    """
    unknown = sorted(
        name
        for name in client
        # The others (timeouts, sizes) tune kafka-python and are not needed to connect.
        if name.startswith(_HOW_TO_CONNECT) and name not in {*LIBRDKAFKA_NAMES, "ssl_check_hostname"}
    )
    if unknown:
        raise JobError(f"confluent-kafka has nothing like these settings: {', '.join(unknown)}")
    servers = client["bootstrap_servers"]
    settings = {"bootstrap.servers": servers if isinstance(servers, str) else ",".join(servers)}
    settings |= {LIBRDKAFKA_NAMES[name]: value for name, value in client.items() if name in LIBRDKAFKA_NAMES}
    if client.get("ssl_check_hostname") is False:
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


@contextmanager
def kafka_errors(cluster: ClusterSettings) -> Iterator[None]:
    """Convert kafka-python's errors into errors that name the cluster's servers and a remedy."""
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
def admin_client(cluster: ClusterSettings, client: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """Open a ``KafkaAdminClient`` of a cluster, by these settings instead of its own if given."""
    settings = client or kafka_client_settings(cluster)
    with kafka_errors(cluster), closing(_connect(settings)) as opened:
        yield opened


def kafka_cluster_id(client: Any) -> str:
    """Return the cluster id that the brokers report."""
    return str(client.describe_cluster()["cluster_id"])
