"""The report's sections as HTML: a picture, its caption, and the same numbers as a table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from evenlag.output import duration, moment, number, percent
from evenlag.report.charts import LINE_STYLES, MAX_MEMBERS, change_plot, lag_plot, timeline_plot
from spark_jobs.pages.charts import series_variable
from spark_jobs.pages.markup import Html, badge, details, figure, table, when

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from evenlag.report.model import LagChange, PolicyResult, Report, Series

AUDIT, COMPARE = "evenlag audit build", "evenlag compare run"
_MAX_ROWS: Final = 400
_KIND_BY_STATUS: Final = {
    "APPLIED": "good",
    "APPROVED": "good",
    "PUBLISHED": "plain",
    "REJECTED": "warn",
    "IGNORED": "warn",
    "EXPIRED": "warn",
    "WITHDRAWN": "warn",
}

_ABOUT_POLICIES: Final = """<p class="soft">Best is the least time behind at the 95th percentile (over several
days the mean of the days'), then the least lag on average, then the fewest moves; <em>observed</em> is what
really ran, replayed as well. <em>Drained in</em>: from the largest lag that was seen until all that had
arrived by then was processed; a dash: not within a day. <em>Above the bound</em>: how far the most loaded
member is above what any assignment could reach, on average over the readings, by lag alone.</p>"""


def change_section(report: Report) -> Html:
    """Lag of each member around the plan that tells most."""
    change = report.change
    if change is None:
        return _note("No reading of the period shows a live member.")
    legend = _legend(
        [("before", "--before", "")]
        + ([("predicted", "--predicted", ""), ("after", "--after", "")] if change.plan_id else [])
    )
    columns = ("member", "before#", "predicted#", "after#") if change.plan_id else ("member", "lag#")
    rows = [
        (member.name, number(member.before), number(member.predicted), number(member.after))[: len(columns)]
        for member in change.members
    ]
    numbers = details("The numbers", table(columns, rows, caption="Lag of each member, in records"))
    return Html(figure(change_plot(change), _change_caption(change)) + legend + numbers)


def _change_caption(change: LagChange) -> str:
    left_out = len(change.members) - MAX_MEMBERS
    rest = f" {left_out} more members are in the table." if left_out > 0 else ""
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


def timeline_section(report: Report) -> Html:
    """Who held what when."""
    timeline = report.timeline
    if timeline is None:
        return _note("The period has not been audited yet. Run: ", AUDIT)
    numbers = {name: place for place, name in enumerate(timeline.owners)}
    entries = [(f"{place + 1} {name}", series_variable(place), "") for name, place in numbers.items()]
    legend = _legend([*entries, ("a hint", "--accent", "down"), ("a rebalance", "--ink", "up")])
    caption = (
        "A bar begins at the reading that first showed the owner and ends at the one that no longer did; the "
        "change lies between two readings. Hatched: held by nobody, or not shown by the group."
    )
    if timeline.num_left_out:
        caption += f" {timeline.num_left_out:,} partitions that changed hands less often are not drawn."
    if timeline.num_unaudited:
        caption += (
            f" {timeline.num_unaudited:,} readings of the period are not audited yet: evenlag audit build."
        )
    stretches = [
        (each.partition, each.owner or f"({each.what})", when(each.start), when(each.end))
        for each in timeline.stretches
    ]
    marks = [(when(mark.at), badge(mark.kind, "plain"), mark.text) for mark in timeline.marks]
    happened = table(("at", "what", "more"), _most(marks), caption="Rebalances and hints")
    held = table(("partition", "held by", "from", "until"), _most(stretches), caption="Who held what")
    return Html(
        figure(timeline_plot(timeline, numbers), caption)
        + legend
        + (details(f"Rebalances and hints ({len(marks):,})", happened + _left_out(marks)) if marks else "")
        + details(f"Who held what ({len(stretches):,})", held + _left_out(stretches))
    )


def lag_section(report: Report) -> Html:
    """Lag over time, as seen and by policy."""
    lines = [
        (each.name, series_variable(place), f"line style-{place % len(LINE_STYLES)}")
        for place, each in enumerate(report.replayed)
    ]
    legend = _legend([("as seen", "--ink", "line"), *lines])
    caption = "Lag of the group in records, at each reading."
    if None in report.observed.lag_records:
        caption += " Where the line breaks it was not known: the group rebalanced."
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
    hint = "" if report.replayed else _note("No other policy was replayed yet. Run: ", COMPARE)
    rows = [
        (when(at), number(lag), number(most))
        for at, lag, most in zip(
            report.observed.at,
            report.observed.lag_records,
            report.observed.max_member_lag_records,
            strict=True,
        )
    ]
    columns = ("at", "group#", "most loaded member#")
    seen = table(columns, _most(rows), caption="Lag as seen, in records")
    return Html(
        figure(lag_plot(report.observed, report.replayed), caption)
        + legend
        + hint
        + details("The numbers as seen", seen + _left_out(rows))
        + (details("Lag by policy", _peaks(report.replayed)) if report.replayed else "")
    )


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


def policies_section(report: Report) -> Html:
    """What each policy would have come to, the best marked."""
    if not report.policies and not report.reasons:
        return _note("Nothing was compared on these days. Run: ", COMPARE)
    columns = (
        "policy", "time behind, p95#", "worst#", "mean lag#", "largest lag#", "drained in#", "moves#",
        "rebalances#", "above the bound#",
    )  # fmt: skip
    days = max((each.num_days for each in report.policies), default=0)
    told = table(
        columns,
        [_policy_row(each) for each in report.policies],
        caption=f"Replayed over {days} {'day' if days == 1 else 'days'}, best first",
    )
    return Html(told + _ABOUT_POLICIES + "".join(_note(reason) for reason in report.reasons))


def _policy_row(each: PolicyResult) -> Sequence[object]:
    return (
        Html(f"{escape(each.name)} {badge('best', 'good')}") if each.is_best else each.name,
        duration(each.p95_time_lag_ms),
        duration(each.max_time_lag_ms),
        number(each.mean_lag_records),
        number(each.max_lag_records),
        _drained(each),
        number(each.moves),
        number(each.rebalances),
        percent(each.distance),
    )


def _drained(each: PolicyResult) -> str:
    days = each.num_not_drained
    but = f", not on {days} of {each.num_days} days" if days and each.drain_time_ms is not None else ""
    return duration(each.drain_time_ms) + but


def plans_section(report: Report) -> Html:
    """What was planned, what the gates said, what became of it."""
    parts: list[str] = []
    if report.plans:
        parts += ["<h3>Plans</h3>", _plan_table(report.plans), _left_out(report.plans)]
    else:
        parts.append(_note("No plan was proposed in the period."))
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
            number(plan["max_member_lag_before_records"]),
            number(plan["max_member_lag_predicted_records"]),
            number(plan["max_member_lag_actual_records"]),
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


def _note(said: str, command: str = "") -> Html:
    told = f"<code>{escape(command)}</code>" if command else ""
    return Html(f'<p class="note">{escape(said)}{told}</p>')


def _most(rows: Sequence[Sequence[object]]) -> Sequence[Sequence[object]]:
    return rows[:_MAX_ROWS]


def _left_out(rows: Sequence[object]) -> str:
    rest = len(rows) - _MAX_ROWS
    return f'<p class="soft">{rest:,} more rows are left out.</p>' if rest > 0 else ""
