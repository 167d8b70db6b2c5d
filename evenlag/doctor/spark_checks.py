"""Checks of where Spark jobs run: the Spark Connect server, or what a driver needs on this machine."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from evenlag.doctor.kafka_checks import why_unreachable
from evenlag.doctor.model import Check, Finding, Verdict, failed, ok, skipped, warning
from evenlag.errors import JarError
from evenlag.redaction import redact, remember_secret
from evenlag.spark_connect import (
    CONNECT_TYPE,
    PYTHON_VARIABLE,
    REMOTE_VARIABLE,
    ConnectionFaultError,
    ConnectServer,
    connect_server,
)

_OLDEST_JAVA: Final = 17
_PROCESS_TIMEOUT_S: Final = 15.0
# As Maven names them, or with an organisation prefix as in `sandbox.jars` and Spark's Ivy cache.
_JAR: Final = re.compile(r"(?:^|_)delta-spark(?:_\d+\.\d+)?_\d+\.\d+-(?P<version>[0-9.]+)\.jar$")
_STORAGE_JAR: Final = re.compile(r"(?:^|_)delta-storage-[0-9.]+\.jar$")
CONNECTION_VARIABLE: Final = "AIRFLOW_CONN_SPARK_DEFAULT"
# The client, its connection and one query; a server's first session takes longest.
_CHECK_TIMEOUT_S: Final = 60.0
_MODULE: Final = "spark_jobs.connect_server"
_URI_SCHEME: Final = CONNECT_TYPE.replace("_", "-")


def spark_checks(environ: Mapping[str, str]) -> list[Check]:
    """Return the checks of this machine."""
    return [
        Check("spark", "connect", lambda: check_connect(environ)),
        Check("spark", "java", lambda: _unless_remote(environ, _check_java(environ))),
        Check("spark", "submit", lambda: _unless_remote(environ, check_submit(environ))),
        Check("spark", "packages", lambda: check_packages(_versions())),
        Check("spark", "jars", lambda: _unless_remote(environ, _check_jars())),
        Check("spark", "python", lambda: _check_python(environ)),
        Check("spark", "master", lambda: check_master(environ)),
    ]


def _unless_remote(environ: Mapping[str, str], found: list[Finding]) -> list[Finding]:
    """Report what a driver lacks here as skipped if jobs are clients of a Spark Connect server."""
    remote = find_remote(environ)
    if remote is None or found[0].verdict is Verdict.OK:
        return found
    return skipped(f"{found[0].message}: jobs need it on the machine of the Connect server only")


def _check_java(environ: Mapping[str, str]) -> list[Finding]:
    home = environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = "install Java 17 or newer, and point JAVA_HOME to it"
    if java is None:
        return failed("there is no java on the PATH, and no JAVA_HOME", remedy)
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=_PROCESS_TIMEOUT_S
        )
    except OSError as error:
        return failed(f"{java} does not start: {error.strerror}", remedy)
    except subprocess.TimeoutExpired:
        return failed(f"{java} does not answer", remedy)
    return java_findings(java, done.stderr + done.stdout)


def java_findings(java: str, text: str) -> list[Finding]:
    """Check the Java version; before Java 9 the major version is the second number."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    if match is None:
        return failed(f"{java} does not report its version", "install Java 17 or newer")
    version = int(match.group(1))
    if version < _OLDEST_JAVA:
        return failed(f"{java} is Java {version}, Spark needs {_OLDEST_JAVA} or newer", "set JAVA_HOME")
    return ok(f"Java {version}: {java}")


