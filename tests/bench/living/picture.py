"""The picture of the days: mean and 95th percentile of the largest load, and one day minute by minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["draw"]

_COLOURS = {
    "cooperative-sticky": "#999999",
    "today's hints": "#d55e00",
    "living hints, 1 min": "#56b4e9",
    "living hints, 5 min": "#0072b2",
    "living hints, 15 min": "#7f7fbf",
    "oracle": "#009e73",
}
_SHOWN_SEED = 3
_STEP_S = 300
_SHOWN = ("cooperative-sticky", "today's hints", "living hints, 5 min", "oracle")


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the figures of all ways as dots, and the course of one day below."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "evenlag"})
    from matplotlib import pyplot as plt

    figure, (axes, day_axes) = plt.subplots(2, 1, figsize=(9, 7), height_ratios=(2, 3))
    for place, (name, row) in enumerate(results["ways"].items()):
        mean, high = (row["by_least_possible"][kind] for kind in ("mean", "p95"))
        axes.plot([mean, high], [place, place], color=_COLOURS[name], linewidth=2)
        axes.plot(mean, place, "o", color=_COLOURS[name])
        axes.plot(high, place, "|", color=_COLOURS[name], ms=12, mew=2)
        axes.text(high, place, f"  {mean:.2f}, {high:.2f}", va="center", fontsize=8)
    axes.set_yticks(range(len(results["ways"])), list(results["ways"]), fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(left=1.0)
    axes.margins(x=0.15)
    axes.set_xlabel("largest load by the least possible: mean (dot) and 95th percentile (bar)", fontsize=8)
    axes.set_title(f"{results['days']:,} random days of a group", loc="left")
    for name in _SHOWN:
        hours, values = _course(name)
        day_axes.step(hours, values, where="post", color=_COLOURS[name], linewidth=0.9, label=name)
    day_axes.set_xlim(0, 24)
    day_axes.set_xlabel(f"hour of day {_SHOWN_SEED}", fontsize=8)
    day_axes.set_ylabel("largest load by the least possible", fontsize=8)
    day_axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, fontsize=8, frameon=False)
    for each in (axes, day_axes):
        each.tick_params(axis="x", labelsize=8)
        for side in ("top", "right"):
            each.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _course(name: str) -> tuple[Any, Any]:
    from tests.bench.living.days import WAYS
    from tests.bench.living.simulation import largest_loads, run_day
    from tests.bench.living.world import make_day

    day, way = make_day(_SHOWN_SEED), WAYS[name]
    (course,) = run_day(day, [(way.policy(day), way.loads_every_minutes)])
    _, values, seconds, _ = largest_loads(day, course)
    # The largest of every five minutes: a line with each rebalance in it is a large file.
    starts = np.concatenate([[0.0], np.cumsum(seconds)[:-1]]) // _STEP_S
    firsts = np.flatnonzero(np.diff(starts, prepend=-1.0))
    return starts[firsts] * _STEP_S / 3600, np.maximum.reduceat(values, firsts)
