"""Charts of the report, each for narrow and for wide pages."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, Final

from evenlag.html.charts import (
    AFTER,
    BEFORE,
    FAINT,
    INK,
    PAPER,
    PREDICTED,
    SERIES,
    SOFT,
    ChartMark,
    Line,
    Size,
    both_sizes,
    draw_marks,
    new_figure,
    plot_lines,
    with_gaps,
)
from evenlag.report.model import HINT_EVENTS, LagChange, Mark, Series, Timeline
from evenlag.safe_text import printable

MAX_MEMBERS: Final = 16
_MINUTE_S, _DAY_S = 60, 86_400
_STEPS_S: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, _DAY_S,
)  # fmt: skip
_MARGIN: Final = 0.01
# Fewer ticks do not show where a value is.
_MIN_TICKS: Final = 4
_THOUSAND, _MILLION = 1_000, 1_000_000
HINT_MARKERS: Final = dict(zip(HINT_EVENTS, ("v", "o", "X", "s", "D"), strict=True))
# More lines would hide the bars, which show the rebalances by their changes of owner.
MAX_REBALANCES: Final = 120
# Open intervals extend beyond the last snapshot, so that one that begins there is visible, too.
_BEYOND: Final = 1 / 50
_PALE: Final = 0.5
# Height for the labels of hints, in inches.
_LABELS: Final = 0.35


def change_plot(change: LagChange) -> str:
    """Draw a bar chart of the lag of the first members before a plan, as predicted, and after it."""
    members = change.members[:MAX_MEMBERS]
    height = 0.8 + len(members) * (0.55 if change.plan_id else 0.36)
    parts = [("before", BEFORE)]
    if change.plan_id is not None:
        parts += [("predicted", PREDICTED), ("after", AFTER)]

    # Without an outcome there is no lag after the plan: do not mark it as unknown.
    without = {name for name, _ in parts if all(getattr(each, name) is None for each in change.members)}
    without -= {"before"}

    def draw(size: Size) -> Any:
        from matplotlib.ticker import MaxNLocator

        figure, axes = new_figure(size)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x", color=FAINT, linewidth=0.6)
        bar = 0.78 / len(parts)
        most = max((getattr(member, name) or 0 for member in members for name, _ in parts), default=0)
        has_values = size.is_wide and most > 0
        for number, (name, colour) in enumerate(parts):
            values = [getattr(member, name) for member in members]
            places = [row + (number - (len(parts) - 1) / 2) * bar for row in range(len(members))]
            axes.barh(places, [value or 0 for value in values], height=bar * 0.9, color=colour)
            # A missing bar means a lag of 0; an unknown lag has a label.
            for place, value in zip(places, values, strict=True):
                if value is None and name not in without:
                    _annotate(axes, "not known", 0, place)
                elif value is not None and has_values:
                    _annotate(axes, f"{value:,}", value, place, xytext=(3, 0), fontsize=7)
        axes.set_xlim(0, most * (1.1 if has_values else 1.05) or 1)
        if not most:
            axes.set_xticks([0])
        axes.set_yticks(range(len(members)), [short(member.name, size) for member in members])
        axes.invert_yaxis()
        axes.set_xlabel("lag, records")
        axes.xaxis.set_major_formatter(lambda value, _position: _tick(value, most, size))
        if most:
            axes.xaxis.set_major_locator(
                MaxNLocator(9 if size.is_wide else 5, min_n_ticks=_MIN_TICKS, integer=True)
            )
        axes.xaxis.label.set_color(INK)
        return figure

    return both_sizes("change", _change_label(change), draw, narrow=height, wide=height)


def _change_label(change: LagChange) -> str:
    def most(part: str) -> str:
        value = change.largest(part)
        return "not known" if value is None else f"{value:,}"

    if change.plan_id is None:
        return f"Bar chart of the lag of each member in records; of the most loaded: {most('before')}."
    return (
        f"Bar chart of the lag of each member in records. Of the most loaded: before the plan "
        f"{most('before')}, predicted {most('predicted')}, after it {most('after')}."
    )


def lag_plot(observed: Series, replayed: Sequence[Series], hints: Sequence[Mark]) -> str:
    """Draw a line chart of the lag of the group over time: measured, and simulated for each candidate."""

    def draw(size: Size) -> Any:
        figure, axes = new_figure(size)
        # Wide and below the others, so that none hides it or is hidden by it.
        axes.plot(observed.at, with_gaps(observed.lag_records), color=INK, linewidth=3.4, zorder=1.9)
        isolated = _isolated_points(observed.lag_records)
        axes.plot(
            [observed.at[place] for place in isolated], [observed.lag_records[place] for place in isolated],
            color=INK, marker="o", markersize=6, linestyle="none", zorder=1.9,
        )  # fmt: skip
        plot_lines(axes, lag_lines(replayed))
        axes.set_ylim(bottom=0)
        axes.set_ylabel("lag, records")
        axes.yaxis.label.set_color(INK)
        peak = max((each.peak or 0 for each in (observed, *replayed)), default=0)
        axes.yaxis.set_major_formatter(lambda value, _position: _tick(value, peak, size))
        if all(each.peak is None for each in (observed, *replayed)):
            axes.set_yticks([])
            axes.text(
                0.5, 0.5, "not known in any snapshot", ha="center", va="center", color=INK,
                transform=axes.transAxes,
            )  # fmt: skip
        moments = [at for each in (observed, *replayed) for at in each.at]
        moments += [mark.at for mark in hints]
        time_axis(axes, min(moments), max(moments), size)
        draw_marks(figure, axes, chart_marks(hints))
        return figure

    return both_sizes("lag", _lag_label(observed, replayed), draw, narrow=3.2, wide=3.8)


def chart_marks(hints: Iterable[Mark]) -> list[ChartMark]:
    """Convert events of hints to marks of a chart."""
    return [ChartMark(mark.at, mark.event, HINT_MARKERS[mark.event]) for mark in hints]


def lag_lines(replayed: Sequence[Series]) -> list[Line]:
    """Return the lines of the candidates."""
    return [Line(each.at, each.lag_records) for each in replayed]


def _annotate(axes: Any, words: str, at: Any, row: float, **style: Any) -> None:
    """Write on a bar, beside its place."""
    usual = {"xytext": (4, 0), "fontsize": 7.5, "color": INK}
    axes.annotate(words, (at, row), textcoords="offset points", va="center", **usual | style)


def _tick(value: float, most: float, size: Size) -> str:
    """Text of a number on an axis: on narrow pages without its zeros."""
    if size.is_wide or most < 10 * _THOUSAND:
        return f"{value:,.0f}"
    scale, unit = (_MILLION, "M") if most >= 10 * _MILLION else (_THOUSAND, "k")
    return f"{value / scale:,g}{unit}" if value else "0"


def _lag_label(observed: Series, replayed: Sequence[Series]) -> str:
    label = "Line chart of the group's lag over time. "
    if observed.peak is None:
        statuses = ", ".join(status for status, *_ in observed.unknown)
        label += f"It was not known in any snapshot ({statuses})"
    else:
        bound = "at least " if any(observed.num_unknown) else ""
        label += f"Measured, it went up to {bound}{observed.peak:,} records"
    tops = (
        f"{each.name} {'not known' if each.peak is None else f'up to {each.peak:,}'}" for each in replayed
    )
    return label + (f"; replayed: {', '.join(tops)}." if replayed else ".")


def _isolated_points(points: Sequence[int | None]) -> list[int]:
    """Positions of known points without a known neighbor: no line can be drawn there."""
    known = [False, *(point is not None for point in points), False]
    return [
        place
        for place in range(len(points))
        if known[place + 1] and not known[place] and not known[place + 2]
    ]


def time_axis(axes: Any, since: datetime, until: datetime, size: Size) -> None:
    """Set ticks at round times, as many as fit; midnight is labeled with its date."""
    span_s = max(1.0, (until - since).total_seconds())
    most = 9 if size.is_wide else 6
    step_s = next((step for step in _STEPS_S if span_s / step <= most), ceil(span_s / most / _DAY_S) * _DAY_S)
    ticks = _round_times(since, until, step_s)
    # Of the next smaller step there may be a few more than fit comfortably, but too few show no scale.
    smaller_s = max((step for step in _STEPS_S if step < step_s), default=step_s)
    if len(ticks) < _MIN_TICKS and len(finer := _round_times(since, until, smaller_s)) <= most + 1:
        step_s, ticks = smaller_s, finer
    clock = "%H:%M:%S" if step_s < _MINUTE_S else "%H:%M"
    axes.set_xticks(
        ticks, [f"{tick:%d %b}" if tick.timestamp() % _DAY_S == 0 else f"{tick:{clock}}" for tick in ticks]
    )
    axes.set_xlim(since - timedelta(seconds=span_s * _MARGIN), until + timedelta(seconds=span_s * _MARGIN))
    axes.set_xlabel("UTC")
    axes.xaxis.label.set_color(INK)


def _round_times(since: datetime, until: datetime, step_s: int) -> list[datetime]:
    first, last = ceil(since.timestamp() / step_s), int(until.timestamp() // step_s)
    return [datetime.fromtimestamp(number * step_s, tz=UTC) for number in range(first, last + 1)]


def short(name: str, size: Size) -> str:
    """Shorten a name to its end, where names differ; of one line, without control characters."""
    longest = 32 if size.is_wide else 14
    name = printable(name)
    return name if len(name) <= longest else f"…{name[1 - longest :]}"


def count_marks(marks: Iterable[Mark]) -> Counter[str]:
    """Count marks by event of a hint, and under ``rebalance``."""
    return Counter(mark.event or mark.kind for mark in marks)


def timeline_plot(timeline: Timeline, owner_numbers: dict[str, int]) -> str:
    """Draw the owners of each partition over time, one row per partition, with rebalances and hints."""
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
                row = rows[each.partition]
                _annotate(axes, str(number + 1), each.start, row, fontweight="bold", color=PAPER)
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
    return both_sizes("timeline", _label(timeline), draw, narrow=height, wide=height)


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
    """Mark rebalances at the bottom, by lines that end below the labels of the hints at the top."""
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
