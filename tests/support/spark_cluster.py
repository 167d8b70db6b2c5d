"""A Spark standalone cluster on the loopback interface: a master and workers, each in its own process.

Its executors run a Python with the documented packages and without evenlag. Clients need a secret, which is
new for every cluster. It is in a settings file that only this user can read, never on a command line, and
Spark redacts it in its pages and event logs.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import secrets
import time
import urllib.error
import urllib.request
import venv
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from sandbox.java_tools import java_command
from sandbox.processes import free_ports, kill_process, log_tail, start_process, stop_process

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping


EXECUTOR_PACKAGES: Final = ("numpy", "pyarrow", "pandas", "kafka-python")
_NAME: Final = re.compile(r"^[A-Za-z0-9._-]+")


def make_executor_python(folder: Path) -> Path:
    """Create the environment in a new folder."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for entry in _top_level_entries(EXECUTOR_PACKAGES):
        target = packages / entry.name
        if not target.exists():
            target.symlink_to(entry, target_is_directory=entry.is_dir())
    return folder / "bin" / "python3"


def _top_level_entries(distributions: tuple[str, ...]) -> list[Path]:
    """Files and folders of distributions and of all their dependencies in site-packages."""
    entries: dict[Path, None] = {}
    seen: set[str] = set()
    pending = list(distributions)
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        found = importlib.metadata.distribution(name)
        for file in found.files or ():
            first = file.parts[0]
            if first not in {os.pardir, "__pycache__"}:
                entries[Path(str(found.locate_file(first)))] = None
        pending += [_requirement(text) for text in found.requires or () if ";" not in text]
    return list(entries)


def _requirement(text: str) -> str:
    match = _NAME.match(text)
    return match[0] if match else text


_START_TIMEOUT_S: Final = 600.0
_HOST: Final = "127.0.0.1"
# A fast start matters here, not long-term throughput.
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# For the master and the workers, which only start and monitor executors.
_DAEMON: Final = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _SHORT_LIVED}


class SparkClusterError(RuntimeError):
    """Raised when the cluster does not start; the message ends with a log's tail."""


