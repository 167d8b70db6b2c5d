"""Chart of the owners of the partitions over time, with rebalances and hints."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.html.svg_charts import ACCENT, INK, PAPER, SERIES, SOFT, Size, both_sizes, new_figure
from evenlag.report.charts import NARROW, WIDE, short, time_axis
from evenlag.report.model import HINT_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from evenlag.report.model import Mark, Timeline

# More lines would hide the bars, which show the rebalances by their changes of owner.
MAX_REBALANCES: Final = 120
# Distinguishable without colors; the legend uses the same shapes.
_HINT_MARKERS: Final = dict(zip(HINT_EVENTS, ("v", "o", "X", "s", "D"), strict=True))
# Open intervals extend beyond the last snapshot, so that one that begins there is visible, too.
_BEYOND: Final = 1 / 50
_PALE: Final = 0.5


def count_marks(marks: Iterable[Mark]) -> Counter[str]:
    """Count marks.

    Parameters
    ----------
    marks
        Marks of a timeline.

    Returns
    -------
    Counter
        Number of marks by event of a hint, and under ``rebalance``.
    """
    return Counter(mark.event or mark.kind for mark in marks)


def timeline_plot(timeline: Timeline, owner_numbers: dict[str, int]) -> str:
    """Draw the owners of each partition over time, one row per partition, with rebalances and hints.

    Parameters
    ----------
    timeline
        The timeline.
    owner_numbers
        Number of each owner, from 0, by name; it selects the color.

    Returns
    -------
    str
        HTML of the chart.
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
        _draw_marks(axes, timeline.marks)
        axes.set_ylim(len(rows) - 0.3, -0.7)
        axes.set_yticks(range(len(rows)), [short(name, size) for name in timeline.partitions])
        axes.tick_params(axis="y", labelsize=8)
        # Leaves room for the marks of rebalances above the labels.
        axes.tick_params(axis="x", pad=8)
        time_axis(axes, min(moments), max(moments), size)
        return figure

    height = 0.75 + 0.24 * len(rows)
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


def _draw_marks(axes: Any, marks: Iterable[Mark]) -> None:
    rebalances = sum(mark.kind == "rebalance" for mark in marks)
    for mark in marks:
        is_hint = mark.kind == "hint"
        if not is_hint and rebalances > MAX_REBALANCES:
            continue
        colour = ACCENT if is_hint else INK
        axes.axvline(
            mark.at,
            color=colour,
            linewidth=1.4 if is_hint else 0.9,
            linestyle="-" if is_hint else (0, (2, 2)),
        )
        # Hints are marked at the top, rebalances at the bottom, so that both are visible at one time.
        axes.plot(
            [mark.at], [1 if is_hint else 0], marker=_HINT_MARKERS.get(mark.event, "^"), markersize=7,
            clip_on=False, color=colour, transform=axes.get_xaxis_transform(),
        )  # fmt: skip


def _label(timeline: Timeline) -> str:
    counts = count_marks(timeline.marks)
    hints = ", ".join(f"{counts[what]} {what}" for what in HINT_EVENTS if counts[what])
    return (
        f"Timeline of {len(timeline.partitions)} partitions and the members that owned them: "
        f"{', '.join(timeline.owners) or 'nobody'}. "
        f"{counts['rebalance']} rebalances are marked, and hints: {hints or 'none'}."
    )
