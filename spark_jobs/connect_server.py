"""A Spark Connect server for evenlag's jobs: ``python -m spark_jobs.connect_server``.

It runs Spark's Connect service inside a driver of its own, with Delta and with evenlag's code installed, so
that no session leaves a Python process behind (``docs/spark-connect.md``). Ctrl-C or SIGTERM end it, with its
JVM and its Python workers. ``--check`` asks the running server in ``EVENLAG_SPARK_REMOTE``.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import JobError, SparkUnreachableError, UsageError
from evenlag.logging_setup import named_logger, set_up_logging
from evenlag.private_files import OWNER_ONLY
from evenlag.redaction import redact
from evenlag.spark_connect import REMOTE_VARIABLE, TOKEN_VARIABLE
from spark_jobs.runtime.classic_session import (
    EXECUTOR_PYTHON_VARIABLE,
    build_session,
    default_parallelism,
    end_session,
    java_objects,
    jvm_process,
    spark_master,
)
from spark_jobs.runtime.code_archive import code_hash
from spark_jobs.runtime.connect_session import check_server
from spark_jobs.runtime.session import remote_url
from spark_jobs.runtime.session_conf import (
    EMBEDDED_CONF,
    JVM_OPTIONS_KEY,
    LOCAL_CONF,
    SERVER_CODE_KEY,
    SERVER_PARALLELISM_KEY,
    is_local,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Run as a program, its name is not that of its module.
_LOG = named_logger("spark_jobs.connect_server")

DEFAULT_PORT: Final = 15002
# Spark reads the token from this variable too: a setting would be visible to each client.
_SPARK_TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # a name, no token
_SCHEDULER_FILE: Final = Path(__file__).resolve().parent / "runtime" / "fair_scheduler.xml"
_SERVICE_CONF: Final = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    # With isolation, each session has Python workers of its own, which Spark 4.1 never ends (SPARK-54055).
    "spark.sql.artifact.isolation.enabled": "false",
    # A client's operation ends soon after the client was killed; a live client asks at least each minute.
    "spark.connect.execute.manager.detachedTimeout": "60s",
    "spark.connect.execute.manager.maintenanceInterval": "10s",
    "spark.connect.session.manager.defaultSessionTimeout": "5m",
    "spark.connect.session.manager.maintenanceInterval": "30s",
    # The jobs of all sessions share the task slots: a long audit does not hold up the cycles.
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": _SCHEDULER_FILE.as_uri(),
    # Blocks of what clients no longer use are freed with the objects that stand for them.
    "spark.cleaner.periodicGC.interval": "10min",
}
# A server without memory answers nobody: it ends, and whoever started it starts it again.
_SERVER_JVM: Final = "-XX:+ExitOnOutOfMemoryError"
_POLL_S: Final = 1.0
_SESSION_ID: Final = re.compile(r'session_id: "([0-9a-f-]{36})"')
_SERVICE: Final = "org.apache.spark.sql.connect.service.SparkConnectService$"


class ConnectService:
    """The Connect service in the JVM of a classic session with Spark Connect's plug-in."""

    def __init__(self, spark: SparkSession) -> None:
        jvm, self._session = java_objects(spark)
        self._service: Any = getattr(getattr(jvm, _SERVICE), "MODULE$")

    def port(self) -> int:
        """Return the port that the service listens on."""
        return int(self._service.localPort())

    def set_for_sessions(self, key: str, value: str) -> None:
        """Set a value that later sessions of clients have from their start."""
        self._session.sharedState().conf().set(key, value)

    def live_sessions(self) -> set[str]:
        """Return the ids, on the clients' side, of the sessions that are open."""
        found = self._service.sessionManager().listActiveSessions()
        return {str(found.apply(number).sessionId()) for number in range(found.length())}

    def drop_orphaned_caches(self) -> int:
        """Uncache what sessions that have ended had cached: Spark keeps it, and a killed client cannot."""
        manager = self._session.sharedState().cacheManager()
        if manager.isEmpty():
            return 0
        # The list is private, and Spark has no public way from a cached DataFrame to its session.
        field = manager.getClass().getDeclaredField("cachedData")
        field.setAccessible(True)
        cached = field.get(manager)
        # First what is cached, then who lives: a session that starts in between has cached none of these.
        owned = [(_owner(entry), entry) for entry in (cached.apply(n) for n in range(cached.length()))]
        live = self.live_sessions()
        orphans = [entry for owner, entry in owned if owner is not None and owner not in live]
        for entry in orphans:
            manager.uncacheQuery(self._session, entry.plan(), False, False)
        if orphans:
            _LOG.info("uncached %d DataFrames of sessions that have ended", len(orphans))
        return len(orphans)


