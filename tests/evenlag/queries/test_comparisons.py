"""Aggregates of replays, expected values computed manually: undrained days, ties, unknown and measured."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.cli.compare import notes, policies_table
from evenlag.cli.console import console
from evenlag.queries.comparisons import OptimalityGaps, count_left_out, not_compared, sum_up

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures.command import Evenlag

DAY = date(2026, 3, 1)
BY = "waiting_p99_ms"
MEASURED = {
    "measured_mean_lag_records": 900.5,
    "measured_max_lag_records": 58_743,
    "measured_max_time_lag_ms": 44_000,
    "measured_unknown_share": 0.25,
    "num_unknown_lags": 7,
    "num_unknown_time_lags": 0,
}


BOUNDS = {
    "peak_member_lag_records": 4_403,
    "least_peak_member_lag_records": 3_900,
    "most_peak_member_lag_records": 5_100,
    "least_record_s": 40.0,
    "most_record_s": 65.0,
    "wide_share": 0.5,
}


def replay(group: str, policy: str, **more: Any) -> dict[str, Any]:
    return (
        {
            "day": DAY,
            "group_id": group,
            "policy": policy,
            "reason": None,
            "period_end": datetime(2026, 3, 1, 23, 55, tzinfo=UTC),
            "mean_lag_records": 100.0,
            "max_lag_records": 50_463,
            "waiting_p50_ms": 0,
            "waiting_p95_ms": 500,
            "waiting_p99_ms": 1_000,
            "record_s": 50.0,
            "record_s_above_5s": 10.0,
            "record_s_above_30s": 5.0,
            "record_s_above_300s": 0.0,
            **BOUNDS,
            "max_time_lag_ms": 2_000,
            "drain_time_ms": 10_000,
            "moves": 4,
            "takeover_moves": 1,
            "rebalances": 2,
            "num_unknown_ages": 0,
            "unknown_share": 0.0,
            "num_unknown_partitions": 0,
        }
        | dict.fromkeys(MEASURED)
        | more
    )


def summed(rows: list[dict[str, Any]], distances: OptimalityGaps | None = None) -> dict[str, dict[str, Any]]:
    return {row["policy"]: row for row in sum_up(rows, distances or {}, BY)}


@pytest.mark.parametrize(
    ("drain_ms", "middle", "not_drained"),
    [
        ([None, None, 5_000], None, 2),
        ([None, 5_000, 7_000], 7_000, 1),
        ([None, 5_000], None, 1),
        ([0, 5_000], 2_500, 0),
    ],
)
def test_a_day_that_was_not_drained_counts_as_endless(
    drain_ms: list[int | None], middle: float | None, not_drained: int
) -> None:
    rows = [replay(f"group-{n}", "range", drain_time_ms=value) for n, value in enumerate(drain_ms)]
    row = summed(rows)["range"]
    assert (row["drain_time_ms"], row["not_drained"]) == (middle, not_drained)


def test_policies_that_come_to_the_same_are_best_alike() -> None:
    rows = [replay("g", policy) for policy in ("observed", "cooperative-sticky")]
    rows.append(replay("g", "range", mean_lag_records=101.0))
    found = summed(rows)
    assert {policy: (row["is_best"], row["best_in"]) for policy, row in found.items()} == {
        "cooperative-sticky": (True, 1),
        "observed": (True, 1),
        "range": (False, 0),
    }


def test_a_group_whose_lag_is_not_known_is_in_no_figure_and_is_named() -> None:
    unknown = {"reason": "no snapshot before the last one knows the lag of a partition"}
    numbers = dict.fromkeys(("mean_lag_records", "waiting_p99_ms", "drain_time_ms"))
    rows = [replay("known", policy) for policy in ("observed", "range")]
    rows += [replay("hidden", policy, **(unknown | numbers)) for policy in ("observed", "range")]
    found = summed(rows, {(DAY, "known", "range"): (0.5, 2), (DAY, "hidden", "range"): (0.0, 2)})
    assert found["range"]["mean_lag_records"] == 100.0
    assert found["range"]["optimality_gap"] == 0.25
    assert (found["range"]["group_days"], count_left_out(rows)["left_out"]) == (1, 1)
    assert [(row["group_id"], row["policy"]) for row in not_compared(rows)] == [
        ("hidden", "observed"),
        ("hidden", "range"),
    ]
    assert "Left out: 1" in notes(list(found.values()), count_left_out(rows))[0]


def test_shares_of_waiting_are_of_the_record_time_of_all_group_days() -> None:
    long = {
        "record_s": 150.0,
        "record_s_above_5s": 150.0,
        "record_s_above_30s": 15.0,
        "waiting_p99_ms": 9_000,
    }
    row = summed([replay("g", "range"), replay("h", "range", **long)])["range"]
    assert (row["above_5s"], row["above_30s"], row["above_300s"]) == (0.8, 0.1, 0.0)
    assert (row["waiting_p50_ms"], row["waiting_p99_ms"], row["record_s"]) == (0, 5_000, 200)
    idle = dict.fromkeys(("record_s", "record_s_above_5s", "record_s_above_30s"), 0.0)
    assert summed([replay("g", "range", **idle)])["range"]["above_5s"] == 0.0


def test_days_of_an_older_version_have_no_waiting_and_rank_by_mean_lag() -> None:
    names = ("waiting_p50_ms", "waiting_p95_ms", "waiting_p99_ms", "record_s")
    older = dict.fromkeys((*names, "record_s_above_5s", "record_s_above_30s", "record_s_above_300s"))
    rows = [replay("g", "range", **older), replay("g", "observed", **older, mean_lag_records=99.0)]
    found = sum_up(rows, {}, BY)
    assert [(row["policy"], row["is_best"]) for row in found] == [("observed", True), ("range", False)]
    assert [found[0][name] for name in (*names, "above_5s", "unknown_waiting")] == [*[None] * 5, 1]
    assert "Waiting is not known of 1 group-days" in notes(found, count_left_out(rows))[0]
    # Beside a newer day they are in no mean of waiting.
    both = [replay("h", policy) for policy in ("range", "observed")]
    assert summed(rows + both)["range"]["waiting_p99_ms"] == 1_000


def test_what_snapshots_leave_open_is_beside_what_is_likely_and_said_where_it_is_much() -> None:
    higher = {"peak_member_lag_records": 6_000, "most_peak_member_lag_records": 6_000, "wide_share": None}
    rows = [replay("g", "range"), replay("h", "range", **higher)]
    row = summed(rows)["range"]
    peaks = [row[f"{name}peak_member_lag_records"] for name in ("least_", "", "most_")]
    assert (peaks, row["least_record_s"], row["most_record_s"]) == ([3_900, 6_000, 6_000], 80.0, 130.0)
    assert row["wide_share"] == 0.5
    (note,) = notes([row], count_left_out(rows))
    assert note.startswith("Up to 50.0 % of the snapshots with lag leave a policy's largest member lag open")
    # A day of an older version does not say, and then the sum is not known.
    older = replay("h", "range", **dict.fromkeys(BOUNDS))
    assert summed([replay("g", "range"), older])["range"]["most_record_s"] is None


def test_a_period_in_one_go_has_the_distances_of_all_its_days() -> None:
    rows = [replay("g", "range", period_end=datetime(2026, 3, 2, 12, tzinfo=UTC))]
    distances = {(DAY + timedelta(days=n), "g", "range"): (float(n), 1) for n in range(3)}
    (row,) = sum_up(rows, distances, BY, is_continuous=True)
    assert row["optimality_gap"] == 0.5
    assert sum_up(rows, distances, BY)[0]["optimality_gap"] == 0.0


def test_what_was_measured_is_a_row_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        replay("g", "observed", **MEASURED),
        replay(
            "h", "observed", **(MEASURED | {"measured_max_lag_records": 3, "measured_unknown_share": 0.0})
        ),
        replay("g", "[red]range", drain_time_ms=None),
        replay("h", "[red]range", num_unknown_ages=2),
    ]
    found = sum_up(rows, {}, BY)
    observed = next(row for row in found if row["policy"] == "observed")
    assert (observed["measured_max_lag_records"], observed["unknown_lags"]) == (58_743, 14)
    assert (observed["measured_mean_lag_records"], observed["measured_unknown_share"]) == (900.5, 0.125)
    console().print(policies_table("[bold]title", found, BY))
    lines = capsys.readouterr().out.splitlines()
    shown = {
        name: next(line for line in lines if f" {name} " in line)
        for name in ("as it ran (replayed)", "as it ran (measured)")
    }
    assert "1 s │" in shown["as it ran (replayed)"]
    assert "≥ 900" in shown["as it ran (measured)"]
    assert "44 s" in shown["as it ran (measured)"]
    assert "≥ 44 s" not in shown["as it ran (measured)"]
    (policy,) = (line for line in lines if "[red]range" in line)
    assert "not drained" in policy
    assert "≥ 2 s" in policy
    assert lines[0].startswith("[bold]title")


def test_a_period_that_ends_before_it_begins_is_a_mistake(evenlag: Evenlag, tmp_path: Path) -> None:
    answer = evenlag("compare", "--from", "2026-03-02", "--to", "2026-03-01", "--lake", tmp_path)
    assert answer.exit_code == 2
    assert "--to 2026-03-01 lies before --from 2026-03-02" in answer.stderr
