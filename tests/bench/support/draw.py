"""The picture of the results: seconds on a logarithmic scale, ours beside the others'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["draw"]

_COLOURS = {"evenlag": "#0072b2", "Kafka's client jar": "#d55e00", "kafka-python": "#009e73"}
_KEYS = {"evenlag": "ours_s", "Kafka's client jar": "kafka_s", "kafka-python": "kafka_python_s"}


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw all cases as dots, one line a case; a hollow dot with an arrow did not end in its time."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "evenlag"})
    from matplotlib import pyplot as plt

    cases = results["cases"]
    figure, axes = plt.subplots(figsize=(10, 1.2 + 0.24 * len(cases)))
    for place, (name, row) in enumerate(reversed(cases.items())):
        axes.axhline(place, color="#e6e6e6", linewidth=0.6, zorder=0)
        for who, key in _KEYS.items():
            value = row.get(key)
            if isinstance(value, str):
                limit = float(value.removeprefix("> "))
                axes.plot(limit, place, ">", mfc="none", color=_COLOURS[who])
            elif value is not None:
                axes.plot(value, place, "o", color=_COLOURS[who], ms=5)
        axes.text(
            -0.01, place, name, ha="right", va="center", fontsize=7, transform=axes.get_yaxis_transform()
        )
    for who, colour in _COLOURS.items():
        axes.plot([], [], "o", color=colour, label=who)
    axes.set_xscale("log")
    axes.set_yticks([])
    axes.set_xlabel(
        "seconds of one assign call, logarithmic; a hollow arrow: stopped there\n"
        "(the rival of lag-aware is a heap in Java)"
    )
    axes.set_title("Partition assignment: evenlag beside Kafka's own", loc="left")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, fontsize=8, frameon=False)
    axes.margins(y=0.01)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
