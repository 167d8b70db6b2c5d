"""The demo's page: one self-contained HTML file, light or dark, for any screen size."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from evenlag.formatting import percent
from evenlag.html.charts import (
    AFTER,
    BEFORE,
    INK,
    PREDICTED,
    ChartMark,
    Line,
    Size,
    draw_marks,
    finish_axes,
    new_figure,
    plot_lines,
    svg,
)
from evenlag.html.markup import Html, figure, numbers, page, table
from sandbox.demo.result import DemoResult, Promise, listed
from sandbox.demo.sampler import Samples

# The text is still readable at a phone's width.
_SIZE: Final = Size(5.0, 3.3)
# As in the report: a hint that was followed is a circle.
_MARKERS: Final = {"hint followed": "o"}


def bars_svg(result: DemoResult) -> str:
    """Return a bar chart of each consumer's lag before, predicted, and after."""
    figure, axes = new_figure(_SIZE)
    bar = 0.27
    parts = (("before", BEFORE), ("predicted", PREDICTED), ("after", AFTER))
    for offset, (name, colour) in enumerate(parts):
        values = [getattr(member, name) for member in result.members]
        places = [index + (offset - 1) * bar for index in range(len(values))]
        axes.bar(places, values, width=bar * 0.92, color=colour, label=name)
    axes.set_xticks(range(len(result.members)), [member.name for member in result.members])
    axes.set_ylabel("lag, records")
    axes.legend(frameon=False, labelcolor=INK, ncols=3, loc="upper right", handlelength=1.0)
    axes.margins(y=0.16)
    finish_axes(axes)
    label = (
        f"Lag of each consumer in records. The most loaded had {result.max_before:,} before, "
        f"{result.max_predicted:,} were predicted, {result.max_after:,} were seen after."
    )
    return svg(figure, "bars", label)


def timeline_svg(samples: Samples) -> str:
    """Return a chart of each consumer's lag over time, with marked events."""
    figure, axes = new_figure(_SIZE)
    lag_by_name = dict(sorted(samples.lag_by_name.items()))
    lines = [Line(samples.at_s[: len(points)], points) for points in lag_by_name.values()]
    plot_lines(axes, lines, list(lag_by_name))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("lag, records")
    if lag_by_name:
        # Above the axes: the lines and the marks have no free corner in common.
        figure.legend(
            frameon=False, labelcolor=INK, fontsize=8, loc="outside upper center", ncols=4, handlelength=1.4
        )
    finish_axes(axes)
    marks = sorted(samples.marks)
    if samples.at_s:
        last_s = max([*samples.at_s, *(at_s for at_s, _ in marks)])
        axes.set_xlim(min(samples.at_s), last_s * 1.01 or 1)
    draw_marks(figure, axes, [ChartMark(at_s, what, _MARKERS.get(what, "v")) for at_s, what in marks])
    marked = "".join(f" {what} after {at_s:.0f} s;" for at_s, what in marks)
    label = f"Lag of each consumer over time, in records.{marked}".removesuffix(";")
    return svg(figure, "timeline", label)


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
    both = zip(*((member.before, member.after) for member in result.members), strict=True)
    shares = [percent(max(lags) / sum(lags)) if any(lags) else "nothing" for lags in both]
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
    kept = Html('<span class="good">kept</span>')
    broken = Html('<span class="bad">BROKEN</span>')
    rows = [(kept if promise.kept else broken, promise.text, promise.seen) for promise in promises]
    return table(("kept?", "promise", "seen"), rows)


def _member_table(result: DemoResult) -> str:
    columns = ("consumer", "before#", "predicted#", "after#", "partitions before", "partitions after")
    rows = [
        (
            member.name,
            *(f"{value:,}" for value in (member.before, member.predicted, member.after)),
            listed(member.partitions_before),
            listed(member.partitions_after),
        )
        for member in result.members
    ]
    return table(columns, rows)
