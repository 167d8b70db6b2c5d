"""Layout of a report as one self-contained HTML page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from evenlag.enums import PlanEvent
from evenlag.formatting import at_least, duration, number
from evenlag.html.markup import Html, numbers, page, text, when
from evenlag.queries.comparisons import OBSERVED
from evenlag.report.plans_section import plans_section
from evenlag.report.policies_section import policies_section
from evenlag.report.sections import (
    change_section,
    lag_section,
    timeline_section,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evenlag.report.model import Report


def report_page(
    report: Report,
    *,
    link_of: Callable[[str], str] | None = None,
    clusters: Mapping[str, str] | None = None,
) -> str:
    """Build the page of a report.

    Parameters
    ----------
    report
        Content of the report.
    link_of
        Returns the URL of the report of another group; None if there is none, as for a file.
    clusters
        URLs of the reports of the clusters, by name.

    Returns
    -------
    str
        The page: without scripts and external resources; all text from the lake is escaped.
    """
    sections = (
        ("change", "Lag of each member", change_section(report)),
        ("timeline", "Partition ownership", timeline_section(report)),
        ("lag", "Lag over time", lag_section(report)),
        ("policies", "Candidates compared", policies_section(report)),
        ("plans", "Plans, gates and decisions", plans_section(report)),
    )
    contents = "".join(f'<li><a href="#{key}">{escape(title)}</a></li>' for key, title, _ in sections)
    body = "".join(
        f'<section aria-labelledby="{key}"><h2 id="{key}">{escape(title)}</h2>{content}</section>\n'
        for key, title, content in sections
    )
    title = f"{report.group_id} on {report.cluster}"
    noun = "snapshot" if report.num_snapshots == 1 else "snapshots"
    return page(
        f"evenlag: {title}",
        f'<main class="report"><header><h1>{escape(title)}</h1>'
        f'<p class="soft">Slots {when(report.since)} to {when(report.until)}, {report.num_snapshots:,} '
        f"{noun}; the last one ended at {when(report.finished_at)}. All times are UTC.</p></header>\n"
        f"{_headline(report)}\n"
        f'<nav aria-label="On this page"><ul>{contents}</ul></nav>\n'
        f"{_clusters(report, clusters or {})}{_groups(report, link_of)}{body}</main>\n",
    )


def _headline(report: Report) -> Html:
    counts = report.num_by_event
    now = report.now
    unknown = ", ".join(f"{count:,} {status}" for status, count in sorted(now.unknown.items()))
    but = f"; of {now.num_partitions:,} partitions not known: {unknown}" if now.num_unknown else ""
    facts = [
        (at_least(now.lag_records, now.num_unknown), f"records behind in the last snapshot{but}"),
        (at_least(now.max_member_lag_records, now.num_unknown), "of them at the most loaded member"),
        (f"{report.now.num_members:,} / {report.now.num_partitions:,}", "members / partitions"),
    ]
    if report.timeline is not None:
        rebalances = sum(mark.kind == "rebalance" for mark in report.timeline.marks)
        facts.append((number(rebalances), "rebalances seen"))
    facts.append(
        (
            f"{counts.get(PlanEvent.PUBLISHED, 0):,} / {counts.get(PlanEvent.APPLIED, 0):,}",
            "hints published / followed",
        )
    )
    best = next((each for each in report.policies if each.is_best), None)
    # Without any known lag there is no best policy.
    if best is not None and report.observed.peak is not None:
        whose = "what really ran, replayed," if best.name == OBSERVED else best.name
        facts.append((duration(best.p95_time_lag_ms), f"behind at the 95th percentile by {whose}, the best"))
    return numbers(facts)


def _groups(report: Report, link_of: Callable[[str], str] | None) -> str:
    if link_of is None or len(report.groups) < 2:  # noqa: PLR2004  # there is no other group
        return ""
    items = "".join(
        f'<li><a href="{escape(link_of(group.group_id))}"'
        f"{_current(group.group_id, report.group_id)}>{text(group.group_id)}</a> "
        f'<span class="soft">{at_least(group.lag_records, group.num_unknown)} behind</span></li>'
        for group in report.groups[:50]
    )
    return f'<nav aria-label="Groups"><ul>{items}</ul></nav>\n'


def _clusters(report: Report, clusters: Mapping[str, str]) -> str:
    if len(clusters) < 2:  # noqa: PLR2004  # there is no other cluster
        return ""
    items = "".join(
        f'<li><a href="{escape(link)}"{_current(name, report.cluster)}>{escape(name)}</a></li>'
        for name, link in clusters.items()
    )
    return f'<nav aria-label="Clusters"><ul>{items}</ul></nav>\n'


def _current(group_id: str, shown: str) -> str:
    return ' aria-current="page"' if group_id == shown else ""