def _owner(entry: Any) -> str | None:
    """Return the id, on the client's side, of the session that computed a cached DataFrame; None if unknown.

    The plan shows a clone of the session, with an id of its own. But Spark Connect makes the request the call
    site of everything that an operation creates, and a request begins with the id of its session.
    """
    builder = entry.cachedRepresentation().cacheBuilder()
    if not builder.isCachedColumnBuffersLoaded():
        return None
    found = _SESSION_ID.search(str(builder.cachedColumnBuffers().toString()))
    return None if found is None else found[1]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server, or check one: 0 after SIGTERM, Ctrl-C or a successful check, else the error's code."""
    arguments = _parser().parse_args(argv)
    set_up_logging()
    try:
        if arguments.check:
            return _check()
        return _serve(arguments)
    except JobError as error:
        _LOG.error("%s", redact(str(error)))
        return error.exit_code
    except KeyboardInterrupt:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spark_jobs.connect_server", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to bind; any but loopback needs a token")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0: any free port")
    parser.add_argument(
        "--umask",
        type=_umask,
        default=OWNER_ONLY,
        help="of files of lakes on a local disk (default 077: this user only; 007: its group too)",
    )
    parser.add_argument("--memory", default="2g", help="heap of the JVM, e.g. 2g")
    parser.add_argument(
        "--ready-fd", type=int, metavar="N", help="write the address to this file descriptor when ready"
    )
    parser.add_argument(
        "--check", action="store_true", help=f"check the running server in {REMOTE_VARIABLE}, then exit"
    )
    return parser


def _umask(text: str) -> int:
    if not re.fullmatch(r"0?0[0-7]7", text):
        raise argparse.ArgumentTypeError(f"{text} is not 077, 027 or 007: others have no access to a lake")
    return int(text, 8)


def _check() -> int:
    url = remote_url()
    if url is None:
        raise UsageError(f"{REMOTE_VARIABLE} is not set: it names the server to check")
    check_server(url)
    _LOG.info("the server answers, and runs this code")
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    token = os.environ.pop(TOKEN_VARIABLE, None) or os.environ.get(_SPARK_TOKEN_VARIABLE)
    if not token and not _is_loopback(arguments.host):
        raise UsageError(
            f"--host {arguments.host} is not a loopback address: anyone who can connect can run code. "
            f"Set {TOKEN_VARIABLE}, or bind 127.0.0.1"
        )
    _check_address(arguments.host, arguments.port)
    _set_environment(token)
    is_ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: is_ended.set())
    spark = build_session("evenlag-connect", conf=_settings(arguments), umask=arguments.umask)
    with end_session(spark):
        return _run(spark, arguments, is_ended)


def _run(spark: SparkSession, arguments: argparse.Namespace, is_ended: threading.Event) -> int:
    service = ConnectService(spark)
    service.set_for_sessions(SERVER_PARALLELISM_KEY, str(default_parallelism(spark)))
    address = f"sc://{arguments.host}:{service.port()}"
    _LOG.info("ready: %s=%s", REMOTE_VARIABLE, address)
    if arguments.ready_fd is not None:
        with os.fdopen(arguments.ready_fd, "w") as ready:
            ready.write(f"{address}\n")
    process = jvm_process(spark)
    can_clean_up = True
    while not is_ended.wait(_POLL_S):
        if process is not None and process.poll() is not None:
            raise SparkUnreachableError(
                f"the server's JVM has ended with exit code {process.returncode}: if it lacked memory, "
                "give it more by --memory"
            )
        can_clean_up = can_clean_up and _clean_up(service)
    return 0


def _clean_up(service: ConnectService) -> bool:
    """Uncache what ended sessions left; returns whether this Spark lets us do so."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    try:
        service.drop_orphaned_caches()
    except Py4JNetworkError:
        # The JVM ends: its exit code is reported.
        return True
    except Py4JError:
        _LOG.warning("caches of ended sessions stay until this server is restarted", exc_info=True)
        return False
    return True


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_address(host: str, port: int) -> None:
    """Refuse an address that cannot be bound, before a JVM starts and says so by a stack trace."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As the JVM binds: a port whose last connections are just ending is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise UsageError(
            f"the server cannot listen on {host}:{port} ({error.strerror}): choose another --host or --port"
        ) from error


def _set_environment(token: str | None) -> None:
    """Set what the JVM and its Python workers inherit."""
    if token:
        os.environ[_SPARK_TOKEN_VARIABLE] = token
    # This program is the server: none of these leads it to another one.
    for name in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        os.environ.pop(name, None)
    root = str(Path(__file__).resolve().parents[1])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])
    if is_local(spark_master()):
        os.environ.setdefault(EXECUTOR_PYTHON_VARIABLE, sys.executable)


def _settings(arguments: argparse.Namespace) -> dict[str, str]:
    settings: dict[str, str] = {
        **_SERVICE_CONF,
        "spark.connect.grpc.binding.address": arguments.host,
        "spark.connect.grpc.binding.port": str(arguments.port),
        "spark.driver.memory": arguments.memory,
        SERVER_CODE_KEY: code_hash(),
    }
    if is_local(spark_master()):
        settings |= LOCAL_CONF
        settings[JVM_OPTIONS_KEY] = f"{EMBEDDED_CONF[JVM_OPTIONS_KEY]} {_SERVER_JVM}"
    return settings


if __name__ == "__main__":
    sys.exit(main())
