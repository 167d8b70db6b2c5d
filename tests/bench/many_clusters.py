"""Cycles of many clusters in one process: CPU seconds of a cycle, and how late cycles begin.

``python -m tests.bench.many_clusters [--even] [--clusters N] [--groups N] [--minutes N]`` starts one broker,
with groups of the classic protocol and records that arrive unevenly (``--even``: groups without lag and no
more records, so that no group is planned), and a policy that has the broker as many clusters, each with a
hint topic of its own. Then it runs ``evenlag run --watch --publish`` with a cycle a minute of each cluster,
and reads what the command prints. Nobody follows the hints, and no cycle waits for that
(``temporary_member_after_s: null``). The first three minutes are left out. With the default sizes it writes
``docs/bench/many_clusters.json``, or ``many_even_clusters.json``.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sandbox.jars import OWN_KAFKA
from sandbox.kafka.broker import Broker
from sandbox.kafka.topic_admin import create_hint_topic
from tests.bench.planning import say
from tests.bench.support.classic_groups import BROKER_PROPERTIES, ClassicGroups, fill
from tests.bench.support.machine import this_machine
from tests.soak.probes import cpu_seconds, taken_by
from tests.support.many_clusters import write_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench"
_SIZE: Final = (30, 100, 10)
_PARTITIONS: Final = 10
_EVERY_S: Final = 60
# Before the figures: the session starts, and each cluster has its first cycle.
_WARM_UP_S: Final = 3 * _EVERY_S
_RECORDS_PER_S: Final = 200
_SHARES: Final = (50, 95, 100)


def produce(servers: str, topics: Sequence[str], stopping: threading.Event) -> None:
    """Send records to partitions of unequal rates."""
    from confluent_kafka import Producer

    producer, chance = Producer({"bootstrap.servers": servers}), np.random.default_rng(1)
    weights = 1 / np.arange(1, _PARTITIONS + 1)
    while not stopping.wait(1.0):
        for partition in chance.choice(_PARTITIONS, _RECORDS_PER_S, p=weights / weights.sum()).tolist():
            producer.produce(topics[int(chance.integers(len(topics)))], b"x", partition=partition)
        producer.poll(0)
    producer.flush(30)


def watch(policy: Path, minutes: int) -> dict[str, Any]:
    """Run the command for some minutes after its first cycles, and return the figures."""
    command = [sys.executable, "-m", "evenlag", "run", f"--config={policy}", "--publish", "--json"]
    cycles: list[dict[str, Any]] = []
    keep = cycles.append
    with subprocess.Popen([*command, "--watch", f"--every={_EVERY_S}"], stdout=subprocess.PIPE) as process:

        def read() -> None:
            for line in process.stdout or ():
                keep(json.loads(line))

        threading.Thread(target=read, daemon=True).start()
        try:
            time.sleep(_WARM_UP_S)
            cycles.clear()
            before = time.monotonic(), cpu_seconds(process.pid)
            peak_mib = 0.0
            for _ in range(minutes * 60):
                time.sleep(1)
                peak_mib = max(peak_mib, taken_by(process.pid, with_children=True).rss_mib)
                if process.poll() is not None:
                    sys.exit(f"the command ended with {process.returncode}")
            found = list(cycles)
            took_s, cpu_s = time.monotonic() - before[0], cpu_seconds(process.pid) - before[1]
        finally:
            process.send_signal(signal.SIGINT)
    failed = [cycle["error"] for cycle in found if "error" in cycle]
    say(f"{len(found)} cycles, {len(failed)} failed: {failed[:3]}")
    late_s = [
        (datetime.fromisoformat(each["started_at"]) - datetime.fromisoformat(each["slot"])).total_seconds()
        for each in found
    ]
    return {
        "seconds": round(took_s, 1),
        "cycles": len(found),
        "failed": len(failed),
        "cycles_per_cluster": sorted(set(Counter(row["cluster"] for row in found).values())),
        "plans": sum(each.get("decide", {}).get("plans", 0) for each in found),
        "published": sum(each.get("publish", {}).get("published", 0) for each in found),
        "cpu_s_per_cycle": round(cpu_s / max(1, len(found)), 2),
        "busy_cores": round(cpu_s / took_s, 2),
        "peak_mib": round(peak_mib),
        "late_s": _percentiles(late_s),
        "cycle_s": _percentiles([each["duration_s"] for each in found]),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    return {f"p{share}": round(float(np.percentile(values, share)), 2) for share in _SHARES}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(prog="tests.bench.many_clusters", description=__doc__)
    for name, default in zip(("clusters", "groups", "minutes"), _SIZE, strict=True):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--even", action="store_true", help="nothing to plan")
    size = parser.parse_args(argv)
    groups = ClassicGroups(size.groups, _PARTITIONS, 3, has_lag=not size.even)
    with (
        tempfile.TemporaryDirectory(prefix="evenlag-bench-") as name,
        Broker.start(Path(name) / "node", properties=BROKER_PROPERTIES) as broker,
    ):
        servers, stopping = broker.bootstrap_servers, threading.Event()
        fill(servers, groups)
        clusters = [f"cluster-{number:02}" for number in range(size.clusters)]
        for cluster in clusters:
            create_hint_topic({"bootstrap_servers": servers}, f"hints-{cluster}")
        policy = Path(name) / "evenlag.yaml"
        rules = [{"match": "*", "mode": "auto", "reset_policy": "earliest"}]
        write_policy(policy, f"{name}/lake", servers, clusters, rules)
        sending = threading.Thread(target=produce, args=(servers, groups.topics, stopping))
        if not size.even:
            sending.start()
        try:
            found = watch(policy, size.minutes)
        finally:
            stopping.set()
            if not size.even:
                sending.join()
    machine = this_machine("pyspark", "delta-spark", "deltalake", "kafka-python") | {"kafka": OWN_KAFKA}
    about = {"machine": machine, "at": datetime.now(UTC).date().isoformat(), "clusters": size.clusters}
    results = about | {"groups": size.groups, "rows": groups.rows, "every_s": _EVERY_S} | found
    text = json.dumps(results, indent=1) + "\n"
    sys.stdout.write(text)
    if (size.clusters, size.groups, size.minutes) == _SIZE:
        file = "many_even_clusters.json" if size.even else "many_clusters.json"
        (RESULTS / file).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
