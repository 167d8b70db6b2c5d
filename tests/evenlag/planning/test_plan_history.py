"""The history of groups: consecutive breaches across missing snapshots, and plans that did not pay off."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import DECISIONS, FORECASTS, PLAN_EVALUATIONS, PLAN_EVENTS, SNAPSHOTS
from evenlag.planning.expectations import Expected
from evenlag.planning.plan_batch import GroupHistory
from evenlag.planning.plan_history import read_history
from evenlag.policy.loader import parse_policy
from tests.support.lakes.snapshots import NOW, arrow, marker
from tests.support.spark_tables import write_rows

if TYPE_CHECKING:
    from pathlib import Path

    from evenlag.policy.settings import Policy

STEP = timedelta(minutes=5)
POLICY = """
lake: /nowhere
clusters: {c: {bootstrap_servers: "localhost:9092", history_window_s: 900}}
groups:
  - {match: "b-*", mode: auto, gates: {min_breaches: 5}}
  - {match: "*", mode: auto, back_off: {after: 2, rest_s: 3600}}
"""


def policy() -> Policy:
    return parse_policy(POLICY, environ={}).policy


def decision(group: str, steps_ago: float, *, is_breach: bool | None = True, policy_hash: str = "p") -> Any:
    slot = NOW - steps_ago * STEP
    return {
        "snapshot_id": f"s-{steps_ago}",
        "day": slot.date(),
        "slot": slot,
        "group_id": group,
        "policy_hash": policy_hash,
        "policy_mode": "auto",
        "decision": "BREACH",
        "is_breach": is_breach,
    }


def score(
    group: str, number: int, *, paid_off: bool | None, minutes_ago: float = 10, settings: str | None = None
) -> Any:
    at = NOW - timedelta(minutes=minutes_ago)
    return {
        "slot": at,
        "plan_id": f"{group}-{number}",
        "group_id": group,
        "settings": settings or policy().group_settings("c", group).canonical_json(),
        "published_at": at - timedelta(hours=1) + timedelta(seconds=number),
        "scored_after_ms": 1,
        "outcome": "APPLIED",
        "paid_off": paid_off,
        "reason": f"reason {number}",
    }


def test_breaches_count_in_a_row_and_a_missing_reading_counts_for_nothing(tmp_path: Path) -> None:
    rows = [
        *(decision("b-row", steps) for steps in (1, 2, 3)),
        *(decision("b-missed-one", steps) for steps in (1, 3, 4)),
        *(decision("b-gap", steps) for steps in (1, 2, 5.5)),
        *(decision("b-gap-now", steps) for steps in (3.5, 4.5)),
        *(decision("b-ended", steps, is_breach=steps != 2) for steps in (1, 2, 3)),
        *(decision("b-unplanned", steps, is_breach=None if steps == 2 else True) for steps in (1, 2, 3)),
        *(decision("b-even", steps, is_breach=False) for steps in (1,)),
        decision("b-two-policies", 1),
        decision("b-two-policies", 1, is_breach=False, policy_hash="q"),
        # Of this very slot and later ones: a repeat sees what the first try saw.
        decision("b-row", 0),
        decision("b-late", -1),
    ]
    write_rows(tmp_path, DECISIONS, arrow(DECISIONS, rows))
    found = read_history(LakeReader(str(tmp_path)), policy(), "c", NOW)
    assert {group: history.breaches for group, history in found.items()} == {
        "b-row": 3,
        "b-missed-one": 3,
        "b-gap": 2,
        "b-ended": 1,
        "b-unplanned": 2,
    }


def test_a_group_backs_off_after_plans_in_a_row_that_did_not_pay_off(tmp_path: Path) -> None:
    other = policy().group_settings("c", "x").model_copy(update={"max_moves": 3}).canonical_json()
    rows = [
        *(score("rests", number, paid_off=number == 0) for number in range(3)),
        *(score("once", number, paid_off=number == 0) for number in range(2)),
        *(score("paid", number, paid_off=number == 2) for number in range(3)),
        *(score("unclear", number, paid_off=None if number == 1 else False) for number in range(3)),
        *(score("rested", number, paid_off=False, minutes_ago=60) for number in range(2)),
        *(score("other-rule", number, paid_off=False, settings=other) for number in range(2)),
        *(score("rule-between", n, paid_off=False, settings=other if n == 1 else None) for n in range(3)),
        *(score("b-never", number, paid_off=False) for number in range(2)),
        *(score("future", number, paid_off=False, minutes_ago=-10) for number in range(2)),
    ]
    write_rows(tmp_path, PLAN_EVALUATIONS, arrow(PLAN_EVALUATIONS, rows))
    found = read_history(LakeReader(str(tmp_path)), policy(), "c", NOW)
    until = "backs off until 2026-03-01 12:50 UTC: its last 2 plans did not pay off; the last: reason 2"
    assert found == {"rests": GroupHistory(0, until), "unclear": GroupHistory(0, until)}


# As written before rules had racks, topics that stay together, and the gate on racks.
OLDER = (
    '{"approval_timeout_s":3600,"assignor":"lag-aware-sticky","back_off":{"after":2,"horizon_s":1800,'
    '"rest_s":3600},"capacities":[],"count_slack":0,"gates":{"cooldown_s":600,"max_snapshot_age_s":900,'
    '"min_breaches":1},"hint_ttl_s":900,"isolation_level":null,"load":"lag","loads_valid_minutes":30,'
    '"max_moves":1000,"min_gain":0.05,"mode":"auto","on_change":null,"reset_policy":null}'
)


def test_a_group_goes_on_backing_off_after_an_upgrade_that_brings_settings(tmp_path: Path) -> None:
    rows = [
        *(score("before", number, paid_off=False, settings=OLDER) for number in (1, 2)),
        *(
            score("half", number, paid_off=False, settings=OLDER if number == 1 else None)
            for number in (1, 2)
        ),
    ]
    write_rows(tmp_path, PLAN_EVALUATIONS, arrow(PLAN_EVALUATIONS, rows))
    reader = LakeReader(str(tmp_path))
    assert set(read_history(reader, policy(), "c", NOW)) == {"before", "half"}
    for changed in ("rack_tolerance: 0.1", "together: [[a, b]]", "gates: {max_cross_rack_rise: 0.5}"):
        text = POLICY.replace("mode: auto, back_off", f"mode: auto, {changed}, back_off")
        assert read_history(reader, parse_policy(text, environ={}).policy, "c", NOW) == {}, changed


def test_a_group_planned_by_time_knows_its_interval_its_follow_times_and_its_errors(tmp_path: Path) -> None:
    text = POLICY.replace('{match: "*", mode: auto,', '{match: "*", mode: auto, load: time,')
    slots = [{"snapshot_id": f"s-{n}", "slot": NOW - n * STEP, "day": NOW.date()} for n in (0, 1, 3)]
    write_rows(tmp_path, SNAPSHOTS, arrow(SNAPSHOTS, [marker(**row) for row in slots]))
    errors = {"common_errors": [0.0, 2.0], "own_errors": [1.0, 0.0]}
    forecasts: list[dict[str, Any]] = [
        {
            "group_id": group,
            "slot": NOW,
            "day": NOW.date(),
            "read_at": NOW,
            "horizon_s": 600,
            "model": "last_rate",
        }
        | errors
        for group in ("b-lag", "timed", "new")
    ]
    staying = Expected("total_lag_records", True, 600.0, 5.0, None, None)
    forecasts[1] |= {"predictions": [staying._asdict()]}
    write_rows(tmp_path, FORECASTS, arrow(FORECASTS, forecasts))
    events = [
        {
            "plan_id": f"p-{number}",
            "group_id": "timed",
            "day": NOW.date(),
            "event": "PUBLISHED",
            "actor": "job",
            "at": NOW - timedelta(minutes=number),
            "follow_ms": follow_ms,
            "rebalancing_ms": None if follow_ms is None else follow_ms // 2,
        }
        for number, follow_ms in enumerate((4_000, None, 8_000, 6_000), 1)
    ]
    write_rows(tmp_path, PLAN_EVENTS, arrow(PLAN_EVENTS, events))
    found = read_history(LakeReader(str(tmp_path)), parse_policy(text, environ={}).policy, "c", NOW)
    assert set(found) == {"timed", "new"}
    timed, new = found["timed"].facts, found["new"].facts
    assert (timed.follow_s, timed.rebalancing_s, timed.interval_s) == (6.0, 3.0, 300.0)
    assert (new.follow_s, new.rebalancing_s) == (None, None)
    assert timed.common is not None
    assert timed.common.tolist() == errors["common_errors"]
    assert (found["timed"].expected, found["new"].expected) == ((staying,), ())
    # What is predicted is known of groups that are planned by lag, too.
    by_lag = read_history(LakeReader(str(tmp_path)), policy(), "c", NOW)
    assert by_lag == {"timed": GroupHistory(expected=(staying,))}
