"""Gates in a simulation: each that applies is evaluated alone, on inputs that a simulation can compute."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.policy.gate_contract import Comparison
from evenlag.policy.gates import SIMULATED_GATES
from evenlag.policy.group_settings import GroupSettings
from evenlag.policy.portable_settings import plain_values
from spark_jobs.simulation import gates
from spark_jobs.simulation.gates import EARLY_INPUTS, PLAN_INPUTS, may_plan, passes_gates

if TYPE_CHECKING:
    from evenlag.policy.gate_contract import Gate

SETTINGS = plain_values(GroupSettings())
each_gate = pytest.mark.parametrize("gate", SIMULATED_GATES, ids=lambda gate: gate.name)


@each_gate
def test_every_simulated_gate_has_inputs_that_a_simulation_computes(gate: Gate) -> None:
    assert set(gate.all_inputs) <= set(PLAN_INPUTS) or set(gate.all_inputs) <= EARLY_INPUTS


@each_gate
def test_a_plan_beyond_one_limit_fails_by_this_gate_alone(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    good: dict[str, Any] = {other.observed: other.limit.allowed(SETTINGS, {}) for other in SIMULATED_GATES}
    step = 1 if gate.comparison is Comparison.AT_MOST else -1

    def evaluate(observed: dict[str, Any]) -> bool:
        given = _Observed(observed)
        with monkeypatch.context() as patch:
            patch.setattr(type(gate), "observe", lambda self, _plan: given.values[self.observed])
            return may_plan(SETTINGS, 0) and passes_gates(SETTINGS, given)  # type: ignore[arg-type]  # a stand-in

    assert evaluate(good)
    assert not evaluate({**good, gate.observed: good[gate.observed] + step})


def test_the_first_plan_of_a_scenario_has_no_cooldown() -> None:
    assert may_plan(SETTINGS, math.nan)
    assert not may_plan(SETTINGS, SETTINGS["gates"]["cooldown_s"] - 1)
    assert may_plan(SETTINGS, SETTINGS["gates"]["cooldown_s"])
    assert {gate.name for gate in gates._EARLY_GATES} == {"cooldown"}


class _Observed:
    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
