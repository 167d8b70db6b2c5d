"""The pods of a contender of the consumer protocol: ``python -m tests.bench.field.broker.kip848 SPEC.json``.

They do what `evenlag.field.ClassicPod` does, with confluent-kafka. librdkafka fetches ahead in its own
thread, so that a pod takes record by record.

Each span of a pod is a process, as in Kubernetes. One that does not end in time is killed: a consumer of
confluent-kafka 2.16.0 can hang in ``close()``, and holds the interpreter's lock there.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sandbox.workload.journal import Journal
from tests.bench.field.broker.wire import ENTRY, VALUE

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_POLL_S: Final = 0.2
_COMMIT_EVERY_NS: Final = 1_000_000_000
# A poll that takes longer has waited for its record.
_AT_ONCE_NS: Final = 1_000_000
_TICK_S: Final = 0.05
# As long as Kubernetes waits before it kills a pod.
_GRACE_S: Final = 30.0
_FORK: Final = multiprocessing.get_context("fork")


class Pod:
    """A pod in one of its spans; see `evenlag.field.Pod`.

    stop_s: The first second after the span; None: until SIGTERM.
    """

    def __init__(self, spec: dict[str, Any], pod: dict[str, Any], stop_s: float | None) -> None:
        self.name = pod["name"]
        folder = Path(spec["folder"])
        self._journal = Journal(folder / f"{self.name}.jsonl", self.name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._records = os.open(folder / f"{self.name}.records", flags, 0o600)
        self._configs = {**spec["configs"], "client.id": self.name}
        if pod["instance_id"]:
            self._configs["group.instance.id"] = pod["instance_id"]
        self._topic, self._speed, self._stopping = spec["topic"], pod["speed"], threading.Event()
        self._stops_at = sys.maxsize if stop_s is None else spec["begin_ns"] + round(1e9 * stop_s)
        self._supervisor, self._busy_until = os.getppid(), 0
        self._late_ns = self._latest_ns = self._num_records = 0
        self._processed: dict[int, int] = {}
        self._consumer: Any = None

    def run(self) -> None:
        """Consume until the span ends."""
        signal.signal(signal.SIGTERM, lambda *_: self._stopping.set())
        self._journal.write("started")
        self._consume()
        mean_ns = self._late_ns / max(1, self._num_records)
        self._journal.write(
            "closed", records=self._num_records,
            latest_start_ms=self._latest_ns / 1e6, mean_late_start_ms=mean_ns / 1e6,
        )  # fmt: skip

    def _is_stopping(self) -> bool:
        is_over = time.monotonic_ns() >= self._stops_at or os.getppid() != self._supervisor
        return is_over or self._stopping.is_set()

    def _consume(self) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(self._configs)
        self._consumer.subscribe(
            [self._topic],
            on_assign=lambda _, given: self._log("assigned", given),
            on_revoke=lambda _, taken: self._give_up(taken),
            on_lost=lambda _, taken: self._lose(taken),
        )
        committed = time.monotonic_ns()
        while not self._is_stopping():
            before = time.monotonic_ns()
            self._work(self._consumer.poll(_POLL_S), before)
            if time.monotonic_ns() - committed > _COMMIT_EVERY_NS:
                committed = time.monotonic_ns()
                self._commit(list(self._processed), asynchronous=True)
        self._commit(list(self._processed))
        self._consumer.close()

    def _work(self, message: Any, before_ns: int) -> None:
        """Work on a record. If its pod has not waited for it, the work begins where the last was to end."""
        if message is None:
            self._busy_until = time.monotonic_ns()
            return
        error = message.error()
        if error is not None:
            self._journal.write("error", error=str(error))
            if error.fatal():
                raise RuntimeError(f"{self.name} cannot go on: {error}")
            return
        started_ns = time.monotonic_ns()
        if started_ns - before_ns > _AT_ONCE_NS:
            self._busy_until = started_ns
        late_ns = max(0, started_ns - self._busy_until)
        self._latest_ns, self._late_ns = max(self._latest_ns, late_ns), self._late_ns + late_ns
        self._num_records += 1
        scheduled_ns, cost = VALUE.unpack(message.value())
        os.write(self._records, ENTRY.pack(message.partition(), message.offset(), scheduled_ns, started_ns))
        self._busy_until += round(1e9 * cost / self._speed)
        self._sleep_until(self._busy_until)
        self._processed[message.partition()] = message.offset() + 1

    def _sleep_until(self, end_ns: int) -> None:
        left_ns = end_ns - time.monotonic_ns()
        if left_ns > 0:
            time.sleep(left_ns / 1e9)

    def _commit(self, partitions: list[int], *, asynchronous: bool = False) -> None:
        """Commit what is processed; what was committed before costs an entry in a request."""
        from confluent_kafka import KafkaException, TopicPartition

        offsets = [TopicPartition(self._topic, each, self._processed[each]) for each in partitions]
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=asynchronous)
        except KafkaException as error:
            self._journal.write("commit_failed", error=str(error))

    def _give_up(self, taken: list[Any]) -> None:
        """Commit what is processed: afterwards another pod may own the partitions."""
        mine = [each.partition for each in taken if each.partition in self._processed]
        self._commit(mine)
        for partition in mine:
            del self._processed[partition]
        self._log("revoked", taken)

    def _lose(self, taken: list[Any]) -> None:
        for each in taken:
            self._processed.pop(each.partition, None)
        self._log("lost", taken)

    def _log(self, event: str, partitions: list[Any]) -> None:
        pairs = sorted([each.topic, each.partition] for each in partitions)
        self._journal.write(event, partitions=pairs)


class Supervisor:
    """Runs the pods of a specification."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        spans = ((each, *times) for each in spec["pods"] for times in each["spans"])
        self._waiting = sorted(spans, key=lambda span: -span[1])
        self._running: dict[BaseProcess, float] = {}
        self._journal = Journal(Path(spec["folder"]) / "supervisor.jsonl", "supervisor")

    def advance(self) -> None:
        """Start what is to run by now, and kill what should have ended."""
        second = time.monotonic() - self._spec["begin_ns"] / 1e9
        while self._waiting and self._waiting[-1][1] <= second:
            pod, _, stop_s = self._waiting.pop()
            process: BaseProcess = _FORK.Process(
                target=_run, args=(self._spec, pod, stop_s), name=pod["name"]
            )
            process.start()
            self._running[process] = sys.maxsize if stop_s is None else stop_s + _GRACE_S
        for process, kill_s in list(self._running.items()):
            if process.exitcode:
                raise RuntimeError(f"{process.name} ended with status {process.exitcode}")
            if second > kill_s:
                self._kill(process)
            if process.exitcode is not None:
                del self._running[process]

    def stop(self) -> None:
        """Terminate what still runs."""
        for process in self._running:
            process.terminate()
        until_s = time.monotonic() + _GRACE_S
        for process in self._running:
            process.join(max(0.0, until_s - time.monotonic()))
            if process.exitcode is None:
                self._kill(process)

    def _kill(self, process: BaseProcess) -> None:
        process.kill()
        process.join()
        self._journal.write("killed", victim=process.name, victim_pid=process.pid)


def _run(spec: dict[str, Any], pod: dict[str, Any], stop_s: float | None) -> None:
    Pod(spec, pod, stop_s).run()


def main(argv: list[str]) -> int:
    """Run the pods of the specification until SIGTERM."""
    supervisor = Supervisor(json.loads(Path(argv[0]).read_text(encoding="utf-8")))
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    while not stopping.is_set():
        supervisor.advance()
        time.sleep(_TICK_S)
    supervisor.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
