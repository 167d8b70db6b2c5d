"""The compose file's services as native processes: the same commands and variables, without containers.

What a container has of its own is mapped, and nothing else is changed:

====================================  ======================================================================
in a container                        here
====================================  ======================================================================
a service's name, ``0.0.0.0``         ``127.0.0.1``
a port of a service                   a free port; each service has its own, as each container has, except
                                      those that share a network namespace
``/opt/airflow``, ``/opt/spark``      the environment that runs the tests: one instead of two
executors' ``PYSPARK_PYTHON``         one with what that image has, and without evenlag: a submitted driver
                                      sends it
``/opt/evenlag/jars``, ``…/demo``     the cache of jars, the checkout
``/opt/evenlag/*.py``, ``…-conf``     ``docker/``
``/etc/evenlag/evenlag.yaml``         a copy of ``docker/evenlag.yaml``, its addresses and paths mapped
``/opt/evenlag/dags``                 a folder filled by ``evenlag dags install``, as the Dockerfile does
volumes, ``/tmp/workload``            folders
the entrypoints of Kafka's and        Kafka's own class that its entrypoint calls; ``initdb`` and
Postgres's images                     ``createdb`` with the variables that the entrypoint reads
evenlag, installed                    the checkout, by ``PYTHONPATH``; its wheel is built as in the Dockerfile
====================================  ======================================================================

Services start in the order that ``depends_on`` gives, and each is waited for by its own health check.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sandbox import subreaper
from sandbox.jars import broker_classpath, cache_dir, spark_jars
from sandbox.java_tools import java_command
from sandbox.processes import free_ports, start_process, stop_process
from tests.support.containers.compose_file import ROOT, Service, read_services
from tests.support.spark_cluster import make_executor_python
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

# Since a service last got well or wrote to its log: a stack on a busy machine starts slowly, and steadily.
_DEADLINE_S = 600.0
_OWN = ("0.0.0.0", "127.0.0.1", "localhost")  # noqa: S104  # as the compose file has it


class StackError(RuntimeError):
    """A service ended that should not; the message holds the tail of its log."""


def postgres_binaries() -> Path | None:
    """Return the folder of the newest Postgres of Debian's, None without one."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(found, key=lambda path: int(path.parent.name), default=None)


