"""The report's pictures, each for a phone and for a desk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.pages.charts import (
    ACCENT,
    AFTER,
    BEFORE,
    FAINT,
    INK,
    PAPER,
    PREDICTED,
    SERIES,
    SOFT,
    Size,
    both_sizes,
    finish_axes,
    new_figure,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.report.model import LagChange, Series, Timeline

_NARROW, _WIDE = 4.3, 9.9
MAX_MEMBERS: Final = 16
# With more lines than that the bars cannot be made out: the changes of owners show where they are.
MAX_REBALANCES: Final = 120
# Colours alone don't tell lines apart for everybody.
_MINUTE_S, _DAY_S = 60, 86_400
_STEPS_S: Final = (
    1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, _DAY_S,
)  # fmt: skip
_MARGIN: Final = 0.01
LINE_STYLES: Final[tuple[Any, ...]] = ("-", (0, (5, 2)), (0, (1.5, 1.5)))


def change_plot(change: LagChange) -> str:
    """Draw the lag of each member before, as predicted, and after, the furthest behind on top."""
    members = change.members[:MAX_MEMBERS]
    height = 0.8 + len(members) * (0.55 if change.plan_id else 0.36)
    parts = [("before", BEFORE)]
    if change.plan_id is not None:
        parts += [("predicted", PREDICTED), ("after", AFTER)]

    def draw(size: Size) -> Any:
        figure, axes = new_figure(size)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x", color=FAINT, linewidth=0.6)
        bar = 0.78 / len(parts)
        for number, (name, colour) in enumerate(parts):
            values = [getattr(member, name) or 0 for member in members]
            places = [row + (number - (len(parts) - 1) / 2) * bar for row in range(len(members))]
            axes.barh(places, values, height=bar * 0.9, color=colour)
        axes.set_yticks(range(len(members)), [_short(member.name, size) for member in members])
        axes.invert_yaxis()
        axes.set_xlabel("lag, records")
        axes.xaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}")
        axes.locator_params(axis="x", nbins=9 if size.is_wide else 4)
        axes.xaxis.label.set_color(INK)
        return figure

    return both_sizes(
        "change", _change_label(change), draw, narrow=Size(_NARROW, height), wide=Size(_WIDE, height, True)
    )


def _change_label(change: LagChange) -> str:
    def most(part: str) -> str:
        known = [value for member in change.members if (value := getattr(member, part)) is not None]
        return f"{max(known):,}" if known else "not known"

    if change.plan_id is None:
        return f"Bar chart of the lag of each member in records; the most loaded has {most('before')}."
    return (
        f"Bar chart of the lag of each member in records. The most loaded had {most('before')} before the "
        f"plan, {most('predicted')} were predicted, {most('after')} were seen after."
    )


def timeline_plot(timeline: Timeline, owner_numbers: dict[str, int]) -> str:
    """Draw who held each partition when, one row a partition, with marks of rebalances and hints."""
    rows = {name: number for number, name in enumerate(timeline.partitions)}
    since = min(each.start for each in timeline.stretches)
    until = max(each.end for each in timeline.stretches)
    # A number needs this much time's width, by whether the picture is wide.
    room = {True: (until - since) / 45, False: (until - since) / 16}

    def draw(size: Size) -> Any:
        figure, axes = new_figure(size)
        axes.grid(visible=False)
        for each in timeline.stretches:
            axes.barh(
                rows[each.partition],
                each.end - each.start,
                left=each.start,
                height=0.74,
                color=PAPER if each.owner is None else SERIES[owner_numbers[each.owner] % len(SERIES)],
                edgecolor=SOFT if each.owner is None else PAPER,
                linewidth=0.5,
                hatch="////" if each.owner is None else None,
            )
            if each.owner is not None and (each.end - each.start) > room[size.is_wide]:
                axes.annotate(
                    str(owner_numbers[each.owner] + 1), (each.start, rows[each.partition]), xytext=(4, 0),
                    textcoords="offset points", va="center", fontsize=7.5, fontweight="bold", color=PAPER,
                )  # fmt: skip
        rebalances = sum(mark.kind == "rebalance" for mark in timeline.marks)
        for mark in timeline.marks:
            if mark.kind == "rebalance" and rebalances > MAX_REBALANCES:
                continue
            is_hint = mark.kind == "hint"
            axes.axvline(
                mark.at,
                color=ACCENT if is_hint else INK,
                linewidth=1.4 if is_hint else 0.9,
                linestyle="-" if is_hint else (0, (2, 2)),
            )
            # Of two at one moment both are seen: one points down from above, the other up from below.
            axes.plot(
                [mark.at], [1 if is_hint else 0], marker="v" if is_hint else "^", markersize=7, clip_on=False,
                color=ACCENT if is_hint else INK, transform=axes.get_xaxis_transform(),
            )  # fmt: skip
        axes.set_ylim(len(rows) - 0.3, -0.7)
        axes.set_yticks(range(len(rows)), [_short(name, size) for name in timeline.partitions])
        axes.tick_params(axis="y", labelsize=8)
        _time_axis(axes, since, until, size)
        return figure

    hints = sum(mark.kind == "hint" for mark in timeline.marks)
    label = (
        f"Timeline of {len(timeline.partitions)} partitions and the members that held them: "
        f"{', '.join(timeline.owners) or 'nobody'}. "
        f"{len(timeline.marks) - hints} rebalances and {hints} events of hints are marked."
    )
    height = 0.75 + 0.24 * len(rows)
    return both_sizes("timeline", label, draw, narrow=Size(_NARROW, height), wide=Size(_WIDE, height, True))


def lag_plot(observed: Series, replayed: Sequence[Series]) -> str:
    """Draw the lag of the group over time: as seen, and as each policy would have had it."""

    def draw(size: Size) -> Any:
        figure, axes = new_figure(size)
        for number, each in enumerate(replayed):
            axes.plot(
                each.at,
                _values(each.lag_records),
                color=SERIES[number % len(SERIES)],
                linestyle=LINE_STYLES[number % len(LINE_STYLES)],
                linewidth=1.5,
            )
        axes.plot(
            observed.at, _values(observed.lag_records), color=INK, linewidth=2.2,
            marker="o" if len(observed.at) < 3 else None,  # noqa: PLR2004  # a line needs two points
        )  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.set_ylabel("lag, records")
        finish_axes(axes)
        moments = [at for each in (observed, *replayed) for at in each.at]
        _time_axis(axes, min(moments), max(moments), size)
        return figure

    peak = max((value for value in observed.lag_records if value is not None), default=0)
    label = f"Line chart of the group's lag over time. As seen it went up to {peak:,} records"
    tops = (
        f"{each.name} up to {max((v for v in each.lag_records if v is not None), default=0):,}"
        for each in replayed
    )
    label += f"; replayed: {', '.join(tops)}." if replayed else "."
    return both_sizes("lag", label, draw, narrow=Size(_NARROW, 3.0), wide=Size(_WIDE, 3.6, True))


def _values(points: Sequence[int | None]) -> list[float]:
    return [float("nan") if point is None else point for point in points]


def _time_axis(axes: Any, since: datetime, until: datetime, size: Size) -> None:
    """Mark round times, as many as there is room for; midnight by its date."""
    span_s = max(1.0, (until - since).total_seconds())
    most = 9 if size.is_wide else 4
    step_s = next((step for step in _STEPS_S if span_s / step <= most), ceil(span_s / most / _DAY_S) * _DAY_S)
    first = ceil(since.timestamp() / step_s)
    ticks = [
        datetime.fromtimestamp(number * step_s, tz=UTC)
        for number in range(first, int(until.timestamp() // step_s) + 1)
    ]
    clock = "%H:%M:%S" if step_s < _MINUTE_S else "%H:%M"
    axes.set_xticks(
        ticks, [f"{tick:%d %b}" if tick.timestamp() % _DAY_S == 0 else f"{tick:{clock}}" for tick in ticks]
    )
    axes.set_xlim(since - timedelta(seconds=span_s * _MARGIN), until + timedelta(seconds=span_s * _MARGIN))
    axes.set_xlabel("UTC")
    axes.xaxis.label.set_color(INK)


def _short(name: str, size: Size) -> str:
    """A name that leaves room for what is drawn: its end tells members and partitions apart."""
    longest = 32 if size.is_wide else 14
    return name if len(name) <= longest else f"…{name[1 - longest :]}"
