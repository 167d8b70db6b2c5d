"""From publishing a hint to the group on it, and how long partitions that do not move are silent.

``python -m tests.bench.hints [--hints N] [--heartbeat-ms N ...]`` merges its figures into
``docs/bench/hints.json``. Four members in threads of one process, 12 partitions under traffic, a broker on
the same machine. The eager figures are of the same hints with every member made to give up all it has first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from kafka.coordinator.assignors.abstract import RebalanceProtocol

from sandbox.kafka.broker import Broker
from tests.support.hints import Cluster, Runner, is_settled, place
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "hints.json"
_NUM_MEMBERS, _NUM_PARTITIONS = 4, 12
_RECORDS_PER_S = 1200


class TimedRunner(Runner):
    """Notes when each partition's records come, and when each hint event came."""

    def __init__(self, cluster: Cluster, **configs: Any) -> None:
        self.times: dict[int, list[float]] = defaultdict(list)
        self.noted: list[tuple[float, str]] = []
        super().__init__(
            cluster,
            on_hint_event=lambda event: self.noted.append((time.monotonic(), event.reason.value)),
            **configs,
        )

    def take(self, batch: Sequence[Any]) -> None:
        self.times[batch[0].partition].append(time.monotonic())


def measure(broker: Broker, heartbeat_ms: int, num_hints: int, *, is_eager: bool) -> dict[str, Any]:
    """Publish hints one after the other and return the figures."""
    chance = random.Random(7)  # noqa: S311  # repeatable, no secret
    name = f"{heartbeat_ms}-{'eager' if is_eager else 'cooperative'}"
    topic = f"t-{name}"
    cluster = Cluster(
        broker, group_id=f"g-{name}", topics={topic: _NUM_PARTITIONS}, hint_topic=f"hints-{name}"
    )
    runners = [
        TimedRunner(
            cluster,
            group_instance_id=f"pod-{i}",
            heartbeat_interval_ms=heartbeat_ms,
            session_timeout_ms=45_000,
        )
        for i in range(_NUM_MEMBERS)
    ]
    stopping = threading.Event()
    traffic = threading.Thread(target=_produce, args=(cluster, topic, stopping), daemon=True)
    try:
        wait_until(lambda: is_settled(runners, _NUM_PARTITIONS), timeout_s=60)
        traffic.start()
        time.sleep(2)
        rows = [_one_hint(cluster, topic, runners, chance, is_eager=is_eager) for _ in range(num_hints)]
    finally:
        stopping.set()
        traffic.join(5)
        for runner in runners:
            runner.close()
        cluster.close()
    return _summary(rows)


def _one_hint(
    cluster: Cluster, topic: str, runners: list[TimedRunner], chance: random.Random, *, is_eager: bool
) -> dict[str, Any]:
    dealt: list[list[int]] = [[] for _ in runners]
    for number in range(_NUM_PARTITIONS):
        dealt[chance.randrange(len(runners))].append(number)
    before = [{number for _, number in runner.held} for runner in runners]
    generation = runners[0].generation
    payload = cluster.payload(place(runners, topic, dealt))
    if is_eager:
        for runner in runners:
            runner.consumer._port._membership.mode = RebalanceProtocol.EAGER
    for runner in runners:
        runner.noted.clear()
    started = time.monotonic()
    cluster.publish(payload)
    published = time.monotonic()
    wanted = [set(numbers) for numbers in dealt]

    def is_there() -> bool:
        held = [{number for _, number in runner.held} for runner in runners]
        return held == wanted and is_settled(runners, _NUM_PARTITIONS)

    while not is_there():
        time.sleep(0.005)
        if time.monotonic() - started > 60:  # a minute
            raise TimeoutError("the hint was not followed")
    settled = time.monotonic()
    num_generations = runners[0].generation - generation
    time.sleep(1.5)
    gaps = [
        _longest_gap(runner.times[number], started, settled)
        for runner, had, has in zip(runners, before, wanted, strict=True)
        for number in had & has
    ]
    noted = sorted(event for runner in runners for event in runner.noted)
    first = {reason: at_s for at_s, reason in reversed(noted)}
    asked = first.get("ASKED", settled)
    return {
        "moves": sum(len(has - had) for had, has in zip(before, wanted, strict=True)),
        "generations": num_generations,
        "publish_s": published - started,
        "read_s": max((at_s for at_s, reason in noted if reason == "RECEIVED"), default=asked) - published,
        "ask_s": asked - published,
        "first_join_s": first.get("FOLLOWED", settled) - asked,
        "rest_s": settled - first.get("FOLLOWED", settled),
        "total_s": settled - started,
        "gaps_s": gaps,
    }


def _longest_gap(times: list[float], start: float, end: float) -> float:
    near = [at_s for at_s in times if start - 1.0 <= at_s <= end + 1.5]
    return max((later - earlier for earlier, later in itertools.pairwise(near)), default=0.0)


def _produce(cluster: Cluster, topic: str, stopping: threading.Event) -> None:
    while not stopping.wait(0.02):
        for number in range(_NUM_PARTITIONS):
            for _ in range(_RECORDS_PER_S // 50 // _NUM_PARTITIONS):
                cluster.producer.send(topic, b"x", partition=number)


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def of(name: str) -> dict[str, float]:
        values = [row[name] for row in rows]
        return {
            "median": round(statistics.median(values), 3),
            "p95": round(float(np.quantile(values, 0.95)), 3),
        }

    gaps = [gap for row in rows for gap in row["gaps_s"]]
    names = ("publish_s", "read_s", "ask_s", "first_join_s", "rest_s", "total_s")
    return {
        "hints": len(rows),
        "moves_mean": round(statistics.mean(row["moves"] for row in rows), 1),
        "generations_median": statistics.median(row["generations"] for row in rows),
        "generations_max": max(row["generations"] for row in rows),
        **{name: of(name) for name in names},
        "gap_unmoved_s": {"partitions": len(gaps), **_median_and_p95(gaps)},
    }


def _median_and_p95(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 3), "p95": round(float(np.quantile(values, 0.95)), 3)}


def main(argv: list[str]) -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="tests.bench.hints", description=__doc__)
    parser.add_argument("--hints", type=int, default=30)
    parser.add_argument("--heartbeat-ms", type=int, nargs="+", default=[500, 3000])
    parser.add_argument(
        "--mode", choices=["cooperative", "eager"], nargs="+", default=["cooperative", "eager"]
    )
    arguments = parser.parse_args(argv)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as directory, Broker.start(Path(directory) / "node") as broker:
        for heartbeat_ms in arguments.heartbeat_ms:
            for mode in arguments.mode:
                row = measure(broker, heartbeat_ms, arguments.hints, is_eager=mode == "eager")
                results[f"heartbeat_{heartbeat_ms}_{mode}"] = row
                sys.stdout.write(f"{heartbeat_ms} {mode}: {json.dumps(row)}\n")
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
