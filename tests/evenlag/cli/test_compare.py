"""`evenlag compare`: the best marked, over what all policies have, and how far the model is off."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.tables import COMPARISONS, CONTINUOUS_REPLAYS, REPLAYS, SNAPSHOTS
from tests.support.lakes.command_lake import DAY, FIRST, FIRST_SLOT, write_rows
from tests.support.spark_tables import together

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.command import Evenlag


def _replay(group: str, policy: str, time_lag_ms: int, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "policy": policy,
        "mean_lag_records": time_lag_ms / 10,
        "max_lag_records": time_lag_ms,
        "waiting_p50_ms": 0,
        "waiting_p95_ms": time_lag_ms // 2,
        "waiting_p99_ms": time_lag_ms,
        "record_s": 100.0,
        "record_s_above_5s": 50.0,
        "record_s_above_30s": 25.0,
        "record_s_above_300s": 0.0,
        "max_time_lag_ms": 2 * time_lag_ms,
        "drain_time_ms": 60_000,
        "moves": 4,
        "takeover_moves": 1,
        "rebalances": 2,
        "num_observed_capacities": 3,
        "num_assumed_capacities": 1,
    } | more


@pytest.fixture(scope="module")
def compared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups of which `range` suits one; a third that was replayed under one policy only."""
    lake = tmp_path_factory.mktemp("compared")
    with together(spark):
        write_rows(lake, SNAPSHOTS, [{"snapshot_id": FIRST, "slot": FIRST_SLOT}])
        seen = {"median_error": 0.02, "p95_error": 0.1, "median_error_records": 40.0}
        seen |= {"p95_error_records": 400.0, "num_error_snapshots": 9}
        rows = [
            _replay("billing", "observed", 9_000, **seen),
            _replay("billing", "range", 8_000, drain_time_ms=None),
            _replay("billing", "lag-aware-sticky", 1_000, moves=9),
            _replay("orders", "observed", 3_000, **(seen | {"median_error": 0.04})),
            _replay("orders", "range", 2_000),
            _replay("orders", "lag-aware-sticky", 2_500),
            _replay("audit", "observed", 77_000),
            {"group_id": "audit", "policy": "range", "reason": "a simulation needs at least two snapshots"},
        ]
        # Of a fourth one the lag of a partition was never known: its figures are lower bounds.
        unknown = {"num_unknown_partitions": 1}
        rows += [_replay("partly", policy, 9_000_000, **unknown) for policy in ("range", "lag-aware-sticky")]
        rows.append(_replay("partly", "observed", 9_000_000, **unknown, **(seen | {"median_error": 3_940.0})))
        write_rows(lake, REPLAYS, rows)
        write_rows(lake, COMPARISONS, [{"group_id": "orders", "policy": "range", "optimality_gap": 0.25}])
    return lake


def test_the_best_comes_first_over_what_every_policy_was_replayed_for(
    evenlag: Evenlag, compared: Path
) -> None:
    answer = evenlag("compare", "--lake", compared, "--json")
    assert answer.exit_code == 0, answer.output
    content = json.loads(answer.stdout)
    (overall,) = content["groups"]
    assert content["days"] == [DAY.isoformat()]
    rows = {row["policy"]: row for row in overall["policies"]}
    assert list(rows) == ["lag-aware-sticky", "range", "observed"]
    assert [row["is_best"] for row in rows.values()] == [True, False, False]
    # The group that one policy has no replay of is in nobody's figures.
    assert {row["group_days"] for row in rows.values()} == {2}
    assert rows["lag-aware-sticky"]["waiting_p99_ms"] == 1_750
    assert (rows["range"]["best_in"], rows["range"]["not_drained"], rows["range"]["optimality_gap"]) == (
        1,
        1,
        0.25,
    )
    assert overall["model"]["median_error"] == pytest.approx(0.03)
    assert overall["model"]["observed_capacities"] == 6
    assert [row["group_id"] for row in overall["not_compared"]] == ["audit"]
    assert (overall["left_out"], overall["partly_known"]) == (1, 1)


