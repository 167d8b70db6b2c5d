"""A Spark Connect server on the loopback interface: evenlag's own server program in its own processes.

It is the program that production runs (``python -m spark_jobs.connect_server``), with the sandbox's settings
of the JVM. Whoever can connect to it runs code as its user, so it listens on 127.0.0.1 only.
"""

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from sandbox.jars import spark_jars
from sandbox.processes import KEEPER, SandboxError, free_ports, log_tail, start_process, stop_process
from spark_jobs.runtime.session_conf import EMBEDDED_CONF, JVM_OPTIONS_KEY

_START_TIMEOUT_S: Final = 600.0
# The subreaper kills what does not end earlier.
_END_TIMEOUT_S: Final = 60.0
_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_HOST: Final = "127.0.0.1"
_MEMORY: Final = "1g"
_LOG4J: Final = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class ConnectServerError(SandboxError):
    """Raised when the server does not start; the message ends with its log's tail."""


class ConnectServer:
    """A server; on exit the context manager stops it and all of its processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._log_file = self.directory / "spark-connect.log"
        (self.port,) = free_ports(1)
        self.url = f"sc://{_HOST}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: int | None = None

    @classmethod
    def start(cls, directory: Path) -> Self:
        """Start the server without waiting for it: its JVM takes as long as Airflow's start."""
        server = cls(directory)
        server.launch()
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def connection(self) -> str:
        """Return Airflow's connection to this server, as JSON."""
        return json.dumps({"conn_type": "spark_connect", "host": _HOST, "port": self.port})

    @property
    def pid(self) -> int | None:
        """Root of the server's processes; None while it does not run."""
        return self._process.pid if self._process is not None else None

    def wait_until_ready(self) -> None:
        """Wait until the server accepts sessions."""
        if self._ready is None:
            return
        is_readable = bool(select.select([self._ready], [], [], _START_TIMEOUT_S)[0])
        url = os.read(self._ready, 1024).decode().strip() if is_readable else ""
        os.close(self._ready)
        self._ready = None
        if not is_readable:
            raise ConnectServerError(f"not ready after {_START_TIMEOUT_S:.0f} s:\n{self._tail()}")
        if url != self.url:
            # Its end of the pipe is closed: it has ended, or ends.
            raise ConnectServerError(f"the server is not ready:\n{self._tail_of_ended()}")

    def stop(self) -> None:
        """Stop the server, its JVM and its Python workers."""
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None
        if self._process is not None:
            stop_process(self._process, timeout_s=_END_TIMEOUT_S)
            self._process = None

    def launch(self) -> None:
        """Start the server's process, as :meth:`start` does."""
        self._ready, writing = os.pipe()
        program = [sys.executable, "-m", "spark_jobs.connect_server", "--host", _HOST]
        options = ["--port", str(self.port), "--memory", _MEMORY, "--ready-fd", str(writing)]
        try:
            with self._log_file.open("ab") as log:
                self._process = start_process(
                    [*KEEPER, *program, *options],
                    log=log,
                    env={**os.environ, "PYTHONPATH": str(_REPOSITORY), **jvm_environment(self.directory)},
                    pass_fds=(writing,),
                )
        finally:
            os.close(writing)

    def _tail_of_ended(self) -> str:
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_TIMEOUT_S)
        return self._tail()

    def _tail(self) -> str:
        return log_tail(self._log_file)


def jvm_environment(folder: Path) -> dict[str, str]:
    """Return the variables of a JVM on this machine; its log settings are written to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    log_settings = folder / "spark-log4j2.properties"
    log_settings.write_text(_LOG4J, encoding="utf-8")
    options = [
        EMBEDDED_CONF[JVM_OPTIONS_KEY],
        f"-Dlog4j2.configurationFile={log_settings.resolve().as_uri()}",
    ]
    settings = [f"-D{name}={value}" for name, value in EMBEDDED_CONF.items() if name != JVM_OPTIONS_KEY]
    return {
        "SPARK_SUBMIT_OPTS": " ".join([*options, *settings]),
        "SPARK_DIST_CLASSPATH": os.pathsep.join(str(path) for path in spark_jars()),
        "SPARK_DRIVER_MEMORY": "1g",
        "SPARK_LOCAL_IP": "127.0.0.1",
        # For the driver; executors have their own setting.
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
