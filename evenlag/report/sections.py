"""Sections of the report: charts with their captions, and the same numbers as tables."""

from __future__ import annotations

from math import isinf
from typing import TYPE_CHECKING, Final

from evenlag.enums import PlanEvent
from evenlag.formatting import NOTHING, at_least, at_least_of, duration, moment, number, percent
from evenlag.html.charts import Line, coinciding, legend, line, patch, series_variable, shape
from evenlag.html.markup import Html, badge, details, figure, table, text, when
from evenlag.queries.comparisons import MEASURED_SHOWN, shown_policy
from evenlag.report.charts import (
    HINT_MARKERS,
    MAX_MEMBERS,
    change_plot,
    count_marks,
    lag_plot,
    lag_styles,
    timeline_plot,
)
from evenlag.report.model import HINT_EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from evenlag.report.model import (
        GateSummary,
        LagChange,
        ModelError,
        Report,
        Series,
    )


AUDIT, COMPARE = "evenlag audit build", "evenlag compare run"
MAX_ROWS: Final = 400
_ABOUT_POLICIES: Final = """<p class="soft">Best is the least time behind at the 95th percentile (over
several days the mean of the days'), then the least lag on average over time, then the fewest moves.
<em>As it ran (replayed)</em> is the real assignment in the model, like the candidates; <em>as it ran
(measured)</em> is what Kafka reported, without the model. <em>Drained in</em>: time from the largest measured
lag until all records that had arrived by then were processed. <em>Above the bound</em>: how far the lag of
the most loaded member is above the minimum over all assignments, on average over the snapshots. ≥: a lower
bound, because some values are unknown.</p>"""
_KIND_BY_STATUS: Final[dict[str, str]] = {
    PlanEvent.APPLIED: "good",
    PlanEvent.APPROVED: "good",
    PlanEvent.PUBLISHED: "plain",
    PlanEvent.REJECTED: "warn",
    PlanEvent.IGNORED: "warn",
    PlanEvent.EXPIRED: "warn",
    PlanEvent.WITHDRAWN: "warn",
}


def change_section(report: Report) -> Html:
    """Build the section on the lag of each member before and after a plan."""
    change = report.change
    if change is None:
        return note("No snapshot of the period shows a live member.")
    parts = ("before", "predicted", "after") if change.plan_id else ("before",)
    bars = legend((patch(f"--{part}"), part if change.plan_id else "lag") for part in parts)
    columns = ("member", "before#", "predicted#", "after#") if change.plan_id else ("member", "lag#")
    rows = [
        (
            member.name,
            *map(at_least, (member.before, member.predicted, member.after), member.unknown),
        )[: len(columns)]
        for member in change.members
    ]
    numbers = details("The numbers", table(columns, rows, caption="Lag of each member, in records"))
    return Html(figure(change_plot(change), _change_caption(change)) + text(bars) + numbers)


def _change_caption(change: LagChange) -> str:
    num_left_out = len(change.members) - MAX_MEMBERS
    rest = f" {num_left_out} more members are in the table." if num_left_out > 0 else ""
    rest += _unknown_in_change(change)
    if change.plan_id is None:
        return f"Read at {moment(change.before_at)}. The period has no plan to compare with.{rest}"
    caption = (
        f"Plan {change.plan_id[:12]} ({change.status or 'without an event'}) moves {number(change.moves)} "
        f"partitions. Before: read at {moment(change.before_at)}; the plan is based on it."
    )
    if change.after_at is not None:
        caption += (
            f" After: read at {moment(change.after_at)}. Consumers and producers continued in between, so it "
            f"differs from the prediction.{_drain_times(change)}"
        )
    else:
        caption += " It has no outcome in the period, so there is no lag after it."
    return caption + rest


def _drain_times(change: LagChange) -> str:
    """Sentence on the time to drain, if any of it is known."""
    times = (change.drain_before_ms, change.drain_after_ms)
    if times == (None, None):
        return ""
    before, after = (drain_time(each) for each in times)
    rates = "Time to drain at the rates of that time, of the partition that takes longest"
    return f" {rates}: before {before}, after {after}."


