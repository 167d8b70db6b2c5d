"""An application of Spring Boot whose listener has several threads, configured as its users do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.jars import classpath_of
from sandbox.java_tools import compile_java
from sandbox.kafka.jvm_jars import CLIENT_ASSIGNOR_CLASS
from tests.support.java_client.framework import Framework
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.hints import Cluster

__all__ = ["SpringApplication"]

_SOURCE = Path(__file__).parent / "spring_boot" / "Orders.java"


class SpringApplication(Framework):
    """An application that writes a topic's records to a file; ends with the context.

    folder: For its classes, its configuration, its log and the file.
    jar: Of evenlag's client, on the application's class path.
    num_tasks: Threads of the listener; each has a consumer of its own.
    """

    def __init__(self, folder: Path, jar: Path, cluster: Cluster, *, num_tasks: int) -> None:
        file = folder / "records.txt"
        self._num_tasks = num_tasks
        classes = folder / "classes"
        classes.mkdir()
        compile_java([_SOURCE], classes, classpath_of("spring"))
        [topic] = cluster.topics
        settings = {
            "orders.topic": topic,
            "orders.file": str(file),
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
        super().__init__(
            folder / "spring.log", file, [classes, jar, classpath_of("spring")], ["shop.orders.Orders"]
        )

    def wait_until_running(self) -> None:
        """Wait until each thread of the listener is in the group."""
        message = "partitions assigned"
        wait_until(
            lambda: self.read_log().count(message) >= self._num_tasks, what="the listener does not run"
        )
