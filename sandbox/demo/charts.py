"""The demo's charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.html.chart_marks import ChartMark, draw_marks
from evenlag.html.line_styles import Line, line_styles
from evenlag.html.svg_charts import (
    AFTER,
    BEFORE,
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
_SIZE: Final = Size(5.0, 3.3)
# Markers of a line: they distinguish consumers with equal lag.
_NUM_MARKERS: Final = 5
# As in the report: a hint that was followed is a circle.
_MARKERS: Final = {"hint followed": "o"}


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
    names = sorted(samples.lag_by_name)
    lines = [
        Line(samples.at_s[: len(samples.lag_by_name[name])], samples.lag_by_name[name]) for name in names
    ]
    step = max(1, len(samples.at_s) // _NUM_MARKERS)
    for number, (name, line, style) in enumerate(zip(names, lines, line_styles(lines), strict=True)):
        axes.plot(
            line.at,
            [float("nan") if point is None else point for point in line.values],
            color=SERIES[number % len(SERIES)],
            linestyle=(style.offset, style.dashes) if style.dashes else "-",
            linewidth=1.8,
            marker=style.marker,
            markersize=4,
            markevery=(number * step // len(names), step),
            label=name,
        )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("lag, records")
    if samples.lag_by_name:
        # Above the axes: the lines and the marks have no free corner in common.
        figure.legend(
            frameon=False, labelcolor=INK, fontsize=8, loc="outside upper center", ncols=4, handlelength=1.4
        )
    finish_axes(axes)
    marks = sorted(samples.marks)
    if samples.at_s:
        last_s = max([*samples.at_s, *(at_s for at_s, _ in marks)])
        axes.set_xlim(min(samples.at_s), last_s * 1.01 or 1)
    draw_marks(figure, axes, [ChartMark(at_s, what, _MARKERS.get(what, "v")) for at_s, what in marks])
    marked = "".join(f" {what} after {at_s:.0f} s;" for at_s, what in marks)
    label = f"Lag of each consumer over time, in records.{marked}".removesuffix(";")
    return svg(figure, "timeline", label)
