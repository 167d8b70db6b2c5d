"""The report's sections as HTML: a picture, its caption, and the same numbers as a table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from evenlag import formatting
from evenlag.enums import PlanEvent
from evenlag.formatting import moment, number, percent
from evenlag.html.markup import Html, badge, details, figure, table, when
from evenlag.html.svg_charts import series_variable
from evenlag.report.charts import LINE_STYLES, MAX_MEMBERS, change_plot, lag_plot
from evenlag.report.model import HINT_EVENTS
from evenlag.report.timeline_chart import count_marks, timeline_plot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from evenlag.report.model import LagChange, Report, Series

AUDIT, COMPARE = "evenlag audit build", "evenlag compare run"
_MAX_ROWS: Final = 400
_KIND_BY_STATUS: Final[dict[str, str]] = {
    PlanEvent.APPLIED: "good",
    PlanEvent.APPROVED: "good",
    PlanEvent.PUBLISHED: "plain",
    PlanEvent.REJECTED: "warn",
    PlanEvent.IGNORED: "warn",
    PlanEvent.EXPIRED: "warn",
    PlanEvent.WITHDRAWN: "warn",
}

# Shapes of the legend, the same as the picture's.
_HINT_SHAPES: Final = dict(zip(HINT_EVENTS, ("down", "round", "cross", "square", "diamond"), strict=True))


def change_section(report: Report) -> Html:
    """Lag of each member around the plan that tells most."""
    change = report.change
    if change is None:
        return note("No reading of the period shows a live member.")
    legend = _legend(
        [("before" if change.plan_id else "lag", "--before", "")]
        + ([("predicted", "--predicted", ""), ("after", "--after", "")] if change.plan_id else [])
    )
    columns = ("member", "before#", "predicted#", "after#") if change.plan_id else ("member", "lag#")
    rows = [
        (
            member.name,
            *map(formatting.at_least, (member.before, member.predicted, member.after), member.unknown),
        )[: len(columns)]
        for member in change.members
    ]
    numbers = details("The numbers", table(columns, rows, caption="Lag of each member, in records"))
    return Html(figure(change_plot(change), _change_caption(change)) + legend + numbers)


def _change_caption(change: LagChange) -> str:
    left_out = len(change.members) - MAX_MEMBERS
    rest = f" {left_out} more members are in the table." if left_out > 0 else ""
    rest += _unknown_in_change(change)
    if change.plan_id is None:
        return f"As read at {moment(change.before_at)}; the period has no plan to compare with.{rest}"
    told = (
        f"Plan {change.plan_id[:12]} ({change.status or 'without an event'}) moves {number(change.moves)} "
        f"partitions. Before: as read at {moment(change.before_at)}, which it was made from."
    )
    if change.after_at is not None:
        told += (
            f" After: as read at {moment(change.after_at)}. Consumers and producers went on meanwhile, so "
            "after is not quite what was predicted."
        )
    else:
        told += " It has no outcome in the period, so nothing stands after."
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
    """Who held what when."""
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
        "A bar begins at the snapshot that first showed the owner and ends at the one that no longer did: "
        "the change lies between the two. Pale at the end: still so in the last snapshot, which ended at "
        f"{moment(last)}. Hatched: owned by nobody, or not shown by the group."
    )
    if timeline.num_left_out:
        caption += f" {timeline.num_left_out:,} partitions that changed hands less often are not drawn."
    if timeline.num_unaudited:
        caption += (
            f" {timeline.num_unaudited:,} readings of the period are not audited yet: evenlag audit build."
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
    held = table(("partition", "held by", "from", "until"), _most(intervals), caption="Who held what")
    return Html(
        figure(timeline_plot(timeline, numbers), caption)
        + legend
        + (details(f"Rebalances and hints ({len(marks):,})", happened + _left_out(marks)) if marks else "")
        + details(f"Who held what ({len(intervals):,})", held + _left_out(intervals))
    )


def lag_section(report: Report) -> Html:
    """Lag over time, as seen and by policy."""
    lines = [
        (each.name, series_variable(place), f"line style-{place % len(LINE_STYLES)}")
        for place, each in enumerate(report.replayed)
    ]
    legend = _legend([("as seen", "--ink", "line"), *lines])
    caption = "Lag of the group in records, at the times at which it was read." + _unknown(report)
    if report.replayed:
        caption += (
            " The other lines are replays: each policy carried forward from the state that was seen at the "
            "day's first reading, with the arrivals and the members' speeds that were seen."
        )
    if report.model_error is not None:
        caption += (
            f" Replaying what really ran misses the lag that was seen by {percent(report.model_error)} at "
            "the median: read differences between policies with that in mind."
        )
    hint = "" if report.replayed else note("No other policy was replayed yet. Run: ", COMPARE)
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
        + details("The numbers as seen", seen + _left_out(rows))
        + (details("Lag by policy", _peaks(report.replayed)) if report.replayed else "")
    )


def _unknown(report: Report) -> str:
    """What of the lag was not known, and which status these partitions had."""
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


def at_least(value: int | None, num_unknown: int) -> str:
    """Write a sum of which some parts are not known as a lower bound."""
    return f"≥ {number(value)}" if num_unknown and value is not None else number(value)


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


def plans_section(report: Report) -> Html:
    """What was planned, what the gates said, what became of it."""
    parts: list[str] = []
    if report.plans:
        parts += ["<h3>Plans</h3>", _plan_table(report.plans), _left_out(report.plans)]
    else:
        parts.append(note("No plan was proposed in the period."))
    if report.gates:
        gates = [
            (
                gate.gate,
                badge("passed", "good") if not gate.num_failed else badge("refused", "warn"),
                number(gate.num_judged),
                number(gate.num_failed),
                gate.last_refusal or "",
            )
            for gate in report.gates
        ]
        columns = ("gate", "verdict", "judged#", "refused#", "last refusal")
        parts += ["<h3>Gates</h3>", table(columns, gates, caption="Plans that each gate judged")]
    if report.decisions:
        decisions = [
            (each.decision, number(each.count), when(each.last_at), each.reason or "")
            for each in report.decisions
        ]
        heads = ("decision", "readings#", "last at", "why, the last time")
        parts += [
            "<h3>Decisions</h3>",
            table(heads, decisions, caption="What planning made of each reading"),
        ]
    return Html("".join(parts))


def _plan_table(plans: Sequence[Mapping[str, Any]]) -> Html:
    columns = (
        "plan", "slot", "status", "assignor", "mode", "moves#", "most loaded#", "predicted#", "actual#",
        "why",
    )  # fmt: skip
    rows = [
        (
            Html(f"<code>{escape(plan['plan_id'][:12])}</code>"),
            when(plan["slot"]),
            badge(plan["status"] or "-", _KIND_BY_STATUS.get(plan["status"] or "", "plain")),
            Html(f'<span class="whole">{escape(plan["assignor"])}</span>'),
            plan["mode"],
            number(plan["moves"]),
            formatting.at_least_of(
                plan["max_member_lag_before_records"], plan["num_unknown_lags"], plan["num_partitions"]
            ),
            formatting.at_least_of(
                plan["max_member_lag_predicted_records"], plan["num_unknown_lags"], plan["num_partitions"]
            ),
            formatting.at_least_of(
                plan["max_member_lag_actual_records"],
                plan["num_unknown_partitions_actual"],
                plan["num_partitions_actual"],
            ),
            plan["reason"] or "",
        )
        for plan in plans[:_MAX_ROWS]
    ]
    return table(columns, rows, caption="Plans, newest first; lag of the most loaded member in records")


def _legend(entries: Iterable[tuple[str, str, str]]) -> Html:
    """Name colours: (name, the page's variable, shape)."""
    items = "".join(
        f'<li><i class="{shape}" style="--of:var({variable})" aria-hidden="true"></i>{escape(name)}</li>'
        for name, variable, shape in entries
    )
    return Html(f'<ul class="legend">{items}</ul>')


def note(said: str, command: str = "") -> Html:
    """Write a soft remark, with a command that helps where there is one."""
    told = f"<code>{escape(command)}</code>" if command else ""
    return Html(f'<p class="note">{escape(said)}{told}</p>')


def _most(rows: Sequence[Sequence[object]]) -> Sequence[Sequence[object]]:
    return rows[:_MAX_ROWS]


def _left_out(rows: Sequence[object]) -> str:
    rest = len(rows) - _MAX_ROWS
    return f'<p class="soft">{rest:,} more rows are left out.</p>' if rest > 0 else ""
