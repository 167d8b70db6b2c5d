"""Admin clients from kafka-python's settings, for the driver and for executors."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evenlag.kafka.connection_log import summarize_connection_errors
from evenlag.kafka.request_errors import in_one_line
from evenlag.logging_setup import named_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_log = named_logger(__name__)


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
