"""A group of 4 scales to 8 while a backlog drains, on three brokers: its real lag after each join.

``python -m tests.bench.living.draining [--seeds N]`` writes ``docs/bench/draining.json``. Consumers of
kafka-python process 20 records a second each, and take from their partitions in turn: a fetch has about
0.2 s of work, and commits are a second apart, as the backlog is one of minutes. A snapshot reads end offsets
and commits, rates and speeds are those since the snapshot before, and the product's functions make the record
of loads. Real lag is what no consumer has processed, whatever is committed or published.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
from kafka import KafkaProducer

from assignor_core.algorithms.present_loads import present_loads
from assignor_core.loads import LoadsPayload, encode_loads, loads_key
from assignor_core.objective import Load
from evenlag.publishing.loads import keep_material_flow, material_change, moved_share
from evenlag.publishing.scaled_loads import Measured, scale_measured
from tests.bench.field.contenders.published import record_flow
from tests.bench.living.scale_out import is_quiet, least_possible, owners, planned, zipf_loads
from tests.support.hints import Cluster, Runner, is_settled, now_ms
from tests.support.kafka_cluster import Cluster as Brokers
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

RESULTS: Final = Path(__file__).resolve().parents[3] / "docs" / "bench" / "draining.json"
MODES: Final = ("published loads", "present loads", "present loads, a cycle each minute")
_FROM, _TO = 4, 8
_SPEED: Final = 20.0
_BACKLOG: Final = 4_800
# Of what the first members can process.
_ARRIVING: Final = 0.6
_JOIN_EVERY_S, _CYCLE_S = 12.0, 60.0
_BEFORE_HINT_S: Final = 12.0
# The first cycle after the hint, by seed.
_FIRST_CYCLES_S: Final = (18.0, 30.0, 42.0, 6.0)
_VALUE: Final = b"x" * 100


class Traffic:
    """A backlog and arrivals of a topic, and which records are processed.

    produced, done: int64 [P].
    """

    def __init__(self, cluster: Cluster, backlog: NDArray[np.int64], rate: NDArray[np.float64]) -> None:
        (self.topic,) = cluster.topics
        self.produced = np.zeros(len(backlog), dtype=np.int64)
        self.done = np.zeros(len(backlog), dtype=np.int64)
        self._backlog, self._rate = backlog, rate
        self._producer = KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, linger_ms=20, batch_size=400
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Produce the backlog, and begin with arrivals."""
        self._send(self._backlog)
        self._producer.flush(timeout=60)
        self._thread.start()

    def close(self) -> None:
        """End the arrivals."""
        self._stop.set()
        self._thread.join(60)
        self._producer.close()

    @property
    def lag(self) -> NDArray[np.int64]:
        """What nobody has processed yet."""
        return self.produced - self.done

    def _run(self) -> None:
        started_s = time.monotonic()
        while not self._stop.wait(0.2):
            due = self._backlog + np.floor(self._rate * (time.monotonic() - started_s)).astype(np.int64)
            self._send(due - self.produced)

    def _send(self, number: NDArray[np.int64]) -> None:
        for partition in np.repeat(np.arange(len(number)), number).tolist():
            self._producer.send(self.topic, value=_VALUE, partition=partition)
        self.produced += number


class Worker(Runner):
    """A consumer that needs a time for each record."""

    def __init__(self, cluster: Cluster, traffic: Traffic) -> None:
        self._traffic = traffic
        self._due_s = time.monotonic()
        super().__init__(
            cluster,
            auto_commit_interval_ms=1_000,
            max_poll_records=5,
            max_partition_fetch_bytes=400,
            poll_ms=50,
        )

    def take(self, batch: Sequence[Any]) -> None:
        for record in batch:
            # On a busy machine a turn may come late: up to half a second is caught up.
            self._due_s = max(self._due_s + 1 / _SPEED, time.monotonic() - 0.5)
            time.sleep(max(0.0, self._due_s - time.monotonic()))
            done = self._traffic.done
            done[record.partition] = max(done[record.partition], record.offset + 1)


