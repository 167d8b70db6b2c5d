"""`evenlag lag` and `evenlag plans`: what they show, and why a group has no plan."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import DECISIONS, MEMBERS, OUTCOMES, PLAN_EVALUATIONS, PLANS, SNAPSHOTS, SPEEDS
from tests.support.lakes.command_lake import (
    APPLIED_PLAN,
    FIRST,
    FIRST_SLOT,
    REJECTED_PLAN,
    SECOND,
    SECOND_SLOT,
    write_rows,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures.command import Evenlag


def test_lag_sums_up_the_newest_snapshot_by_group(evenlag: Evenlag, lake: Path) -> None:
    answer = evenlag("lag", "--lake", lake, "--json")
    assert answer.exit_code == 0
    content = json.loads(answer.stdout)
    assert content["snapshot_id"] == SECOND
    assert content["groups"] == [
        {
            "group_id": "payments",
            "num_members": 2,
            "num_partitions": 4,
            "num_unknown_partitions": 1,
            "lag_records": 1310,
            "lag_bound": "LOWER",
            "max_member_lag_records": 800,
            "lag_skew": None,
            "unevenness": None,
            "time_lag_ms": None,
            "time_lag_at_least_ms": 8000,
            "num_unknown_time_lags": 1,
            "num_not_subscribed_partitions": 0,
            "not_subscribed_lag_records": 0,
            "commit_problem": None,
            "subscription_problem": None,
            "owner_problem": None,
            "statuses": {"OK": 3, "UNKNOWN": 1},
            "members_needed": None,
            "is_at_most": None,
            "reason": None,
            "target_wait_s": None,
            "is_target_met": None,
            "missed_since": None,
            "met_share": None,
        }
    ]


def test_lag_of_a_group_lists_its_partitions_the_most_loaded_first(evenlag: Evenlag, lake: Path) -> None:
    content = json.loads(evenlag("lag", "payments", "--lake", lake, "--json").stdout)
    assert [(row["partition"], row["lag_records"]) for row in content["partitions"]] == [
        (0, 800), (1, 500), (2, 10), (3, None),
    ]  # fmt: skip


def test_lag_is_shown_to_people_with_units_and_statuses(evenlag: Evenlag, lake: Path) -> None:
    shown = evenlag("lag", "payments", "--lake", lake).stdout
    assert "c0-x" in shown
    assert "UNKNOWN" in shown
    assert "8 s" in shown
    assert "2026-11-21 13:05:00Z" in shown
    (facts,) = [line for line in shown.splitlines() if line.startswith("lag ")]
    assert facts.startswith("lag ≥ 1,310, behind by ≥ 8 s, ")
    assert facts.endswith("members 2, partitions 4")
    assert {"committed", "end"} <= set(shown.split())


def test_options_of_the_list_choose_groups(evenlag: Evenlag, lake: Path) -> None:
    def listed(*options: str) -> list[str]:
        content = json.loads(evenlag("lag", "--lake", lake, "--json", *options).stdout)
        return [row["group_id"] for row in content["groups"]]

    assert listed("--match", "pay*", "--min-lag", "1310", "--sort", "behind") == ["payments"]
    # The lag is a lower bound.
    assert listed("--min-lag", "999999") == ["payments"]
    assert listed("--match", "orders") == []
    refused = evenlag("lag", "payments", "--match", "pay*", "--lake", lake)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


def test_lag_of_a_group_shows_how_fast_its_members_are(evenlag: Evenlag, lake: Path, tmp_path: Path) -> None:
    measured = tmp_path / "measured"
    shutil.copytree(lake, measured)
    names = ("c0-x", "c1-y")
    head = {"snapshot_id": SECOND, "group_id": "payments"}
    write_rows(measured, MEMBERS, [head | {"member_id": name} for name in names])
    speeds = [
        {"member_id": name, "speed_records_per_s": speed, "is_bound": is_bound, "confidence": confidence}
        for name, speed, is_bound, confidence in zip(
            names, (1234.5, 99.0), (False, True), (0.83, 0.0), strict=True
        )
    ]
    write_rows(measured, SPEEDS, [head | {"members": speeds, "partitions": []}])
    content = json.loads(evenlag("lag", "payments", "--lake", measured, "--json").stdout)
    found = {row["member_id"]: row for row in content["members"]}
    assert (found["c0-x"]["speed_records_per_s"], found["c0-x"]["speed_confidence"]) == (1234.5, 0.83)
    assert found["c1-y"]["speed_is_bound"] is True
    shown = evenlag("lag", "payments", "--lake", measured).stdout
    assert all(text in shown for text in ("1,234.5", "83%", "≥ 99.0", "0%"))
    assert "speed/s" not in evenlag("lag", "payments", "--lake", lake).stdout


def test_plans_are_listed_newest_first_with_where_they_stand(evenlag: Evenlag, lake: Path) -> None:
    content = json.loads(evenlag("plans", "--lake", lake, "--json").stdout)
    assert [(plan["plan_id"], plan["status"]) for plan in content["plans"]] == [
        (REJECTED_PLAN, "REJECTED"),
        (APPLIED_PLAN, "APPLIED"),
    ]
    applied = content["plans"][1]
    assert applied["reason"] == "every hinted partition is held"
    lags = [applied[f"max_member_lag_{when}_records"] for when in ("before", "predicted", "actual")]
    assert lags == [1500, 900, 810]
    assert "payload" not in applied


def test_plans_are_chosen_by_status_and_time(evenlag: Evenlag, lake: Path) -> None:
    def listed(*options: str) -> list[str]:
        answer = evenlag("plans", "--lake", lake, "--json", *options)
        return [plan["plan_id"] for plan in json.loads(answer.stdout)["plans"]]

    slots = [plan["slot"] for plan in json.loads(evenlag("plans", "--lake", lake, "--json").stdout)["plans"]]
    assert listed("--status", "applied") == [APPLIED_PLAN]
    assert listed("--since", slots[0]) == [REJECTED_PLAN]
    assert listed("--since", slots[1]) == [REJECTED_PLAN, APPLIED_PLAN]
    none = evenlag("plans", "--lake", lake, "--status", "withdrawn")
    assert (none.exit_code, none.stderr.count("\n")) == (4, 1)
    assert "no plans with the status WITHDRAWN" in none.stderr
    assert evenlag("plans", "--lake", lake, "--since", slots[0], "--days", "3").exit_code == 2


def test_a_plan_s_table_says_why_it_was_set_aside(evenlag: Evenlag, lake: Path) -> None:
    shown = evenlag("plans", "--lake", lake).stdout
    assert REJECTED_PLAN[:12] in shown
    assert "cooldown: the last hint is 300 s old" in shown


def test_one_plan_comes_with_its_events_in_order_its_gates_and_its_moves(
    evenlag: Evenlag, lake: Path
) -> None:
    content = json.loads(evenlag("plans", APPLIED_PLAN[:8], "--lake", lake, "--json").stdout)
    assert [event["event"] for event in content["events"]] == ["PROPOSED", "APPROVED", "PUBLISHED", "APPLIED"]
    assert [(move["partition"], move["owner_after"]) for move in content["moves"]] == [(1, "c1-y")]
    assert content["outcome"]["adherence"] == 1.0

    rejected = json.loads(evenlag("plans", REJECTED_PLAN[:8], "--lake", lake, "--json").stdout)
    assert {gate["gate"]: gate["passed"] for gate in rejected["gates"]} == {
        "max_moves": True,
        "cooldown": False,
    }
    shown = evenlag("plans", REJECTED_PLAN, "--lake", lake).stdout
    assert "NO" in shown
    # Whoever writes the lake wrote these rows: without the key, nobody knows whether they are as sealed.
    assert "Not verified: no policy of this lake and cluster is given" in " ".join(shown.split())
    assert content["verified"] is None
    assert "790" in shown


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("lag", "--lake", "nowhere"), 4, "has no snapshot yet"),
        (("lag",), 4, "evenlag lag --bootstrap-servers"),
        (("lag", "payment", "--lake", "{lake}"), 4, "did you mean 'payments'?"),
        (("lag", "--cluster", "order", "--lake", "{lake}"), 4, "did you mean 'orders'?"),
        (("plans", "ffff", "--lake", "{lake}"), 4, "there is no plan ffff"),
        (("plans", "--group", "paiments", "--lake", "{lake}"), 4, "did you mean 'payments'?"),
        (("lag", "--config", "missing.yaml"), 2, "missing.yaml cannot be read"),
        (("hints",), 2, "--bootstrap-servers HOST:PORT"),
        (("hints", "-b", "a:1", "--config", "x.yaml"), 2, "not both"),
        (("run", "--group", "g"), 2, "--group goes with --bootstrap-servers"),
        (("run", "--reset-policy", "latest"), 2, "--reset-policy goes with --bootstrap-servers"),
        (("run", "-b", "a:1", "--publish"), 2, "name them with --group"),
        (("dags", "install", "nowhere"), 2, "is no folder"),
        (("lag", "--no-such-option"), 2, "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_is_told_in_one_line_on_standard_error_with_an_exit_code_that_means_it(
    evenlag: Evenlag, lake: Path, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    answer = evenlag(*(argument.format(lake=lake) for argument in arguments))
    assert answer.exit_code == exit_code
    assert message in answer.stderr
    assert answer.stderr.startswith("error: ")
    assert (answer.stdout, answer.stderr.count("\n")) == ("", 1)


@pytest.mark.usefixtures("spark")
def test_with_several_clusters_one_has_to_be_named(evenlag: Evenlag, tmp_path: Path) -> None:
    rows = [{"cluster": name, "snapshot_id": "s", "slot": FIRST_SLOT} for name in ("a", "b")]
    write_rows(tmp_path / "lake", SNAPSHOTS, rows)
    answer = evenlag("lag", "--lake", tmp_path / "lake")
    assert answer.exit_code == 2
    assert "--cluster: a, b" in answer.stderr


def test_the_lake_comes_from_the_policy_or_the_environment(
    evenlag: Evenlag, lake: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "evenlag.yaml"
    policy.write_text("lake: elsewhere\nclusters: {orders: {bootstrap_servers: a:1}}\n", encoding="utf-8")
    assert evenlag("lag").exit_code == 4
    assert evenlag("lag", EVENLAG_LAKE=str(lake)).exit_code == 0
    policy.write_text(f"lake: {lake}\nclusters: {{orders: {{bootstrap_servers: a:1}}}}\n", encoding="utf-8")
    assert evenlag("lag").exit_code == 0
    moved = policy.rename(tmp_path / "other.yaml")
    assert evenlag("plans", EVENLAG_CONFIG=str(moved)).exit_code == 0


def test_a_local_lake_is_read_without_python_code_in_arrow_s_threads(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends while these threads call or release such code aborts ("terminate called ...")."""
    monkeypatch.setattr("deltalake.fs.DeltaStorageHandler", None)
    assert LakeReader(str(lake)).read(SNAPSHOTS).num_rows == 2


