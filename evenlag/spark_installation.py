"""Where Spark is: the jars that it needs for Delta, and the address of a Spark Connect server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from evenlag.errors import UsageError

# The Spark Connect server that the jobs use; unset, a job starts a session of its own. The URL may contain a
# token, so no command line has it.
REMOTE_VARIABLE: Final = "EVENLAG_SPARK_REMOTE"
TOKEN_VARIABLE: Final = "EVENLAG_SPARK_TOKEN"  # noqa: S105  # a name, no token
REMOTE_FORM: Final = "sc://HOST:PORT"
JARS_VARIABLE: Final = "EVENLAG_JARS"
_ROOT: Final = Path(__file__).resolve().parents[1]


def jars_folder() -> Path:
    """Return the folder of the downloaded jars.

    Returns
    -------
    Path
        ``$EVENLAG_JARS``, else ``.cache/jars`` of the checkout, else the folder in the user's cache.
    """
    if folder := os.environ.get(JARS_VARIABLE):
        return Path(folder)
    if (_ROOT / "pyproject.toml").is_file():
        return _ROOT / ".cache" / "jars"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenlag" / "jars"


def delta_jars() -> list[str]:
    """List the local jars of Delta.

    Returns
    -------
    list of str
        Sorted paths under ``spark`` of :func:`jars_folder`; empty if there are none (then the class path of
        the Spark cluster must contain Delta).
    """
    return sorted(str(jar) for jar in (jars_folder() / "spark").glob("*.jar"))


def find_remote() -> str | None:
    """Return the URL in ``EVENLAG_SPARK_REMOTE``.

    Returns
    -------
    str or None
        The URL, which may contain a token; None when the variable is empty or not set.

    Raises
    ------
    UsageError
        When it is not the URL of a Spark Connect server.
    """
    url = os.environ.get(REMOTE_VARIABLE)
    if not url:
        return None
    try:
        check_remote(url)
    except ValueError as error:
        raise UsageError(f"{REMOTE_VARIABLE}: {error}") from None
    return url


def check_remote(url: str) -> dict[str, str]:
    """Check the URL of a Spark Connect server.

    Parameters
    ----------
    url
        ``sc://host[:port][/;key=value;…]``, as Spark's own clients take it.

    Returns
    -------
    dict
        The parameters after the host, e.g. ``use_ssl`` or ``token``.

    Raises
    ------
    ValueError
        When the URL does not have this form. The message never contains the URL: it may contain a token.

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
    if parts.scheme != "sc" or not address.startswith("sc://"):
        raise ValueError(f"no Spark Connect URL, it does not begin with sc://: write {REMOTE_FORM}")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            f"Spark Connect takes no user and password before the host: "
            f"set {TOKEN_VARIABLE} to a token, and write {REMOTE_FORM}"
        )
    if not host or port == 0 or any(sign.isspace() or not sign.isprintable() for sign in url):
        raise ValueError(f"no host, no port from 1 to 65,535, or a blank: write {REMOTE_FORM}")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError(f"only parameters may follow the port: write {REMOTE_FORM}/;key=value")
    return _parameters(parameters)


def _parameters(text: str) -> dict[str, str]:
    given = [part for part in text.split(";") if part]
    if any(not key or not sign or not value for key, sign, value in (part.partition("=") for part in given)):
        raise ValueError(f"a parameter is not key=value: write {REMOTE_FORM}/;key=value")
    return dict(parse_qsl(text, separator=";", keep_blank_values=True))
