"""No partition is committed by two owners in one generation, whatever happens on the way up and back."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, TypeAlias

import pytest

from assignor_core.protocol import Step, cooperative_step
from tests.support import simulated_group
from tests.support.simulated_group import (
    Choice,
    Outcome,
    SimGroup,
    SimMember,
    choices,
    common_assignors,
    join,
    leave,
    possible_selections,
    protocol_of,
    rebalance,
)

if TYPE_CHECKING:
    import numpy as np

    from assignor_core.group import Group

OLD = ("range",)
NEW = ("cooperative-sticky", "range")
MAX_FOLLOW_UPS = 5

States: TypeAlias = set[tuple[SimGroup, bool]]


def make_group(num_members: int, num_partitions: int, assignors: tuple[str, ...]) -> SimGroup:
    names = [f"m{i}" for i in range(num_members)]
    members = tuple(SimMember(name, assignors, looks_at_claims=assignors != OLD) for name in names)
    return SimGroup(num_partitions, members)


def check_one_owner(outcome: Outcome) -> None:
    assert all(len(owners) <= 1 for owners in outcome.committers), outcome


def relative(group: SimGroup) -> SimGroup:
    """Return the same state with generations counted from the group's, so that equal ones are equal."""
    members = tuple(
        replace(m, generation=max(m.generation - group.generation, -9)) if m.generation >= 0 else m
        for m in group.members
    )
    return replace(group, generation=0, members=members)


def explore(start: States) -> States:
    """Return all states at rest that can follow, going through every choice; True: a round was missed."""
    resting: States = set()
    seen: States = set()
    todo = [(group, missed) for group, missed in start]
    while todo:
        group, missed = todo.pop()
        for choice in choices(group, may_miss=not missed, may_stall=not missed):
            outcome = rebalance(group, choice)
            check_one_owner(outcome)
            state = (outcome.group, missed or bool(choice.missing or choice.unsynced))
            key = (relative(outcome.group), state[1])
            if outcome.group.wants_round:
                if key not in seen:
                    seen.add(key)
                    todo.append(state)
            else:
                resting.add(state)
    unique = {(relative(group), missed): (group, missed) for group, missed in resting}
    return set(unique.values())


def bounce(states: States, name: str, assignors: tuple[str, ...], *, falsely: bool) -> States:
    """Return the states at rest after one member left and came back: at once, or a rebalance later."""
    back = SimMember(name, assignors, looks_at_claims=assignors != OLD, claims_falsely=falsely)
    gone = {(leave(state, name), missed) for state, missed in states}
    between = explore({(state, missed) for state, missed in gone if state.members})
    return explore({(join(state, back), missed) for state, missed in gone | between})


@pytest.mark.parametrize("falsely", [False, True])
@pytest.mark.parametrize("num_members", [1, 2, 3])
@pytest.mark.parametrize("num_partitions", [1, 2, 3, 4])
def test_rolling_upgrade_and_back_exhaustively(num_members: int, num_partitions: int, falsely: bool) -> None:
    group = make_group(num_members, num_partitions, OLD)
    members = tuple(replace(member, claims_falsely=falsely) for member in group.members)
    states = explore({(replace(group, members=members), False)})
    for number in range(num_members):
        states = bounce(states, f"m{number}", NEW, falsely=falsely)
    for order in permutations(range(num_members)):
        back = states
        for number in order:
            back = bounce(back, f"m{number}", OLD, falsely=falsely)
        for state, _ in back:
            held = [partition for member in state.members for partition in member.held]
            assert sorted(held) == list(range(num_partitions))


@pytest.mark.parametrize("seed", range(40))
def test_random_histories_of_larger_groups(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - a test's dice
    configurations = [OLD, NEW, ("cooperative-sticky",), ("lag-aware-sticky", "range"), NEW]
    group = make_group(rng.randint(2, 6), rng.randint(1, 15), NEW)
    members = tuple(replace(m, claims_falsely=rng.random() < 0.5) for m in group.members)
    group = replace(group, members=members)
    for _ in range(30):
        if rng.random() < 0.4:
            name = rng.choice(group.members).name
            wanted = rng.choice(configurations)
            fresh = SimMember(name, wanted, looks_at_claims=wanted != OLD, claims_falsely=rng.random() < 0.5)
            bounced = join(leave(group, name), fresh)
            # The coordinator refuses a member that has no assignor in common with the others.
            if common_assignors([member.assignors for member in bounced.members]):
                group = bounced
        names = [member.name for member in group.members]
        some = rng.sample(names, 2)
        ways = list(choices(group))
        choice = rng.choice(ways)
        if rng.random() < 0.3:
            absent = next(name for name in some if name != choice.leader)
            kind = rng.choice(["missing", "unsynced"])
            joining = [m.assignors for m in group.members if m.name != absent or kind == "unsynced"]
            selected = rng.choice(possible_selections(joining))
            gone = frozenset({absent})
            nobody: frozenset[str] = frozenset()
            missing, unsynced = (gone, nobody) if kind == "missing" else (nobody, gone)
            choice = Choice(selected, choice.leader, missing, unsynced)
        outcome = rebalance(group, choice)
        check_one_owner(outcome)
        group = outcome.group


def test_simulation_finds_a_leader_that_does_not_withhold(monkeypatch: pytest.MonkeyPatch) -> None:
    def hand_all_out(group: Group, target: np.ndarray) -> Step:
        step = cooperative_step(group, target)
        return replace(step, assignment=target, follow_up=False)

    monkeypatch.setattr(simulated_group, "cooperative_step", hand_all_out)
    simulated_group._hand_out.cache_clear()
    try:
        with pytest.raises(AssertionError, match="committers"):
            test_rolling_upgrade_and_back_exhaustively(3, 4, falsely=False)
    finally:
        simulated_group._hand_out.cache_clear()


def test_group_settles_after_a_late_sync_in_one_more_round() -> None:
    group = make_group(2, 4, NEW)
    group = rebalance(group, Choice("cooperative-sticky", "m0")).group
    bounced = join(leave(group, "m1"), SimMember("m1", NEW))
    stalled = rebalance(bounced, Choice("cooperative-sticky", "m1", unsynced=frozenset({"m0"}))).group
    rounds = 0
    while stalled.wants_round and rounds < MAX_FOLLOW_UPS:
        stalled = rebalance(stalled, Choice("cooperative-sticky", "m0")).group
        rounds += 1
    assert rounds <= 3
    assert sorted(len(member.held) for member in stalled.members) == [2, 2]


def test_coordinator_counts_votes_among_what_all_support() -> None:
    assert common_assignors([("range", "sticky"), ("sticky", "fair")]) == ("sticky",)
    assert possible_selections([NEW, NEW, OLD]) == ("range",)
    assert possible_selections([NEW, NEW, ("range", "cooperative-sticky")]) == ("cooperative-sticky",)
    assert possible_selections([NEW, ("range", "cooperative-sticky")]) == ("cooperative-sticky", "range")
    assert possible_selections([OLD, ("sticky",)]) == ()
    assert possible_selections([]) == ()


def test_protocol_follows_the_assignor_selected() -> None:
    assert protocol_of("cooperative-sticky") == "COOPERATIVE"
    assert protocol_of("range") == "EAGER"
