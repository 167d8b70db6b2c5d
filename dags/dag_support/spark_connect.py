"""The address of a Spark Connect server, from Airflow's connection.

The provider's ``SparkConnectHook.get_connection_url`` builds the same URL, with two faults that matter here:
it leaves the ``/`` of a token as it is, and the client then refuses the URL with a message that contains the
token; and it passes any text of ``use_ssl`` on, of which the client takes all but ``true`` for no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from airflow.sdk import Connection

CONNECT_TYPE: Final = "spark_connect"
CONNECT_EXAMPLE: Final = (
    """AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark_connect", "host": "localhost", "port": 15002}'"""
)


class ConnectionFaultError(ValueError):
    """Raised when a connection of type Spark Connect is not usable; the message has no secrets."""


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """A Spark Connect server.

    Attributes
    ----------
    url
        ``sc://host:port/;…``, with the token.
    name
        The same without parameters, for logs.
    secrets
        The token as it is and as it is quoted in the URL; empty without one.
    """

    url: str
    name: str
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the name only: a traceback must not show the token."""
        return f"ConnectServer({self.name!r})"


def connect_server(connection: Connection) -> ConnectServer:
    """Read the server of a connection.

    Parameters
    ----------
    connection
        Of type Spark Connect: host, port, token as its password, user id as its login, and ``use_ssl`` in
        its extra.

    Returns
    -------
    ConnectServer
        The server.

    Raises
    ------
    ConnectionFaultError
        If it names no server, or if a part of it would be ignored.
    """
    name = _server_name(connection)
    parameters: dict[str, str] = {}
    if connection.login:
        parameters["user_id"] = connection.login
    token = connection.password
    if token:
        parameters["token"] = token
    use_ssl = str(connection.extra_dejson.get("use_ssl", "")).lower()
    if use_ssl not in {"", "true", "false"}:
        raise ConnectionFaultError("its use_ssl is neither true nor false, and would mean no encryption")
    if use_ssl:
        parameters["use_ssl"] = use_ssl
    text = ";".join(f"{key}={quote(value, safe='')}" for key, value in parameters.items())
    secrets = (token, quote(token, safe="")) if token else ()
    return ConnectServer(f"{name}/;{text}" if text else name, name, secrets)


def _server_name(connection: Connection) -> str:
    host = (connection.host or "").strip()
    if not host:
        raise ConnectionFaultError("it names no server: set its host")
    scheme, separator, rest = host.rpartition("://")
    if separator and scheme != "sc":
        raise ConnectionFaultError(f"its host begins with {scheme}://: a Spark Connect server is sc://host")
    # The provider's form of the URL ends with a slash.
    rest = rest.removesuffix("/")
    if set(rest) & set("/;?#@"):
        # Not quoted: what follows may be a token.
        raise ConnectionFaultError(
            "its host is more than a host: the port, the token (password) and use_ssl (extra) are fields of "
            "their own"
        )
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"
    name = f"sc://{rest}:{connection.port}" if connection.port else f"sc://{rest}"
    try:
        _ = urlsplit(name).port
    except ValueError as error:
        raise ConnectionFaultError(f"{name} is no address: the port is given once, as a number") from error
    return name
