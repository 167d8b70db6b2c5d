"""Gates without a JVM: each is failed by the plan that breaks it alone, and a broken gate fails closed."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pandas as pd  # noqa: TID253 - the frame that is judged is pandas'
import pytest

from evenlag.errors import QualityCheckError
from evenlag.policy.gates import GATES, Comparison, Gate
from evenlag.policy.group_settings import GateLimits, GroupSettings
from spark_jobs.steps.expectations import gate_verdicts

RISE = GateLimits.model_validate({"max_cross_rack_rise": 0.5})
GOOD: dict[str, Any] = {
    "plan_id": "good",
    "settings": json.dumps(GroupSettings(max_moves=40, min_gain=0.05, gates=RISE).model_dump(mode="json")),
    "num_violations": 0,
    "num_duplicates": 0,
    "num_missing": 0,
    "num_invalid_owners": 0,
    "moves": 40,
    "count_gap": 1,
    "gain": 0.05,
    "across_racks_before": 0.25,
    "across_racks_after": 0.25,
    "record_s_saved": 70.0,
    "record_s_cost": 70.0,
    "follow_ms": 6_500,
    "num_unknown_partitions": 0,
    "snapshot_age_s": 900.0,
    "group_state": "Stable",
    "group_type": "classic",
    "group_assignor": "evenlag",
    "since_last_hint_s": None,
    "payload_bytes": 1_000_000,
    "hint_topic_max_bytes": None,
}
BREAKS: list[tuple[str, dict[str, Any], str]] = [
    ("no_duplicates", {"num_duplicates": 1}, "1 partitions are in the plan twice"),
    ("complete", {"num_missing": 2}, "2 partitions of subscribed topics have no owner"),
    ("valid_owners", {"num_invalid_owners": 3}, "3 partitions have an owner that is not a member"),
    ("no_violations", {"num_violations": 1}, "the checker finds 1 violations"),
    ("count_slack", {"count_gap": 2}, "a partition could go to a member that has 2 fewer, at most 1"),
    ("max_moves", {"moves": 41}, "moves 41 partitions, at most 40 are allowed"),
    ("min_gain", {"gain": 0.049}, "lowers the largest lag of a member by 4.9%, at least 5.0% is required"),
    (
        "saves_time",
        {"record_s_cost": 71.0},
        "saves -1 record-seconds within the horizon beyond what it costs",
    ),
    ("cross_rack", {"across_racks_after": 0.76}, "reads 51% more of the load across racks, at most 50% is"),
    ("lag_known", {"num_unknown_partitions": 4}, "the lag of 4 partitions is not known"),
    ("snapshot_fresh", {"snapshot_age_s": 901.0}, "the snapshot is 901 s old, at most 900 s are allowed"),
    ("group_stable", {"group_state": "PreparingRebalance"}, "the group is PreparingRebalance, not Stable"),
    ("hint_protocol", {"group_type": "share"}, "speaks the share protocol, hints need classic or consumer"),
    ("hint_assignor", {"group_assignor": "range"}, "the group's assignor is range"),
    ("hint_assignor", {"group_assignor": None}, "group_assignor is not known"),
    ("cooldown", {"since_last_hint_s": 599.0}, "the last hint is 599 s old, the cooldown is 600 s"),
    ("payload_fits", {"payload_bytes": 1_046_541}, "the hint has 1046541 bytes"),
    ("payload_fits", {"hint_topic_max_bytes": 900_000.0}, "a record of the hint topic can contain 897952"),
]


def test_each_gate_is_failed_by_its_plan_alone_in_one_pass() -> None:
    plans = [GOOD, *({**GOOD, "plan_id": f"bad-{n}", **change} for n, (_, change, _) in enumerate(BREAKS))]
    verdicts = gate_verdicts(pd.DataFrame(plans))
    assert len(verdicts) == len(plans) * len(GATES)
    failed = {(row["plan_id"], row["gate"]): row["message"] for row in verdicts if not row["passed"]}
    assert set(failed) == {(f"bad-{n}", gate) for n, (gate, _, _) in enumerate(BREAKS)}
    for n, (gate, _, message) in enumerate(BREAKS):
        assert message in failed[f"bad-{n}", gate]
    assert {gate for gate, _, _ in BREAKS} == {gate.name for gate in GATES}


def generated_plan(random: Random, number: int) -> dict[str, Any]:
    """A plan with values within, at and beyond the limits, and unknown ones."""
    pick = random.choice
    settings = GroupSettings(max_moves=random.randrange(50), min_gain=pick((0.0, 0.05, 0.5)), gates=RISE)
    return {
        **GOOD,
        "plan_id": f"plan-{number}",
        "settings": json.dumps(settings.model_dump(mode="json")),
        **{name: pick((0, 0, 0, 1)) for name in ("num_duplicates", "num_missing", "num_invalid_owners")},
        "num_violations": pick((0, 0, 2)),
        "num_unknown_partitions": pick((0, 0, 4)),
        "moves": random.randrange(60),
        "count_gap": random.randrange(4),
        "record_s_saved": pick((None, 0.0, 70.0)),
        "record_s_cost": pick((None, 0.0, 70.0, 71.0)),
        "follow_ms": pick((None, 6_500)),
        "across_racks_before": pick((None, 0.0, 0.25)),
        "across_racks_after": pick((None, 0.25, 0.5, 1.0)),
        "gain": pick((None, float("nan"), 0.0, 0.05, 0.5, random.random())),
        "snapshot_age_s": pick((0.0, 900.0, 900.001, 2_000 * random.random())),
        "group_state": pick(("Stable", "Empty", None)),
        "group_type": pick(("classic", "consumer", "share", None)),
        "group_assignor": pick(("evenlag", "range", None)),
        "since_last_hint_s": pick((None, 599.9, 600.0, 2_000 * random.random())),
        "payload_bytes": pick((10, 1_046_540, 1_046_541)),
        "hint_topic_max_bytes": pick((None, 2_800.0, 1_048_588.0)),
    }


@pytest.mark.parametrize("num_plans", [1, 2, 2_000])
def test_verdicts_are_those_of_plain_comparisons(num_plans: int) -> None:
    """One plan is validated in another way than several: see ``find_failures``."""
    random = Random(num_plans)  # noqa: S311  # repeatable on purpose
    plans = [generated_plan(random, number) for number in range(num_plans)]
    verdicts = gate_verdicts(pd.DataFrame.from_records(plans))
    expected = [gate.passes(json.loads(plan["settings"]), plan) for plan in plans for gate in GATES]
    assert [row["passed"] for row in verdicts] == expected
    assert {True, False} == set(expected)


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_a_value_just_beyond_its_limit_fails_its_gate_alone(gate: Gate) -> None:
    """For each entry, with the observed value itself as the input."""
    gates = [replace(other, inputs=(), compute=None) for other in GATES]
    settings = json.loads(GOOD["settings"])
    within = {other.observed: other.observe(GOOD) for other in GATES}
    allowed = gate.limit.allowed(settings, GOOD)
    beyond: Any = f"not {allowed}"
    if gate.comparison is not Comparison.EQUAL or isinstance(allowed, int):
        step = 0.01 if isinstance(allowed, float) else 1
        beyond = allowed - step if gate.comparison is Comparison.AT_LEAST else allowed + step
    verdicts = gate_verdicts(
        pd.DataFrame([GOOD | within, GOOD | within | {"plan_id": "bad", gate.observed: beyond}]), gates=gates
    )
    assert [(row["plan_id"], row["gate"]) for row in verdicts if not row["passed"]] == [("bad", gate.name)]


def test_a_group_that_brokers_assign_passes_as_one_that_its_consumers_do() -> None:
    verdicts = gate_verdicts(pd.DataFrame([{**GOOD, "group_type": "consumer"}]))
    assert all(row["passed"] for row in verdicts)
    assert [row["allowed"] for row in verdicts if row["gate"] == "hint_protocol"] == ["consumer"]


def test_a_gate_whose_value_cannot_be_computed_fails_the_run() -> None:
    def fail(_value: Any) -> Any:
        raise ZeroDivisionError("no members")

    broken = replace(GATES[0], observed="made_up", inputs=("moves",), compute=fail)
    with pytest.raises(
        QualityCheckError, match=r"no_duplicates could not be evaluated, so no plan passes.*no members"
    ):
        gate_verdicts(pd.DataFrame([GOOD]), gates=[*GATES[1:], broken])


def test_a_gate_whose_value_is_of_a_wrong_type_fails_the_run() -> None:
    with pytest.raises(QualityCheckError, match="could not be evaluated, so no plan passes"):
        gate_verdicts(pd.DataFrame([GOOD | {"moves": "many"}]))


def test_a_gate_that_cannot_be_evaluated_fails_the_run() -> None:
    with pytest.raises(QualityCheckError, match="could not be evaluated, so no plan passes"):
        gate_verdicts(pd.DataFrame([GOOD]).drop(columns="moves"))


def test_no_plans_need_no_verdicts() -> None:
    assert gate_verdicts(pd.DataFrame()) == []
