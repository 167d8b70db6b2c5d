"""A complete Airflow in its own folder, on the loopback interface only.

It runs the database, API server, scheduler and DAG processor; and the triggerer where questions to people
need it.
"""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Self

from evenlag.doctor.airflow_checks import needs_triggerer
from evenlag.policy.loader import POLICY_VARIABLE
from evenlag.spark_connect import SUBMIT_CONNECTION
from sandbox.airflow.rest import AirflowError, DagRunClient
from sandbox.processes import KEEPER, free_ports, log_tail, start_process, stop_process
from sandbox.spark.connect_server import jvm_environment

_REPOSITORY = Path(__file__).resolve().parents[2]
# For a process that hangs, also on a busy machine; one that ends is noticed at once.
_START_TIMEOUT_S = 600.0
_USER = "evenlag"


class Airflow:
    """A running Airflow with a new password; the context manager stops all of it and keeps its folder."""

    def __init__(
        self, directory: Path, *, policy: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory.resolve()
        self.username = _USER
        self.password = secrets.token_urlsafe(12)
        page, *log_ports = free_ports(3)
        self.url = f"http://127.0.0.1:{page}"
        self.rest = DagRunClient(self.url, self.username, self.password)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = self._make_environment(page, log_ports, policy) | dict(environment or {})

    @classmethod
    def start(
        cls,
        directory: str | Path,
        *,
        policy: Path,
        environment: Mapping[str, str] | None = None,
        on_step: Callable[[str], object] = lambda _step: None,
    ) -> Self:
        """Create the database, start the components and wait until all of them are healthy."""
        airflow = cls(Path(directory), policy=policy, environment=environment)
        try:
            airflow._write_files()
            on_step("making Airflow's database")
            airflow._migrate()
            on_step("starting Airflow's page, scheduler and DAG processor")
            airflow._launch()
        except BaseException:
            airflow.stop()
            raise
        return airflow

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start_scheduler(self) -> None:
        """Start the scheduler, also after it was killed."""
        # One machine: the API server reads the logs from the folder, so no log server is needed.
        self._start("scheduler", "scheduler", "--skip-serve-logs")

    def stop(self) -> None:
        """Stop all components and their child processes, including running tasks and their JVMs."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()  # in parallel: each may take seconds
        with ExitStack() as stack:
            for process in self._processes.values():
                stack.callback(stop_process, process)
        self._processes.clear()

    def _make_environment(self, page: int, log_ports: list[int], policy: Path) -> dict[str, str]:
        bin_folder = str(Path(sys.executable).parent)
        settings = {
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__DAGS_FOLDER": str(_REPOSITORY / "dags"),
            "CORE__PARALLELISM": "4",
            # The imports of a busy machine take longer than the default of half a minute.
            "CORE__DAGBAG_IMPORT_TIMEOUT": "300",
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{_USER}:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.directory / "passwords.json"),
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.directory / 'airflow.db'}",
            "API__HOST": "127.0.0.1",
            "API__PORT": str(page),
            "API__BASE_URL": self.url,
            "API__WORKERS": "1",
            "API__SECRET_KEY": secrets.token_urlsafe(24),
            "API_AUTH__JWT_SECRET": secrets.token_urlsafe(24),
            "LOGGING__BASE_LOG_FOLDER": str(self.directory / "logs"),
            # kafka-python logs every connection at INFO.
            "LOGGING__NAMESPACE_LEVELS": "kafka=WARNING",
            "LOGGING__WORKER_LOG_SERVER_PORT": str(log_ports[0]),
            "LOGGING__TRIGGER_LOG_SERVER_PORT": str(log_ports[1]),
            "USAGE_DATA_COLLECTION__ENABLED": "False",
        }
        return {
            **os.environ,
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            "AIRFLOW_HOME": str(self.directory),
            "AIRFLOW_CONN_SPARK_DEFAULT": SUBMIT_CONNECTION,
            POLICY_VARIABLE: str(policy.resolve()),
            "NO_PROXY": "127.0.0.1,localhost",
            "PATH": os.pathsep.join([bin_folder, os.environ.get("PATH", os.defpath)]),
            # The DAG files import evenlag.
            "PYTHONPATH": str(_REPOSITORY),
            **jvm_environment(self.directory / "spark"),
        }

    def _write_files(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        passwords = self.directory / "passwords.json"
        passwords.touch(mode=0o600)
        passwords.write_text(json.dumps({self.username: self.password}), encoding="utf-8")

    def _migrate(self) -> None:
        process = self._start("migrate", "db", "migrate")
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_START_TIMEOUT_S)
        finally:
            status = stop_process(self._processes.pop("migrate"))
        if status != 0:
            raise AirflowError(f"airflow db migrate ended with status {status}:\n{self._tail('migrate')}")

    def _launch(self) -> None:
        self._start("api-server", "api-server")
        self._start("dag-processor", "dag-processor")
        if needs_triggerer(version("apache-airflow-core")):
            self._start("triggerer", "triggerer")
        self.start_scheduler()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            for name, process in self._processes.items():
                if (status := process.poll()) is not None:
                    raise AirflowError(f"airflow {name} ended with status {status}:\n{self._tail(name)}")
            if self.rest.is_healthy():
                return
            time.sleep(0.5)
        raise AirflowError(
            f"Airflow was not healthy after {_START_TIMEOUT_S:.0f} s: see {self.directory}/*.log"
        )

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        airflow = [sys.executable, "-m", "airflow", *arguments]
        with (self.directory / f"{name}.log").open("ab") as log:
            process = start_process([*KEEPER, *airflow], log=log, env=self._environment)
        self._processes[name] = process
        return process

    def _tail(self, name: str) -> str:
        return log_tail(self.directory / f"{name}.log")
