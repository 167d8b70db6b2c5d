"""Admin clients from kafka-python's settings, for the driver and for executors."""

from __future__ import annotations

import logging
import random
import re
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evenlag.kafka.request_errors import in_one_line
from evenlag.logging_setup import named_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["INTERVAL_S", "summarize_connection_errors"]

INTERVAL_S: Final = 60.0
"""A broker whose errors go on has one line in so many seconds."""

_log = named_logger(__name__)

_ADDRESS: Final = re.compile(r"\[(.+)<-")


@dataclass(frozen=True, slots=True)
class _Line:
    """Where a line of kafka-python has its parts, as positions in the arguments of the record.

    connection: The connection whose loss it reports; None: another line reports the same.
    transport: The transport of the connection, which knows the address.
    """

    error: int | None = None
    connection: int | None = None
    transport: int | None = None


# By logger and format. What a later version of kafka-python words in another way stays as it is.
_LINES: Final[dict[str, dict[str, _Line]]] = {
    "kafka.net.transport": {
        "%s: socket disconnected": _Line(transport=0),
        "%s: Abort (%s)": _Line(transport=0),
        "%s: Error sending request data: %s": _Line(transport=0),
        "%s: Error receiving network data closing socket": _Line(transport=0),
    },
    "kafka.net.connection": {
        "%s: Connection lost: %s": _Line(error=1, connection=0),
        "%s: Request timed out after %d ms. Closing connection.": _Line(),
    },
    "kafka.net.manager": {
        "Connection failed: %s": _Line(),
        "Bootstrap connection to %s failed: %s (backoff %.2f secs)": _Line(),
        "Bootstrap %s not ready; waiting %.2f secs": _Line(),
        # The caller gets it as an exception.
        "Bootstrap failed: %s": _Line(),
    },
    "kafka.cluster": {
        "Metadata refresh: failed %s": _Line(),
        "No node available for metadata refresh - backoff/retry": _Line(),
    },
    "kafka.producer.sender": {
        "%s: Error sending produce request to node %d: %s": _Line(),
    },
}


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
        line = _LINES.get(record.name, {}).get(str(record.msg))
        arguments: tuple[Any, ...] = record.args if isinstance(record.args, tuple) else ()
        try:
            if line is None:
                return True
            if line.transport is not None:
                self._note_address(arguments[line.transport])
            if line.connection is not None and line.error is not None:
                self._note_error(arguments[line.connection], arguments[line.error], record.created)
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
    """Report connection errors of this process's kafka-python clients once for each broker.

    May be called again; it then changes nothing.
    """
    for name in _LINES:
        logging.getLogger(name).addFilter(_SUMMARY)


@contextmanager
def open_admin_client(settings: Mapping[str, Any]) -> Iterator[Any]:
    """Open a ``KafkaAdminClient``, and close it at the end of the ``with`` block.

    kafka-python waits for one of the ``bootstrap_servers`` even when it hangs and another one would answer.
    Here the servers are tried in random order, each for its share of ``bootstrap_timeout_ms``.
    """
    summarize_connection_errors()
    client = _connect(settings)
    try:
        yield client
    finally:
        client.close()


def _connect(settings: Mapping[str, Any]) -> Any:
    import kafka.errors
    from kafka.admin import KafkaAdminClient

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
