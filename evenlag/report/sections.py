"""Sections of the report with a chart: the chart, its caption, and the same numbers as a table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from evenlag.formatting import at_least, moment, number, percent
from evenlag.html.markup import Html, badge, details, figure, table, when
from evenlag.html.svg_charts import series_variable
from evenlag.report.charts import LINE_STYLES, MAX_MEMBERS, change_plot, lag_plot
from evenlag.report.model import HINT_EVENTS
from evenlag.report.timeline_chart import count_marks, timeline_plot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlag.report.model import LagChange, Report, Series

AUDIT, COMPARE = "evenlag audit build", "evenlag compare run"
MAX_ROWS: Final = 400

# The legend uses the same shapes as the chart.
_HINT_SHAPES: Final = dict(zip(HINT_EVENTS, ("down", "round", "cross", "square", "diamond"), strict=True))


def change_section(report: Report) -> Html:
    """Build the section on the lag of each member before and after a plan.

    Parameters
    ----------
    report
        Content of the report.

    Returns
    -------
    Html
        The section without its heading.
    """
    change = report.change
    if change is None:
        return note("No snapshot of the period shows a live member.")
    legend = _legend(
        [("before" if change.plan_id else "lag", "--before", "")]
        + ([("predicted", "--predicted", ""), ("after", "--after", "")] if change.plan_id else [])
    )
    columns = ("member", "before#", "predicted#", "after#") if change.plan_id else ("member", "lag#")
    rows = [
        (
            member.name,
            *map(at_least, (member.before, member.predicted, member.after), member.unknown),
        )[: len(columns)]
        for member in change.members
    ]
    numbers = details("The numbers", table(columns, rows, caption="Lag of each member, in records"))
    return Html(figure(change_plot(change), _change_caption(change)) + legend + numbers)


def _change_caption(change: LagChange) -> str:
    num_left_out = len(change.members) - MAX_MEMBERS
    rest = f" {num_left_out} more members are in the table." if num_left_out > 0 else ""
    rest += _unknown_in_change(change)
    if change.plan_id is None:
        return f"Read at {moment(change.before_at)}. The period has no plan to compare with.{rest}"
    told = (
        f"Plan {change.plan_id[:12]} ({change.status or 'without an event'}) moves {number(change.moves)} "
        f"partitions. Before: read at {moment(change.before_at)}; the plan is based on it."
    )
    if change.after_at is not None:
        told += (
            f" After: read at {moment(change.after_at)}. Consumers and producers continued in between, so it "
            "differs from the prediction."
        )
    else:
        told += " It has no outcome in the period, so there is no lag after it."
    return told + rest


def _unknown_in_change(change: LagChange) -> str:
    told = [
        f"{about} the lag of {number(unknown)} of {number(partitions)} partitions was not known."
        for about, (unknown, partitions) in (
            ("Before,", change.unknown_before),
            ("After,", change.unknown_after),
        )
        if unknown
    ]
    if not told:
        return ""
    return f" {' '.join(told)} ≥ marks a lower bound in the table; a bar shows only what was known."


def timeline_section(report: Report) -> Html:
    """Build the section on the owners of the partitions over time.

    Parameters
    ----------
    report
        Content of the report.

    Returns
    -------
    Html
        The section without its heading.
    """
    timeline = report.timeline
    if timeline is None:
        return note("The period has not been audited yet. Run: ", AUDIT)
    numbers = {name: place for place, name in enumerate(timeline.owners)}
    entries = [(f"{place + 1} {name}", series_variable(place), "") for name, place in numbers.items()]
    told = count_marks(timeline.marks)
    entries += [(f"hint {what}", "--accent", _HINT_SHAPES[what]) for what in HINT_EVENTS if what in told]
    legend = _legend([*entries, ("a rebalance", "--ink", "up")])
    last = max(each.end for each in timeline.intervals)
    caption = (
        "A bar begins at the first snapshot with the owner and ends at the first one with another owner; "
        "the change happened before that snapshot. Pale at the end: unchanged in the last snapshot, which "
        f"ended at {moment(last)}. Hatched: no owner, or the owner is unknown."
    )
    if timeline.num_left_out:
        caption += f" {timeline.num_left_out:,} partitions with fewer changes of owner are not drawn."
    if timeline.num_unaudited:
        caption += (
            f" {timeline.num_unaudited:,} snapshots of the period are not audited yet: evenlag audit build."
        )
    intervals = [
        (
            each.partition,
            each.owner or f"({each.what})",
            when(each.start),
            Html(f"{when(each.end)} or later") if each.is_open else when(each.end),
        )
        for each in timeline.intervals
    ]
    marks = [
        (when(mark.at), badge(f"{mark.kind} {mark.event}".strip(), "plain"), mark.text)
        for mark in timeline.marks
    ]
    happened = table(("at", "what", "more"), _most(marks), caption="Rebalances and hints")
    held = table(("partition", "owner", "from", "until"), _most(intervals), caption="Partition ownership")
    return Html(
        figure(timeline_plot(timeline, numbers), caption)
        + legend
        + (details(f"Rebalances and hints ({len(marks):,})", happened + left_out(marks)) if marks else "")
        + details(f"Partition ownership ({len(intervals):,})", held + left_out(intervals))
    )


def lag_section(report: Report) -> Html:
    """Build the section on the lag over time, observed and simulated.

    Parameters
    ----------
    report
        Content of the report.

    Returns
    -------
    Html
        The section without its heading.
    """
    lines = [
        (each.name, series_variable(place), f"line style-{place % len(LINE_STYLES)}")
        for place, each in enumerate(report.replayed)
    ]
    legend = _legend([("as seen", "--ink", "line"), *lines])
    caption = "Lag of the group in records, at the times at which it was read." + _unknown(report)
    if report.replayed:
        caption += (
            " The other lines are replays: each policy is simulated from the observed state of the day's "
            "first snapshot, with the observed arrival rates and processing rates of the members."
        )
    if report.model_error is not None:
        caption += (
            f" The replay of the real assignment differs from the observed lag by "
            f"{percent(report.model_error)} at the median: smaller differences between policies are not "
            "significant."
        )
    hint = "" if report.replayed else note("No other policy has been replayed yet. Run: ", COMPARE)
    observed = report.observed
    unknown = observed.num_unknown or (0,) * len(observed.at)
    rows = [
        (when(at), at_least(lag, count), at_least(most, count), number(count))
        for at, lag, most, count in zip(
            observed.at, observed.lag_records, observed.max_member_lag_records, unknown, strict=True
        )
    ]
    columns = ("at", "group#", "most loaded member#", "partitions not known#")
    seen = table(columns, _most(rows), caption="Lag as seen, in records; ≥: a lower bound")
    return Html(
        figure(lag_plot(report.observed, report.replayed), caption)
        + legend
        + hint
        + details("The numbers as seen", seen + left_out(rows))
        + (details("Lag by policy", _peaks(report.replayed)) if report.replayed else "")
    )


def _unknown(report: Report) -> str:
    """Sentence on the unknown lag, and the status of these partitions; empty if all lag is known."""
    observed = report.observed
    if not any(observed.num_unknown):
        return ""
    count = len(observed.at)
    gaps = sum(value is None for value in observed.lag_records)
    bounds = sum(map(bool, observed.num_unknown)) - gaps
    told = []
    if gaps == count:
        told.append("It was not known in any snapshot.")
    elif gaps:
        told.append(f"Where the line breaks it was not known: in {gaps:,} of {count:,} snapshots.")
    if bounds:
        told.append(f"In {bounds:,} of {count:,} snapshots some of it was not known: at least so much.")
    statuses = ", ".join(
        f"{status} (up to {most:,} partitions in {seen:,} snapshots)"
        for status, seen, most in observed.unknown
    )
    return f" {' '.join(told)} Status of the partitions whose lag was not known: {statuses}."


def _peaks(replayed: Iterable[Series]) -> Html:
    rows = []
    for each in replayed:
        known = [value for value in each.lag_records if value is not None]
        rows.append(
            (each.name, *(number(v) for v in (known[0], max(known), known[-1])))
            if known
            else (each.name, "", "", "")
        )
    return table(
        ("policy", "first#", "largest#", "last#"), rows, caption="Lag of the group by policy, in records"
    )


def _legend(entries: Iterable[tuple[str, str, str]]) -> Html:
    """Build a legend.

    Parameters
    ----------
    entries
        Name, CSS variable of the color, and CSS class of the shape.

    Returns
    -------
    Html
        The legend.
    """
    items = "".join(
        f'<li><i class="{shape}" style="--of:var({variable})" aria-hidden="true"></i>{escape(name)}</li>'
        for name, variable, shape in entries
    )
    return Html(f'<ul class="legend">{items}</ul>')


def note(message: str, command: str = "") -> Html:
    """Build a note.

    Parameters
    ----------
    message
        Plain text.
    command
        Command to show after the message, as plain text; none if empty.

    Returns
    -------
    Html
        The note.
    """
    code = f"<code>{escape(command)}</code>" if command else ""
    return Html(f'<p class="note">{escape(message)}{code}</p>')


def _most(rows: Sequence[Sequence[object]]) -> Sequence[Sequence[object]]:
    return rows[:MAX_ROWS]


def left_out(rows: Sequence[object]) -> str:
    """Build a note on the rows beyond :data:`MAX_ROWS`; empty if there are none."""
    rest = len(rows) - MAX_ROWS
    return f'<p class="soft">{rest:,} more rows are left out.</p>' if rest > 0 else ""
