"""The demo's charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.html.svg_charts import (
    AFTER,
    BEFORE,
    FAINT,
    INK,
    PREDICTED,
    SERIES,
    Size,
    finish_axes,
    new_figure,
    svg,
)

if TYPE_CHECKING:
    from sandbox.demo.result import DemoResult
    from sandbox.demo.sampler import Samples

# The text is still readable at a phone's width.
_SIZE: Final = Size(5.0, 3.1)


def bars_svg(result: DemoResult) -> str:
    """Return a bar chart of each consumer's lag before, predicted, and after."""
    figure, axes = new_figure(_SIZE)
    bar = 0.27
    parts = (("before", BEFORE), ("predicted", PREDICTED), ("after", AFTER))
    for offset, (name, colour) in enumerate(parts):
        values = [getattr(member, name) for member in result.members]
        places = [index + (offset - 1) * bar for index in range(len(values))]
        axes.bar(places, values, width=bar * 0.92, color=colour, label=name)
    axes.set_xticks(range(len(result.members)), [member.name for member in result.members])
    axes.set_ylabel("lag, records")
    axes.legend(frameon=False, labelcolor=INK, ncols=3, loc="upper right", handlelength=1.0)
    axes.margins(y=0.16)
    finish_axes(axes)
    label = (
        f"Lag of each consumer in records. The most loaded had {result.max_before:,} before, "
        f"{result.max_predicted:,} were predicted, {result.max_after:,} were seen after."
    )
    return svg(figure, "bars", label)


def timeline_svg(samples: Samples) -> str:
    """Return a chart of each consumer's lag over time, with marked events."""
    figure, axes = new_figure(_SIZE)
    for number, (name, points) in enumerate(sorted(samples.lag_by_name.items())):
        seconds = samples.at_s[: len(points)]
        values = [float("nan") if point is None else point for point in points]
        axes.plot(seconds, values, color=SERIES[number % len(SERIES)], linewidth=1.8, label=name)
    for number, (at_s, what) in enumerate(samples.marks):
        axes.axvline(at_s, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        # The hint is applied just before the second run begins: place their labels on both sides.
        side = "right" if number % 2 else "left"
        axes.annotate(
            what, (at_s, 0.99), xycoords=("data", "axes fraction"), rotation=90, va="top", ha=side,
            fontsize=8, color=INK,
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("lag, records")
    if samples.lag_by_name:
        axes.legend(frameon=False, labelcolor=INK, fontsize=8, loc="upper right")
    finish_axes(axes)
    return svg(figure, "timeline", "Lag of each consumer over time, in records.")