def drain_time(milliseconds: float | None) -> str:
    """Format a time to drain.

    milliseconds: The time; infinite: never; None: unknown.
    """
    if milliseconds is None:
        return "not known"
    return "never" if isinf(milliseconds) else duration(milliseconds)


def _unknown_in_change(change: LagChange) -> str:
    sentences = [
        f"{about} the lag of {number(unknown)} of {number(partitions)} partitions was not known."
        for about, (unknown, partitions) in (
            ("Before,", change.unknown_before),
            ("After,", change.unknown_after),
        )
        if unknown
    ]
    if not sentences:
        return ""
    return f" {' '.join(sentences)} ≥ marks a lower bound in the table; a bar shows only what was known."


def timeline_section(report: Report) -> Html:
    """Build the section on the owners of the partitions over time."""
    timeline = report.timeline
    if timeline is None:
        return note("The period has not been audited yet. Run: ", AUDIT)
    numbers = {name: place for place, name in enumerate(timeline.owners)}
    entries = [(patch(series_variable(place)), f"{place + 1} {name}") for name, place in numbers.items()]
    counts = count_marks(timeline.marks)
    entries += [
        (shape("--accent", HINT_MARKERS[what]), f"hint {what}") for what in HINT_EVENTS if what in counts
    ]
    if "rebalance" in counts:
        entries.append((shape("--ink", "^"), "a rebalance"))
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
        + text(legend(entries))
        + (details(f"Rebalances and hints ({len(marks):,})", happened + left_out(marks)) if marks else "")
        + details(f"Partition ownership ({len(intervals):,})", held + left_out(intervals))
    )


def lag_section(report: Report) -> Html:
    """Build the section on the lag over time, observed and simulated."""
    lines = [
        (line(series_variable(place), dashes=style.dashes, marker=style.marker), each.name)
        for place, (each, style) in enumerate(zip(report.replayed, lag_styles(report.replayed), strict=True))
    ]
    events = {mark.event for mark in report.hints}
    marks = [
        (shape("--accent", HINT_MARKERS[what]), f"hint {what}") for what in HINT_EVENTS if what in events
    ]
    caption = (
        "Lag of the group in records, at the times at which it was read, without topics that no member "
        f"subscribes to.{_unknown(report)}"
    )
    if report.replayed:
        caption += (
            " The thin lines are replays: each candidate, and the real assignment as it ran, is simulated "
            "from the measured state of the day's first snapshot, with the measured arrival rates and "
            "processing rates of the members."
        ) + _coinciding(report.replayed)
    if report.model_error is not None:
        caption += f" {_model_error(report.model_error)}"
    hint = "" if report.replayed else note("No candidate has been replayed yet. Run: ", COMPARE)
    observed = report.observed
    unknown = observed.num_unknown or (0,) * len(observed.at)
    rows = [
        (when(at), at_least(lag, count), at_least(most, count), number(count))
        for at, lag, most, count in zip(
            observed.at, observed.lag_records, observed.max_member_lag_records, unknown, strict=True
        )
    ]
    columns = ("at", "group#", "most loaded member#", "partitions not known#")
    seen = table(columns, _most(rows), caption="Measured lag, in records; ≥: a lower bound")
    return Html(
        figure(lag_plot(report.observed, report.replayed, report.hints), caption)
        + text(legend([(line("--ink", width=3.4), observed.name), *lines, *marks]))
        + hint
        + details("The measured numbers", seen + left_out(rows))
        + (details("Lag by candidate", _peaks(report.replayed)) if report.replayed else "")
    )


