"""Layout of a report as one self-contained HTML page: charts with captions, and the numbers as tables."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import groupby
from math import isinf
from typing import Any, Final

from evenlag.enums import PlanEvent
from evenlag.formatting import (
    NOTHING,
    at_least,
    at_least_of,
    bounded,
    bounded_duration,
    count_of,
    duration,
    moment,
    number,
    percent,
)
from evenlag.html.charts import coinciding, legend, line, line_styles, patch, series_variable, shape
from evenlag.html.markup import Html, badge, details, figure, numbers, page, table, text, when
from evenlag.queries.advice import needed_text, target_text
from evenlag.queries.comparisons import (
    MEASURED_SHOWN,
    bounded_text,
    measured_texts,
    model_error_text,
    shown_policy,
    waiting_text,
)
from evenlag.report.charts import (
    HINT_MARKERS,
    MAX_MEMBERS,
    change_plot,
    count_marks,
    lag_lines,
    lag_plot,
    timeline_plot,
)
from evenlag.report.model import HINT_EVENTS, GateSummary, LagChange, Report, Series, Verdict

AUDIT, COMPARE = "evenlag audit build", "evenlag compare run"
MAX_ROWS: Final = 400
# Beyond these relative errors of the model the page warns (ADR 84).
_LARGE_MEDIAN, _LARGE_P95 = 0.1, 0.25
_ABOUT_POLICIES: Final = """<p class="soft">Best is the least waiting at the 99th percentile of the
records (over several days the mean of the days'), then the least lag on average over time, then the fewest
moves. <em>Above 30 s</em>: the share of all waiting that is above 30 s of a record. <em>As it ran
(replayed)</em> is the real assignment in the model, like the candidates; <em>as it ran (measured)</em> is
what Kafka reported, without the model. <em>Drained in</em>: time from the largest measured lag until all
records that had arrived by then were processed. <em>Above the bound</em>: how far the lag of the most loaded
member is above the minimum over all assignments, on average over the snapshots. ≥: a lower bound, because
some values are unknown. In brackets: the bounds that the snapshots leave.</p>"""
_KIND_BY_STATUS: Final[dict[str, str]] = {
    PlanEvent.APPLIED: "good",
    PlanEvent.APPROVED: "good",
    PlanEvent.REJECTED: "warn",
    PlanEvent.IGNORED: "warn",
    PlanEvent.EXPIRED: "warn",
    PlanEvent.WITHDRAWN: "warn",
}


def report_page(
    report: Report,
    *,
    link_of: Callable[[str], str] | None = None,
    clusters: Mapping[str, str] | None = None,
    cluster: str | None = None,
) -> str:
    """Build the page of a report, without scripts and external resources.

    link_of: Returns the URL of the report of another group; None if there is none, as for a file.
    cluster: Which of `clusters` this is; None: the one with the report's own name.
    """
    sections = (
        ("change", "Lag of each member", change_section(report)),
        ("partitions", "Partitions", partitions_section(report.partitions)),
        ("timeline", "Partition ownership", timeline_section(report)),
        ("lag", "Lag over time", lag_section(report)),
        ("policies", "Candidates compared", policies_section(report)),
        ("plans", "Plans, gates and decisions", plans_section(report)),
    )
    contents = "".join(f'<li><a href="#{key}">{text(title)}</a></li>' for key, title, _ in sections)
    body = "".join(
        f'<section aria-labelledby="{key}"><h2 id="{key}">{text(title)}</h2>{content}</section>\n'
        for key, title, content in sections
    )
    title = f"{report.group_id} on {report.cluster}"
    return page(
        f"evenlag: {title}",
        f'<main class="report"><header><h1>{text(title)}</h1>{_verdict(report.verdict)}'
        f'<p class="soft">Slots {when(report.since)} to {when(report.until)}, '
        f"{count_of(report.num_snapshots, 'snapshot')}; the last one ended at {when(report.finished_at)}. "
        f"All times are UTC.</p>"
        f"{_left_out(report)}</header>\n"
        f"{_headline(report)}\n"
        f'<nav aria-label="On this page"><ul>{contents}</ul></nav>\n'
        f"{_clusters(cluster or report.cluster, clusters or {})}{_groups(report, link_of)}{body}</main>\n",
    )


def _verdict(verdict: Verdict) -> Html:
    rest = " ".join(part for part in (verdict.evaluation, verdict.others) if part)
    return Html(
        f'<p class="verdict {text(verdict.kind)}"><strong>{text(verdict.happened)}</strong> {text(rest)}</p>'
    )


def _left_out(report: Report) -> str:
    if not report.num_snapshots_left_out:
        return ""
    return note(
        f"The {report.num_snapshots_left_out:,} oldest snapshots of the period are left out: the period has "
        "more rows than this page reads. The command evenlag report reads all of them."
    )


def _headline(report: Report) -> Html:
    counts = report.num_by_event
    now = report.now
    unknown = ", ".join(f"{count:,} {status}" for status, count in sorted(now["unknown"].items()))
    num_members, num_partitions = now["num_members"], now["num_partitions"]
    but = f"; of {num_partitions:,} partitions not known: {unknown}" if now["num_unknown_partitions"] else ""
    behind = bounded_duration(now["time_lag_ms"], now["time_lag_at_least_ms"])
    facts = [
        (bounded(now["lag_records"], now["lag_bound"]), f"records behind in the last snapshot{but}"),
        (bounded(now["max_member_lag_records"], now["lag_bound"]), "of them at the most loaded member"),
    ]
    if behind != NOTHING:
        facts.append((behind, "age of the oldest unprocessed record in the last snapshot"))
    if report.change is not None and report.change.has_drain_times:
        facts.append(_drain_fact(report.change))
    facts.append((f"{num_members:,} / {num_partitions:,}", "members / partitions"))
    if needed := needed_text(report.advice):
        facts.append((needed, "members needed, by the forecast and the measured speeds"))
    if target := target_text(report.advice):
        facts.append((target, "the target of how long records may wait"))
    num_left, lag_left = now["num_not_subscribed_partitions"], now["not_subscribed_lag_records"]
    if num_left and lag_left != 0:
        left = count_of(num_left, "partition")
        facts.append((number(lag_left), f"records in {left} without a subscriber, not counted"))
    if report.timeline is not None:
        rebalances = sum(mark.kind == "rebalance" for mark in report.timeline.marks)
        facts.append((number(rebalances), "rebalances seen"))
    published, followed = (counts.get(event, 0) for event in (PlanEvent.PUBLISHED, PlanEvent.APPLIED))
    if published or followed:
        facts.append((f"{published:,} / {followed:,}", "hints published / followed"))
    return numbers(facts)


def _drain_fact(change: LagChange) -> tuple[str, str]:
    before, after = _drain_times(change)
    if change.after_at is None:
        return before, "to drain, when planned"
    return f"{before} → {after}", "to drain, before and after the plan"


def _groups(report: Report, link_of: Callable[[str], str] | None) -> str:
    if link_of is None or len(report.groups) < 2:  # noqa: PLR2004  # there is no other group
        return ""
    items = "".join(
        f'<li><a href="{text(link_of(group["group_id"]))}"'
        f"{_current(group['group_id'], report.group_id)}>{text(group['group_id'])}</a> "
        f'<span class="soft">{bounded(group["lag_records"], group["lag_bound"])} behind</span></li>'
        for group in report.groups[:50]
    )
    return f'<nav aria-label="Groups"><ul>{items}</ul></nav>\n'


def _clusters(shown: str, clusters: Mapping[str, str]) -> str:
    if len(clusters) < 2:  # noqa: PLR2004  # there is no other cluster
        return ""
    items = "".join(
        f'<li><a href="{text(link)}"{_current(name, shown)}>{text(name)}</a></li>'
        for name, link in clusters.items()
    )
    return f'<nav aria-label="Clusters"><ul>{items}</ul></nav>\n'


def _current(group_id: str, shown: str) -> str:
    return ' aria-current="page"' if group_id == shown else ""


def change_section(report: Report) -> Html:
    """Build the section on the lag of each member before and after a plan."""
    change = report.change
    if change is None:
        return note("No snapshot of the period shows a live member.")
    parts = ("before", "predicted", "after") if change.plan_id else ("before",)
    bars = legend((patch(f"--{part}"), part if change.plan_id else "lag") for part in parts)
    columns: tuple[str, ...] = ("member", "lag#")
    if change.plan_id:
        columns = ("member", "before#", "predicted#", "after#")
    rows = [
        (
            member.name,
            *map(at_least, (member.before, member.predicted, member.after), member.unknown),
        )[: len(columns)]
        for member in change.members
    ]
    if any(member.speed for member in change.members):
        columns += ("speed/s (confidence)#",)
        rows = [(*row, member.speed or NOTHING) for row, member in zip(rows, change.members, strict=True)]
    folded = details("The numbers", table(columns, rows, caption="Lag of each member, in records"))
    return Html(figure(change_plot(change), _change_caption(change)) + text(bars) + folded)


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
            "differs from the prediction."
        )
        if change.has_drain_times:
            before, after = _drain_times(change)
            rates = "Time to drain at the rates of that time, of the partition that takes longest"
            caption += f" {rates}: before {before}, after {after}."
    else:
        caption += " It has no outcome in the period, so there is no lag after it."
    return caption + rest


def _drain_times(change: LagChange) -> tuple[str, str]:
    """Time to drain before and after the plan, as text."""
    return drain_time(change.drain_before_ms), drain_time(change.drain_after_ms)


def drain_time(milliseconds: float | None) -> str:
    """Format a time to drain; infinite: never."""
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


def partitions_section(partitions: Sequence[Mapping[str, Any]]) -> Html:
    """Build the section on the partitions in the last snapshot, by lag."""
    columns = (
        "partition", "owner", "host", "status", "committed#", "end#", "lag#", "at first#", "in/s#", "out/s#",
        "behind by#",
    )  # fmt: skip
    rows = [
        (
            f"{row['topic']}-{row['partition']}",
            row["owner"],
            row["host"] or "",
            row["status"],
            *(number(row[name]) for name in ("committed_offset", "end_offset")),
            bounded(row["lag_records"], row["lag_bound"]),
            number(row["first_lag_records"]),
            number(row["arrival_rate_records_per_s"], digits=1),
            number(row["consume_rate_records_per_s"], digits=1),
            bounded_duration(row["time_lag_ms"], row["time_lag_at_least_ms"]),
        )
        for row in partitions[:MAX_ROWS]
    ]
    about = "In the last snapshot; at first: the lag in the first snapshot of the period"
    return Html(table(columns, rows, caption=about) + left_out(partitions))


def timeline_section(report: Report) -> Html:
    """Build the section on the owners of the partitions over time."""
    timeline = report.timeline
    if timeline is None:
        return note("The period has not been audited yet. Run: ", AUDIT)
    owners = {name: place for place, name in enumerate(timeline.owners)}
    entries = [(patch(series_variable(place)), f"{place + 1} {name}") for name, place in owners.items()]
    counts = count_marks(timeline.marks)
    entries += _hint_swatches(counts)
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
    happened, held = "Rebalances and hints", "Partition ownership"
    return Html(
        figure(timeline_plot(timeline, owners), caption)
        + text(legend(entries))
        + (_folded(f"{happened} ({len(marks):,})", ("at", "what", "more"), marks, happened) if marks else "")
        + _folded(f"{held} ({len(intervals):,})", ("partition", "owner", "from", "until"), intervals, held)
    )


def _hint_swatches(events: Container[str]) -> list[tuple[Html, str]]:
    return [(shape("--accent", HINT_MARKERS[what]), f"hint {what}") for what in HINT_EVENTS if what in events]


def _folded(summary: str, columns: Sequence[str], rows: Sequence[Sequence[object]], caption: str) -> Html:
    """A folded table of the first rows."""
    return details(summary, table(columns, rows[:MAX_ROWS], caption=caption) + left_out(rows))


def lag_section(report: Report) -> Html:
    """Build the section on the lag over time, observed and simulated."""
    styles = line_styles(lag_lines(report.replayed))
    lines = [
        (line(series_variable(place), dashes=style.dashes, marker=style.marker), each.name)
        for place, (each, style) in enumerate(zip(report.replayed, styles, strict=True))
    ]
    marks = _hint_swatches({mark.event for mark in report.hints})
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
    if report.model is not None:
        caption += f" {_model_error(report.model)}"
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
    return Html(
        figure(lag_plot(report.observed, report.replayed, report.hints), caption)
        + text(legend([(line("--ink", width=3.4), observed.name), *lines, *marks]))
        + hint
        + _folded("The measured numbers", columns, rows, "Measured lag, in records; ≥: a lower bound")
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


def _coinciding(replayed: Sequence[Series]) -> str:
    """Sentence on the lines that cover each other; empty if there are none."""
    coincide = coinciding(lag_lines(replayed))
    groups = [", ".join(replayed[place].name for place in places) for places in coincide]
    return f" On the same line, in turns: {'; '.join(groups)}." if groups else ""


def _model_error(model: Mapping[str, Any]) -> str:
    return (
        f"The replay of the real assignment {model_error_text(model)}: smaller differences between "
        "candidates are not significant."
    )


def model_warning(model: Mapping[str, Any] | None) -> Html:
    """Build a warning that the model is far off; empty if its error is not large."""
    if model is None or not (model["median_error"] > _LARGE_MEDIAN or model["p95_error"] > _LARGE_P95):
        return Html("")
    return Html(f'<p class="note warn">The model is rough here. {text(_model_error(model))}</p>')


def note(message: str, command: str = "") -> Html:
    """Build a note with a command to show after the message, as plain text."""
    code = f"<code>{text(command)}</code>" if command else ""
    return Html(f'<p class="note">{text(message)}{code}</p>')


def left_out(rows: Sequence[object]) -> str:
    """Build a note on the rows beyond :data:`MAX_ROWS`; empty if there are none."""
    rest = len(rows) - MAX_ROWS
    return f'<p class="soft">{rest:,} more rows are left out.</p>' if rest > 0 else ""


def policies_section(report: Report) -> Html:
    """Build the section on simulated policies."""
    if not report.policies and not report.reasons:
        return note("Nothing was compared on these days. Run: ", COMPARE)
    columns = (
        "candidate", "waiting, p95#", "p99#", "above 30 s#", "worst#", "mean lag#", "largest member lag#",
        "drained in#", "moves#", "rebalances#", "above the bound#",
    )  # fmt: skip
    days = max((row["group_days"] for row in report.policies), default=0)
    policy_table = table(
        columns,
        [_policy_cells(row) for row in report.policies]
        + [
            (MEASURED_SHOWN, *[NOTHING] * 3, *measured_texts(row), *[NOTHING] * 5)
            for row in report.policies
            if row.get("measured_max_lag_records") is not None
        ],
        caption=f"Replayed over {count_of(days, 'day')}, best first",
    )
    shown = text(model_warning(report.model)) + policy_table + _ABOUT_POLICIES if report.policies else ""
    return Html(shown + "".join(note(reason) for reason in report.reasons))


def _policy_cells(row: Mapping[str, Any]) -> Sequence[object]:
    name = shown_policy(row["policy"])
    return (
        Html(f"{text(name)} {badge('best', 'good')}") if row["is_best"] else name,
        *(waiting_text(row, column) for column in ("waiting_p95_ms", "waiting_p99_ms")),
        percent(row["above_30s"]),
        waiting_text(row, "max_time_lag_ms"),
        at_least(row["mean_lag_records"], row["unknown_partitions"]),
        bounded_text(row, "peak_member_lag_records"),
        _drained(row),
        number(row["moves"]),
        number(row["rebalances"]),
        percent(row["optimality_gap"]),
    )


def _drained(row: Mapping[str, Any]) -> str:
    days, drain_time_ms = row["not_drained"], row["drain_time_ms"]
    but = f"not on {days} of {count_of(row['group_days'], 'day')}"
    if drain_time_ms is None:
        return but
    return f"{duration(drain_time_ms)}, {but}" if days else duration(drain_time_ms)


def plans_section(report: Report) -> Html:
    """Build the section on plans, gates and decisions."""
    parts: list[str] = []
    if report.plans:
        folded = _fold_rejected(report.plans)
        parts += ["<h3>Plans</h3>", _plan_table(folded), left_out(folded)]
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
    return Html(shown + details(f"{count_of(len(passed), 'gate')} passed every plan", gate_table))


def _across_racks(plan: Mapping[str, Any]) -> str:
    """Share of the load that members read across racks, before and after; empty where no rack is known."""
    before, after = plan["across_racks_before"], plan["across_racks_after"]
    return "" if before is None or after is None else f"{percent(before)} → {percent(after)}"


def _fold_rejected(plans: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Join rejected plans that follow each other with the same reason, so that they fill one row."""

    def verdict(plan: Mapping[str, Any]) -> tuple[object, ...]:
        is_rejected = plan["status"] == PlanEvent.REJECTED
        return tuple(plan[key] for key in (("assignor", "mode", "reason") if is_rejected else ("plan_id",)))

    return [list(equal) for _, equal in groupby(plans, verdict)]


def _slots(plan: Mapping[str, Any], repeats: Sequence[Mapping[str, Any]]) -> Html:
    rest = f" and {len(repeats):,} more since {when(repeats[-1]['slot'])}" if repeats else ""
    return Html(f"{when(plan['slot'])}{rest}")


def _plan_table(folded: Sequence[Sequence[Mapping[str, Any]]]) -> Html:
    columns = (
        "plan", "slot", "status", "assignor", "mode", "moves#", "across racks", "most loaded#", "predicted#",
        "actual#", "why",
    )  # fmt: skip
    rows = [
        (
            Html(f"<code>{text(plan['plan_id'][:12])}</code>"),
            _slots(plan, repeats),
            badge(plan["status"] or "-", _KIND_BY_STATUS.get(plan["status"] or "", "plain")),
            Html(f'<span class="whole">{text(plan["assignor"])}</span>'),
            plan["mode"],
            number(plan["moves"]),
            _across_racks(plan),
            *(
                at_least_of(
                    plan[f"max_member_lag_{part}_records"], plan["num_unknown_lags"], plan["num_partitions"]
                )
                for part in ("before", "predicted")
            ),
            at_least_of(
                plan["max_member_lag_actual_records"],
                plan["num_unknown_partitions_actual"],
                plan["num_partitions_actual"],
            ),
            plan["reason"] or "",
        )
        for plan, *repeats in folded[:MAX_ROWS]
    ]
    return table(columns, rows, caption="Plans, newest first; lag of the most loaded member in records")
