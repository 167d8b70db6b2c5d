"""Layout of a report as one self-contained HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlag.enums import PlanEvent
from evenlag.formatting import bounded, bounded_duration, number
from evenlag.html.markup import Html, numbers, page, text, when
from evenlag.report.sections import (
    change_section,
    drain_time,
    lag_section,
    note,
    plans_section,
    policies_section,
    timeline_section,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evenlag.report.model import LagChange, Report, Verdict


def report_page(
    report: Report,
    *,
    link_of: Callable[[str], str] | None = None,
    clusters: Mapping[str, str] | None = None,
    cluster: str | None = None,
) -> str:
    """Build the page of a report.

    Returns the page: without scripts and external resources; all text from the lake is escaped.
    link_of: Returns the URL of the report of another group; None if there is none, as for a file.
    cluster: Which of them this is; None: the one with the report's own name.
    """
    sections = (
        ("change", "Lag of each member", change_section(report)),
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
    noun = "snapshot" if report.num_snapshots == 1 else "snapshots"
    return page(
        f"evenlag: {title}",
        f'<main class="report"><header><h1>{text(title)}</h1>{_verdict(report.verdict)}'
        f'<p class="soft">Slots {when(report.since)} to {when(report.until)}, {report.num_snapshots:,} '
        f"{noun}; the last one ended at {when(report.finished_at)}. All times are UTC.</p>"
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
    """Note that the period is longer than what was read of it."""
    if not report.num_snapshots_left_out:
        return ""
    return note(
        f"The {report.num_snapshots_left_out:,} oldest snapshots of the period are left out: the period has "
        "more rows than this page reads. The command evenlag report reads all of them."
    )


def _headline(report: Report) -> Html:
    counts = report.num_by_event
    now = report.now
    unknown = ", ".join(f"{count:,} {status}" for status, count in sorted(now.unknown.items()))
    but = f"; of {now.num_partitions:,} partitions not known: {unknown}" if now.num_unknown else ""
    facts = [
        (bounded(now.lag_records, now.lag_bound), f"records behind in the last snapshot{but}"),
        (bounded(now.max_member_lag_records, now.lag_bound), "of them at the most loaded member"),
    ]
    if now.time_lag_ms is not None or now.time_lag_at_least_ms is not None:
        facts.append(
            (
                bounded_duration(now.time_lag_ms, now.time_lag_at_least_ms),
                "age of the oldest unprocessed record in the last snapshot",
            )
        )
    facts += [
        *_drain_times(report.change),
        (f"{report.now.num_members:,} / {report.now.num_partitions:,}", "members / partitions"),
    ]
    num_left, lag_left = now.not_subscribed
    if num_left and lag_left != 0:
        noun = "partition" if num_left == 1 else "partitions"
        facts.append((number(lag_left), f"records in {num_left:,} {noun} without a subscriber, not counted"))
    if report.timeline is not None:
        rebalances = sum(mark.kind == "rebalance" for mark in report.timeline.marks)
        facts.append((number(rebalances), "rebalances seen"))
    published, followed = (counts.get(event, 0) for event in (PlanEvent.PUBLISHED, PlanEvent.APPLIED))
    if published or followed:
        facts.append((f"{published:,} / {followed:,}", "hints published / followed"))
    return numbers(facts)


def _drain_times(change: LagChange | None) -> list[tuple[str, str]]:
    """Time to drain before and after the plan, if any of it is known."""
    if change is None or (change.drain_before_ms, change.drain_after_ms) == (None, None):
        return []
    before, after = drain_time(change.drain_before_ms), drain_time(change.drain_after_ms)
    if change.after_at is None:
        return [(before, "to drain, when planned")]
    return [(f"{before} → {after}", "to drain, before and after the plan")]


def _groups(report: Report, link_of: Callable[[str], str] | None) -> str:
    if link_of is None or len(report.groups) < 2:  # noqa: PLR2004  # there is no other group
        return ""
    items = "".join(
        f'<li><a href="{text(link_of(group.group_id))}"'
        f"{_current(group.group_id, report.group_id)}>{text(group.group_id)}</a> "
        f'<span class="soft">{bounded(group.lag_records, group.lag_bound)} behind</span></li>'
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
