"""A worker of Kafka Connect with one file sink, as its users start it."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

from sandbox.kafka.jvm_jars import CLIENT_ASSIGNOR_CLASS
from sandbox.processes import free_ports
from tests.support.java_client.framework import Framework
from tests.support.java_client.harness import beside_broker
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.hints import Cluster

__all__ = ["ConnectWorker"]

_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"


class ConnectWorker(Framework):
    """A stand-alone worker whose sink writes a topic's records to a file; ends with the context.

    folder: For its configuration, its log and the file.
    jar: Of evenlag's client, on the worker's class path.
    cluster: The group, named ``connect-<connector>`` as Connect does, and its one topic.
    num_tasks: Of the sink; each has a consumer of its own.
    configs: More settings of the tasks' consumers.
    """

    def __init__(
        self,
        folder: Path,
        jar: Path,
        cluster: Cluster,
        *,
        num_tasks: int,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        self.name = cluster.group_id.removeprefix("connect-")
        file = folder / "sink.txt"
        self._address = f"http://127.0.0.1:{free_ports(1)[0]}"
        self._num_tasks = num_tasks
        worker = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "listeners": self._address,
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "plugin.discovery": "service_load",
        }
        consumer = {
            "partition.assignment.strategy": CLIENT_ASSIGNOR_CLASS,
            "evenlag.hint.topic": cluster.hint_topic,
            "heartbeat.interval.ms": "300",
            **(configs or {}),
        }
        [topic] = cluster.topics
        sink = {
            "name": self.name,
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": str(num_tasks),
            "topics": topic,
            "file": str(file),
            **{f"consumer.override.{name}": value for name, value in consumer.items()},
        }
        paths = [
            _write(folder / f"{name}.properties", each)
            for name, each in {"worker": worker, "sink": sink}.items()
        ]
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        super().__init__(folder / "connect.log", file, [jar, beside_broker("connect")], [_LOG, main, *paths])

    def states(self) -> list[str]:
        """Return the states of connector and tasks; nothing while the worker does not answer."""
        self.read_log()  # fails when the worker has ended
        url = f"{self._address}/connectors/{self.name}/status"
        try:
            with urllib.request.urlopen(url, timeout=600) as answer:  # noqa: S310  # the worker's own address
                content: dict[str, Any] = json.load(answer)
        except OSError:
            return []
        return [content["connector"]["state"], *(task["state"] for task in content["tasks"])]

    def wait_until_running(self) -> None:
        """Wait until the connector and all its tasks run."""
        wanted = ["RUNNING"] * (1 + self._num_tasks)
        wait_until(lambda: self.states() == wanted, what="the sink does not run")


def _write(path: Path, settings: Mapping[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return str(path)