def _unknown(report: Report) -> str:
    """Sentence on the unknown lag, and the status of these partitions; empty if all lag is known."""
    observed = report.observed
    if not any(observed.num_unknown):
        return ""
    count = len(observed.at)
    gaps = sum(value is None for value in observed.lag_records)
    bounds = sum(map(bool, observed.num_unknown)) - gaps
    sentences = []
    if gaps == count:
        sentences.append("It was not known in any snapshot.")
    elif gaps:
        sentences.append(f"Where the line breaks it was not known: in {gaps:,} of {count:,} snapshots.")
    if bounds:
        sentences.append(f"In {bounds:,} of {count:,} snapshots some of it was not known: at least so much.")
    statuses = ", ".join(
        f"{status} (up to {most:,} partitions in {seen:,} snapshots)"
        for status, seen, most in observed.unknown
    )
    return f" {' '.join(sentences)} Status of the partitions whose lag was not known: {statuses}."


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
        ("candidate", "first#", "largest#", "last#"),
        rows,
        caption="Lag of the group by candidate, in records",
    )


def _coinciding(replayed: Sequence[Series]) -> str:
    """Sentence on the lines that cover each other; empty if there are none."""
    lines = [Line(each.at, each.lag_records) for each in replayed]
    groups = [", ".join(replayed[place].name for place in places) for places in coinciding(lines)]
    return f" On the same line, in turns: {'; '.join(groups)}." if groups else ""


def _model_error(error: ModelError) -> str:
    return (
        f"The replay of the real assignment {error.text}: smaller differences between candidates are not "
        "significant."
    )


def model_warning(error: ModelError | None) -> Html:
    """Build a warning that the model is far off.

    Returns the warning; empty if the error is not large.
    """
    if error is None or not error.is_large:
        return Html("")
    return Html(f'<p class="note warn">The model is rough here. {text(_model_error(error))}</p>')


def note(message: str, command: str = "") -> Html:
    """Build a note.

    command: Command to show after the message, as plain text; none if empty.
    """
    code = f"<code>{text(command)}</code>" if command else ""
    return Html(f'<p class="note">{text(message)}{code}</p>')


def _most(rows: Sequence[Sequence[object]]) -> Sequence[Sequence[object]]:
    return rows[:MAX_ROWS]


def left_out(rows: Sequence[object]) -> str:
    """Build a note on the rows beyond :data:`MAX_ROWS`; empty if there are none."""
    rest = len(rows) - MAX_ROWS
    return f'<p class="soft">{rest:,} more rows are left out.</p>' if rest > 0 else ""


def policies_section(report: Report) -> Html:
    """Build the section on simulated policies."""
    if not report.policies and not report.reasons:
        return note("Nothing was compared on these days. Run: ", COMPARE)
    columns = (
        "candidate", "time behind, p95#", "worst#", "mean lag#", "largest lag#", "drained in#", "moves#",
        "rebalances#", "above the bound#",
    )  # fmt: skip
    days = max((row["group_days"] for row in report.policies), default=0)
    policy_table = table(
        columns,
        [_policy_cells(row) for row in report.policies]
        + [
            _measured_cells(row) for row in report.policies if row.get("measured_max_lag_records") is not None
        ],
        caption=f"Replayed over {days} {'day' if days == 1 else 'days'}, best first",
    )
    shown = (
        text(model_warning(report.model_error)) + policy_table + _ABOUT_POLICIES if report.policies else ""
    )
    return Html(shown + "".join(note(reason) for reason in report.reasons))


def _policy_cells(row: Mapping[str, Any]) -> Sequence[object]:
    name = shown_policy(row["policy"])
    is_partly_known = row["unknown_partitions"]
    return (
        Html(f"{text(name)} {badge('best', 'good')}") if row["is_best"] else name,
        *(
            _bound(duration(row[column]), row["unknown_ages"] or is_partly_known)
            for column in ("p95_time_lag_ms", "max_time_lag_ms")
        ),
        *(_bound(number(row[column]), is_partly_known) for column in ("mean_lag_records", "max_lag_records")),
        _drained(row),
        number(row["moves"]),
        number(row["rebalances"]),
        percent(row["optimality_gap"]),
    )


