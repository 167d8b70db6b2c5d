"""Capacities: configured ones win, then measured ones where the policy uses them, else 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assignor_core.objective import Load
from evenlag.enums import Mode
from evenlag.errors import PolicyError
from evenlag.planning.capacities import capacities_of
from evenlag.policy.group_settings import GroupSettings
from evenlag.policy.loader import parse_policy
from tests.support.each import for_each

INSTANCES = ["a", "b", None, "d"]
SPEED = np.array([100.0, 200.0, 400.0, np.nan])
NO_BOUND = np.zeros(4, dtype=np.bool_)
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
    assert found == pytest.approx([1.0, 1.0, 2.0, 1.0])


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
