"""How even and how still: lag-aware-sticky beside its rivals, on lags as they occur.

``python -m tests.bench.quality`` writes ``docs/bench/quality.json``: for small groups the distance of the
largest load to an integer program's optimum, for larger ones moves and skew beside `lag-aware` and
`cooperative-sticky`, each at several limits of moves.
"""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from assignor_core.assignors import get_assignor
from assignor_core.assignors.lag_aware_sticky import LagAwareStickyAssignor
from assignor_core.metrics import count_moves, measure
from tests.assignor_core.assignors.test_lag_aware_sticky import least_max_lag, skewed

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "quality.json"
KINDS = ("zipf", "hot topic", "slow member", "uniform", "idle")


def distances_to_optimum() -> dict[str, Any]:
    """Return, by kind and limit, how far the largest load is above the least possible: mean and worst."""
    rows: dict[str, Any] = {}
    for kind, max_moves in product(KINDS[:-1], (1, 2, 4, 8, 30)):
        found = []
        for seed, (members, partitions) in enumerate([(2, 12), (3, 14), (4, 16), (5, 18), (4, 24), (3, 20)]):
            group = skewed(kind, members, partitions, 100 + seed)
            plan = LagAwareStickyAssignor(max_moves=max_moves, count_slack=1).plan(group)
            found.append(plan.max_ratio / least_max_lag(group, max_moves, 1) - 1)
        rows[f"{kind}, {max_moves} moves"] = {"mean": float(np.mean(found)), "worst": float(max(found))}
    return rows


def beside_rivals() -> dict[str, Any]:
    """Return, by kind and size, moves and skew of all three."""
    rows: dict[str, Any] = {}
    for kind, (members, partitions) in product(KINDS, [(8, 40), (20, 400), (50, 2000)]):
        group = skewed(kind, members, partitions, 7)
        row: dict[str, Any] = {"before": {"moves": 0, "skew": measure(group, group.owner).lag_skew}}
        for name in ("lag-aware", "cooperative-sticky"):
            assignment = get_assignor(name).assign(group)
            row[name] = {"moves": count_moves(group, assignment), "skew": measure(group, assignment).lag_skew}
        limits = sorted({2, 5, row["lag-aware"]["moves"] // 10, row["lag-aware"]["moves"] // 5})
        for limit in limits:
            start = perf_counter()
            plan = LagAwareStickyAssignor(max_moves=limit).plan(group)
            row[f"lag-aware-sticky, {limit}"] = {
                "moves": plan.moves,
                "skew": measure(group, plan.assignment).lag_skew,
                "above_bound": plan.optimality_gap,
                "plan_s": perf_counter() - start,
            }
        rows[f"{kind}, {members} x {partitions}"] = row
    return rows


def main() -> None:
    """Measure and write."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    results = {"to_optimum": distances_to_optimum(), "rivals": beside_rivals()}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    sys.stdout.write(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
