"""A member requests a rebalance rarely: the leader at once, others later, and no member endlessly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from evenlag.consumer.rejoin_policy import RejoinAsker, Situation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WANTS = Situation(now_s=0.0, generation=7, is_leader=False, wanted_plan_id="p", counts={"t": 4})


@pytest.fixture
def asker() -> RejoinAsker:
    """One whose random wait is the longest, with a heartbeat of a second and metadata of ten."""
    return RejoinAsker(1.0, 10.0, lambda _, high: high)


def asks_at(asker: RejoinAsker, situation: Situation, times: Iterator[float] | range) -> list[float]:
    return [now_s for now_s in times if asker.step(replace(situation, now_s=float(now_s)))]


def test_the_leader_asks_at_once_and_once_a_generation(asker: RejoinAsker) -> None:
    assert asks_at(asker, replace(WANTS, is_leader=True), range(10)) == [0]


def test_a_follower_asks_after_its_random_heartbeats(asker: RejoinAsker) -> None:
    assert asks_at(asker, WANTS, range(10)) == [3]


def test_a_new_generation_starts_the_wait_anew(asker: RejoinAsker) -> None:
    assert asks_at(asker, WANTS, range(3)) == []
    assert asks_at(asker, replace(WANTS, generation=8), range(3, 10)) == [6]


def test_nobody_asks_while_the_group_rebalances_or_nothing_is_wanted(asker: RejoinAsker) -> None:
    assert asks_at(asker, replace(WANTS, generation=None, is_leader=True), range(10)) == []
    assert asks_at(asker, replace(WANTS, wanted_plan_id=None, is_leader=True), range(10)) == []


def test_a_plan_is_asked_for_three_times_and_another_again(asker: RejoinAsker) -> None:
    leader = replace(WANTS, is_leader=True)
    asked = [asker.step(replace(leader, generation=7 + i)) for i in range(8)]
    assert asked == [True] * 3 + [False] * 5
    assert asker.step(replace(leader, generation=15, wanted_plan_id="q"))


def test_others_asking_in_vain_counts_too(asker: RejoinAsker) -> None:
    # 50 followers of a plan that their leader refuses: the group rebalances four times, not 150.
    assert asker.step(WANTS) is False
    assert asks_at(asker, replace(WANTS, generation=11), range(100)) == []


def test_one_that_goes_back_to_wanting_waits_anew(asker: RejoinAsker) -> None:
    assert asks_at(asker, WANTS, range(3)) == []
    assert not asker.step(replace(WANTS, now_s=3.0, wanted_plan_id=None))
    assert asks_at(asker, WANTS, range(4, 10)) == [7]


@pytest.mark.parametrize(
    ("counts", "asked"), [({"t": 4}, []), ({"t": 6}, [21.0]), ({"t": 4, "new": 1}, [21.0]), ({}, [])]
)
def test_partitions_that_nobody_rebalanced_for_are_asked_for_once(
    asker: RejoinAsker, counts: Mapping[str, int], asked: list[float]
) -> None:
    idle = replace(WANTS, wanted_plan_id=None)
    assert not asker.step(idle)
    assert asks_at(asker, replace(idle, counts=counts), range(1, 100)) == asked


def test_metadata_that_come_and_go_ask_for_nothing(asker: RejoinAsker) -> None:
    idle = replace(WANTS, wanted_plan_id=None)
    for now_s in range(100):
        counts = {"t": 4} if now_s % 10 else {}
        assert not asker.step(replace(idle, now_s=float(now_s), counts=counts))


def test_a_leader_that_held_back_while_cold_asks_once_when_it_knows(asker: RejoinAsker) -> None:
    owes = replace(WANTS, wanted_plan_id=None, is_leader=True, owes_balance=True)
    assert asks_at(asker, owes, range(10)) == [0]
