"""Gates in a simulation: each that applies is evaluated alone, on inputs that a simulation can compute."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assignor_core.group import Group
from assignor_core.members import Member
from evenlag.policy.gates import SIMULATED_GATES, Comparison
from evenlag.policy.group_settings import GroupSettings
from evenlag.policy.portable_settings import plain_values
from evenlag.simulation import scenarios
from evenlag.simulation.scenarios import EARLY_INPUTS, PLAN_INPUTS, SimulatedPlan, may_plan, passes_gates

if TYPE_CHECKING:
    from evenlag.policy.gates import Gate

SETTINGS = plain_values(GroupSettings())
each_gate = pytest.mark.parametrize("gate", SIMULATED_GATES, ids=lambda gate: gate.name)


@each_gate
def test_every_simulated_gate_has_inputs_that_a_simulation_computes(gate: Gate) -> None:
    assert set(gate.all_inputs) <= set(PLAN_INPUTS) or set(gate.all_inputs) <= EARLY_INPUTS


@each_gate
def test_a_plan_beyond_one_limit_fails_by_this_gate_alone(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {"follow_ms": 6_500.0}
    good: dict[str, Any] = {each.observed: each.limit.allowed(SETTINGS, inputs) for each in SIMULATED_GATES}
    step = 1 if gate.comparison is Comparison.AT_MOST else -1

    def passes(observed: dict[str, Any]) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(type(gate), "observe", lambda self, _plan: observed[self.observed])
            return may_plan(SETTINGS, 0) and passes_gates(SETTINGS, {})

    assert passes(good)
    assert not passes({**good, gate.observed: good[gate.observed] + step})


def test_a_simulation_computes_the_inputs_from_its_arrays() -> None:
    members = [Member("a", ("t",)), Member("b", ("t",))]
    group = Group.from_members({"t": 4}, members, lags={"t": [40, 30, 20, 10]})
    group = group.with_state(np.array([0, 0, 1, 1], dtype=np.int32), group.lag)
    target = np.array([0, 1, 1, 1], dtype=np.int32)
    plan = SimulatedPlan(group, target, group.lag.astype(np.float64), np.ones(2), GroupSettings())
    assert dict(plan) == {
        "count_gap": 2,
        "moves": 1,
        "gain": pytest.approx(1 - 60 / 70),
        "record_s_saved": None,
        "record_s_cost": None,
        "num_members": 2,
        "num_partitions": 4,
        "after_min_member_partitions": 1,
        "after_max_member_partitions": 3,
    }
    assert len(plan) == len(PLAN_INPUTS)
    assert not passes_gates(SETTINGS, plan)
    assert passes_gates(SETTINGS | {"count_slack": 1}, plan)


def test_counts_of_topics_that_stay_together_are_of_units() -> None:
    group = Group.from_members({"t": 3, "u": 3}, [Member(name, ("t", "u")) for name in ("a", "b")])
    # Two units with one member and one with the other, each of two partitions.
    target = np.array([0, 0, 1, 0, 0, 1], dtype=np.int32)
    apart, united = (
        SimulatedPlan(group, target, np.zeros(6), np.ones(2), GroupSettings(together=together))
        for together in ((), (("t", "u"),))
    )
    assert (apart["count_gap"], united["count_gap"]) == (2, 1)
    assert not passes_gates(SETTINGS, apart)
    assert passes_gates(SETTINGS, united)


def test_the_first_plan_of_a_scenario_has_no_cooldown() -> None:
    assert may_plan(SETTINGS, math.nan)
    assert [may_plan(SETTINGS, since_s) for since_s in (599, 600)] == [False, True]
    timed = SETTINGS | {"load": "time"}
    assert [may_plan(timed, since_s, 6.5) for since_s in (12, 13)] == [False, True]
    assert {gate.name for gate in scenarios._EARLY_GATES} == {"cooldown"}
