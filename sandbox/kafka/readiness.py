"""Readiness probe of a broker, without messages in the log."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def probe(bootstrap_servers: str) -> str | Exception:
    """Return the cluster id once the broker coordinates groups; until then the error that prevents it."""
    import socket

    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    host, _, port = bootstrap_servers.partition(":")
    try:
        # kafka-python waits long for a first connection and logs a lot: probe the port first.
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError as error:
        return error
    with quiet("kafka"), contextlib.ExitStack() as stack:
        try:
            admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers, bootstrap_timeout_ms=5000)
            stack.callback(admin.close)
            # The first FindCoordinator request creates __consumer_offsets; requests fail until it exists.
            admin.list_group_offsets({"evenlag-sandbox-probe": None})
            return str(admin.describe_cluster()["cluster_id"])
        except (KafkaError, OSError) as error:
            return error


@contextlib.contextmanager
def quiet(name: str) -> Iterator[None]:
    """Hide what a logger reports below ``CRITICAL``, until the block ends."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
