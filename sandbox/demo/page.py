"""The demo's page: one self-contained HTML file, light or dark, for any screen size."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from evenlag.formatting import percent
from evenlag.html.markup import Html, figure, numbers, page, table
from sandbox.demo.charts import bars_svg, timeline_svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from sandbox.demo.result import DemoResult, Promise
    from sandbox.demo.sampler import Samples


def write_page(
    path: Path,
    result: DemoResult,
    promises: Sequence[Promise],
    samples: Samples,
    *,
    is_java: bool = False,
) -> None:
    """Write the page of a demo."""
    kept = all(promise.kept for promise in promises)
    before, after = f"{result.max_before:,}", f"{result.max_after:,}"
    headline = (
        f"The most loaded consumer went from {before} to {after} records behind"
        if kept
        else "Not every promise was kept"
    )
    verdict = _verdict(result, promises)
    facts = (
        (before, "most loaded, before"),
        (f"{result.max_predicted:,}", "predicted by the plan"),
        (after, "measured after"),
        (str(result.moves), "partitions moved"),
    )
    whose = " of Kafka's Java client" if is_java else ""
    body = f"""<main><h1>{escape(headline)}</h1>
<p class="verdict {"good" if kept else "warn"}">{escape(verdict)}</p>
<p>Twelve partitions, four consumers{whose}, three partitions each: even by count. One consumer held the
partitions that everybody writes to. evenlag observed the group, planned who should hold what, checked the
plan, and published it as a hint; the group took it up at its next rebalance.</p>
{numbers(facts)}
<h2>Lag of each consumer</h2>
{figure(bars_svg(result), _BARS)}
<h2>Over time</h2>
{figure(timeline_svg(samples), _TIMELINE)}
<h2>What was promised</h2>
{_promise_table(promises)}
<h2>Partition ownership</h2>
{_member_table(result)}
<p class="soft">Plan <code>{escape(result.plan_id)}</code>, hint sequence {result.sequence}, outcome
{escape(str(result.outcome.get("outcome")))}: {escape(str(result.outcome.get("reason")))}</p></main>
"""
    path.write_text(page("evenlag: what the demo did", body), encoding="utf-8")


def _verdict(result: DemoResult, promises: Sequence[Promise]) -> str:
    """What happened, and whether it was worth it: as in the report."""
    broken = [promise.text for promise in promises if not promise.kept]
    if broken:
        return f"Not kept: {'; '.join(broken)}."
    total_before, total_after = (
        sum(getattr(member, part) for member in result.members) for part in ("before", "after")
    )
    shares = [
        f"{percent(largest / total)}" if total else "nothing"
        for largest, total in ((result.max_before, total_before), (result.max_after, total_after))
    ]
    return (
        f"The group followed the plan: {result.max_predicted:,} records were predicted, {result.max_after:,} "
        "were measured, because consumers and producers continued. It was worth it: the most loaded "
        f"consumer's share of the group's lag went from {shares[0]} to {shares[1]}."
    )


_BARS = (
    "Records not yet consumed. Before and after are as the two runs read them; consumers and producers went "
    "on all the time, so the lag after differs a little from the prediction."
)
_TIMELINE = (
    "Asked of the broker every two seconds; the marks are the two runs of the DAG and the moment when every "
    "consumer held what was hinted."
)


def _promise_table(promises: Sequence[Promise]) -> str:
    rows = [(_kept(is_kept=promise.kept), promise.text, promise.seen) for promise in promises]
    return table(("kept?", "promise", "seen"), rows)


def _kept(*, is_kept: bool) -> Html:
    return Html(f'<span class="{"good" if is_kept else "bad"}">{"kept" if is_kept else "BROKEN"}</span>')


def _member_table(result: DemoResult) -> str:
    columns = ("consumer", "before#", "predicted#", "after#", "partitions before", "partitions after")
    rows = [
        (
            member.name,
            *(f"{value:,}" for value in (member.before, member.predicted, member.after)),
            _numbers(member.partitions_before),
            _numbers(member.partitions_after),
        )
        for member in result.members
    ]
    return table(columns, rows)


def _numbers(partitions: Iterable[int]) -> str:
    return ", ".join(str(number) for number in partitions)
