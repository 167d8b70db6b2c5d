"""Lag per consumer over time, sampled from the broker every few seconds in the background."""

import contextlib
import threading
import time
from dataclasses import dataclass, field

from kafka.errors import KafkaError

from sandbox.kafka.topic_admin import read_offsets
from sandbox.workload.evidence import OwnerTracker
from sandbox.workload.workload import Workload

_EVERY_S = 2.0


@dataclass(slots=True)
class Samples:
    """Seconds since the start, each consumer's lag then (None: it owned no partition), and marked events."""

    at_s: list[float] = field(default_factory=list)
    lag_by_name: dict[str, list[int | None]] = field(default_factory=dict)
    marks: list[tuple[float, str]] = field(default_factory=list)


class LagSampler(threading.Thread):
    """Samples a workload's lag until it is stopped."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(name="lag-sampler", daemon=True)
        self._workload = workload
        self._tracker = OwnerTracker()
        self._samples = Samples()
        self._since_s = time.monotonic()
        self._stopping = threading.Event()

    def mark(self, what: str) -> None:
        """Mark an event at the current time."""
        self._samples.marks.append((time.monotonic() - self._since_s, what))

    def stop(self) -> Samples:
        """Stop, and return the samples. Idempotent."""
        self._stopping.set()
        if self.is_alive():
            self.join(10)
        return self._samples

    def run(self) -> None:
        """Sample, as the thread."""
        while not self._stopping.is_set():
            # A missing sample only affects the chart; the evidence is in the journals.
            with contextlib.suppress(KafkaError, OSError):
                self._sample()
            self._stopping.wait(_EVERY_S)

    def _sample(self) -> None:
        work = self._workload
        pairs = [(work.topic, number) for number in range(work.num_partitions)]
        offsets = read_offsets(work.client, work.group_id, pairs)
        lag = {pair: end - max(committed or 0, start) for pair, (start, end, committed) in offsets.items()}
        owned = self._tracker.read(work.journals)
        self._samples.at_s.append(time.monotonic() - self._since_s)
        num_points = len(self._samples.at_s)
        for name, pairs_held in owned.items():
            points = self._samples.lag_by_name.setdefault(name, [])
            points += [None] * (num_points - 1 - len(points))
            points.append(sum(lag.get(pair, 0) for pair in pairs_held) if pairs_held else None)
