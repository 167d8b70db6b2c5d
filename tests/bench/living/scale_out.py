"""A hinted group of 4 scales to 8 on a real broker: how even it is after each join, in how many generations.

``python -m tests.bench.living.scale_out [--seeds N] [--pause S]`` writes ``docs/bench/scale_out.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assignor_core.assignors.lag_aware_sticky import LagAwareStickyAssignor
from assignor_core.group import Group
from assignor_core.loads import LoadsPayload, encode_loads, loads_key
from assignor_core.members import Member
from evenlag.consumer import Reason
from sandbox.kafka.broker import Broker
from tests.support.hints import HOUR_MS, Cluster, Runner, is_settled, now_ms
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

RESULTS: Final = Path(__file__).resolve().parents[3] / "docs" / "bench" / "scale_out.json"
ALLOWED: Final = 1.15
_TOPIC = "orders"
_FROM, _TO = 4, 8
# Whoever still asks for another rebalance does so within a few heartbeats (300 ms each).
_QUIET_S = 1.5
_DECISIONS = frozenset({Reason.FOLLOWED, Reason.PLACED_BY_LOAD, Reason.COLD, Reason.NO_HINT, Reason.ASKED})


def zipf_loads(seed: int) -> list[int]:
    """Return the loads of a seed: 32 to 48 partitions with an exponent up to 0.8, in an order by chance."""
    chance = np.random.default_rng([4, seed])
    size, exponent = int(chance.choice((32, 40, 48))), float(chance.uniform(0.0, 0.8))
    loads = 100_000 * np.arange(1, size + 1) ** -exponent
    chance.shuffle(loads)
    return [round(load) for load in loads.tolist()]


def least_possible(loads: Sequence[int], num_members: int, count_slack: int) -> float:
    """Return a bound that no assignment of whole partitions within the slack is below.

    It is the mean; or what the owner of the heaviest partition has at least, with the lightest ones that its
    count requires beside it; or the two lightest of the heaviest M + 1.

    Examples
    --------
    >>> least_possible([6, 1, 1, 1], 2, 0), least_possible([6, 1, 1, 1], 2, 2)
    (7, 6)
    """
    size, heavy_first = len(loads), sorted(loads, reverse=True)
    # With one member at n, the others have n + 1 + slack at most.
    fewest = max(-(-(size - (num_members - 1) * (1 + count_slack)) // num_members), 0)
    alone = heavy_first[0] + sum(heavy_first[1:][::-1][: max(fewest - 1, 0)])
    pair = sum(heavy_first[num_members - 1 : num_members + 1]) if size > num_members else 0
    return max(sum(loads) / num_members, alone, pair)


def scale_out(
    broker: Broker, seed: int, *, count_slack: int = 0, pause_s: float = 0.0
) -> list[dict[str, Any]]:
    """Scale a group from 4 to 8; a row for each join.

    Returns ``members``; ``generations`` of the join; ``moves``; ``largest``: the largest published load of
    a member by the least that is possible; ``counts`` of partitions; ``reasons`` of the leader's decisions.
    """
    loads = zipf_loads(seed)
    name = f"scale-out-{seed}-{count_slack}-{now_ms()}"
    with (
        Cluster(
            broker, group_id=name, topics={f"{_TOPIC}-{name}": len(loads)}, hint_topic=f"hints-{name}"
        ) as cluster,
        ExitStack() as stack,
    ):
        runners: list[Runner] = []

        def start() -> None:
            runners.append(Runner(cluster))
            stack.callback(runners[-1].close)

        for _ in range(_FROM):
            start()
        wait_until(lambda: is_settled(runners, len(loads)))
        _follow_a_hint(cluster, runners, loads, count_slack)
        rows = []
        while len(runners) < _TO:
            time.sleep(pause_s)
            before, held = runners[0].generation, owners(runners)
            recorded = {r.key: len(r.events) for r in runners}
            start()
            wait_until(lambda: is_quiet(runners, len(loads)))
            now = owners(runners)
            by_member = [sum(loads[p] for p, owner in now.items() if owner == r.key) for r in runners]
            rows.append(
                {
                    "members": len(runners),
                    "generations": runners[0].generation - before,
                    "moves": sum(held[p] != now[p] for p in held),
                    "largest": round(max(by_member) / least_possible(loads, len(runners), count_slack), 4),
                    "counts": [len(r.held) for r in runners],
                    "reasons": [
                        event.reason.value
                        for r in runners
                        for event in r.events[recorded.get(r.key, 0) :]
                        if event.reason in _DECISIONS
                    ],
                }
            )
        return rows


def publish_loads(
    cluster: Cluster,
    loads: Sequence[int],
    *,
    count_slack: int,
    max_moves: int,
    key: bytes | None = None,
    member_ids: Sequence[str] | None = None,
) -> None:
    """Publish loads of the partitions of the cluster's only topic, valid for an hour."""
    (topic_id,) = cluster.topic_ids().values()
    payload = LoadsPayload(
        cluster_id=cluster.cluster_id,
        group_id=cluster.group_id,
        snapshot_id="snapshot",
        measured_at_ms=now_ms(),
        valid_until_ms=now_ms() + HOUR_MS,
        loads={topic_id: list(loads)},
        capacities={},
        default_capacity=1,
        count_slack=count_slack,
        max_moves=max_moves,
        member_ids=member_ids,
    )
    record = encode_loads(payload.encode(), group_key=key)
    cluster.send(loads_key(cluster.group_id), record, partition=cluster.hint_partition())


