"""Entries of GATES: their settings, their inputs, and how they evaluate and explain single plans."""

from __future__ import annotations

import math
import re
from types import NoneType
from typing import Any, get_args

import pytest

from assignor_core.objective import Load
from evenlag.lake.tables import PLANS
from evenlag.planning.gate_inputs import COUNTED_INPUTS, METRIC_PREFIXES, gate_inputs
from evenlag.policy.gates import (
    GATE_SETTINGS,
    GATES,
    ROUTINE_GATES,
    Comparison,
    Fixed,
    Gate,
    GateSetting,
    RuleSetting,
    cooldown_of,
    count_slack_of,
    is_unknown,
)
from evenlag.policy.group_settings import GateLimits, GroupSettings
from evenlag.policy.portable_settings import plain_values
from tests.support.gate_examples import EXAMPLES, VARYING

MEASURES = {
    column.name: re.findall(r"(\w+):", column.type) for column in PLANS.columns if "metrics" in column.name
}
HEAD_INPUTS = {
    *PLANS.column_names,
    *(f"{prefix}{name}" for prefix, column in METRIC_PREFIXES.items() for name in MEASURES[column]),
}
COMPUTED_INPUTS = {
    *COUNTED_INPUTS,
    "num_violations",
    "snapshot_age_s",
    "since_last_hint_s",
    "hint_topic_max_bytes",
}
each_gate = pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)


def test_names_and_observed_values_are_unique() -> None:
    assert len({gate.name for gate in GATES}) == len(GATES)
    assert len({gate.observed for gate in GATES}) == len(GATES)


@each_gate
def test_inputs_of_a_gate_are_columns_of_the_plan_or_computed(gate: Gate) -> None:
    assert set(gate.all_inputs) <= HEAD_INPUTS | COMPUTED_INPUTS


@each_gate
def test_a_value_that_is_computed_has_a_name_of_its_own(gate: Gate) -> None:
    assert (gate.compute is None) == (gate.observed_inputs == (gate.observed,))
    assert gate.compute is None or gate.observed not in gate_inputs()


@each_gate
def test_limits_that_are_settings_exist_with_their_type(gate: Gate) -> None:
    if isinstance(gate.limit, GateSetting):
        assert _type_of(GateLimits, gate.limit.name) is gate.limit.kind
        assert GateLimits.model_fields[gate.limit.name].default == gate.limit.default
        assert GateLimits.model_fields[gate.limit.name].description == gate.limit.description
    if isinstance(gate.limit, RuleSetting):
        assert _type_of(GroupSettings, gate.limit.name) is gate.limit.kind


def _type_of(model: type[GateLimits | GroupSettings], name: str) -> Any:
    """The type of a setting's values beside null."""
    kind: Any = model.model_fields[name].annotation
    return next((each for each in get_args(kind) if each is not NoneType), kind)


def test_defaults_that_depend_on_the_load_are_resolved() -> None:
    lag, time = (plain_values(GroupSettings(load=load)) for load in (Load.LAG, Load.TIME))
    own = plain_values(
        GroupSettings(load=Load.TIME, count_slack=3, gates=GateLimits.model_validate({"cooldown_s": 7}))
    )
    assert [count_slack_of(each) for each in (lag, time, own)] == [0, 1_000_000, 3]
    assert [cooldown_of(each, 6_500) for each in (lag, time, own)] == [600, 13, 7]
    assert [cooldown_of(time, unknown) for unknown in (None, float("nan"))] == [600, 600]
    assert GroupSettings(load=Load.TIME).slack == 1_000_000


@each_gate
def test_the_example_of_a_gate_fails_it(gate: Gate) -> None:
    example = EXAMPLES[gate.name]
    if VARYING in (example.observed, example.allowed):
        assert "…" in gate.explain(example.observed, example.allowed)
    else:
        assert not gate.comparison.holds(example.observed, example.allowed)


def test_every_declared_setting_is_one_of_the_policy_s() -> None:
    assert set(GateLimits.model_fields) == {limit.name for limit in GATE_SETTINGS} | {"min_breaches"}


def test_healthy_groups_fail_only_these_gates() -> None:
    assert {"cooldown", "min_gain", "saves_time"} == ROUTINE_GATES


@pytest.mark.parametrize(
    ("comparison", "passing", "failing"),
    [
        (Comparison.EQUAL, [2], [1, 3]),
        (Comparison.AT_MOST, [1, 2], [3]),
        (Comparison.AT_LEAST, [2, 3], [1]),
    ],
)
def test_a_value_is_compared_with_its_limit(
    comparison: Comparison, passing: list[int], failing: list[int]
) -> None:
    assert all(comparison.holds(value, 2) for value in passing)
    assert not any(comparison.holds(value, 2) for value in failing)


@pytest.mark.parametrize("unknown", [None, math.nan])
@pytest.mark.parametrize("null_passes", [True, False])
def test_an_unknown_value_fails_unless_the_gate_lets_it_pass(
    unknown: float | None,
    null_passes: bool,
) -> None:
    gate = Gate(
        "made_up",
        fails_when="",
        observed="share",
        comparison=Comparison.AT_MOST,
        limit=Fixed(1),
        message="{observed} of {allowed}",
        null_passes=null_passes,
    )
    assert is_unknown(unknown)
    assert gate.passes({}, {"share": unknown}) is null_passes
    assert gate.explain(unknown, 1) == "share is not known, so made_up cannot be passed"
    assert gate.explain(2, 1) == "2 of 1"
