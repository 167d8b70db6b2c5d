"""Skewed traffic with a moving hot spot: ``python -m sandbox.workload.producer SPEC.json``."""

import json
import logging
import random
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

_TICK_S = 0.1
_RECORD = b"x" * 100


@dataclass(frozen=True)
class TrafficSpec:
    """Configuration of one producer process.

    skew: The partition at rank i gets a share of ``1 / (i + 1) ** skew``; 0 is even.
    shift_every_s: Interval after which the ranking moves by one partition; 0: never.
    """

    client: Mapping[str, Any]
    topic: str
    num_partitions: int
    records_per_s: float
    skew: float = 1.0
    shift_every_s: float = 0.0
    seed: int = 0

    def write(self, path: Path) -> None:
        """Write the specification to a file that only its owner can read."""
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def shares(num_partitions: int, skew: float, *, shift: int = 0) -> list[float]:
    """Return each partition's share of the traffic, after the ranking moved `shift` times."""
    weights = [1.0 / (rank + 1) ** skew for rank in range(num_partitions)]
    total = sum(weights)
    return [weights[(partition - shift) % num_partitions] / total for partition in range(num_partitions)]


def fill(client: Mapping[str, Any], topic: str, counts: Mapping[int, int]) -> None:
    """Write records to partitions as fast as possible; returns when all are written."""
    with KafkaProducer(**client, acks="all", linger_ms=20, batch_size=64 * 1024) as producer:
        for partition, count in counts.items():
            for _ in range(count):
                producer.send(topic, _RECORD, partition=partition)
        producer.flush(timeout=120)


def produce(spec: TrafficSpec, stopping: threading.Event) -> tuple[int, int]:
    """Produce until stopped; returns how many records were sent, and how many acknowledged."""
    chance = random.Random(spec.seed)  # noqa: S311  # repeatable traffic, no secret
    partitions: Sequence[int] = range(spec.num_partitions)
    waiting: list[Any] = []
    num_sent = num_acknowledged = 0
    with KafkaProducer(**spec.client, acks="all", linger_ms=20) as producer:
        started = time.monotonic()
        while not stopping.wait(_TICK_S):
            elapsed_s = time.monotonic() - started
            due = int(elapsed_s * spec.records_per_s) - num_sent
            shift = int(elapsed_s / spec.shift_every_s) if spec.shift_every_s else 0
            weights = shares(spec.num_partitions, spec.skew, shift=shift)
            waiting += [
                producer.send(spec.topic, _RECORD, partition=partition)
                for partition in chance.choices(partitions, weights, k=max(0, due))
            ]
            num_sent += max(0, due)
            done = {id(future) for future in waiting if future.is_done}
            num_acknowledged += sum(future.succeeded() for future in waiting if id(future) in done)
            waiting = [future for future in waiting if id(future) not in done]
        producer.flush(timeout=30)
    return num_sent, num_acknowledged + sum(future.succeeded() for future in waiting)


def main(argv: list[str]) -> int:
    """Produce according to the specification file until SIGTERM."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    spec = TrafficSpec(**json.loads(Path(argv[0]).read_text(encoding="utf-8")))
    num_sent, num_acknowledged = produce(spec, stopping)
    print(f"{num_sent} records sent, {num_acknowledged} acknowledged", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