FRAMES = dict.fromkeys(range(0x2500, 0x2580), " ")
NOBODY = "the group has no members: its application is not running, or takes partitions by assign()"


def decision(group: str, kind: str, reason: str | None, *, is_second: bool = True) -> dict[str, Any]:
    return {
        "snapshot_id": SECOND if is_second else FIRST,
        "slot": SECOND_SLOT if is_second else FIRST_SLOT,
        "group_id": group,
        "policy_hash": "p",
        "policy_mode": "auto",
        "decision": kind,
        "reason": reason,
    }


@pytest.fixture
def evaluated(lake: Path, tmp_path: Path) -> Path:
    """Return a copy of the lake whose newest snapshot was decided upon, and whose first plan is scored."""
    copy = tmp_path / "copy"
    shutil.copytree(lake, copy)
    rows = [
        decision("by-hand", "NOT_PLANNED", NOBODY),
        decision("spiky", "BREACH", "1 of 3 consecutive snapshots ask for a change"),
        decision("even", "NO_CHANGE", None),
        decision("payments", "PROPOSED", None),
        decision("old", "NOT_PLANNED", "long ago", is_second=False),
    ]
    write_rows(copy, DECISIONS, rows)
    score = {
        "snapshot_id": SECOND,
        "slot": SECOND_SLOT,
        "plan_id": APPLIED_PLAN,
        "group_id": "payments",
        "published_at": FIRST_SLOT,
        "scored_after_ms": 1,
        "outcome": "APPLIED",
        "paid_off": False,
        "reason": "the most loaded member is 1600 records behind",
    }
    write_rows(copy, PLAN_EVALUATIONS, [score])
    return copy