class NativeStack:
    """All services of the compose file; leaving the context ends them.

    folder: For volumes and logs.
    variables: Content of ``.env``.
    postgres: The folder of Postgres's programs.
    extra: Further variables for Airflow: what a test has to have otherwise.
    """

    def __init__(
        self, folder: Path, variables: Mapping[str, str], *, postgres: Path, extra: Mapping[str, str]
    ) -> None:
        self.folder, self.services = folder, read_services(variables)
        self._postgres, self._extra = postgres, dict(extra)
        self._ports: dict[tuple[str, str], str] = {}
        self._spare = [str(port) for port in free_ports(40)]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()
        # Postgres runs as a user of its own, who may not look into pytest's folder.
        self._database = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="evenlag-pg-")))
        self._executors = folder / "executors"
        self._paths = self._make_paths()
        names = sorted((re.escape(name) for name in self.services), key=len, reverse=True)
        own = [re.escape(name) for name in _OWN]
        self._address = re.compile(rf"(?<![\w.-])({'|'.join([*names, *own])})([:/])(\d{{2,5}})\b")
        self._path = re.compile(
            "|".join(re.escape(path) for path in sorted(self._paths, key=len, reverse=True))
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def port(self, service: str, number: int | str) -> str:
        """Return the port here of a service's port there."""
        network = self.services[service].network
        return self._ports.setdefault((network, str(number)), self._spare[len(self._ports)])

    def start(self) -> None:
        """Start every service when what it depends on is well or done, and wait until all are."""
        self._prepare()
        well: set[str] = set()
        rests_until: dict[str, float] = {}

        def are_well() -> bool:
            for service in self.services.values():
                if service.name not in self._processes and set(service.depends_on) <= well:
                    self._launch(service)
            for name in [name for name in self._processes if name not in well]:
                if (began := time.monotonic()) < rests_until.get(name, 0.0):
                    continue
                if self._is_ready(self.services[name]):
                    well.add(name)
                # Some checks take seconds of processor time, which the services need to start.
                rests_until[name] = began + 5 * (time.monotonic() - began)
            return len(well) == len(self.services)

        def missing() -> str:
            names = sorted(set(self.services) - well)
            return f"not well: {names}\n{self.tail(names[0])}"

        wait_until(
            are_well, timeout_s=_DEADLINE_S, what=missing, progress=lambda: (len(well), self._log_size())
        )

    def _log_size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob("*.log"))

    def is_well(self, name: str, *, timeout_s: float = 300.0) -> bool:
        """Run a service's health check and return its verdict."""
        service = self.services[name]
        command, environment = self._command(service, service.health), self._environment(service)
        try:
            done = subprocess.run(
                command, env=environment, cwd=self.folder, capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def environment(self, service: Service) -> dict[str, str]:
        """Return the variables that a process has here, of a service also as a further file changes it."""
        return self._environment(service)

    def command(self, service: Service) -> list[str]:
        """Return the command that a service's process runs here; the service is as for `environment`."""
        return self._command(service, service.command)

    def tail(self, name: str, lines: int = 30) -> str:
        """Return the end of a service's log."""
        path = self.folder / f"{name}.log"
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else "(not started)"
        return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])

    def stop(self) -> None:
        """End all services and all that they started."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            self._stack.callback(stop_process, process)
        self._processes.clear()
        self._stack.close()

    def _is_ready(self, service: Service) -> bool:
        if (status := self._processes[service.name].poll()) == 0 and service.is_job:
            return True
        if status is not None:
            raise StackError(f"{service.name} ended with status {status}:\n{self.tail(service.name)}")
        return not service.is_job and (not service.health or self.is_well(service.name))

    def _launch(self, service: Service) -> None:
        with (self.folder / f"{service.name}.log").open("ab") as log:
            self._processes[service.name] = start_process(
                # A task's JVM is in no group of ours: the keeper ends whatever descends from a service.
                [sys.executable, "-I", "-S", subreaper.__file__, *self._command(service, service.command)],
                log=log,
                env=self._environment(service),
            )

    def _make_paths(self) -> dict[str, str]:
        spark = find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        binaries, volumes = str(Path(sys.executable).parent), self.folder / "volumes"
        return {
            "/opt/airflow/bin": binaries,
            "/opt/spark/bin": binaries,
            "/opt/spark/lib/python3.11/site-packages/pyspark": str(Path(spark.origin).parent),
            "/opt/evenlag/jars": str(cache_dir()),
            "/opt/evenlag/demo": str(ROOT),
            "/opt/evenlag/dags": str(volumes / "dags"),
            "/opt/evenlag/spark-conf": str(ROOT / "docker"),
            "/opt/evenlag": str(ROOT / "docker"),
            "/etc/evenlag": str(volumes / "etc"),
            "/var/lib/airflow": str(volumes / "airflow"),
            "/var/lib/kafka/data": str(volumes / "kafka"),
            "/var/lib/spark": str(volumes / "spark"),
            "/lake": str(volumes / "lake"),
            "/tmp/spark-conf": str(volumes / "spark-conf"),
            "/tmp/workload": str(volumes / "workload"),
        }

    def _prepare(self) -> None:
        spark_jars()  # all jars are there from now on
        for path in ("airflow", "dags", "etc", "kafka", "lake", "spark"):
            (self.folder / "volumes" / path).mkdir(parents=True)
        # As the Dockerfiles make it: shared with the lake's group.
        (self.folder / "volumes" / "lake").chmod(0o2770)
        policy = (ROOT / "docker" / "evenlag.yaml").read_text(encoding="utf-8")
        mapped = Path(self._paths["/etc/evenlag"]) / "evenlag.yaml"
        mapped.write_text(self._translate(self.services["airflow-scheduler"], policy), encoding="utf-8")
        install = [sys.executable, "-m", "evenlag", "dags", "install", self._paths["/opt/evenlag/dags"]]
        with ThreadPoolExecutor(4) as pool:
            steps = [
                pool.submit(self._run, install),
                pool.submit(self._prepare_kafka, self.services["kafka"]),
                pool.submit(self._prepare_postgres, self.services["postgres"]),
            ]
        for step in steps:
            step.result()

    def make_executor_python(self) -> None:
        """Make what only a submitted driver needs: the Python of executors."""
        make_executor_python(self._executors)

    def _prepare_kafka(self, service: Service) -> None:
        """What Kafka's image does before it starts: settings from the variables, and a formatted folder."""
        conf = self.folder / "kafka-conf"
        for name in ("default", "mounted", "final"):
            (conf / name).mkdir(parents=True)
        (conf / "final" / "server.properties").touch()
        folders = [f"--{name}-configs-dir={conf / name}" for name in ("default", "mounted", "final")]
        self._run([*self._kafka(), "kafka.docker.KafkaDockerWrapper", "setup", *folders], service)

    def _prepare_postgres(self, service: Service) -> None:
        """What Postgres's image does at its first start: a database, and the user with the password."""
        environment = self._environment(service)
        password = self._database / "password"
        password.touch(mode=0o600)
        password.write_text(environment["POSTGRES_PASSWORD"], encoding="utf-8")
        if os.geteuid() == 0:
            for path in (self._database, password):
                shutil.chown(path, "postgres", "postgres")
        user, data = environment["POSTGRES_USER"], self._database / "data"
        options = environment["POSTGRES_INITDB_ARGS"].split()
        self._run(
            [
                *self._as_postgres("initdb"),
                *(f"--username={user}", f"--pwfile={password}", f"--pgdata={data}", *options),
                *("--auth-local=trust", "--no-sync", "--encoding=UTF8"),
            ],
            service,
        )
        create = f"CREATE DATABASE {environment['POSTGRES_DB']}".encode()
        self._run([*self._as_postgres("postgres"), "--single", "-D", str(data), "postgres"], service, create)

    def _as_postgres(self, program: str) -> list[str]:
        drop = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        return [*(drop if os.geteuid() == 0 else []), str(self._postgres / program)]

    def _kafka(self) -> list[str]:
        heap = self.services["kafka"].environment["KAFKA_HEAP_OPTS"].split()
        return [java_command(), *heap, "-XX:TieredStopAtLevel=1", "-cp", broker_classpath()]

    def _run(self, command: list[str], service: Service | None = None, text: bytes | None = None) -> None:
        plain = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command,
            env=self._environment(service) if service else plain,
            cwd="/",
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_DEADLINE_S,
            check=False,
        )
        if done.returncode != 0:
            raise StackError(f"{command[:3]} ended with {done.returncode}:\n{done.stdout.decode()[-3000:]}")

    def _command(self, service: Service, words: list[str]) -> list[str]:
        if service.name == "kafka" and words == service.command:
            return [*self._kafka(), "kafka.Kafka", str(self.folder / "kafka-conf/final/server.properties")]
        mapped = [self._translate_word(service, *pair) for pair in pairwise(["", *words])]
        if service.name == "postgres" and words == service.command:
            sockets = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self._database}"]
            return [*self._as_postgres(mapped[0]), *mapped[1:], *sockets, "-D", str(self._database / "data")]
        return mapped

    def _translate_word(self, service: Service, before: str, word: str) -> str:
        if before in {"--port", "--webui-port"}:
            return self.port(service.name, word)
        return "127.0.0.1" if before == "--host" else self._translate(service, word)

    def _translate_variable(self, service: Service, name: str, value: str) -> str:
        # The server's workers run its own interpreter, as in its container.
        if name == "PYSPARK_PYTHON" and service.name != "spark-connect":
            return str(self._executors / "bin" / "python3")
        if name.endswith("_PORT"):
            return self.port(service.name, value)
        return "127.0.0.1" if name.endswith("_HOSTNAME") else self._translate(service, value)

    def _translate(self, service: Service, text: str) -> str:
        """Map paths, addresses, names and ports of one word or value."""
        text = self._path.sub(lambda match: self._paths[match[0]], text)

        def address(match: re.Match[str]) -> str:
            host, colon, port = match.groups()
            return f"127.0.0.1{colon}{self.port(service.name if host in _OWN else host, port)}"

        text = self._address.sub(address, text)
        option, _, value = text.partition("=")
        if value and option in {"--port", "port"}:
            return f"{option}={self.port(service.name, value)}"
        return "--host=127.0.0.1" if value and option == "--host" else text

    def _environment(self, service: Service) -> dict[str, str]:
        """The container's variables, mapped, and what any process has; none of the tests' own."""
        environment = {
            name: self._translate_variable(service, name, value)
            for name, value in service.environment.items()
        }
        java = str(Path(java_command()).parent)
        path = environment.get("PATH", os.defpath)
        has_evenlag = {"PYTHONPATH": str(ROOT), "PYSPARK_DRIVER_PYTHON": sys.executable, **self._extra}
        return {
            "HOME": str(self.folder),
            **environment,
            "PATH": os.pathsep.join([path, str(self._postgres), java]),
            **(has_evenlag if "AIRFLOW_HOME" in environment else {}),
        }