def planned(
    topic: str, held: Mapping[str, Sequence[int]], loads: Sequence[int], *, count_slack: int
) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return what the planner of the pipeline gives the members, by key and topic."""
    members = [
        Member(key, (topic,), owned=tuple((topic, number) for number in numbers), generation=1)
        for key, numbers in held.items()
    ]
    group = Group.from_members({topic: len(loads)}, members)
    plan = LagAwareStickyAssignor(count_slack=count_slack).plan(group, load=np.array(loads, dtype=float))
    return {
        key: {topic: tuple(number for _, number in pairs)}
        for key, pairs in group.to_mapping(plan.assignment).items()
    }


def _follow_a_hint(cluster: Cluster, runners: list[Runner], loads: Sequence[int], count_slack: int) -> None:
    """Publish the loads and the hint of the pipeline's planner, and wait until it is followed."""
    (topic,) = cluster.topics
    held = {r.key: [number for _, number in r.held] for r in runners}
    placement = planned(topic, held, loads, count_slack=count_slack)
    publish_loads(cluster, loads, count_slack=count_slack, max_moves=1_000)
    cluster.publish(cluster.payload(placement, count_slack=count_slack, max_moves=1_000))
    wait_until(lambda: all({n for _, n in r.held} == set(placement[r.key][topic]) for r in runners))
    wait_until(lambda: all(r.consumer.hint_cache.view.loads is not None for r in runners))
    wait_until(lambda: is_quiet(runners, len(loads)))


def owners(runners: Sequence[Runner]) -> dict[int, str]:
    return {number: r.key for r in runners for _, number in r.held}


def is_quiet(runners: Sequence[Runner], num_partitions: int) -> bool:
    """Whether the group is settled, and nobody asks for another rebalance for a while."""
    if not is_settled(runners, num_partitions):
        return False
    generation = runners[0].generation
    time.sleep(_QUIET_S)
    return is_settled(runners, num_partitions) and runners[0].generation == generation


def summarize(runs: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """Return the figures of several seeds."""
    rows: list[dict[str, Any]] = [row for run in runs for row in run]
    largest: NDArray[np.float64] = np.array([row["largest"] for row in rows])
    return {
        "seeds": len(runs),
        "seeds_within": sum(all(row["largest"] <= ALLOWED for row in run) for run in runs),
        "allowed": ALLOWED,
        "largest_mean": round(float(largest.mean()), 4),
        "largest_max": round(float(largest.max()), 4),
        "generations_median": statistics.median(row["generations"] for row in rows),
        "generations": {
            str(n): sum(row["generations"] == n for row in rows)
            for n in sorted({row["generations"] for row in rows})
        },
        "moves_a_join": round(statistics.mean(row["moves"] for row in rows), 1),
    }


def main(argv: list[str]) -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="tests.bench.living.scale_out", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two joins")
    arguments = parser.parse_args(argv)
    runs = []
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "node") as broker:
        for seed in range(arguments.seeds):
            runs.append(scale_out(broker, seed, pause_s=arguments.pause))
            sys.stderr.write(f"seed {seed}: {runs[-1]}\n")
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    results["classic"] = summarize(runs)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
