"""Admin clients from kafka-python's settings, in the driver and on executors alike."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def open_admin_client(settings: Mapping[str, Any]) -> Iterator[Any]:
    """Hold a ``KafkaAdminClient``.

    kafka-python waits for the first of the ``bootstrap_servers`` that it happens upon, even when that one is
    stuck and the next would answer: here each has its share of ``bootstrap_timeout_ms``, in no fixed order.

    Parameters
    ----------
    settings
        Keyword arguments of the client, secrets included; ``bootstrap_servers`` is a list.

    Raises
    ------
    kafka.errors.KafkaError
        When none of the servers answers, or the settings are wrong.
    """
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
        own = {**settings, "bootstrap_servers": [servers.pop()], "bootstrap_timeout_ms": timeout_ms}
        try:
            return KafkaAdminClient(**own)
        except (kafka.errors.KafkaConnectionError, kafka.errors.KafkaTimeoutError, OSError):
            if not servers:
                raise
