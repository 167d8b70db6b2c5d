"""What is timed, against whom, and how long the others may take."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from assignor_core.assignors import get_assignor
from tests.bench.support.cases import equal, five_buckets, incremental, one_odd, overlapping

if TYPE_CHECKING:
    from collections.abc import Callable

    from assignor_core.group import Group

__all__ = ["Case", "all_cases", "find_case"]


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the results.

    name: What it is, fit for a file name.
    build: Makes the group; not timed.
    assignor, rival: Ours, and the oracle's name for Kafka's (or for the heap in Java).
    budget_s: How long one ask of Kafka's, warm-up and all, may take; 0: it is not asked.
    kafka_python_s: The same for kafka-python's; 0: it is not asked.
    runs: How often Kafka's is run; the best run counts, so the others warm it up.
    """

    name: str
    build: Callable[[], Group]
    assignor: str = "cooperative-sticky"
    rival: str = "cooperative-sticky"
    budget_s: float = 25.0
    kafka_python_s: float = 0.0
    runs: int = 5


def all_cases() -> list[Case]:
    """Return the cases, the short ones first."""
    grid = []
    for members, share, kind in product((100, 1_000, 10_000), (5, 10, 50), ("equal", "unequal")):
        for start in ("fresh", "incremental"):
            name = f"jmh-{kind}-{members}x{share}-{start}"
            slow = kind == "unequal" and start == "incremental" and members * share >= 50_000
            # A JVM needs many runs to warm up, and what takes milliseconds can have them.
            runs = 200 if members * share <= 10_000 else 5
            budget_s = 8.0 if slow else 20.0
            grid.append(Case(name, _jmh(members, share, kind, start), budget_s=budget_s, runs=runs))
    large = [
        Case("equal-1000000x2000-fresh", lambda: equal(2000, 500, 2000), budget_s=40, runs=4),
        Case("equal-1000000x2000-incremental", lambda: _joined(equal(2000, 500, 2000)), budget_s=60, runs=4),
        Case("one-odd-1000000x2000-fresh", lambda: one_odd(2000, 500, 2000), budget_s=60, runs=3),
        Case(
            "one-odd-1000000x2000-incremental", lambda: _joined(one_odd(2000, 500, 2000)), budget_s=60, runs=3
        ),
        Case("kip615-2100x2100-fresh", lambda: equal(2100, 1, 2100), runs=200),
        Case("kip615-2100x2100-incremental", lambda: _joined(equal(2100, 1, 2100)), runs=200),
        Case("jmh-unequal-500x50-incremental", _jmh(500, 50, "unequal", "incremental"), budget_s=150, runs=1),
        Case("overlap-100x5000-incremental", lambda: _joined(overlapping(100, 100, 50)), budget_s=60, runs=1),
        Case(
            "overlap-500x25000-incremental", lambda: _joined(overlapping(500, 100, 250)), budget_s=60, runs=1
        ),
        Case("overlap-2000x1000000-fresh", lambda: overlapping(2000, 500, 2000, density=0.1), budget_s=0),
        Case(
            "overlap-2000x1000000-incremental",
            lambda: _joined(overlapping(2000, 500, 2000, density=0.1)),
            budget_s=0,
        ),
    ]
    lag = [
        _lag_case("lag-aware-2000x1topicx1000000", 2000, 1, 1_000_000),
        _lag_case("lag-aware-2000x500topicsx2000", 2000, 500, 2000),
        _lag_case("lag-aware-10x1topicx1000000", 10, 1, 1_000_000),
        _lag_case("lag-aware-100x20000topicsx10", 100, 20_000, 10),
    ]
    python = [
        Case("python-1000x20-incremental", lambda: _joined(equal(20, 10, 100)), kafka_python_s=60),
        Case("python-10000x100-incremental", lambda: _joined(equal(100, 100, 100)), kafka_python_s=120),
        Case("python-10000x100-unequal", lambda: _joined(five_buckets(100, 100, 100)), kafka_python_s=60),
    ]
    return [*grid, *lag, *large, *python]


def find_case(name: str) -> Case:
    """Return the case of that name."""
    return next(case for case in all_cases() if case.name == name)


def _jmh(members: int, share: int, kind: str, start: str) -> Callable[[], Group]:
    make = equal if kind == "equal" else five_buckets

    def build() -> Group:
        # 100 topics throughout, as in Kafka's grid; with few members their partitions are few.
        group = make(members, 100, members * share // 100)
        return group if start == "fresh" else _joined(group)

    return build


def _joined(group: Group) -> Group:
    return incremental(group, get_assignor("cooperative-sticky").assign(group))


def _lag_case(name: str, members: int, topics: int, partitions: int) -> Case:
    return Case(
        name,
        lambda: equal(members, topics, partitions, zipf_lags=True),
        assignor="lag-aware",
        rival="lag-heap",
        budget_s=60,
    )
