"""The report's section of policies: what each would have come to, beside what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.formatting import NOTHING, duration, number, percent
from evenlag.html.markup import Html, badge, table, text
from evenlag.queries.comparisons import MEASURED_SHOWN, shown_policy
from evenlag.report.sections import COMPARE, model_warning, note
from evenlag.safe_text import page_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.report.candidates import MeasuredResult, PolicyResult
    from evenlag.report.model import Report

_ABOUT_POLICIES: Final = """<p class="soft">Best is the least time behind at the 95th percentile (over
several days the mean of the days'), then the least lag on average over time, then the fewest moves.
<em>As it ran (replayed)</em> is the real assignment in the model, like the candidates; <em>as it ran
(measured)</em> is what Kafka reported, without the model. <em>Drained in</em>: time from the largest measured
lag until all records that had arrived by then were processed. <em>Above the bound</em>: how far the lag of
the most loaded member is above the minimum over all assignments, on average over the snapshots. ≥: a lower
bound, because some values are unknown.</p>"""


def policies_section(report: Report) -> Html:
    """Build the section on simulated policies."""
    if not report.policies and not report.reasons:
        return note("Nothing was compared on these days. Run: ", COMPARE)
    columns = (
        "candidate", "time behind, p95#", "worst#", "mean lag#", "largest lag#", "drained in#", "moves#",
        "rebalances#", "above the bound#",
    )  # fmt: skip
    days = max((each.num_days for each in report.policies), default=0)
    policy_table = table(
        columns,
        [_policy_row(each) for each in report.policies]
        + [_measured_row(each.measured) for each in report.policies if each.measured is not None],
        caption=f"Replayed over {days} {'day' if days == 1 else 'days'}, best first",
    )
    shown = (
        text(model_warning(report.model_error)) + policy_table + _ABOUT_POLICIES if report.policies else ""
    )
    return Html(shown + "".join(note(reason) for reason in report.reasons))


def _policy_row(each: PolicyResult) -> Sequence[object]:
    name = shown_policy(each.name)
    return (
        Html(f"{page_text(name)} {badge('best', 'good')}") if each.is_best else name,
        *(
            _bound(duration(value), each.unknown_ages or each.unknown_partitions)
            for value in (each.p95_time_lag_ms, each.max_time_lag_ms)
        ),
        *(
            _bound(number(value), each.unknown_partitions)
            for value in (each.mean_lag_records, each.max_lag_records)
        ),
        _drained(each),
        number(each.moves),
        number(each.rebalances),
        percent(each.optimality_gap),
    )


def _measured_row(each: MeasuredResult) -> Sequence[object]:
    return (
        MEASURED_SHOWN,
        NOTHING,
        _bound(duration(each.max_time_lag_ms), each.unknown_time_lags),
        _bound(number(each.mean_lag_records), each.unknown_share),
        _bound(number(each.max_lag_records), each.unknown_lags),
        *[NOTHING] * 4,
    )


def _bound(value: str, unknown: float | None) -> str:
    """Mark a number as a lower bound if a part of it is unknown."""
    return f"≥ {value}" if unknown and value != NOTHING else value


def _drained(each: PolicyResult) -> str:
    days = each.num_not_drained
    but = f"not on {days} of {each.num_days} {'day' if each.num_days == 1 else 'days'}"
    if each.drain_time_ms is None:
        return but
    return f"{duration(each.drain_time_ms)}, {but}" if days else duration(each.drain_time_ms)