class SparkCluster:
    """A running cluster; on exit the context manager stops all of it and keeps its folder with the logs.

    master_url: ``spark://127.0.0.1:port``.
    executor_python: The executors' interpreter; their ``python3``.

    Examples
    --------
    >>> with SparkCluster.start("/tmp/spark", num_workers=2) as cluster:  # doctest: +SKIP
    ...     subprocess.run(command, env={**os.environ, **cluster.environment()})
    """

    def __init__(self, directory: Path, *, cores: int, memory: str) -> None:
        self.directory = directory.resolve()
        self.port, self._page = free_ports(2)
        self.master_url = f"spark://{_HOST}:{self.port}"
        self.executor_python = self.directory / "python" / "bin" / "python3"
        self._cores, self._memory = cores, memory
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._next_worker = 0

    @classmethod
    def start(
        cls,
        directory: str | Path,
        *,
        num_workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        conf: Mapping[str, str] | None = None,
    ) -> Self:
        """Start a cluster in a new folder; returns when all workers are registered."""
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise SparkClusterError(f"{path} is not empty: a sandbox cluster wants a folder of its own")
        cluster = cls(path, cores=cores, memory=memory)
        try:
            cluster._write_files(conf or {})
            cluster._start_master()
            for _ in range(num_workers):
                cluster.start_worker()
            cluster.wait_for_workers(num_workers)
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def workers(self) -> tuple[int, ...]:
        """Numbers of the running workers, in the order in which they were started."""
        return tuple(number for number, process in self._workers.items() if process.poll() is None)

    def environment(self) -> dict[str, str]:
        """Return variables for a driver: the cluster's settings, and the executors' Python.

        The master is not among them: it is in Airflow's connection or in ``EVENLAG_SPARK_MASTER``.
        """
        return {
            "SPARK_CONF_DIR": str(self.directory / "conf"),
            "SPARK_LOCAL_IP": _HOST,
            # A name, not a path: it is resolved on the workers' machines, not on the driver's.
            "PYSPARK_PYTHON": "python3",
        }

    def connection(self) -> str:
        """Return Airflow's connection to this cluster, as JSON."""
        return json.dumps(
            {
                "conn_type": "spark",
                "host": f"spark://{_HOST}",
                "port": self.port,
                "extra": {"deploy-mode": "client"},
            }
        )

    def start_worker(self) -> int:
        """Start one more worker and return its number; it registers itself."""
        number = self._next_worker
        self._next_worker += 1
        folder = self.directory / f"worker-{number}"
        folder.mkdir()
        offer = ["--cores", str(self._cores), "--memory", self._memory, "--work-dir", str(folder)]
        where = ["--host", _HOST, "--webui-port", "0", *self._settings]
        self._workers[number] = self._start(
            f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *offer, *where, self.master_url
        )
        return number

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors immediately, as in a power failure."""
        kill_process(self._workers.pop(number))

    def wait_for_workers(self, count: int) -> None:
        """Wait until the master reports this many living workers."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        alive = -1
        while time.monotonic() < deadline:
            self._check_running()
            alive = int(self.state().get("aliveworkers", -1))
            if alive == count:
                return
            time.sleep(0.2)
        raise SparkClusterError(f"{alive} workers instead of {count}:\n{self._tail('master')}")

    def state(self) -> dict[str, Any]:
        """Return what the master reports of workers and applications; empty while it does not respond."""
        try:
            with urllib.request.urlopen(f"http://{_HOST}:{self._page}/json/", timeout=10) as answer:
                state: dict[str, Any] = json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            return {}
        return state

    def stop(self) -> None:
        """Stop all workers with their executors, then the master."""
        processes = [*self._workers.values(), *filter(None, [self._master])]
        for process in processes:
            if process.poll() is None:
                process.terminate()  # in parallel: each may take seconds
        with ExitStack() as stack:
            for process in reversed(processes):
                stack.callback(stop_process, process)
        self._workers.clear()
        self._master = None

    @property
    def _settings(self) -> list[str]:
        return ["--properties-file", str(self.directory / "conf" / "spark-defaults.conf")]

    def _write_files(self, more: Mapping[str, str]) -> None:
        make_executor_python(self.directory / "python")
        conf = self.directory / "conf"
        conf.mkdir()
        (self.directory / "events").mkdir()
        settings = {
            "spark.authenticate": "true",
            # A standalone driver reads it only from its settings; executors get it from their environment.
            "spark.authenticate.secret": secrets.token_urlsafe(32),
            # It would listen on a fixed port without authentication.
            "spark.master.rest.enabled": "false",
            "spark.executor.memory": "512m",
            # Seconds until a silent worker is removed; one that was killed is missed at once.
            "spark.worker.timeout": "60",
            "spark.executor.extraJavaOptions": _SHORT_LIVED,
            "spark.driver.extraJavaOptions": _SHORT_LIVED,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (self.directory / "events").as_uri(),
            "spark.ui.enabled": "false",
            # A few cores and small tables: the defaults of 200 and 50 tasks would only queue.
            "spark.sql.shuffle.partitions": "4",
            "spark.databricks.delta.snapshotPartitions": "2",
        }
        lines = [f"{name} {value}" for name, value in (settings | dict(more)).items()]
        file = conf / "spark-defaults.conf"
        file.touch(mode=0o600)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _start_master(self) -> None:
        where = ["--host", _HOST, "--port", str(self.port), "--webui-port", str(self._page)]
        self._master = self._start("master", "org.apache.spark.deploy.master.Master", *where, *self._settings)

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        spec = importlib.util.find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise SparkClusterError("pyspark is not installed: pip install 'evenlag[spark]'")
        home = Path(spec.origin).parent
        command = [str(home / "bin" / "spark-class"), main, *arguments]
        with (self.directory / f"{name}.log").open("ab") as log:
            return start_process(command, log=log, env=self._environment(home))

    def _environment(self, spark_home: Path) -> Mapping[str, str]:
        """Environment of master, workers and executors: without evenlag's paths and variables."""
        path = [str(self.executor_python.parent), str(Path(java_command()).parent), os.defpath]
        kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG", "TMPDIR") if name in os.environ}
        return (
            kept
            | _DAEMON
            | {
                "HOME": str(self.directory),
                "PATH": os.pathsep.join(path),
                "SPARK_HOME": str(spark_home),
                "SPARK_LOCAL_IP": _HOST,
                "SPARK_LOCAL_DIRS": str(self.directory / "scratch"),
            }
        )

    def _check_running(self) -> None:
        named = {"master": self._master} | {f"worker-{n}": p for n, p in self._workers.items()}
        for name, process in named.items():
            if process is not None and (status := process.poll()) is not None:
                raise SparkClusterError(f"Spark's {name} ended with status {status}:\n{self._tail(name)}")

    def _tail(self, name: str) -> str:
        return log_tail(self.directory / f"{name}.log")
