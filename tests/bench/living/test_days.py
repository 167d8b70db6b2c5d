"""A few of the simulated days: who knows more keeps the group more even, and no policy breaks a rule."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.bench.living.days import BASE, GOAL, TARGET, Total, report, run_seed
from tests.bench.living.policies import LivingHints, Oracle, Policy, TodaysHints
from tests.bench.living.simulation import largest_loads, run_day
from tests.bench.living.world import Day, Pod, make_day

_QUICK = {"num_partitions": 32, "pace": 1.0, "max_moves": 10, "count_slack": 1}
_DAYS = 4


@cache
def quick_report() -> dict[str, Any]:
    totals: dict[str, Total] = {}
    for seed in range(_DAYS):
        for name, total in run_seed(seed, (BASE, "today's hints", TARGET, GOAL), **_QUICK).items():
            totals.setdefault(name, Total()).add(total)
    ways: dict[str, Any] = report(totals, _DAYS)["ways"]
    return ways


@pytest.mark.extended
@pytest.mark.parametrize("measure", ["by_mean", "by_least_possible", "by_least_possible_after_a_change"])
@pytest.mark.parametrize("kind", ["mean", "p95"])
def test_an_oracle_is_best_and_living_hints_beat_cooperative_sticky(measure: str, kind: str) -> None:
    base, living, goal = (quick_report()[name][measure][kind] for name in (BASE, TARGET, GOAL))
    assert goal <= living * 1.01 < base


@pytest.mark.extended
def test_living_hints_go_most_of_the_way_to_the_oracle() -> None:
    assert quick_report()[TARGET]["share_of_the_way"]["by_least_possible"]["mean"] >= 0.8


@pytest.mark.parametrize("policy", [Policy, TodaysHints, LivingHints, Oracle])
def test_every_partition_has_one_living_owner_after_each_rebalance(policy: type[Policy]) -> None:
    day = make_day(1, **_QUICK)
    (course,) = run_day(day, [(policy(day), 5)])
    assert len(course.states) >= len(day.changes)
    for _, pods, owner in course.states:
        assert set(owner.tolist()) <= set(pods)
    assert course.generations <= 3 * len(course.states)


def test_the_largest_load_of_a_day_without_events_is_what_one_calculates() -> None:
    loads = np.tile([3.0, 1.0, 1.0, 1.0], (1440, 1))
    loads[720:] = [1.0, 1.0, 1.0, 3.0]
    pods = (Pod("a", None, 1000), Pod("b", None, 500))
    day = Day(
        seed=0, zipf=0.0, pace=1.0, num_partitions=4, count_slack=0, max_moves=4, pods=pods,
        changes=((0, (0, 1)),), loads=loads,
    )  # fmt: skip
    (course,) = run_day(day, [(Policy(day), 5)])
    assert [(at_s, owner.tolist()) for at_s, _, owner in course.states] == [(0, [0, 0, 1, 1])]
    by_mean, by_bound, seconds, ago = largest_loads(day, course)
    # Before noon a bears 4 of 6 by 1000 and b 2 by 500; after noon a bears 2 and b 4.
    assert (seconds.sum(), ago[-1]) == (86_400, 86_400 - 60)
    assert by_mean[[0, -1]] == pytest.approx([1.0, 2.0])
    assert by_bound[[0, -1]] == pytest.approx([1.0, 2.0])


def test_a_day_is_the_same_each_time() -> None:
    first, again = make_day(7), make_day(7)
    assert first.changes == again.changes
    assert first.pods == again.pods
    assert (first.loads == again.loads).all()
