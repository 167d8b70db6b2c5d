"""Chart of the owners of the partitions over time, with rebalances and hints."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.html.chart_marks import draw_marks
from evenlag.html.svg_charts import INK, PAPER, SERIES, SOFT, Size, both_sizes, new_figure
from evenlag.report.charts import NARROW, WIDE, chart_marks, short, time_axis
from evenlag.report.model import HINT_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from evenlag.report.model import Mark, Timeline

# More lines would hide the bars, which show the rebalances by their changes of owner.
MAX_REBALANCES: Final = 120
# Open intervals extend beyond the last snapshot, so that one that begins there is visible, too.
_BEYOND: Final = 1 / 50
_PALE: Final = 0.5
# Height for the labels of hints, in inches.
_LABELS: Final = 0.35


def count_marks(marks: Iterable[Mark]) -> Counter[str]:
    """Count marks.

    Returns number of marks by event of a hint, and under ``rebalance``.
    """
    return Counter(mark.event or mark.kind for mark in marks)


def timeline_plot(timeline: Timeline, owner_numbers: dict[str, int]) -> str:
    """Draw the owners of each partition over time, one row per partition, with rebalances and hints.

    owner_numbers: Number of each owner, from 0, by name; it selects the color.
    """
    rows = {name: number for number, name in enumerate(timeline.partitions)}
    since = min(each.start for each in timeline.intervals)
    until = max(each.end for each in timeline.intervals)
    beyond = until + max((until - since) * _BEYOND, timedelta(seconds=1))
    moments = [since, beyond, *(mark.at for mark in timeline.marks)]

    def draw(size: Size) -> Any:
        figure, axes = new_figure(size)
        axes.grid(visible=False)
        for each in timeline.intervals:
            number = None if each.owner is None else owner_numbers[each.owner]
            _draw_bar(axes, rows[each.partition], each.start, each.end, number)
            if each.is_open:
                _draw_bar(axes, rows[each.partition], each.end, beyond, number, alpha=_PALE)
            # Shorter bars have no room for a number.
            room = (until - since) / (45 if size.is_wide else 16)
            if number is not None and (each.end - each.start) > room:
                axes.annotate(
                    str(number + 1), (each.start, rows[each.partition]), xytext=(4, 0),
                    textcoords="offset points", va="center", fontsize=7.5, fontweight="bold", color=PAPER,
                )  # fmt: skip
        _draw_rebalances(axes, timeline.marks, len(rows))
        axes.set_ylim(len(rows) - 0.3, -0.7)
        axes.set_yticks(range(len(rows)), [short(name, size) for name in timeline.partitions])
        axes.tick_params(axis="y", labelsize=8)
        # Leaves room for the marks of rebalances above the labels.
        axes.tick_params(axis="x", pad=8)
        time_axis(axes, min(moments), max(moments), size)
        draw_marks(figure, axes, chart_marks(hints))
        return figure

    hints = [mark for mark in timeline.marks if mark.kind == "hint"]
    height = 0.75 + 0.24 * len(rows) + (_LABELS if hints else 0)
    return both_sizes(
        "timeline", _label(timeline), draw, narrow=Size(NARROW, height), wide=Size(WIDE, height, True)
    )


def _draw_bar(
    axes: Any, row: int, start: datetime, end: datetime, number: int | None, *, alpha: float = 1.0
) -> None:
    axes.barh(
        row,
        end - start,
        left=start,
        height=0.74,
        color=PAPER if number is None else SERIES[number % len(SERIES)],
        edgecolor=SOFT if number is None else PAPER,
        linewidth=0.5,
        hatch="////" if number is None else None,
        alpha=alpha,
    )


def _draw_rebalances(axes: Any, marks: Iterable[Mark], num_rows: int) -> None:
    """Mark rebalances at the bottom: hints are marked at the top, so both are visible at one time.

    The lines end below the labels of the hints.
    """
    moments = [mark.at for mark in marks if mark.kind == "rebalance"]
    if len(moments) > MAX_REBALANCES:
        return
    for at in moments:
        axes.plot([at, at], [num_rows - 0.3, -0.7], color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
        axes.plot(
            [at], [0], marker="^", markersize=7, clip_on=False, color=INK,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip


def _label(timeline: Timeline) -> str:
    counts = count_marks(timeline.marks)
    hints = ", ".join(f"{counts[what]} {what}" for what in HINT_EVENTS if counts[what])
    return (
        f"Timeline of {len(timeline.partitions)} partitions and the members that owned them: "
        f"{', '.join(timeline.owners) or 'nobody'}. "
        f"{counts['rebalance']} rebalances are marked, and hints: {hints or 'none'}."
    )
