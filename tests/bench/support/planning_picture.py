"""The picture of planning's results: seconds beside those of a job that only reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["draw"]

_BARS = {
    "write_all_s": ("only read, and write all rows", "#bbbbbb"),
    "auto_s": ("plan in mode auto: all rows written", "#0072b2"),
    "write_moved_s": ("only read, and write the moved rows", "#dddddd"),
    "shadow_s": ("plan in mode shadow: moved rows written", "#56b4e9"),
}


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw a bar for each of four jobs, case by case."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "evenlag"})
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    # One part repeats a size of the other: each was measured in a run of its own.
    cases = [
        (name if part == "shapes" else f"{name}\n({row['groups']:,} groups, run apart)", row)
        for part in ("shapes", "scale")
        for name, row in results.get(part, {}).items()
    ]
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.75 * len(cases)))
    for place, (_, row) in enumerate(cases):
        for step, (key, (_, colour)) in enumerate(_BARS.items()):
            axes.barh(place + 0.2 * step, row[key], height=0.18, color=colour)
            axes.text(row[key], place + 0.2 * step, f" {row[key]:g} s", va="center", fontsize=7)
    for label, colour in _BARS.values():
        axes.barh(0, 0, color=colour, label=label)
    axes.set_yticks([place + 0.3 for place in range(len(cases))], [name for name, _ in cases], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    # Seconds as people write them, and none of the powers of ten that a logarithmic axis has by itself.
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("seconds, logarithmic", fontsize=8)
    axes.set_title("Planning all groups of a cluster", loc="left")
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.55 / len(cases)), ncols=2, fontsize=8, frameon=False
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
