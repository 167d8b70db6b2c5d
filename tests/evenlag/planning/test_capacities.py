"""Capacities: configured ones win, then measured ones where the policy uses them, else 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assignor_core.objective import Load
from evenlag.enums import Mode
from evenlag.errors import PolicyError
from evenlag.planning.capacities import capacities_of, speeds_of
from evenlag.policy.group_settings import GroupSettings
from evenlag.policy.loader import parse_policy
from tests.support.each import for_each

INSTANCES = ["a", "b", None, "d"]
SPEED = np.array([100.0, 200.0, 400.0, np.nan])
NO_BOUND = np.zeros(4, dtype=np.bool_)
SPREAD = 0.5 * np.sqrt(3) / np.pi
BY_SPEED = [0.5, 1.0, 2.0, 1.0]


@for_each(
    [
        ({}, BY_SPEED),
        ({"mode": "auto"}, [1.0] * 4),
        ({"mode": "approve"}, [1.0] * 4),
        ({"mode": "auto", "load": "time"}, BY_SPEED),
        ({"mode": "auto", "capacities": "measured"}, BY_SPEED),
        ({"mode": "auto", "capacities": None}, [1.0] * 4),
        ({"mode": "auto", "capacities": [{"match": "a", "capacity": 4}]}, [4.0, 1.0, 1.0, 1.0]),
        # Without a: 200/s and 400/s; a is known to have four times as much as the typical member.
        ({"capacities": [{"match": "a", "capacity": 4}]}, [4.0, 1.0, 2.0, 1.0]),
    ],
    name=lambda case: str(case[0]),
)
def test_the_policy_says_which_capacities_count(case: tuple[dict[str, Any], list[float]]) -> None:
    settings = GroupSettings.model_validate(case[0])
    assert capacities_of(settings, INSTANCES, SPEED, NO_BOUND) == pytest.approx(case[1])


def test_a_lower_bound_counts_if_it_is_more_than_the_typical_speed() -> None:
    is_bound = np.array([True, False, True, False])
    found = capacities_of(GroupSettings(), INSTANCES, SPEED, is_bound)
    # 200/s is typical, and the bounds are half and twice of it.
    # What is expected of a group counts as four members.
    spread = np.sqrt((4 * SPREAD**2 + 3 / np.pi**2 * np.log(2) ** 2) / 7)
    expected = [(1 + 2 * bound ** (1 / spread)) ** spread for bound in (0.5, 2.0)]
    assert found == pytest.approx([expected[0], 1.0, expected[1], 1.0])
    assert expected == pytest.approx([1.04, 2.4], abs=0.05)


def test_a_bound_is_taken_for_the_median_of_the_speeds_above_it() -> None:
    """Of log-speeds with a standard deviation of 0.5 drawn around 1."""
    drawn = np.exp(np.random.default_rng(49).logistic(0.0, SPREAD, 400_000))
    for bound in (0.3, 1.0, 2.0):
        # Members whose spread is that of what is drawn.
        speed = np.append(np.exp([-0.5, 0.5] * 200), [1.0, bound])
        is_bound = np.arange(len(speed)) == len(speed) - 1
        found = capacities_of(GroupSettings(), [None] * len(speed), speed, is_bound)
        assert found[-1] == pytest.approx(np.median(drawn[drawn > bound]), rel=0.02)


def test_members_that_are_alike_are_hoped_to_be_so() -> None:
    found = capacities_of(GroupSettings(), [None] * 200, np.full(200, 100.0), np.arange(200) == 199)
    assert 1.0 < found[-1] < 1.1


def test_speeds_where_none_is_measured() -> None:
    """700/s are 200/s for capacity 1."""
    settings = GroupSettings.model_validate({"capacities": [{"match": "d", "capacity": 0.5}]})
    speed, is_bound = np.array([np.nan, 1.0, 1_000.0, np.nan]), np.array([False, True, True, False])
    found = speeds_of(settings, INSTANCES, speed, is_bound, 700.0)
    assert found[[0, 1, 3]] == pytest.approx([200.0, 200.0, 100.0], rel=1e-3)
    assert 1_000.0 < found[2] < 2_000.0


def test_bounds_alone_say_nothing() -> None:
    """All members keep up: their rates are their loads, not their speeds."""
    found = capacities_of(GroupSettings(), INSTANCES, SPEED, np.ones(4, dtype=np.bool_))
    assert found.tolist() == [1.0] * 4


def test_settings_stay_the_same_on_executors() -> None:
    import pickle

    settings = GroupSettings(mode=Mode.AUTO, load=Load.LAG, capacities="measured")
    portable = pickle.loads(pickle.dumps(settings))  # noqa: S301 - its own bytes
    assert portable.uses_measured_speeds
    assert portable.canonical_json() == settings.canonical_json()
    assert capacities_of(portable, INSTANCES, SPEED, NO_BOUND) == pytest.approx(BY_SPEED)


def test_another_word_is_no_capacity() -> None:
    with pytest.raises(PolicyError, match="capacities"):
        parse_policy(
            "lake: /x\nclusters: {c: {bootstrap_servers: a}}\ngroups: [{match: g, capacities: fast}]"
        )
