"""How many generations a large group takes to settle a hint: fifty consumer processes, as in production.

``python -m tests.bench.settling [--members N] [--hints N]`` merges its figures into
``docs/bench/hints.json``. Every hint deals all partitions again at random, so that nearly all of them move.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.kafka.broker import Broker
from sandbox.workload.journal import read_journal
from tests.bench.hints import RESULTS
from tests.support.faulty_workload import FaultyWorkload
from tests.support.hints import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

_PARTITIONS_PER_MEMBER = 2
_TIMEOUT_S = 60.0
# Whoever still asks for another rebalance does so within a few heartbeats.
_AFTERWARDS_S = 3.0


def measure(broker: Broker, directory: Path, *, num_members: int, num_hints: int) -> list[dict[str, Any]]:
    """Publish hints one after the other; a row for each.

    Returns ``generations``: from the publishing until some seconds after all hold what the hint gives them;
    ``seconds``: until they hold it; ``moves``.
    """
    chance = random.Random(5)  # noqa: S311  # repeatable, no secret
    num_partitions = _PARTITIONS_PER_MEMBER * num_members
    client = {"bootstrap_servers": broker.bootstrap_servers}
    settings = {"heartbeat_interval_ms": 1000, "session_timeout_ms": 30_000, "hint_topic": "settling-hints"}
    workload = FaultyWorkload(
        client, directory, topic="settling", num_partitions=num_partitions, group_id="settling",
        hint_topic="settling-hints", consumer=settings,
    )  # fmt: skip
    with (
        workload,
        Cluster(
            broker, group_id="settling", topics={"settling": num_partitions}, hint_topic="settling-hints",
            make_topics=False,
        ) as cluster,
    ):  # fmt: skip
        names = workload.start_consumers(num_members, is_static=True)
        held = workload.wait_until_owned(timeout_s=3 * _TIMEOUT_S)
        time.sleep(_AFTERWARDS_S)
        rows = []
        for _ in range(num_hints):
            wanted: dict[str, set[int]] = {name: set() for name in names}
            for number in range(num_partitions):
                wanted[chance.choice(names)].add(number)
            rows.append({"moves": sum(len(wanted[name] - held[name]) for name in names)})
            rows[-1] |= _settle(workload, cluster, wanted)
            held = wanted
        return rows


def _settle(workload: FaultyWorkload, cluster: Cluster, wanted: dict[str, set[int]]) -> dict[str, Any]:
    before = _newest_generation(workload.journals)
    placement = {f"i:{name}": {"settling": tuple(sorted(numbers))} for name, numbers in wanted.items()}
    cluster.publish(cluster.payload(placement, count_slack=10_000, max_moves=10_000))
    started = time.monotonic()
    while workload.owners() != wanted:
        workload.check()
        if time.monotonic() - started > _TIMEOUT_S:
            raise TimeoutError(f"the group is not on the hint after {_TIMEOUT_S:.0f} s")
        time.sleep(0.05)
    seconds = time.monotonic() - started
    time.sleep(_AFTERWARDS_S)
    return {"generations": _newest_generation(workload.journals) - before, "seconds": round(seconds, 2)}


def _newest_generation(journals: Sequence[Path]) -> int:
    return max(
        int(event["generation"])
        for path in journals
        for event in read_journal(path)[0]
        if event["event"] in {"assigned", "revoked"}
    )


def main(argv: list[str]) -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="tests.bench.settling", description=__doc__)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--hints", type=int, default=11)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "node") as broker:
        rows = measure(
            broker, Path(folder) / "journals", num_members=arguments.members, num_hints=arguments.hints
        )
    generations = [row["generations"] for row in rows]
    figures = {
        "members": arguments.members,
        "hints": len(rows),
        "moves_mean": round(statistics.mean(row["moves"] for row in rows), 1),
        "generations_median": statistics.median(generations),
        "generations": {str(key): count for key, count in sorted(Counter(generations).items())},
        "seconds_median": round(statistics.median(row["seconds"] for row in rows), 2),
    }
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    results[f"settling_{arguments.members}_processes"] = figures
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