class Snapshot(NamedTuple):
    """What a cycle reads: when, end offsets, commits, and the owner of each partition by member key."""

    at_s: float
    end: NDArray[np.int64]
    committed: NDArray[np.int64]
    owner: dict[int, str]


class Group:
    """A group under test, and the pipeline that publishes its loads."""

    def __init__(self, cluster: Cluster, traffic: Traffic, mode: str) -> None:
        self.cluster, self.traffic, self.mode = cluster, traffic, mode
        self.runners: list[Worker] = []
        self.published: LoadsPayload | None = None
        self._last: Snapshot | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Start one more member."""
        self.runners.append(Worker(self.cluster, self.traffic))
        self._stack.callback(self.runners[-1].close)

    @property
    def size(self) -> int:
        """Number of partitions."""
        return len(self.traffic.done)

    def wait_until_quiet(self) -> None:
        """Wait until all partitions are owned and nobody asks for another rebalance."""
        wait_until(lambda: is_quiet(self.runners, self.size))

    def follow(self, lag: Sequence[int]) -> None:
        """Publish the hint that the planner makes of a lag, and wait until it is followed."""
        topic = self.traffic.topic
        held = {r.key: [number for _, number in r.held] for r in self.runners}
        placement = planned(topic, held, lag, count_slack=0)
        self.cluster.publish(self.cluster.payload(placement, count_slack=0, max_moves=1_000))
        wait_until(lambda: all({n for _, n in r.held} == set(placement[r.key][topic]) for r in self.runners))

    def snapshot(self) -> Snapshot:
        """Read what a cycle reads."""
        committed = np.zeros(self.size, dtype=np.int64)
        found = self.cluster.admin.list_group_offsets(self.cluster.group_id)
        for partition, offset in found[self.cluster.group_id].items():
            committed[partition.partition] = max(0, offset.offset)
        return Snapshot(time.monotonic(), self.traffic.produced.copy(), committed, owners(self.runners))

    def cycle(self) -> NDArray[np.int64]:
        """Publish the loads of a snapshot if they differ from the published ones; return its lag."""
        last, seen = self._last, self.snapshot()
        self._last = seen
        lag = (seen.end - seen.committed).clip(min=0)
        if last is None:
            return lag
        payload = self._payload(last, seen, lag)
        if self.published is None or material_change(self.published, payload, now_ms()):
            record = encode_loads(payload.encode())
            self.cluster.send(
                loads_key(self.cluster.group_id), record, partition=self.cluster.hint_partition()
            )
            self.published = payload
        return lag

    def _payload(self, last: Snapshot, seen: Snapshot, lag: NDArray[np.int64]) -> LoadsPayload:
        (topic_id,) = self.cluster.topic_ids().values()
        passed_s = seen.at_s - last.at_s
        keys = sorted(set(seen.owner.values()))
        owner = np.array([keys.index(seen.owner[number]) for number in range(self.size)])
        consumed = (seen.committed - last.committed).clip(min=0) / passed_s
        measured = Measured(
            lag=lag,
            arrival_rate=(seen.end - last.end) / passed_s,
            owner=owner,
            speed=np.bincount(owner, consumed, minlength=len(keys)).astype(np.float64),
            cost=np.ones(self.size),
        )
        load, flow = scale_measured(Load.LAG, measured)
        at_ms = now_ms() - round(1000 * (time.monotonic() - seen.at_s))
        payload = LoadsPayload(
            cluster_id=self.cluster.cluster_id,
            group_id=self.cluster.group_id,
            snapshot_id=f"at {at_ms}",
            measured_at_ms=at_ms,
            valid_until_ms=at_ms + 1_800_000,
            loads={topic_id: load.tolist()},
            capacities={},
            default_capacity=1,
            count_slack=0,
            max_moves=1_000,
            flow=None if flow is None or self.mode == MODES[0] else record_flow(flow, topic_id),
        )
        return keep_material_flow(payload)


def scale_out(brokers: Brokers, seed: int, mode: str) -> list[dict[str, Any]]:
    """Scale a group from 4 to 8 while its backlog drains; a row for each join.

    Returns ``members``; ``largest``: the largest real lag of a member by the least that is possible;
    ``left``: the real lag as a share of the backlog; ``age_s`` of the loads on the topic, and the share of
    the real lag that is ``elsewhere`` than a leader has it by them.
    """
    chance = np.random.default_rng([114, seed])
    weights = np.array(zipf_loads(seed), dtype=np.float64)
    backlog = np.rint(weights / weights.sum() * _BACKLOG).astype(np.int64)
    arriving = chance.permutation(weights ** chance.uniform(0.0, 1.0))
    rate = arriving / arriving.sum() * _ARRIVING * _FROM * _SPEED
    name = f"draining-{seed}-{now_ms()}"
    with (
        Cluster(
            brokers, group_id=name, topics={f"orders-{name}": len(backlog)}, hint_topic=f"hints-{name}"
        ) as cluster,
        ExitStack() as stack,
    ):
        traffic = Traffic(cluster, backlog, rate)
        stack.callback(traffic.close)
        group = stack.enter_context(Group(cluster, traffic, mode))
        for _ in range(_FROM):
            group.start()
        wait_until(lambda: is_settled(group.runners, group.size))
        group.follow(backlog.tolist())
        traffic.start()
        group.cycle()
        time.sleep(_BEFORE_HINT_S)
        group.follow(group.cycle().tolist())
        hinted_s = time.monotonic()
        cycles_s = hinted_s + _FIRST_CYCLES_S[seed % len(_FIRST_CYCLES_S)]
        rows = []
        for number in range(_TO - _FROM):
            joins_s = hinted_s + (1 + number) * _JOIN_EVERY_S
            if mode == MODES[2] and cycles_s < joins_s:
                time.sleep(max(0.0, cycles_s - time.monotonic()))
                group.cycle()
                cycles_s += _CYCLE_S
            time.sleep(max(0.0, joins_s - time.monotonic()))
            group.start()
            group.wait_until_quiet()
            rows.append(_row(group))
        return rows


def _row(group: Group) -> dict[str, Any]:
    lag, owner = group.traffic.lag, owners(group.runners)
    by_member = [sum(int(lag[number]) for number, of in owner.items() if of == r.key) for r in group.runners]
    assert group.published is not None
    (present,) = present_loads(group.published, now_ms()).loads.values()
    return {
        "members": len(group.runners),
        "largest": round(max(by_member) / least_possible(lag.tolist(), len(group.runners), 0), 4),
        "left": round(float(lag.sum()) / _BACKLOG, 3),
        "age_s": round((now_ms() - group.published.measured_at_ms) / 1000, 1),
        "elsewhere": round(moved_share({"": lag.tolist()}, {"": present}), 3),
    }


def summarize(runs: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """Return the figures of several seeds, by join."""
    largest = np.array([[row["largest"] for row in run] for run in runs])
    return {
        "seeds": len(runs),
        "mean": np.round(largest.mean(axis=0), 3).tolist(),
        "max": np.round(largest.max(axis=0), 3).tolist(),
        "runs": [[row["largest"] for row in run] for run in runs],
        **{
            name: np.round(np.mean([[row[name] for row in run] for run in runs], axis=0), 2).tolist()
            for name in ("left", "age_s", "elsewhere")
        },
    }


def main(argv: list[str]) -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="tests.bench.living.draining", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    runs: dict[str, list[list[dict[str, Any]]]] = {mode: [] for mode in MODES}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        brokers = Brokers.start(Path(folder) / "nodes")
        try:
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
                for mode in MODES:
                    runs[mode].append(scale_out(brokers, seed, mode))
                    sys.stderr.write(f"{time.strftime('%X')} seed {seed}, {mode}: {runs[mode][-1]}\n")
        finally:
            brokers.kill()
    results: dict[str, Any] = {
        "brokers": 3,
        "records_per_s_of_a_member": _SPEED,
        "backlog": _BACKLOG,
        "arriving": _ARRIVING,
        "load_average": [round(load, 1), round(os.getloadavg()[0], 1)],
        **{mode: summarize(of_mode) for mode, of_mode in runs.items()},
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
