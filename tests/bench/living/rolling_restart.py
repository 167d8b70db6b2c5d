"""How many rebalances a rolling restart of dynamic pods costs, with and without a hint, on a real broker.

``python -m tests.bench.living.rolling_restart [--pods N] [--runs N]`` merges its figures into
``docs/bench/scale_out.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenlag.enums import GroupType
from evenlag.kafka.live_groups import read_live_groups
from sandbox.kafka.broker import Broker
from sandbox.workload.journal import read_journal
from tests.bench.living.scale_out import RESULTS, planned, publish_loads, zipf_loads
from tests.support.faulty_workload import FaultyWorkload
from tests.support.hints import Cluster, now_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

PODS = 10
# Whoever still asks for another rebalance does so within three heartbeats.
_QUIET_S = 2.5


def rolling_restart(
    broker: Broker, directory: Path, seed: int, *, is_hinted: bool, pods: int = PODS
) -> dict[str, Any]:
    """Restart all pods one after the other; each is a process, and comes back as another member.

    Returns ``rebalances`` that a leader led, from the first stop until the group is quiet; ``asked``: how
    often members requested one for a hint or for balance; ``seconds``.
    """
    loads = zipf_loads(seed)
    name = f"rolling-{seed}-{'hinted' if is_hinted else 'plain'}-{now_ms()}"
    client = {"bootstrap_servers": broker.bootstrap_servers}
    settings = {"heartbeat_interval_ms": 500, "session_timeout_ms": 30_000}
    workload = FaultyWorkload(
        client, directory / name, topic=name, num_partitions=len(loads), group_id=name,
        hint_topic=f"hints-{name}", consumer=settings,
    )  # fmt: skip
    with (
        workload,
        Cluster(
            broker, group_id=name, topics={name: len(loads)}, hint_topic=f"hints-{name}", make_topics=False
        ) as cluster,
    ):
        workload.start_consumers(pods)
        _wait_until_quiet(workload)
        if is_hinted:
            _follow_a_hint(workload, cluster, loads)
        before, started = _count_events(workload), time.monotonic()
        for number, old in enumerate(workload.consumers, pods):
            workload.stop_process(old)
            _wait_until_quiet(workload)
            workload.start_consumer(f"consumer-{number}")
            _wait_until_quiet(workload)
        counted = _count_events(workload) - before
        return {
            "rebalances": counted["led"],
            "asked": counted["ASKED"],
            "seconds": round(time.monotonic() - started),
        }


def _follow_a_hint(workload: FaultyWorkload, cluster: Cluster, loads: Sequence[int]) -> None:
    live = read_live_groups(cluster.admin, {cluster.group_id: GroupType.CLASSIC})[cluster.group_id]
    ((topic, topic_id, _),) = live.topics
    held = {key: by_topic.get(topic_id, []) for key, by_topic in live.held.items()}
    placement = planned(topic, held, loads, count_slack=0)
    publish_loads(cluster, loads, count_slack=0, max_moves=1_000)
    cluster.publish(cluster.payload(placement, count_slack=0, max_moves=1_000))
    wanted = sorted(sorted(by_topic[topic]) for by_topic in placement.values())
    workload.wait_until_owned(condition=lambda owners: sorted(map(sorted, owners.values())) == wanted)
    _wait_until_quiet(workload)


def _count_events(workload: FaultyWorkload) -> Counter[str]:
    return Counter(
        str(event["reason"] if event["event"] == "hint" else event["event"])
        for path in workload.journals
        for event in read_journal(path)[0]
    )


def _wait_until_quiet(workload: FaultyWorkload) -> None:
    """Wait until every partition has an owner, and nobody has led a rebalance for some heartbeats."""
    while True:
        workload.wait_until_owned()
        led = _count_events(workload)["led"]
        time.sleep(_QUIET_S)
        if _count_events(workload)["led"] == led:
            return


def compare(broker: Broker, directory: Path, runs: int, *, pods: int = PODS) -> dict[str, Any]:
    """Return the medians of several runs with and without a hint, in turn."""
    rows: dict[str, list[dict[str, Any]]] = {"hinted": [], "without a hint": []}
    for seed in range(runs):
        for name, found in rows.items():
            found.append(rolling_restart(broker, directory, seed, is_hinted=name == "hinted", pods=pods))
            sys.stderr.write(f"seed {seed}, {name}: {found[-1]}\n")
    return {"pods": pods, "runs": runs} | {name: _summarize(found) for name, found in rows.items()}


def _summarize(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    figures: dict[str, Any] = {
        f"{key}_median": statistics.median(row[key] for row in rows) for key in rows[0]
    }
    return figures | {"rebalances": [row["rebalances"] for row in rows]}


def main(argv: list[str]) -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="tests.bench.living.rolling_restart", description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "node") as broker:
        figures = compare(broker, Path(folder) / "journals", arguments.runs, pods=arguments.pods)
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    results["rolling_restart"] = figures
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
