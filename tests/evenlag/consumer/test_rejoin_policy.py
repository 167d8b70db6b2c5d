"""A member requests a rebalance rarely: the leader at once, others later, and no member endlessly."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from assignor_core.hint import Hint, HintPayload
from assignor_core.partition_spans import PartitionSpans
from evenlag.consumer.hint_arrays import FlatHint
from evenlag.consumer.rejoin_policy import HintInterest, RejoinAsker, Situation, Stance, Standing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

T_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
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


def test_a_leader_whose_rebalance_stays_uneven_asks_twice_in_a_row_and_again_after_an_even_one(
    asker: RejoinAsker,
) -> None:
    owes = replace(WANTS, wanted_plan_id=None, is_leader=True, owes_balance=True)
    assert [asker.step(replace(owes, generation=7 + i)) for i in range(5)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert not asker.step(replace(owes, generation=12, owes_balance=False))
    assert asker.step(replace(owes, generation=13))


PARTS = {"m:me": {"t": (0, 1)}, "m:other": {"t": (2, 3)}}


def hint_for(assignment: Mapping[str, Mapping[str, Sequence[int]]], sequence: int = 1) -> Hint:
    payload = HintPayload("c", "g", f"s{sequence}", "0" * 64, assignment, 1, 1)
    return Hint(payload.encode(), payload, f"plan-{sequence}", sequence, 0, 1, signed=False)


def standing(
    *owned: int, claimed: tuple[int, ...] = (), hint: Hint | None = None, **changes: Any
) -> Standing:
    hint = hint or hint_for({key: {T_ID: by["t"]} for key, by in PARTS.items()})
    fields: dict[str, Any] = {
        "hint": hint, "flat": FlatHint.of(hint.payload), "generation": 7, "key": "m:me",
        "owned": frozenset((T_ID, number) for number in owned),
        "claimed": frozenset((T_ID, number) for number in claimed),
        "joined_with": hint.plan_id,
    }  # fmt: skip
    return Standing(**{**fields, **changes})


@pytest.mark.parametrize(
    ("now", "wants"),
    [
        (standing(0, 1), False),  # it has its part
        (standing(0), True),  # less: perhaps withheld until its owner gives it up
        (standing(), True),
        (standing(0, 2), False),  # brought what the hint gives to another
        (standing(0, 1, 2), False),
        (standing(0, 2, joined_with=None), True),  # by a join that was sent before the hint was known
        (standing(0, 2, joined_with="an older plan"), True),
        (standing(0, 9), True),  # what the hint gives to nobody is not given to another
        (standing(0, claimed=(0, 1)), False),  # lost what the hint gives to it
        (standing(0, claimed=(0, 5)), True),  # gave up what the hint does not give to it
        (standing(0, key="m:newcomer"), False),
        (standing(0, 2, stance=Stance.CAN_FOLLOW), True),
        (standing(0, stance=Stance.REFUSES), False),
        (standing(0, stance=Stance.FOLLOWS), True),
        (standing(0, 1, stance=Stance.FOLLOWS), False),
        (standing(0, was_there=True), False),  # before this process: others saw it come
        (standing(0, was_there=True, stance=Stance.CAN_FOLLOW), True),  # it has led without knowing it
        (standing(0, was_there=True, stance=Stance.FOLLOWS), True),
    ],
)
def test_who_wants_a_hint(now: Standing, *, wants: bool) -> None:
    assert HintInterest().wants(now) is wants


def test_a_part_of_millions_of_partitions_is_not_expanded() -> None:
    """The reader looks at it twice a second."""
    value = hint_for({"m:me": {T_ID: PartitionSpans.parse("0-1999998")}})
    now, interest = standing(0, hint=value), HintInterest()
    tracemalloc.start()
    try:
        assert interest.wants(now)
        assert not HintInterest().wants(standing(5, claimed=(0, 5), hint=value))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_a_refused_plan_stays_refused_and_another_is_wanted() -> None:
    interest = HintInterest()
    assert not interest.wants(standing(0, 2))
    assert interest.refused_plan_id == "plan-1"
    assert not interest.wants(standing(0, generation=8))
    other = hint_for({"m:me": {T_ID: (0, 1, 2)}, "m:other": {T_ID: (3,)}}, sequence=2)
    assert interest.wants(standing(0, hint=other, generation=9))
    # Even the leader's own refusal is no memory: it judges again by its last decision.
    assert interest.wants(standing(0, stance=Stance.CAN_FOLLOW, generation=10))


def test_receiving_less_is_a_refusal_after_four_generations() -> None:
    interest = HintInterest()
    assert [interest.wants(standing(0, generation=7 + i)) for i in range(6)] == [True] * 4 + [False] * 2
