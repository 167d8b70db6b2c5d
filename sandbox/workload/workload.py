"""Consumer and producer processes on a topic, started and stopped together, with evidence."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from sandbox.kafka.topic_admin import DEFAULT_HINT_TOPIC, create_hint_topic, create_topic, read_offsets
from sandbox.processes import SandboxError, start_process, stop_process
from sandbox.workload import java_consumer
from sandbox.workload.consumer import ConsumerSpec
from sandbox.workload.evidence import Evidence, OwnerTracker, gather
from sandbox.workload.journal import Journal
from sandbox.workload.producer import TrafficSpec, fill

_ROOT = Path(__file__).resolve().parents[2]


class WorkloadError(SandboxError):
    """Raised when the workload does not reach the expected state; the message describes the actual one."""


class Workload:
    """A topic, consumer processes and traffic; on exit the context manager stops all of them.

    client: Settings of kafka-python's clients, ``{"bootstrap_servers": …}``.
    directory: For journals, specifications and output of the processes.
    topic, num_partitions: The topic; created if it does not exist, as is the hint topic.
    consumer: Further fields of `ConsumerSpec` for all consumers, for example ``records_per_s``.
    """

    modules: ClassVar[Mapping[str, str]] = {
        "classic": "sandbox.workload.consumer",
        "consumer": "sandbox.workload.kip848_consumer",
    }

    def __init__(
        self,
        client: Mapping[str, Any],
        directory: Path,
        *,
        topic: str,
        num_partitions: int,
        group_id: str,
        hint_topic: str = DEFAULT_HINT_TOPIC,
        consumer: Mapping[str, Any] | None = None,
    ) -> None:
        self.client = dict(client)
        self.directory = directory
        self.topic, self.num_partitions = topic, num_partitions
        self.group_id, self.hint_topic = group_id, hint_topic
        self._settings = dict(consumer or {})
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._num_producers = 0
        self._java_class_path: str | None = None
        self._tracker = OwnerTracker()
        directory.mkdir(parents=True, exist_ok=True)
        self._journal = Journal(directory / "workload.jsonl", "workload")

    def __enter__(self) -> Self:
        create_topic(self.client, self.topic, self.num_partitions)
        create_hint_topic(self.client, self.hint_topic)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
        self._journal.close()

    @property
    def journals(self) -> list[Path]:
        """Journals of all processes and of the workload itself."""
        return sorted(self.directory.glob("*.jsonl"))

    @property
    def consumers(self) -> tuple[str, ...]:
        """Names of the running consumers."""
        return tuple(n for n, p in self._processes.items() if n.startswith("consumer-") and p.poll() is None)

    def start_consumers(self, count: int, **fields: Any) -> tuple[str, ...]:
        """Start more consumers without waiting for the assignment of the last.

        Consumers of the consumer protocol (KIP-848) start one after the other. librdkafka acknowledges that
        it has given up partitions before the application has learned that it had them: beside other work, the
        journals of consumers that start at once would have two owners for some milliseconds.
        """
        first = sum(name.startswith("consumer-") for name in self._processes)
        names = tuple(f"consumer-{number}" for number in range(first, first + count))
        is_one_by_one = {**self._settings, **fields}.get("protocol") == "consumer"
        for name in names:
            if is_one_by_one and self.consumers:
                self.wait_until_owned()
            self.start_consumer(name, **fields)
        return names

    def start_consumer(self, name: str, *, is_static: bool = False, **fields: Any) -> None:
        """Start one consumer; if the name was used before, it appends to the same journal."""
        spec = ConsumerSpec(
            name=name,
            client=self.client,
            topics=(self.topic,),
            group_id=self.group_id,
            log_file=str(self.directory / f"{name}.jsonl"),
            hint_topic=self.hint_topic,
            instance_id=name if is_static else None,
        )
        spec = replace(spec, **{**self._settings, **fields})
        path = self.directory / f"{name}.json"
        if spec.language == "java":
            self._java_class_path = self._java_class_path or java_consumer.build(self.directory)
            java_consumer.write_spec(spec, path)
            self._start(name, java_consumer.command(self._java_class_path, path))
        else:
            spec.write(path)
            self._start_module(name, self.modules[spec.protocol], path)

    def start_traffic(self, **fields: Any) -> str:
        """Start a producer process with these further fields of its `TrafficSpec`."""
        name = f"producer-{self._num_producers}"
        self._num_producers += 1
        path = self.directory / f"{name}.json"
        TrafficSpec(self.client, self.topic, self.num_partitions, **fields).write(path)
        self._start_module(name, "sandbox.workload.producer", path)
        return name

    def fill(self, counts: Mapping[int, int]) -> None:
        """Write a number of records to each partition now, as a backlog."""
        fill(self.client, self.topic, counts)

    def owners(self) -> dict[str, set[int]]:
        """Return the partitions of the topic by running consumer, from their journals."""
        owned = self._tracker.read(self.journals)
        return {
            name: {number for topic, number in owned.get(name, ()) if topic == self.topic}
            for name in self.consumers
        }

    def wait_until_owned(
        self,
        *,
        timeout_s: float = 600.0,
        condition: Callable[[dict[str, set[int]]], bool] | None = None,
    ) -> dict[str, set[int]]:
        """Wait until every partition has exactly one owner, no consumer is idle, and `condition` is true.

        Consumers may be idle if there are more of them than partitions.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self.check()
            owners = self.owners()
            held = [number for numbers in owners.values() for number in numbers]
            is_whole = len(held) == len(set(held)) == self.num_partitions
            has_all = len(owners) > self.num_partitions or all(owners.values())
            if is_whole and has_all and (condition is None or condition(owners)):
                return owners
            if time.monotonic() > deadline:
                shown = {name: sorted(numbers) for name, numbers in owners.items()}
                raise WorkloadError(f"after {timeout_s:.0f} s the owners are {shown}")
            time.sleep(0.1)

    def check(self) -> None:
        """Check that no process exited unexpectedly."""
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None:
                tail = (self.directory / f"{name}.out").read_text(encoding="utf-8", errors="replace")
                raise WorkloadError(f"{name} ended with status {status}:\n{tail[-2000:]}")

    def stop_process(self, name: str) -> None:
        """Stop one process cleanly."""
        process = self._processes.pop(name)
        stop_process(process)
        # A process logs its own exit; this event is needed only if it had to be killed.
        self._journal.write("killed", victim=name, victim_pid=process.pid)

    def stop(self) -> None:
        """Stop all processes cleanly and in parallel: each needs a moment to leave its group."""
        for process in self._processes.values():
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
                process.terminate()
        for name in sorted(self._processes, reverse=True):
            self.stop_process(name)

    def evidence(self) -> Evidence:
        """Return the evidence of the journals and the broker's offsets up to now."""
        pairs = [(self.topic, number) for number in range(self.num_partitions)]
        return gather(self.journals, read_offsets(self.client, self.group_id, pairs))

    def _start_module(self, name: str, module: str, spec: Path) -> None:
        self._start(name, [sys.executable, "-m", module, str(spec)])

    def _start(self, name: str, command: Sequence[str]) -> None:
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        with (self.directory / f"{name}.out").open("ab") as log:
            self._processes[name] = start_process(command, log=log, env={**os.environ, "PYTHONPATH": path})