def test_groups_without_a_plan_are_listed_with_the_reason(evenlag: Evenlag, evaluated: Path) -> None:
    content = json.loads(evenlag("plans", "--lake", evaluated, "--json").stdout)
    without = {row["group_id"]: row["reason"] for row in content["without_plan"]}
    assert without == {"by-hand": NOBODY, "spiky": "1 of 3 consecutive snapshots ask for a change"}
    shown = evenlag("plans", "--lake", evaluated, "--group", "by-hand")
    assert shown.exit_code == 0
    assert "Groups without a plan" in shown.stdout
    assert "no members" in shown.stdout


def test_a_plan_says_whether_it_paid_off(evenlag: Evenlag, evaluated: Path) -> None:
    content = json.loads(evenlag("plans", APPLIED_PLAN[:8], "--lake", evaluated, "--json").stdout)
    assert content["score"]["paid_off"] is False
    shown = evenlag("plans", APPLIED_PLAN[:8], "--lake", evaluated).stdout
    assert "It did not pay off: the most loaded member is 1600 records behind." in " ".join(shown.split())


def test_a_plan_shows_its_predictions_and_the_speeds_of_its_members(
    evenlag: Evenlag, lake: Path, tmp_path: Path
) -> None:
    copy, plan_id = tmp_path / "predicted", "e5" * 32
    shutil.copytree(lake, copy)
    (plan,) = LakeReader(str(copy)).read(PLANS, filters=[("plan_id", "=", APPLIED_PLAN)]).to_pylist()

    def expected(measure: str, *numbers: float | None, horizon: bool = False) -> dict[str, Any]:
        names = ("ahead_s", "predicted", "lower", "upper")
        return {"measure": measure, "is_horizon": horizon} | dict(zip(names, numbers, strict=True))

    rows = [
        expected("total_lag_records", 300.0, 1_600.0, 1_200.0, 2_500.0),
        expected("total_lag_records", 1_800.0, 40.0, 0.0, 90.0, horizon=True),
        expected("time_lag_ms", 300.0, 61_000.0, None, None),
    ]
    write_rows(copy, PLANS, [plan | {"plan_id": plan_id, "expected": rows}])
    about = {"plan_id": plan_id, "group_id": "payments", "snapshot_id": SECOND, "slot": SECOND_SLOT}
    about |= {"outcome": "APPLIED", "reason": "it paid", "published_at": FIRST_SLOT, "scored_after_ms": 1}
    for table, place, actual, held in ((OUTCOMES, 0, 1_700.0, True), (PLAN_EVALUATIONS, 1, 91.0, False)):
        write_rows(copy, table, [about | {"expected": [rows[place] | {"actual": actual, "held": held}]}])
    speeds = [{"member_id": "c0-x", "speed_records_per_s": 12.34, "is_bound": True, "confidence": 0.5}]
    head = {"snapshot_id": plan["snapshot_id"], "group_id": "payments"}
    write_rows(copy, SPEEDS, [head | {"members": speeds, "partitions": []}])
    lines = [
        " ".join(line.split())
        for line in evenlag("plans", plan_id[:8], "--lake", copy).stdout.translate(FRAMES).splitlines()
    ]
    assert "lag 5 min 1,600 1,200 2,500 1,700 yes" in lines
    assert "lag 30 min 40 0 90 91 NO" in lines
    assert "time behind 5 min 1 min 1 s - - -" in lines
    assert any(line.startswith("c0-x") and "≥ 12.3" in line and "50%" in line for line in lines)
