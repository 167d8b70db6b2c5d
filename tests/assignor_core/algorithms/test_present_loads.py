"""Loads at a later time: the plain implementation's, and what consumers that take turns leave."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import numpy as np

from assignor_core.algorithms.present_loads import present_loads
from assignor_core.loads import LoadFlow, LoadsPayload
from tests.support.by_load.flows import TOPICS, later_times, plain_present, random_loads
from tests.support.each import for_each

TOPIC = TOPICS[0]


def drained(loads: list[int], arrivals: list[int], owners: list[int | None], *speeds: int) -> LoadsPayload:
    flow = LoadFlow({TOPIC: arrivals}, {TOPIC: owners}, speeds, per_s=1, horizon_s=0)
    return LoadsPayload("c", "g", "s", 1_000, 9_000_000, {TOPIC: list(loads)}, {}, 1, 0, 0, flow=flow)


@for_each(range(500))
def test_loads_are_brought_to_the_present_as_the_plain_implementation_brings_them(seed: int) -> None:
    measured = random_loads(seed)
    for now_ms in later_times(seed):
        present = present_loads(measured, now_ms)
        assert present == replace(measured, loads=plain_present(measured, now_ms), flow=None)
        # What is accepted as a record can be brought to any time, and is one again.
        assert LoadsPayload.decode(present.encode()).loads == present.loads


@for_each(range(200))
def test_members_that_take_a_record_of_each_partition_in_turn_leave_these_loads(seed: int) -> None:
    """Without arrivals the result is that of a consumer's loop, but for the last turn."""
    chance = np.random.default_rng(seed)
    loads, speed = chance.integers(0, 40, size=int(chance.integers(1, 7))).tolist(), int(chance.integers(9))
    left, work = list(loads), speed * 10
    for row in cycle(range(len(loads))):
        if not work or not any(left):
            break
        taken = min(left[row], 1)
        left[row] -= taken
        work -= taken
    measured = drained(loads, [0] * len(loads), [0] * len(loads), speed)
    found = np.array(present_loads(measured, 11_000).loads[TOPIC])
    assert (np.array(left) <= found).all()
    assert (found <= np.array(left) + 1).all()


def test_a_partition_without_an_owner_only_grows_and_one_that_is_processed_faster_is_emptied() -> None:
    measured = drained([100, 100, 100, 5], [10, 10, 20, 0], [None, 0, 1, 1], 30, 10)
    assert present_loads(measured, 3_000).loads[TOPIC] == [120, 60, 125, 0]
    assert present_loads(measured, 61_000).loads[TOPIC] == [700, 0, 705, 0]


def test_arrivals_of_the_horizon_remain_and_are_no_backlog() -> None:
    """A partition with less than these arrivals has them, too: it is behind by the time of a commit."""
    measured = drained([100, 20, 0], [10, 10, 10], [0, 0, 0], 100)
    assert measured.flow is not None
    measured = replace(measured, flow=replace(measured.flow, horizon_s=5))
    assert present_loads(measured, 1_000).loads[TOPIC] == [100, 50, 50]
    assert present_loads(measured, 61_000).loads[TOPIC] == [50, 50, 50]


def test_a_clock_behind_the_measurement_changes_nothing_and_age_is_bounded() -> None:
    measured = drained([100, 100], [10, 0], [None, 0], 1)
    assert present_loads(measured, 0).loads == present_loads(measured, 1_999).loads == measured.loads
    day = present_loads(measured, 86_401_000).loads
    assert day == present_loads(measured, 2**53).loads == {TOPIC: [864_100, 0]}


def test_loads_without_a_flow_are_those_that_were_measured() -> None:
    measured = replace(drained([7, 9], [1, 1], [0, 0], 5), flow=None)
    assert present_loads(measured, 10**9) is measured
