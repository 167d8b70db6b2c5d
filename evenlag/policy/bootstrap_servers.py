"""Broker addresses: ``host:port``, a host name, or ``[::1]:9092``."""

from __future__ import annotations

import re
from typing import Final

_HOST: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?"
# As in Kafka's own clients, a protocol before the address is ignored.
_ADDRESS: Final = re.compile(
    rf"(?:[A-Za-z_]+://)?(?:{_HOST}|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\])(?P<port>:[^:]*)?", re.ASCII
)
_MAX_PORT: Final = 65_535
_PORT: Final = re.compile(r":[0-9]{1,5}", re.ASCII)
_SHOWN: Final = 60


def check_server(address: str) -> str:
    """Return a broker's address if it is valid.

    Parameters
    ----------
    address
        The address.

    Raises
    ------
    ValueError
        If it is not valid; the message names the address and the expected form.

    Examples
    --------
    >>> check_server("kafka-1.example.org:9092")
    'kafka-1.example.org:9092'
    """
    told = repr(address) if len(address) <= _SHOWN else f"{address[:_SHOWN]!r}…"
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"{told} is no address of a broker: write host:port")
    port = found["port"]
    if port is not None and not (_PORT.fullmatch(port) and 0 < int(port[1:]) <= _MAX_PORT):
        raise ValueError(f"{told} has no port from 1 to {_MAX_PORT:,}: write host:port")
    return address
