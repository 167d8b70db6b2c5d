"""Checks of a Spark Connect server: it answers, and its version and code are those of this installation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from evenlag.doctor.model import failed, ok, skipped
from evenlag.doctor.network import why_unreachable
from evenlag.redaction import redact, remember_secret
from evenlag.spark_connect import CONNECT_TYPE, REMOTE_VARIABLE, ConnectionFaultError, connect_server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.doctor.model import Finding
    from evenlag.spark_connect import ConnectServer

CONNECTION_VARIABLE: Final = "AIRFLOW_CONN_SPARK_DEFAULT"
PYTHON_VARIABLE: Final = "EVENLAG_SPARK_PYTHON"
# The client, its connection and one query; a server's first session takes longest.
_CHECK_TIMEOUT_S: Final = 60.0
_MODULE: Final = "spark_jobs.connect_server"
_URI_SCHEME: Final = CONNECT_TYPE.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Remote:
    """A Spark Connect server that is configured here.

    source: The variable that names it.
    server: Its address; None if it is not usable.
    fault: Why it is not.
    """

    source: str
    server: ConnectServer | None = None
    fault: str = ""


def read_connection(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Read Airflow's Spark connection from the environment, as Airflow does.

    Returns its fields, with ``extra`` as a dict, and only that without a connection; None for what is
    neither JSON nor a URI of type Spark Connect.
    """
    value = environ.get(CONNECTION_VARIABLE) or "{}"
    if value.startswith(f"{_URI_SCHEME}://"):
        parts = urlsplit(value)
        fields: dict[str, Any] = {
            "host": unquote(parts.hostname or ""),
            "port": parts.port,
            "login": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "extra": dict(parse_qsl(parts.query)),
        }
        return {"conn_type": CONNECT_TYPE} | fields
    try:
        connection = json.loads(value)
        extra = connection.get("extra") or {}
        return {**connection, "extra": json.loads(extra) if isinstance(extra, str) else extra}
    except (ValueError, AttributeError):
        return None


def find_remote(environ: Mapping[str, str]) -> Remote | None:
    """Return the configured Spark Connect server.

    None if jobs run by ``spark-submit``, or in a session of their own.
    environ: Environment variables: Airflow's connection, else ``EVENLAG_SPARK_REMOTE``.
    """
    connection = read_connection(environ)
    if connection is not None and connection.get("conn_type"):
        if connection["conn_type"] != CONNECT_TYPE:
            return None
        return _remote(
            CONNECTION_VARIABLE,
            connection.get("host"),
            connection.get("port"),
            user=connection.get("login"),
            token=connection.get("password"),
            use_ssl=connection["extra"].get("use_ssl"),
        )
    if not (url := environ.get(REMOTE_VARIABLE)):
        return None
    address, _, parameters = url.partition("/;")
    given = dict(pair.partition("=")[::2] for pair in parameters.split(";"))
    return _remote(
        REMOTE_VARIABLE,
        address,
        user=unquote(given.get("user_id", "")),
        token=unquote(given.get("token", "")),
        use_ssl=given.get("use_ssl"),
    )


def check_connect(environ: Mapping[str, str]) -> list[Finding]:
    """Check that the configured server answers, and runs the version and the code of this installation.

    The check runs in a process of its own (``python -m spark_jobs.connect_server --check``), with the
    interpreter of the jobs: this one may have no PySpark.
    """
    remote = find_remote(environ)
    if remote is None:
        return [skipped(f"neither {CONNECTION_VARIABLE} nor {REMOTE_VARIABLE} names a Spark Connect server")]
    if remote.server is None:
        return [failed(f"{remote.source} is not usable: {remote.fault}", f"correct {remote.source}")]
    server = remote.server
    if (reason := why_unreachable(server.address)) is not None:
        todo = "start it (python -m spark_jobs.connect_server), or correct its address"
        return [failed(f"{server.name}: {reason}", todo)]
    return _ask(server, environ)


def _remote(source: str, host: str | None, port: Any = None, **fields: Any) -> Remote:
    try:
        server = connect_server(host, int(port) if port else None, **fields)
    except (ConnectionFaultError, ValueError) as error:
        return Remote(source, fault=str(error))
    for secret in server.secrets:
        remember_secret(secret)
    return Remote(source, server)


def _ask(server: ConnectServer, environ: Mapping[str, str]) -> list[Finding]:
    python = environ.get(PYTHON_VARIABLE) or sys.executable
    try:
        done = subprocess.run(
            [python, "-m", _MODULE, "--check"],
            # Not on the command line: the address may contain a token.
            env={**os.environ, **environ, REMOTE_VARIABLE: server.url},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=_CHECK_TIMEOUT_S,
        )
    except OSError as error:
        return [failed(f"{python} does not start: {error.strerror}", f"correct {PYTHON_VARIABLE}")]
    except subprocess.TimeoutExpired:
        return [failed(f"{server.name} gave no answer in {_CHECK_TIMEOUT_S:.0f} s", "look at its log")]
    return judge_check(server.name, done.returncode, redact(f"{done.stderr}\n{done.stdout}"))


def judge_check(name: str, exit_code: int, output: str) -> list[Finding]:
    """Judge the server by its own check.

    name: Address of the server, without a token.
    """
    last = output.strip().rpartition("\n")[2].strip()
    # Without the moment and the level of a log record.
    last = last.partition(f"{_MODULE}: ")[2] or last
    if exit_code == 0:
        return [ok(f"{name}: {last or 'it answers'}")]
    if "No module named" in last:
        return [skipped(f"{name} takes connections; {last} here, so its version and code are not checked")]
    return [failed(f"{name}: {last}", "restart the server with the version of evenlag that runs the jobs")]
