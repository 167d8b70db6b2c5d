"""Processor time of what has a limit: ``python -m tests.bench.limits``; status 1 when something exceeds it.

Seconds of this machine, so no test asserts them.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from assignor_core.algorithms.place_by_load import place_by_load
from assignor_core.assignors import get_assignor
from assignor_core.group import Group
from assignor_core.loads import LoadsPayload
from tests.bench.support.cases import equal, incremental, one_odd, overlapping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
_POLICY: Final = "lake: /none\nclusters:\n  a: {bootstrap_servers: b:9092}\n"
_TOPIC: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
# As in a DAG processor: each file is parsed by a fork of one process that has loaded Airflow.
_PARSE: Final = """
import os, runpy, sys, time
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, BaseHook, CronDataIntervalTimetable, get_current_context, task
for path in sys.argv[1:]:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, path
        continue
    started = time.process_time()
    runpy.run_path(path)
    print(os.path.basename(path), time.process_time() - started, flush=True)
    os._exit(0)
"""


def _of_children(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _of(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def _parsed() -> Iterator[tuple[str, float]]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as policy:
        policy.write(_POLICY)
        policy.flush()
        files = [str(path) for path in sorted((ROOT / "dags").glob("[!_]*.py"))]
        done = subprocess.run(
            [sys.executable, "-c", _PARSE, *files],
            env=os.environ | {"EVENLAG_CONFIG": policy.name, "PYTHONPATH": str(ROOT)},
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    for line in done.splitlines():
        name, seconds = line.split()
        yield f"parse {name}", float(seconds)


def _joins() -> Iterator[tuple[str, float]]:
    """One member more than 200 that own 100,000 partitions."""
    groups = {
        "equal": equal(200, 50, 2000, zipf_lags=True),
        "one odd": one_odd(200, 50, 2000),
        "overlapping": overlapping(200, 50, 2000, density=0.1),
    }
    assignor = get_assignor("cooperative-sticky")
    for kind, group in groups.items():
        after = incremental(group, assignor.assign(group))
        yield f"a member joins, {kind}", _of(lambda after=after: assignor.assign(after))  # type: ignore[misc]


def _placed() -> Iterator[tuple[str, float]]:
    """10,000 partitions of very different loads, which are all free, or owned by all but one member."""
    ranks = np.arange(1, 10_001)
    load = (np.random.default_rng(7).permutation(1e9 / ranks**0.8)).astype(int).tolist()
    loads = LoadsPayload("cluster", "group", "s", 0, 1, {_TOPIC: load}, {}, 100, 0, 1000)
    for num_members in (100, 1000):
        for kind, rows in (("free", ranks[:0]), ("owned", ranks - 1)):
            group = Group.from_arrays(
                topics=["t"],
                num_partitions=np.array([10_000]),
                member_ids=[f"m{number:04}" for number in range(num_members)],
                subscriptions=(np.arange(num_members), np.zeros(num_members, dtype=np.int64)),
                claims=(rows, rows % (num_members - 1), np.full(len(rows), 5)),
            )
            seconds = _of(lambda group=group: place_by_load(group, {"t": _TOPIC}, loads))  # type: ignore[misc]
            yield f"place by load, {kind}, {num_members} members", seconds


def _help() -> Iterator[tuple[str, float]]:
    yield "evenlag --help", min(_of_children([sys.executable, "-m", "evenlag", "--help"]) for _ in range(3))


_LIMITS: Final[Mapping[Callable[[], Iterator[tuple[str, float]]], float]] = {
    _help: 0.7, _parsed: 1.5, _joins: 5.0, _placed: 6.0,
}  # fmt: skip


def main() -> int:
    """Print each figure beside its limit."""
    is_over = False
    for measure, limit_s in _LIMITS.items():
        for name, seconds in measure():
            is_over |= seconds > limit_s
            sys.stdout.write(f"{name:45} {seconds:6.2f} s of {limit_s:.1f}\n")
    return int(is_over)


if __name__ == "__main__":
    raise SystemExit(main())