def test_a_group_of_partly_unknown_lag_has_lower_bounds_of_its_own(evenlag: Evenlag, compared: Path) -> None:
    answer = evenlag("compare", "partly", "--lake", compared)
    assert "≥ 900,000" in answer.stdout
    assert "The lag of 1 partitions was never known" in " ".join(answer.stdout.split())


def test_each_group_has_its_own_best_and_what_is_best_can_be_chosen(evenlag: Evenlag, compared: Path) -> None:
    content = json.loads(evenlag("compare", "--per-group", "--lake", compared, "--json").stdout)
    best = {each["group_id"]: each["policies"][0]["policy"] for each in content["groups"] if each["policies"]}
    assert best == {
        "audit": "observed",
        "billing": "lag-aware-sticky",
        "orders": "range",
        "partly": "lag-aware-sticky",
    }
    by_moves = json.loads(evenlag("compare", "billing", "--by", "moves", "--lake", compared, "--json").stdout)
    assert by_moves["groups"][0]["policies"][0]["policy"] == "range"


def test_people_see_the_best_marked_the_error_of_the_model_and_what_is_missing(
    evenlag: Evenlag, compared: Path, tmp_path: Path
) -> None:
    shown = evenlag("compare", "--lake", compared, "--export", tmp_path / "policies.csv").stdout
    best = next(line for line in shown.splitlines() if " lag-aware-sticky " in line)
    assert "best" in best
    # 99 % of the records wait no longer than 1.75 s on average over the group-days.
    assert "1 s │" in best
    assert "25.0 %" in best
    message = "differs from the measured lag by 3.0 % (40 records) at the median and 10.0 % (400 records) at"
    assert message in " ".join(shown.split())
    assert "Left out of the means: 1 group-days" in " ".join(shown.split())
    assert "a simulation needs at least two snapshots" in shown
    lines = (tmp_path / "policies.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("group_id,policy")
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("compare", "biling", "--lake", "{lake}"), 4, "did you mean 'billing'"),
        (("compare", "--from", "2027-01-01", "--lake", "{lake}"), 4, "evenlag compare run --day DAY"),
        (("compare", "--from", "yesterday", "--lake", "{lake}"), 2, "is no day"),
        (("compare", "run", "--day", "2026-03-01"), 2, "there is no policy file"),
        (("compare", "run", "--config", "{policy}", "-a", "rang"), 2, "did you mean 'range'"),
        (("compare", "run", "--config", "{policy}", "--cluster", "x"), 2, "no cluster 'x'; it has: orders"),
        (
            ("compare", "run", "--config", "{policy}", "--day", "2026-03-02", "--to", "2026-03-01"),
            2,
            "lies before",
        ),
    ],
)
def test_a_mistake_is_told_before_anything_is_started(
    evenlag: Evenlag, compared: Path, tmp_path: Path, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        f"lake: {compared}\nclusters: {{orders: {{bootstrap_servers: a:1}}}}\n", encoding="utf-8"
    )
    answer = evenlag(*(argument.format(lake=compared, policy=policy) for argument in arguments))
    assert answer.exit_code == exit_code, answer.output
    assert message in " ".join(answer.stderr.split())


def test_periods_in_one_go_are_shown_apart(evenlag: Evenlag, compared: Path) -> None:
    assert evenlag("compare", "--continuous", "--lake", compared).exit_code == 4
    write_rows(compared, CONTINUOUS_REPLAYS, [_replay("orders", "range", 5_000)])
    content = json.loads(evenlag("compare", "--continuous", "--lake", compared, "--json").stdout)
    assert content["groups"][0]["policies"][0]["waiting_p99_ms"] == 5_000


def test_days_outside_are_left_out(evenlag: Evenlag, compared: Path) -> None:
    older = _replay("orders", "range", 1) | {"day": date(2026, 1, 1)}
    write_rows(compared, REPLAYS, [older])
    content = json.loads(
        evenlag("compare", "orders", "--from", DAY, "--to", DAY, "--lake", compared, "--json").stdout
    )
    assert content["days"] == [DAY.isoformat()]
