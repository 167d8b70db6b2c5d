"""An application of Spring Boot whose listener has several threads, configured as its users do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sandbox.jars import spring_classpath
from sandbox.java_tools import compile_java, java_command
from sandbox.kafka.jvm_jars import CLIENT_ASSIGNOR_CLASS
from sandbox.processes import start_process, stop_process
from tests.support.hints import wait_until

if TYPE_CHECKING:
    from tests.support.hints import Cluster

__all__ = ["SpringApplication"]

_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SOURCE = Path(__file__).parent / "spring_boot" / "Orders.java"


class SpringApplication:
    """An application that writes a topic's records to a file; ends with the context.

    Parameters
    ----------
    folder
        For its classes, its configuration, its log and the file.
    jar
        Of evenlag's client, on the application's class path.
    cluster
        The group and its one topic.
    num_tasks
        Threads of the listener; each has a consumer of its own.
    """

    def __init__(self, folder: Path, jar: Path, cluster: Cluster, *, num_tasks: int) -> None:
        self.file = folder / "records.txt"
        self.log = folder / "spring.log"
        self._num_tasks = num_tasks
        classes = folder / "classes"
        classes.mkdir()
        compile_java([_SOURCE], classes, spring_classpath())
        [topic] = cluster.topics
        settings = {
            "orders.topic": topic,
            "orders.file": str(self.file),
            "spring.main.banner-mode": "off",
            "spring.kafka.bootstrap-servers": cluster.bootstrap_servers,
            "spring.kafka.listener.concurrency": str(num_tasks),
            "spring.kafka.consumer.group-id": cluster.group_id,
            "spring.kafka.consumer.auto-offset-reset": "earliest",
            "spring.kafka.consumer.properties.partition.assignment.strategy": CLIENT_ASSIGNOR_CLASS,
            "spring.kafka.consumer.properties.evenlag.hint.topic": cluster.hint_topic,
            "spring.kafka.consumer.properties.heartbeat.interval.ms": "300",
        }
        # Spring Boot reads it from the class path.
        (classes / "application.properties").write_text(
            "".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8"
        )
        class_path = os.pathsep.join([str(classes), str(jar), spring_classpath()])
        with self.log.open("wb") as log:
            self._process = start_process(
                [java_command(), *_OPTIONS, "-cp", class_path, "shop.orders.Orders"], log=log
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the application, as its users do: its listener commits what it has."""
        stop_process(self._process)

    def wait_until_running(self) -> None:
        """Wait until each thread of the listener is in the group."""
        told = "partitions assigned"
        wait_until(lambda: self._read_log().count(told) >= self._num_tasks, what="the listener does not run")

    def records(self) -> list[str]:
        """Return the values of the records that the listener received."""
        return self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []

    def _read_log(self) -> str:
        text = self.log.read_text(encoding="utf-8")
        assert self._process.poll() is None, text[-3000:]
        return text
