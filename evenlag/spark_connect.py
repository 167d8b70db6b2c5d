"""The address of a Spark Connect server: from a URL, or from the fields of Airflow's connection.

The provider's ``SparkConnectHook.get_connection_url`` builds the same URL, with two faults that matter here:
it leaves the ``/`` of a token as it is, and the client then refuses the URL with a message that contains the
token; and it passes any text of ``use_ssl`` on, of which the client takes all but ``true`` for no.
"""

import os
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from evenlag.errors import UsageError

# The Spark Connect server that the jobs use; unset, a job starts a session of its own. The URL may contain a
# token, so no command line has it.
REMOTE_VARIABLE: Final = "EVENLAG_SPARK_REMOTE"
TOKEN_VARIABLE: Final = "EVENLAG_SPARK_TOKEN"  # noqa: S105  # a name, no token
REMOTE_FORM: Final = "sc://HOST:PORT"
CONNECT_TYPE: Final = "spark_connect"
CONNECT_EXAMPLE: Final = (
    """AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark_connect", "host": "localhost", "port": 15002}'"""
)
SUBMIT_CONNECTION: Final = '{"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}}'
"""A connection of type Spark, for ``spark-submit``."""
PYTHON_VARIABLE: Final = "EVENLAG_SPARK_PYTHON"
"""Names the interpreter of the jobs that Airflow starts."""
# Of the client, when an address has no port.
_DEFAULT_PORT: Final = 15002


class ConnectionFaultError(ValueError):
    """Raised when a connection of type Spark Connect is not usable; the message has no secrets."""


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """A Spark Connect server.

    url, name: ``sc://host:port/;…``, with the token, and the same without parameters, for logs.
    secrets: The token as it is and as it is quoted in the URL; empty without one.
    """

    url: str
    name: str
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the name only: a traceback must not show the token."""
        return f"ConnectServer({self.name!r})"

    @property
    def address(self) -> str:
        """``host:port``, to which the client connects."""
        parts = urlsplit(self.name)
        return parts.netloc if parts.port else f"{parts.netloc}:{_DEFAULT_PORT}"


def connect_server(
    host: str | None,
    port: int | None = None,
    *,
    user: str | None = None,
    token: str | None = None,
    use_ssl: object = None,
) -> ConnectServer:
    """Return the server of a connection by its fields; the host may have the scheme ``sc://``.

    Examples
    --------
    >>> connect_server("localhost", 15002, token="a/b").url
    'sc://localhost:15002/;token=a%2Fb'
    """
    name = _server_name(host, port)
    ssl = "" if use_ssl is None else str(use_ssl).lower()
    if ssl not in {"", "true", "false"}:
        raise ConnectionFaultError("its use_ssl is neither true nor false, and would mean no encryption")
    parameters = {"user_id": user or "", "token": token or "", "use_ssl": ssl}
    text = ";".join(f"{key}={quote(value, safe='')}" for key, value in parameters.items() if value)
    secrets = (token, quote(token, safe="")) if token else ()
    return ConnectServer(f"{name}/;{text}" if text else name, name, secrets)


def find_remote() -> str | None:
    """Return the URL in ``EVENLAG_SPARK_REMOTE``, which may contain a token; None without one."""
    url = os.environ.get(REMOTE_VARIABLE)
    if not url:
        return None
    try:
        check_remote(url)
    except ValueError as error:
        raise UsageError(f"{REMOTE_VARIABLE}: {error}") from None
    return url


def check_remote(url: str) -> dict[str, str]:
    """Check a URL ``sc://host[:port][/;key=value;…]``, as Spark's own clients take it; return its parameters.

    Examples
    --------
    >>> check_remote("sc://spark.example:15002/;use_ssl=true")
    {'use_ssl': 'true'}
    """
    address, _, parameters = url.partition(";")
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"the port is no number from 1 to 65,535: write {REMOTE_FORM}") from None
    if parts.scheme == "spark":
        raise ValueError(
            f"this is the URL of a Spark master, which EVENLAG_SPARK_MASTER takes: write {REMOTE_FORM}"
        )
    if not address.startswith("sc://"):
        raise ValueError(f"no Spark Connect URL, it does not begin with sc://: write {REMOTE_FORM}")
    if parts.username is not None:
        raise ValueError(
            "Spark Connect takes no user and password before the host: "
            f"set {TOKEN_VARIABLE} to a token, and write {REMOTE_FORM}"
        )
    if not host or port == 0 or any(sign.isspace() or not sign.isprintable() for sign in url):
        raise ValueError(f"no host, no port from 1 to 65,535, or a blank: write {REMOTE_FORM}")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError(f"only parameters may follow the port: write {REMOTE_FORM}/;key=value")
    return _parameters(parameters)


def _server_name(given: str | None, port: int | None) -> str:
    host = (given or "").strip()
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
    name = f"sc://{rest}:{port}" if port else f"sc://{rest}"
    try:
        _ = urlsplit(name).port
    except ValueError as error:
        raise ConnectionFaultError(f"{name} is no address: the port is given once, as a number") from error
    return name


def _parameters(text: str) -> dict[str, str]:
    given = [part for part in text.split(";") if part]
    if any(not key or not sign or not value for key, sign, value in (part.partition("=") for part in given)):
        raise ValueError(f"a parameter is not key=value: write {REMOTE_FORM}/;key=value")
    return dict(parse_qsl(text, separator=";", keep_blank_values=True))
