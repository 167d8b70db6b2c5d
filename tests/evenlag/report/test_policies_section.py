"""The section of policies: replayed and measured are two rows, and what is not known is a lower bound."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evenlag.report.page import policies_section

if TYPE_CHECKING:
    from evenlag.report.model import Report

RANGE = {
    "policy": "range",
    "group_days": 3,
    "mean_lag_records": 15_573.4,
    "max_lag_records": 50_463,
    "peak_member_lag_records": 9_000,
    "least_peak_member_lag_records": 8_000,
    "most_peak_member_lag_records": 9_500,
    "waiting_p95_ms": 12_000,
    "waiting_p99_ms": 30_000,
    "above_30s": 0.125,
    "max_time_lag_ms": 44_000,
    "drain_time_ms": 39_700,
    "not_drained": 0,
    "moves": 4,
    "rebalances": 2,
    "optimality_gap": None,
    "is_best": False,
    "unknown_ages": 0,
    "unknown_partitions": 0,
}
MEASURED = {
    "measured_mean_lag_records": 12_000.0,
    "measured_max_lag_records": 58_743,
    "measured_max_time_lag_ms": 41_000,
    "unknown_lags": 3,
    "measured_unknown_share": 0.0,
    "unknown_time_lags": 0,
}


def cells(report: Report, *policies: dict[str, Any]) -> dict[str, list[str]]:
    """Cells of the section's rows by the name of the policy, without markup."""
    page = policies_section(replace(report, policies=policies, reasons=()))
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    found = [
        [
            re.sub("<[^>]+>", "", cell).strip()
            for cell in re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row, re.DOTALL)
        ]
        for row in rows
    ]
    return {row[0]: row[1:] for row in found if row}


def test_the_replay_of_what_ran_and_what_was_measured_are_two_rows(report: Report) -> None:
    rows = cells(report, RANGE, {**RANGE, **MEASURED, "policy": "observed"})
    assert rows["as it ran (replayed)"] == rows["range"]
    assert rows["range"] == [
        "12 s",
        "30 s",
        "12.5 %",
        "44 s",
        "15,573",
        "9,000 (8,000 to 9,500)",
        "39 s",
        "4",
        "2",
        "-",
    ]
    assert rows["as it ran (measured)"] == ["-", "-", "-", "41 s", "12,000", "-", "-", "-", "-", "-"]


def test_days_that_were_not_drained_are_counted(report: Report) -> None:
    some = {**RANGE, "not_drained": 1, "unknown_ages": 2}
    most = {**RANGE, "policy": "sticky", "not_drained": 2, "drain_time_ms": None}
    rows = cells(report, some, most)
    assert rows["range"][6] == "39 s, not on 1 of 3 days"
    assert rows["range"][:4] == ["≥ 12 s", "≥ 30 s", "12.5 %", "≥ 44 s"]
    assert rows["sticky"][6] == "not on 2 of 3 days"


def test_partitions_of_unknown_lag_make_each_lag_a_lower_bound(report: Report) -> None:
    rows = cells(report, {**RANGE, "unknown_partitions": 1})
    assert rows["range"][:5] == ["≥ 12 s", "≥ 30 s", "12.5 %", "≥ 44 s", "≥ 15,573"]


def test_a_model_that_is_far_off_is_warned_about_with_both_errors(report: Report) -> None:
    for median, p95, is_large in ((0.1, 0.25, False), (0.11, 0.12, True), (0.02, 0.31, True)):
        model = {"median_error": median, "median_error_records": 8, "p95_error": p95}
        model |= {"p95_error_records": 70, "error_snapshots": 12}
        shown = policies_section(replace(report, policies=(RANGE,), reasons=(), model=model))
        assert ("The model is rough here." in shown) == is_large
    assert (
        "The replay of the real assignment differs from the measured lag by 2.0 % (8 records) at the median "
        "and 31.0 % (70 records) at the 95th percentile of the 12 snapshots with lag: smaller differences"
    ) in shown