def check_submit(environ: Mapping[str, str]) -> list[Finding]:
    """Check that `spark-submit` is on the PATH of an Airflow machine; `evenlag run` does not need it."""
    found = shutil.which("spark-submit", path=environ.get("PATH"))
    if found is not None:
        return ok(found)
    if not any(name.startswith("AIRFLOW_") for name in environ):
        return skipped(
            "spark-submit is not on the PATH: only Airflow calls it, and this is no machine of Airflow's"
        )
    beside = Path(sys.executable).parent
    return failed("spark-submit is not on the PATH", f"add the folder of PySpark's scripts, e.g. {beside}")


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in ("pyspark", "pyspark-client", "delta-spark"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def check_packages(versions: Mapping[str, str | None]) -> list[Finding]:
    """Check that PySpark and pyspark-client, which install the same files, have the same version."""
    pyspark, client, delta = (versions.get(name) for name in ("pyspark", "pyspark-client", "delta-spark"))
    if pyspark is None or delta is None:
        return skipped("PySpark and delta-spark are not installed here: drivers run elsewhere")
    if client is not None and client != pyspark:
        return failed(
            f"pyspark {pyspark} and pyspark-client {client} overwrite each other's files",
            f"pip install --force-reinstall pyspark=={pyspark} pyspark-client=={pyspark}",
        )
    return ok(f"pyspark {pyspark}, delta-spark {delta}")


def _check_jars() -> list[Finding]:
    from evenlag.spark_installation import delta_jars, jars_folder
    from evenlag.verified_jars import verify_jars

    jars = delta_jars()
    try:
        verify_jars(jars)
    except JarError as error:
        return failed(str(error), "no job starts Spark with it")
    return jars_findings([Path(jar).name for jar in jars], str(jars_folder()), _versions()["delta-spark"])


def jars_findings(names: Sequence[str], folder: str, wanted: str | None) -> list[Finding]:
    """Check Delta's jars by their file names, against the version of the delta-spark that is installed."""
    remedy = (
        f"put delta-spark and delta-storage {wanted or ''} into {folder}/spark (EVENLAG_JARS), or on Spark's"
    )
    if not names:
        return warning(f"no Delta jars in {folder}/spark", f"{remedy} own class path")
    versions = {match["version"] for name in names if (match := _JAR.search(name))}
    if not versions:
        return failed(f"{folder}/spark holds no delta-spark jar", f"{remedy} own class path")
    if not any(_STORAGE_JAR.search(name) for name in names):
        return failed(f"{folder}/spark holds no delta-storage jar", f"{remedy} own class path")
    if len(versions) > 1 or (wanted is not None and versions != {wanted}):
        message = f"delta-spark's jar is {', '.join(sorted(versions))}, its package {wanted}"
        return failed(message, "keep the jar of the package's version only")
    return ok(f"delta-spark {versions.pop()} in {folder}/spark")


def _check_python(environ: Mapping[str, str]) -> list[Finding]:
    given = environ.get("PYSPARK_PYTHON")
    if given is None:
        return ok(f"PYSPARK_PYTHON is not set: an embedded session's workers run {sys.executable}")
    command = shutil.which(given)
    if command is None:
        if (master := find_master(environ)) is not None and not master.startswith("local"):
            return skipped(f"{given} is not on this machine; the workers of {master} may have it")
        return failed(f"PYSPARK_PYTHON names {given}, which does not exist", "correct it, or remove it")
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run(
        [command, "-c", code], capture_output=True, text=True, check=False, timeout=_PROCESS_TIMEOUT_S
    )
    return python_findings(given, done.stdout.strip(), f"{sys.version_info[0]}.{sys.version_info[1]}")


def python_findings(executor: str, executor_version: str, driver_version: str) -> list[Finding]:
    """Check that driver and executors run the same Python version: else Spark fails in the first task."""
    if executor_version != driver_version:
        message = f"executors run Python {executor_version or '?'} ({executor}), the driver {driver_version}"
        return failed(message, "set PYSPARK_PYTHON to a Python of the driver's version")
    return ok(f"driver and executors run Python {driver_version}")


def find_master(environ: Mapping[str, str]) -> str | None:
    """Return the configured Spark master: from Airflow's connection, else ``EVENLAG_SPARK_MASTER``."""
    connection = read_connection(environ) or {}
    if host := connection.get("host"):
        port = connection.get("port")
        return f"{host}:{port}" if port else str(host)
    return environ.get("EVENLAG_SPARK_MASTER") or None


def check_master(environ: Mapping[str, str]) -> list[Finding]:
    """Check that a standalone master accepts connections; one of several is sufficient."""
    if (remote := find_remote(environ)) is not None:
        return skipped(f"{remote.source} names a Spark Connect server: see spark.connect")
    master = find_master(environ)
    if master is None:
        return skipped(f"neither {CONNECTION_VARIABLE} nor EVENLAG_SPARK_MASTER is set here")
    if not master.startswith("spark://"):
        return ok(f"{master}: it has no port to check")
    servers = master.removeprefix("spark://").split(",")
    dead = [f"{server}: {reason}" for server in servers if (reason := why_unreachable(server)) is not None]
    if len(dead) == len(servers):
        return failed(
            f"no Spark master accepts connections ({'; '.join(dead)})", "start it, or correct the host"
        )
    found = ok(f"{master} accepts connections")
    for one in dead:
        found += warning(one, "start it: it stands by for the other")
    return found


@dataclass(frozen=True, slots=True)
class Remote:
    """A Spark Connect server that the variable `source` names; without a usable address, the fault of it."""

    source: str
    server: ConnectServer | None = None
    fault: str = ""


def read_connection(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Read the fields of Airflow's Spark connection from the environment, as Airflow does.

    Only ``extra`` without a connection; None for what is neither JSON nor a URI of type Spark Connect.
    """
    value = environ.get(CONNECTION_VARIABLE) or "{}"
    if value.startswith(f"{_URI_SCHEME}://"):
        parts = urlsplit(value)
        return {
            "conn_type": CONNECT_TYPE,
            "host": unquote(parts.hostname or ""),
            "port": parts.port,
            "login": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "extra": dict(parse_qsl(parts.query)),
        }
    try:
        connection = json.loads(value)
        extra = connection.get("extra") or {}
        return {**connection, "extra": json.loads(extra) if isinstance(extra, str) else extra}
    except (ValueError, AttributeError):
        return None


def find_remote(environ: Mapping[str, str]) -> Remote | None:
    """Return the Spark Connect server that Airflow's connection or else ``EVENLAG_SPARK_REMOTE`` names.

    None if jobs run by ``spark-submit``, or in a session of their own.
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
    """Check that the configured server answers, and runs the version and the code of this installation."""
    remote = find_remote(environ)
    if remote is None:
        return skipped(f"neither {CONNECTION_VARIABLE} nor {REMOTE_VARIABLE} names a Spark Connect server")
    if remote.server is None:
        return failed(f"{remote.source} is not usable: {remote.fault}", f"correct {remote.source}")
    server = remote.server
    if (reason := why_unreachable(server.address)) is not None:
        remedy = "start it (python -m spark_jobs.connect_server), or correct its address"
        return failed(f"{server.name}: {reason}", remedy)
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
    # In a process of its own, with the interpreter of the jobs: this one may have no PySpark.
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
        return failed(f"{python} does not start: {error.strerror}", f"correct {PYTHON_VARIABLE}")
    except subprocess.TimeoutExpired:
        return failed(f"{server.name} gave no answer in {_CHECK_TIMEOUT_S:.0f} s", "look at its log")
    return check_findings(server.name, done.returncode, redact(f"{done.stderr}\n{done.stdout}"))


def check_findings(name: str, exit_code: int, output: str) -> list[Finding]:
    """Judge the server by its own check; `name` is its address, without a token."""
    last = output.strip().rpartition("\n")[2].strip()
    # Without the moment and the level of a log record.
    last = last.partition(f"{_MODULE}: ")[2] or last
    if exit_code == 0:
        return ok(f"{name}: {last or 'it answers'}")
    if "No module named" in last:
        return skipped(f"{name} accepts connections; {last} here, so its version and code are not checked")
    return failed(f"{name}: {last}", "restart the server with the version of evenlag that runs the jobs")
