"""A scaler as KEDA and Kubernetes' autoscaler work: ``python -m tests.bench.field.broker.scaler SPEC.json``.

It decides by `tests.bench.field.contenders.keda_hpa`, reads the lag at each sync as KEDA's scaler does, and
starts and stops consumers as processes, the newest first.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError

from sandbox.processes import start_process, stop_process
from sandbox.workload.journal import Journal
from tests.bench.field.broker.machine import share_nice
from tests.bench.field.contenders.keda_hpa import Autoscaler, KedaHpa, Trigger

if TYPE_CHECKING:
    import subprocess

    from numpy.typing import NDArray

_TICK_S: Final = 0.2
_STOP_TIMEOUT_S: Final = 30.0


class LagReader:
    """The lag of a group on a topic, as KEDA's scaler reads it: commits, and the ends of all partitions."""

    def __init__(self, servers: str, group_id: str, topic: str, num_partitions: int) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=servers)
        self._group_id = group_id
        self._partitions = [TopicPartition(topic, number) for number in range(num_partitions)]

    def read(self) -> NDArray[np.int64]:
        """Return the lag of each partition; without a commit the whole log is lag."""
        committed = self._admin.list_group_offsets({self._group_id: None})[self._group_id]
        ends = self._admin.list_partition_offsets(dict.fromkeys(self._partitions, OffsetSpec.LATEST))
        done = {each: max(0, int(offset.offset)) for each, offset in committed.items()}
        lag = [int(ends[each].offset) - done.get(each, 0) for each in self._partitions]
        return np.maximum(np.array(lag, dtype=np.int64), 0)


class Replicas:
    """Consumers as processes, numbered from 0."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._consumers, self._command = spec["consumers"], spec["command"]
        self._folder = Path(spec["consumers"]["folder"])
        first = spec["changes"][0][1]
        self._speeds = [spec["consumers"]["pods"][index]["speed"] for index in first]
        self._processes: list[subprocess.Popen[bytes]] = []

    def set_count(self, count: int) -> None:
        """Start or stop as many as are missing or too many, and wait for none of them."""
        while len(self._processes) < count:
            self._processes.append(self._start(len(self._processes)))
        for process in self._processes[count:]:
            process.terminate()
            threading.Thread(target=_reap, args=(process,)).start()
        del self._processes[count:]

    def check(self) -> None:
        """Raise an error if a replica has ended by itself."""
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                raise RuntimeError(f"replica {number} ended with status {process.returncode}")

    def stop(self) -> None:
        """Stop all, and wait."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            stop_process(process, timeout_s=_STOP_TIMEOUT_S)

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        name = f"replica-{number}"
        pod = {
            "name": name, "instance_id": None, "spans": [[0.0, None]],
            "speed": self._speeds[number % len(self._speeds)],
        }  # fmt: skip
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps({**self._consumers, "pods": [pod]}), encoding="utf-8")
        with (self._folder / f"{name}.out").open("ab") as log:
            process = start_process([*self._command[:-1], str(path)], log=log)
        share_nice(process.pid)
        return process


def _reap(process: subprocess.Popen[bytes]) -> None:
    stop_process(process, timeout_s=_STOP_TIMEOUT_S)


def num_down(spec: dict[str, Any], second: float) -> int:
    """Return how many replicas are down: as many as the trace has fewer pods than at its start."""
    running = [pods for at_s, pods in spec["changes"] if at_s <= second]
    return max(0, len(spec["changes"][0][1]) - len(running[-1])) if running else 0


def is_outage(spec: dict[str, Any], second: float) -> bool:
    """Return whether no consumer runs."""
    return any(first <= second < after for first, after in spec["outages"])


def run(spec: dict[str, Any], stopping: threading.Event) -> None:
    """Scale until stopped."""
    consumers = spec["consumers"]
    group_id, topic = consumers["configs"]["group.id"], consumers["topic"]
    lag = LagReader(spec["servers"], group_id, topic, spec["num_partitions"])
    settings = spec["settings"]
    trigger = Trigger(
        settings["lag_threshold"], ensure_even_distribution_of_partitions=settings["even_distribution"]
    )
    autoscaler = Autoscaler(max(1, round(settings["min_share"] * len(spec["changes"][0][1]))))
    replicas, journal = Replicas(spec), Journal(Path(consumers["folder"]) / "scaler.jsonl", "scaler")
    wanted = len(spec["changes"][0][1])
    next_s = random.Random(0).uniform(0, KedaHpa.SYNC_S)  # noqa: S311  # a phase, no secret
    try:
        while not stopping.wait(_TICK_S):
            second = (time.monotonic_ns() - consumers["begin_ns"]) / 1e9
            if second < 0:
                continue
            replicas.check()
            if second >= next_s:
                next_s += KedaHpa.SYNC_S
                wanted = _sync(second, wanted, lag, trigger, autoscaler, journal)
            running = 0 if is_outage(spec, second) else max(0, wanted - num_down(spec, second))
            replicas.set_count(running)
    finally:
        replicas.stop()
        journal.close()


def _sync(
    second: float, wanted: int, lag: LagReader, trigger: Trigger, autoscaler: Autoscaler, journal: Journal
) -> int:
    """Return how many replicas are wanted by the lag of now; as many as before if it cannot be read."""
    try:
        metric = trigger.metric(lag.read())
    except KafkaError as error:
        journal.write("error", error=repr(error))
        return wanted
    wanted = autoscaler.desired(second, wanted, metric, trigger.lag_threshold)
    journal.write("scaled", metric=metric, replicas=wanted)
    return wanted


def main(argv: list[str]) -> int:
    """Scale by the specification until SIGTERM."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    run(json.loads(Path(argv[0]).read_text(encoding="utf-8")), stopping)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
