"""The demo's page: one HTML file that asks nobody for anything, light or dark, on a phone or a wall."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sandbox.demo_charts import bars_svg, timeline_svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandbox.demo_result import DemoResult, Promise
    from sandbox.demo_sampler import Samples

_STYLE: Final = Path(__file__).with_name("demo.css")


def write_page(path: Path, result: DemoResult, promises: Sequence[Promise], samples: Samples) -> None:
    """Write the page of a demo.

    Parameters
    ----------
    path
        The file to write.
    result, promises
        What happened, and whether it was what was promised.
    samples
        Lag over time.
    """
    kept = all(promise.kept for promise in promises)
    before, after = f"{result.max_before:,}", f"{result.max_after:,}"
    headline = (
        f"The most loaded consumer went from {before} to {after} records behind"
        if kept
        else "Not every promise was kept"
    )
    body = f"""<h1>{escape(headline)}</h1>
<p>Twelve partitions, four consumers, three partitions each: even by count. One consumer held the
partitions that everybody writes to. evenlag observed the group, planned who should hold what, checked the
plan, and handed it to the consumers as a hint; they took it up at their next rebalance.</p>
<ul class="numbers">
{_number(before, "most loaded, before")}
{_number(f"{result.max_predicted:,}", "predicted by the plan")}
{_number(after, "as seen after")}
{_number(str(result.moves), "partitions moved")}
</ul>
<h2>Lag of each consumer</h2>
<figure>{bars_svg(result)}
<figcaption>Records not yet consumed. Before and after are as the two runs read them; consumers and
producers went on all the time, so after is not quite what was predicted.</figcaption></figure>
<h2>Over time</h2>
<figure>{timeline_svg(samples)}
<figcaption>Asked of the broker every two seconds; the marks are the two runs of the DAG and the moment
when every consumer held what was hinted.</figcaption></figure>
<h2>What was promised</h2>
<div class="wide">{_promise_table(promises)}</div>
<h2>Who held what</h2>
<div class="wide">{_member_table(result)}</div>
<p class="soft">Plan <code>{escape(result.plan_id)}</code>, hint sequence {result.sequence}, outcome
{escape(str(result.outcome.get("outcome")))}: {escape(str(result.outcome.get("reason")))}</p>
"""
    style = _STYLE.read_text(encoding="utf-8")
    path.write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>evenlag: what the demo did</title><style>{style}</style></head>\n"
        f"<body>\n{body}</body></html>\n",
        encoding="utf-8",
    )


def _number(value: str, what: str) -> str:
    return f"<li><b>{escape(value)}</b>{escape(what)}</li>"


def _promise_table(promises: Sequence[Promise]) -> str:
    rows = (
        f'<tr><td class="{"good" if promise.kept else "bad"}">{"kept" if promise.kept else "BROKEN"}</td>'
        f"<td>{escape(promise.text)}</td><td>{escape(promise.seen)}</td></tr>"
        for promise in promises
    )
    return _table(("", "promise", "seen"), rows)


def _member_table(result: DemoResult) -> str:
    rows = (
        f"<tr><td>{escape(member.name)}</td>"
        + "".join(
            f'<td class="n">{value:,}</td>' for value in (member.before, member.predicted, member.after)
        )
        + f"<td>{_numbers(member.partitions_before)}</td><td>{_numbers(member.partitions_after)}</td></tr>"
        for member in result.members
    )
    return _table(
        ("consumer", "before#", "predicted#", "after#", "partitions before", "partitions after"), rows
    )


def _table(columns: Iterable[str], rows: Iterable[str]) -> str:
    """Make a table; a column whose name ends in ``#`` holds numbers."""
    head = "".join(
        f'<th class="n">{escape(name[:-1])}</th>' if name.endswith("#") else f"<th>{escape(name)}</th>"
        for name in columns
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _numbers(partitions: Iterable[int]) -> str:
    return ", ".join(str(number) for number in partitions)
