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


def capacities(speed: Any, is_bound: Any) -> Any:
    """Capacities without configured ones."""
    return capacities_of(
        GroupSettings(), [None] * len(speed), np.array(speed, dtype=float), np.array(is_bound)
    )


@for_each([[100.0] * 5, [100.0, 60.0, 1.0, 99.0, np.nan]])
def test_members_are_alike_until_a_bound_is_above_the_typical_speed(speed: list[float]) -> None:
    assert capacities(speed, [False, True, True, True, True]).tolist() == pytest.approx([1.0] * 5)


def test_who_is_behind_is_slower_than_those_who_keep_up() -> None:
    """Speeds 1, 2 and 4 with nearly the same load: only the slowest are measured.

    If the others counted as fast as their bounds, the group would seem too small for its load.
    """
    speed, is_bound = [43.0] * 3 + [58.0] * 5, [False] * 3 + [True] * 5
    found = capacities(speed, is_bound)
    assert found[:3] == pytest.approx(43 / 58, rel=0.1)
    by_measured = 43.0 * found / found[0]
    assert (by_measured[3:] > 1.1 * 58.0).all()
    assert by_measured.sum() > 8 * 58.0


@for_each([0.1, SPREAD, 0.5])
def test_bounds_tell_how_far_members_differ(spread: float) -> None:
    """Of 400 log-logistic speeds: whoever has more load than its speed is measured, others are bounds."""
    chance = np.random.default_rng(49)
    true, load = np.exp(chance.logistic(0.0, spread, 400)), chance.uniform(0.7, 1.4, 400)
    is_bound = true > load
    found = capacities(np.where(is_bound, load, true), is_bound)
    # Capacities are relative to the typical member, which is 1 here.
    assert found[~is_bound] == pytest.approx(true[~is_bound], rel=0.15)
    assert np.median(found[is_bound]) == pytest.approx(np.median(true[is_bound]), rel=0.15)


def test_a_bound_is_taken_for_the_median_of_the_speeds_above_it() -> None:
    """Of log-speeds with a standard deviation of 0.5 drawn around 1."""
    drawn = np.exp(np.random.default_rng(49).logistic(0.0, SPREAD, 400_000))
    for bound in (1.1, 2.0, 4.0):
        # Members whose spread is that of what is drawn.
        speed = np.append(drawn[:400], bound)
        found = capacities(speed, np.arange(len(speed)) == len(speed) - 1)
        assert found[-1] == pytest.approx(np.median(drawn[drawn > bound]), rel=0.1)


def test_speeds_where_none_is_measured() -> None:
    """700/s are 200/s for capacity 1, unless a member is known to be faster: all are taken to be alike."""
    settings = GroupSettings.model_validate({"capacities": [{"match": "d", "capacity": 0.5}]})
    is_bound = np.array([False, True, True, False])
    for bound, typical in ((150.0, 200.0), (1_000.0, 1_000.0)):
        speed = np.array([np.nan, 1.0, bound, np.nan])
        found = speeds_of(settings, INSTANCES, speed, is_bound, 700.0)
        assert found == pytest.approx(typical * np.array([1.0, 1.0, 1.0, 0.5]))


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
