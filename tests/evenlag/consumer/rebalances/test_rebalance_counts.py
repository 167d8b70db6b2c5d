"""How many rebalances a hint costs, followed and refused: in simulated time, over many seeds."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from evenlag.consumer import Reason
from tests.support.consumer.simulated_group import SimGroup
from tests.support.each import for_each

if TYPE_CHECKING:
    from collections.abc import Sequence

SEEDS = range(40)


def group_of(num_members: int, num_partitions: int, seed: int, *, is_static: bool = False) -> SimGroup:
    group = SimGroup(num_partitions, seed)
    for number in range(num_members):
        group.add(f"pod-{number}" if is_static else None)
    group.run(30)
    return group


def shuffled(group: SimGroup) -> dict[str, Sequence[int]]:
    """A placement that moves most partitions."""
    names = sorted(group.members)
    order = list(range(group.cluster.num_partitions))
    group.chance.shuffle(order)
    return {name: sorted(order[i :: len(names)]) for i, name in enumerate(names)}


def count(group: SimGroup, reason: Reason) -> int:
    return sum(member.cache.counts.get(reason, 0) for member in group.members.values())


def follow(group: SimGroup) -> dict[str, Sequence[int]]:
    wanted = shuffled(group)
    group.publish(wanted)
    group.run(30)
    assert group.parts() == wanted
    return wanted


@for_each(product(SEEDS, (False, True)))
def test_a_newcomer_beside_a_followed_hint_costs_two_rebalances(case: tuple[int, bool]) -> None:
    seed, has_loads = case
    group = group_of(6, 24, seed)
    if has_loads:
        group.publish_loads([group.chance.randrange(1, 100) for _ in range(24)])
    before = group.generation
    follow(group)
    assert group.generation == before + 2
    group.add()
    group.run(60)
    assert group.generation == before + 4
    assert sum(map(len, group.parts().values())) == 24
    assert all(group.parts().values())
    assert count(group, Reason.ASKED) == 1, "the leader's, for the hint"


@for_each([(30, 0), *((8, seed) for seed in range(4))])
def test_a_rolling_restart_of_dynamic_pods_costs_what_it_costs_without_a_hint(case: tuple[int, int]) -> None:
    num_pods, seed = case
    counts = {}
    for has_hint in (True, False):
        group = group_of(num_pods, 90, seed)
        if has_hint:
            follow(group)
        before = group.generation
        for name in sorted(group.members):
            group.remove(name)
            group.add()
            group.run(9)
        counts[has_hint] = group.generation - before
        assert sum(map(len, group.parts().values())) == 90
    assert counts[True] <= counts[False]


@for_each(product(SEEDS[:10], ({"max_moves": 0, "count_slack": 99}, {"count_slack": 0})))
def test_a_hint_that_the_leader_refuses_is_asked_for_once(case: tuple[int, dict[str, int]]) -> None:
    seed, changes = case
    group = group_of(6, 23, seed)
    before, parts = group.generation, group.parts()
    names = sorted(group.members)
    uneven = {name: [i] for i, name in enumerate(names[1:])}
    group.publish({names[0]: range(len(uneven), 23), **uneven}, **changes)
    group.run(120)
    assert group.parts() == parts
    assert group.generation == before + 1
    assert count(group, Reason.MAX_MOVES) + count(group, Reason.COUNT_SLACK) == 1


@for_each(SEEDS[:10])
def test_a_leader_that_reads_the_hint_last_still_follows_it(seed: int) -> None:
    """Followers ask first; their leader knows no hint and keeps all as it is, which looks like a refusal."""
    group = group_of(5, 20, seed)
    leader = next(member for member in group.members.values() if member.is_leader)
    value_of = leader.cache.apply_hint
    late: list[bytes | None] = []
    leader.cache.apply_hint = late.append  # type: ignore[assignment,method-assign]  # its watcher waits
    wanted = shuffled(group)
    group.publish(wanted)
    group.run(40)
    assert count(group, Reason.REFUSED) > 0
    value_of(late[0])
    group.run(30)
    assert group.parts() == wanted


@for_each(SEEDS[:10])
def test_a_newcomer_does_not_ask_for_a_hint_that_does_not_name_it(seed: int) -> None:
    group = group_of(4, 16, seed)
    follow(group)
    newcomers = [group.add() for _ in range(3)]
    group.run(90)
    assert not any(member.cache.counts.get(Reason.ASKED) for member in newcomers)


@for_each(SEEDS[:10])
def test_a_static_member_that_comes_back_finds_its_part_of_the_hint(seed: int) -> None:
    group = group_of(4, 16, seed, is_static=True)
    wanted = follow(group)
    before = group.generation
    gone = sorted(group.members)[seed % 4]
    instance = group.members[gone].instance_id
    group.remove(gone)  # its session timed out
    group.run(40)
    back = group.add(instance)
    group.run(60)
    parts = group.parts()
    assert parts.pop(back.member_id) == wanted.pop(gone)
    assert parts == wanted
    assert group.generation - before <= 4


@for_each(SEEDS[:10])
def test_restarts_of_static_members_beside_a_refused_hint_cost_no_rebalance(seed: int) -> None:
    group = group_of(5, 20, seed, is_static=True)
    group.publish(shuffled(group), max_moves=0)
    group.run(60)
    assert count(group, Reason.MAX_MOVES) == 1
    before = group.generation
    for name in sorted(group.members):
        group.restart(name)
        group.run(40)
    assert group.generation == before
    assert count(group, Reason.ASKED) == 0, "by those that are there now"


@for_each(SEEDS[:10])
def test_a_plan_is_followed_if_its_static_leader_restarts_before_it_reads_it(seed: int) -> None:
    """And other members too: one that saw the plan come asks for it."""
    group = group_of(5, 20, seed, is_static=True)
    names = sorted(group.members, key=lambda name: not group.members[name].is_leader)
    before = group.parts()
    # A rotation: each member's part changes.
    wanted = {name: before[names[i - 1]] for i, name in enumerate(names)}
    group.publish(wanted)
    for name in names[:4]:
        group.restart(name)
    by_instance = {group.members[names[4]].instance_id: wanted[names[4]]}
    group.run(60)
    parts = {member.instance_id: sorted(n for _, n in member.owned) for member in group.members.values()}
    assert parts | by_instance == parts
    assert count(group, Reason.FOLLOWED) > 0
