"""Draw the traces: ``python -m tests.bench.field.draw_traces`` writes docs/bench/field/traces.svg."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.bench.field.traces import FIRST_SEED, NAMES, SIZES, Trace, make_trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

PICTURE = Path(__file__).resolve().parents[3] / "docs" / "bench" / "field" / "traces.svg"
_SIZE = SIZES["simulation"]
_SEED = FIRST_SEED
_UTILISATION = 0.75
_BIN_S = 60
_MINUTES = _SIZE.duration_s / 60


def draw(path: Path) -> None:
    """Draw each trace in a row: all of its work beside the pods' speed, and the work of each partition."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "evenlag"})
    from matplotlib import pyplot as plt

    figure, rows = plt.subplots(
        len(NAMES), 2, figsize=(10, 1.45 * len(NAMES)), sharex=True, layout="constrained"
    )
    for name, (total, partitions) in zip(NAMES, rows, strict=True):
        trace = make_trace(name, _SEED, _UTILISATION, _SIZE)
        work = _binned(trace.arrivals(trace.num_partitions)[1]) / _SIZE.speed
        _draw_total(total, trace, work.sum(axis=1))
        image = _draw_partitions(partitions, work)
        total.set_title(name, loc="left", fontsize=9, fontweight="bold")
    rows[0, 0].set_title("all work sent, and the speed of the running pods", loc="right", fontsize=8)
    rows[0, 1].set_title("work of each partition, in pods", loc="right", fontsize=8)
    for axes in rows[-1]:
        axes.set_xlabel("minute", fontsize=8)
    for axes in rows.flat:
        axes.tick_params(labelsize=7)
    figure.colorbar(image, ax=rows[:, 1], shrink=0.3, extend="max").ax.tick_params(labelsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _binned(by_second: NDArray[np.float64]) -> Any:
    return by_second.reshape(-1, _BIN_S, *by_second.shape[1:]).mean(axis=1)


def _draw_total(axes: Any, trace: Trace, work: NDArray[np.float64]) -> None:
    minutes = (np.arange(len(work)) + 0.5) * _BIN_S / 60
    axes.fill_between(minutes, work, color="#56b4e9", linewidth=0)
    running = trace.running_speed() / _SIZE.speed
    steps = np.flatnonzero(np.diff(running, prepend=-1.0))
    ends = np.append(steps, trace.duration_s) / 60
    axes.step(ends, np.append(running[steps], running[-1]), where="post", color="#d55e00", linewidth=1)
    axes.axvspan(0, trace.warm_up_s / 60, color="#cccccc", alpha=0.6, linewidth=0)
    for first, end in trace.outages:
        axes.axvspan(first / 60, end / 60, color="#d55e00", alpha=0.25, linewidth=0)
    axes.set_xlim(0, _MINUTES)
    axes.set_ylim(0, 12.5)
    axes.set_ylabel("pods", fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_partitions(axes: Any, work: NDArray[np.float64]) -> Any:
    by_work = np.argsort(-work.mean(axis=0))
    axes.set_ylabel("partition", fontsize=8)
    axes.set_yticks([])
    return axes.imshow(
        work[:, by_work].T,
        aspect="auto",
        cmap="viridis",
        vmin=0,
        vmax=0.8,
        extent=(0, _MINUTES, work.shape[1], 0),
        interpolation="nearest",
    )


if __name__ == "__main__":
    draw(PICTURE)