def _measured_cells(row: Mapping[str, Any]) -> Sequence[object]:
    return (
        MEASURED_SHOWN,
        NOTHING,
        _bound(duration(row["measured_max_time_lag_ms"]), row["unknown_time_lags"]),
        _bound(number(row["measured_mean_lag_records"]), row["measured_unknown_share"]),
        _bound(number(row["measured_max_lag_records"]), row["unknown_lags"]),
        *[NOTHING] * 4,
    )


def _bound(value: str, unknown: float | None) -> str:
    """Mark a number as a lower bound if a part of it is unknown."""
    return f"≥ {value}" if unknown and value != NOTHING else value


def _drained(row: Mapping[str, Any]) -> str:
    days, drain_time_ms = row["not_drained"], row["drain_time_ms"]
    but = f"not on {days} of {row['group_days']} {'day' if row['group_days'] == 1 else 'days'}"
    if drain_time_ms is None:
        return but
    return f"{duration(drain_time_ms)}, {but}" if days else duration(drain_time_ms)


def plans_section(report: Report) -> Html:
    """Build the section on plans, gates and decisions."""
    parts: list[str] = []
    if report.plans:
        parts += ["<h3>Plans</h3>", _plan_table(report.plans), left_out(report.plans)]
    else:
        parts.append(note("No plan was proposed in the period."))
    if report.gates:
        parts += ["<h3>Gates</h3>", _gates(report.gates)]
    if report.decisions:
        decisions = [
            (each.decision, number(each.count), when(each.last_at), each.reason or "")
            for each in report.decisions
        ]
        heads = ("decision", "snapshots#", "last at", "last reason")
        parts += [
            "<h3>Decisions</h3>",
            table(heads, decisions, caption="Planning decisions by snapshot"),
        ]
    return Html("".join(parts))


def _gates(gates: Sequence[GateSummary]) -> Html:
    """Gates that refused a plan as a table, the others below it, folded."""
    refused = [gate for gate in gates if gate.num_failed]
    passed = [gate for gate in gates if not gate.num_failed]
    shown = "" if refused else "<p>Every gate passed every plan.</p>"
    if refused:
        columns = ("gate", "judged#", "refused#", "last refusal")
        rows = [
            (
                gate.gate,
                number(gate.num_judged),
                badge(number(gate.num_failed), "warn"),
                gate.last_refusal or "",
            )
            for gate in refused
        ]
        shown = table(columns, rows, caption="Gates that refused plans")
    if not passed:
        return Html(shown)
    judged = [(gate.gate, number(gate.num_judged)) for gate in passed]
    gate_table = table(("gate", "judged#"), judged, caption="Gates that passed every plan")
    noun = "gate" if len(passed) == 1 else "gates"
    return Html(shown + details(f"{len(passed):,} {noun} passed every plan", gate_table))


def _plan_table(plans: Sequence[Mapping[str, Any]]) -> Html:
    columns = (
        "plan", "slot", "status", "assignor", "mode", "moves#", "most loaded#", "predicted#", "actual#",
        "why",
    )  # fmt: skip
    rows = [
        (
            Html(f"<code>{text(plan['plan_id'][:12])}</code>"),
            when(plan["slot"]),
            badge(plan["status"] or "-", _KIND_BY_STATUS.get(plan["status"] or "", "plain")),
            Html(f'<span class="whole">{text(plan["assignor"])}</span>'),
            plan["mode"],
            number(plan["moves"]),
            at_least_of(
                plan["max_member_lag_before_records"], plan["num_unknown_lags"], plan["num_partitions"]
            ),
            at_least_of(
                plan["max_member_lag_predicted_records"], plan["num_unknown_lags"], plan["num_partitions"]
            ),
            at_least_of(
                plan["max_member_lag_actual_records"],
                plan["num_unknown_partitions_actual"],
                plan["num_partitions_actual"],
            ),
            plan["reason"] or "",
        )
        for plan in plans[:MAX_ROWS]
    ]
    return table(columns, rows, caption="Plans, newest first; lag of the most loaded member in records")
