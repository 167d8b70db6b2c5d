"""The picture of a soak: each measure over the cycles, in small charts one above the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["draw"]

_COLOURS: Final = {
    "driver": "#0072b2",
    "python": "#009e73",
    "broker": "#d55e00",
    "client": "#cc79a7",
    "cycle": "#0072b2",
}
# Chart: what it is called, and the measures in it.
_CHARTS: Final = {
    "seconds a cycle": ("cycle_s",),
    "heap after a collection, MiB": ("driver_heap_mib", "broker_heap_mib"),
    "resident memory, MiB": ("driver_rss_mib", "python_rss_mib", "broker_rss_mib", "client_rss_mib"),
    "threads": ("driver_threads", "python_threads", "broker_threads", "client_threads"),
}


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the session's measures over its cycles, and the files that each upkeep left."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "evenlag"})
    from matplotlib import pyplot as plt

    session = results.get("session")
    if session is None:
        return
    measures, files = session["measures"], session["files_after_upkeep"]
    figure, charts = plt.subplots(len(_CHARTS) + 1, 1, figsize=(10, 2.1 * (len(_CHARTS) + 1)), sharex=True)
    for axes, (title, names) in zip(charts, _CHARTS.items(), strict=False):
        for name in (name for name in names if name in measures):
            row, who = measures[name], name.partition("_")[0]
            values = row["values"]
            axes.plot(range(1, len(values) + 1), values, color=_COLOURS[who], linewidth=0.9, label=who)
            axes.axvspan(0, row["warm_up"], color="#f0f0f0", zorder=0)
        axes.set_title(title, loc="left", fontsize=9)
        axes.set_ylim(bottom=0)
        if len(names) > 1:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8, frameon=False)
    num_upkeeps, period = max(map(len, files.values()), default=0), session["period"]
    totals = [sum(counts[n] for counts in files.values() if n < len(counts)) for n in range(num_upkeeps)]
    charts[-1].plot(
        [period * (n + 1) for n in range(num_upkeeps)], totals, "o", color=_COLOURS["driver"], ms=4
    )
    charts[-1].set_title("files of all tables after each upkeep", loc="left", fontsize=9)
    charts[-1].set_ylim(0, 1.15 * max(totals, default=1))
    charts[-1].set_xlabel("cycles; grey: warm-up, in no trend")
    for axes in charts:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
