"""Placing by load: the vectors, a plain implementation, and what it promises to a group and its members."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assignor_core.algorithms.place_by_load import PlaceProblem, place_by_load, row_loads
from assignor_core.assignors.lag_aware_sticky import LagAwareStickyAssignor
from assignor_core.errors import HintMismatchError
from assignor_core.group import Group
from assignor_core.hint import member_key
from assignor_core.loads import LoadRacks, LoadsPayload
from assignor_core.members import Member
from assignor_core.metrics import member_counts
from assignor_core.protocol import cooperative_step, next_round
from assignor_core.verify import check_assignment, largest_count_gap
from tests.support.by_load.compare import differing
from tests.support.by_load.groups import group_of, place, random_vector, with_racks, with_results
from tests.support.by_load.vectors import chosen_vectors, read_vectors
from tests.support.each import for_each

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.support.by_load.groups import Vector

TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"
IDS = {"t": TOPIC}
SEEDS = range(60)


def one_topic(owner: list[int], num_members: int) -> Group:
    """Return members that all take one topic, and own its partitions so (-1: free)."""
    rows = np.flatnonzero(np.array(owner) >= 0)
    return Group.from_arrays(
        topics=["t"],
        num_partitions=np.array([len(owner)]),
        member_ids=[f"m{number:04}" for number in range(num_members)],
        subscriptions=(np.arange(num_members), np.zeros(num_members, dtype=np.int64)),
        claims=(rows, np.array(owner)[rows], np.full(len(rows), 5)),
    )


def make_loads(loads: list[int | None], **changes: Any) -> LoadsPayload:
    payload = LoadsPayload("cluster", "group", "s", 0, 1, {TOPIC: loads}, {}, 100, 0, 0)
    return replace(payload, **changes)


def counts(owner: list[int], num_members: int, loads: list[int | None], **changes: Any) -> list[int]:
    group = one_topic(owner, num_members)
    target = place_by_load(group, IDS, make_loads(loads, **changes)).target
    return list(member_counts(group, target).tolist())


@for_each(read_vectors(), lambda vector: str(vector["name"]))
def test_vectors_are_placed_as_they_say(vector: Vector) -> None:
    assert place(vector) == (vector["target"], vector["is_uneven"])


def test_vectors_are_those_of_the_plain_implementation() -> None:
    stored = {vector["name"]: vector for vector in read_vectors()}
    again = [*chosen_vectors(), *(random_vector(seed) for seed in range(40))]
    assert [with_results(vector) for vector in again] == [stored[vector["name"]] for vector in again]


def test_random_groups_are_placed_as_the_plain_implementation_places_them() -> None:
    assert differing([*range(50_000, 50_180), 100_200, 100_357, 100_413]) == []


@pytest.mark.parametrize("count_slack", [0, 1, 2, 3, 1000])
def test_four_that_join_four_with_two_partitions_each_get_one_each(count_slack: int) -> None:
    owner = [0, 0, 1, 1, 2, 2, 3, 3]
    assert counts(owner, 8, [1] * 8, count_slack=count_slack) == [1] * 8
    assert counts(owner, 8, [5, 1, 4, 1, 3, 1, 2, 9], count_slack=count_slack) == [1] * 8


def test_a_newcomer_takes_its_share_of_the_load_even_without_any_moves_allowed() -> None:
    """Expected: 24 of load on two members; the newcomer gets two of six partitions, 8 of load."""
    group = one_topic([0, 0, 0, 1, 1, 1], 3)
    target = place_by_load(group, IDS, make_loads([4, 4, 4, 4, 4, 4])).target
    assert np.bincount(target, [4] * 6).tolist() == [8, 8, 8]
    assert (target != [0, 0, 0, 1, 1, 1]).sum() == 2


def test_free_partitions_go_heaviest_first_to_the_lightest() -> None:
    """Expected: 9, 5 and 1 are free, three members own 10, 14 and 18."""
    owner = [0, 0, 1, 1, 2, 2, -1, -1, -1]
    group = one_topic(owner, 3)
    placed = place_by_load(group, IDS, make_loads([6, 4, 7, 7, 9, 9, 9, 5, 1]))
    assert placed.target.tolist() == [0, 0, 1, 1, 2, 2, 0, 1, 2]
    assert not placed.is_uneven


def test_load_counts_by_capacity() -> None:
    """Expected: nine equal partitions, one member can take twice as much as the other: 6 and 3."""
    loads = make_loads([10] * 9, capacities={"m:m0000": 200}, count_slack=9)
    assert np.bincount(place_by_load(one_topic([-1] * 9, 2), IDS, loads).target).tolist() == [6, 3]


def test_swap_lowers_the_load_where_counts_allow_no_move() -> None:
    """Expected: [10, 9] and [2, 1] become [10, 1] and [2, 9], or better."""
    group = one_topic([0, 0, 1, 1], 2)
    target = place_by_load(group, IDS, make_loads([10, 9, 2, 1], max_moves=2)).target
    assert np.bincount(target, [10, 9, 2, 1]).tolist() == [11, 11]
    assert place_by_load(group, IDS, make_loads([10, 9, 2, 1], max_moves=1)).target.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(("num_pairs", "is_even"), [(256, True), (257, False)])
def test_each_of_four_passes_swaps_64_times_at_most(num_pairs: int, is_even: bool) -> None:
    """Expected by ADR 63: each pair needs a swap, and all, that the largest load sinks by an eighth."""
    group = one_topic([member for member in range(2 * num_pairs) for _ in "ab"], 2 * num_pairs)
    loads: list[int | None] = [*[10, 9] * num_pairs, *[2, 1] * num_pairs]
    target = place_by_load(group, IDS, make_loads(loads, max_moves=10_000)).target
    assert set(np.bincount(target, np.array(loads, dtype=np.int64))) == ({11} if is_even else {19, 3})


def test_gains_that_do_not_matter_move_nothing() -> None:
    owner = [0, 0, 1, 1]
    loads = make_loads([100, 103, 100, 100], max_moves=100)
    assert place_by_load(one_topic(owner, 2), IDS, loads).target.tolist() == owner


def test_unknown_loads_are_the_mean_of_their_topic_or_of_all() -> None:
    topics = {f"t{n}": f"{'A' * 20}{'ABC'[n]}Q" for n in range(3)}
    group = Group.from_arrays(
        topics=list(topics),
        num_partitions=np.array([3, 2, 2]),
        member_ids=["a"],
        subscriptions=(np.zeros(3, dtype=np.int64), np.arange(3)),
    )
    known: dict[str, list[int | None]] = {topics["t0"]: [10, None], topics["t1"]: [3, None, 4]}
    loads = replace(make_loads([]), loads=known)
    # t0: 10, mean 10; t1: floor of 3.5, the third partition counts too; t2: floor of 17/3.
    assert row_loads(group, topics, loads).tolist() == [10, 10, 10, 3, 3, 5, 5]
    assert row_loads(group, topics, replace(loads, loads={})).tolist() == [0] * 7


def test_loads_that_cannot_be_used_are_a_mismatch() -> None:
    with pytest.raises(HintMismatchError, match="topic ids"):
        place_by_load(one_topic([-1], 1), {}, make_loads([1]))
    with pytest.raises(HintMismatchError, match="too many"):
        place_by_load(one_topic([-1] * 2_000_001, 1), IDS, make_loads([1]))


def placed_vector(seed: int) -> tuple[Vector, Group, dict[str, str], LoadsPayload, NDArray[np.int32]]:
    """Every other one with racks."""
    vector = random_vector(seed)
    if seed % 2:
        vector = with_racks(vector, seed)
    group, ids, loads = group_of(vector)
    return vector, group, ids, loads, place_by_load(group, ids, loads).target


def is_taken(group: Group) -> NDArray[np.bool_]:
    return np.asarray(group.subscribed.any(axis=0))[group.row_topic]


def is_free_of_conflicts(group: Group) -> bool:
    return bool((np.bincount(group.claim_row, minlength=1) <= 1).all()) and np.array_equal(
        group.owner, group.live_owner
    )


@for_each(SEEDS)
def test_assignments_are_valid_and_owned_partitions_stay_within_the_budget(seed: int) -> None:
    _, group, _, loads, target = placed_vector(seed)
    check_assignment(group, target)
    live = group.live_owner
    released = int(((live >= 0) & (target != live)).sum())
    held = np.bincount(live[live >= 0], minlength=group.num_members)
    takes = group.subscribed
    sizes = np.diff(group.topic_start)
    share_of_empty, num_empty = 0, 0
    for member in np.flatnonzero(held == 0):
        topics = np.flatnonzero(takes[member] & (sizes > 0))
        rows = int(sizes[topics].sum())
        sharers = int(takes[:, topics].any(axis=1).sum())
        share_of_empty += max(1, rows // sharers) if rows else 0
        num_empty += bool(rows)
    is_anything_free = bool((is_taken(group) & (live < 0)).any())
    assert released <= (num_empty if is_anything_free else max(loads.max_moves, share_of_empty))


@for_each(SEEDS)
def test_follow_up_by_any_leader_gives_the_same_and_settles(seed: int) -> None:
    """The second round knows the claims alone."""
    _, group, ids, loads, target = placed_vector(seed)
    step = cooperative_step(group, target)
    if not step.follow_up:
        return
    second = next_round(group, step.assignment)
    after = place_by_load(second, ids, loads).target
    if is_free_of_conflicts(group):
        assert after.tolist() == target.tolist()
        assert not cooperative_step(second, after).follow_up
    else:
        step = cooperative_step(second, after)
        if step.follow_up:
            third = next_round(second, step.assignment)
            assert not cooperative_step(third, place_by_load(third, ids, loads).target).follow_up


@for_each(SEEDS)
def test_fresher_loads_in_the_follow_up_need_no_third_round(seed: int) -> None:
    _, group, ids, loads, target = placed_vector(seed)
    step = cooperative_step(group, target)
    if not (step.follow_up and group.has_equal_subscriptions and is_free_of_conflicts(group)):
        return
    chance = random.Random(seed)  # noqa: S311  # repeatable on purpose
    fresh = {topic: [chance.randint(0, 1000) for _ in values] for topic, values in loads.loads.items()}
    second = next_round(group, step.assignment)
    after = place_by_load(second, ids, replace(loads, loads=fresh)).target
    assert not cooperative_step(second, after).follow_up
    check_assignment(group, after)


@for_each(SEEDS)
def test_counts_are_within_the_slack_and_nobody_is_left_out(seed: int) -> None:
    """For equal subscriptions and enough moves; where partitions are free, `is_uneven` tells."""
    vector = random_vector(seed)
    group, ids, loads = group_of(vector)
    if not group.has_equal_subscriptions or not group.num_topics or not group.subscribed_by_first().all():
        return
    placed = place_by_load(group, ids, replace(loads, max_moves=10_000))
    held = member_counts(group, placed.target)
    is_within = largest_count_gap(group, placed.target) <= 1 + loads.count_slack
    is_fair = is_within and not (held.min() == 0 and held.max() > 1)
    assert is_fair is not placed.is_uneven
    assert is_fair or (group.live_owner < 0).any()


@for_each(SEEDS)
def test_nothing_moves_that_gains_nothing(seed: int) -> None:
    """Whoever gives up partitions does so for counts, or for the largest levels, in this order."""
    _, group, ids, loads, target = placed_vector(seed)
    live = group.live_owner
    if bool((is_taken(group) & (live < 0)).any()) or np.array_equal(live, target):
        return
    load = row_loads(group, ids, loads)
    keys = map(member_key, group.member_ids, group.instance_ids)
    capacity = np.array([loads.capacities.get(key, loads.default_capacity) for key in keys])

    def score(assignment: NDArray[np.int32]) -> tuple[int, list[int]]:
        held = member_counts(group, assignment)
        missing = 0
        for member in range(group.num_members):
            rows = group.subscribed[member, group.row_topic] & (assignment >= 0)
            top = int(held[assignment[rows]].max(initial=0))
            missing += max(top - 1 - loads.count_slack - held[member], held[member] == 0 and top > 1, 0)
        sums = np.zeros(group.num_members, dtype=np.int64)
        np.add.at(sums, assignment[assignment >= 0], load[assignment >= 0])
        return int(missing), sorted((sums * 1000 // capacity).tolist(), reverse=True)

    assert score(target) < score(live)


@for_each(range(40))
def test_order_of_members_and_topics_does_not_matter(seed: int) -> None:
    vector = random_vector(seed)
    chance = random.Random(seed)  # noqa: S311  # repeatable on purpose
    topics = list(vector["topics"].items())
    shuffled = {
        **vector,
        "members": chance.sample(vector["members"], len(vector["members"])),
        "topics": dict(chance.sample(topics, len(topics))),
    }
    assert place(shuffled) == place(vector) == place(vector)


@for_each(range(40))
def test_racks_that_are_not_known_change_nothing(seed: int) -> None:
    plain = random_vector(seed)
    vector = with_racks(plain, seed)
    nobody = [{**member, "rack": None} for member in vector["members"]]
    racks = {**vector["record"]["racks"], "topics": {}}
    assert place({**vector, "members": nobody}) == place(plain)
    assert place({**vector, "record": {**vector["record"], "racks": racks}}) == place(plain)


@for_each(range(60))
def test_pairs_stay_together_whoever_joins_and_leaves(seed: int) -> None:
    """Members come and go; what is whole needs no more than the two rounds of a rebalance."""
    chance = np.random.default_rng(seed)
    ids = {"t": TOPIC, "u": "AAAAAAAAAAAAAAAAAAAAAg", "v": "AAAAAAAAAAAAAAAAAAAAAw"}
    load = {ids[topic]: chance.integers(0, 100, 8).tolist() for topic in "tuv"}
    pairs = [[ids["t"], ids["u"]]]
    loads = replace(make_loads([]), loads=load, together=pairs, max_moves=int(chance.integers(1, 12)))
    # As another assignor has left it.
    owned: dict[str, list[tuple[str, int]]] = {f"m{n}": [] for n in range(3)}
    for topic in "tuv":
        for number in range(8):
            owned[f"m{chance.integers(3)}"].append((topic, number))
    for change, most_rounds in (("none", 6), ("joins", 2), ("leaves", 2)):
        if change == "joins":
            owned["m9"] = []
        elif change == "leaves":
            del owned["m0"]
        for num_rounds in range(1, 7):  # noqa: B007  # how many there were
            group = pairs_group(owned)
            placed = place_by_load(group, ids, loads)
            step = cooperative_step(group, placed.target)
            owned = {name: list(held) for name, held in group.to_mapping(step.assignment).items()}
            if not step.follow_up:
                break
        assert num_rounds <= most_rounds, change
        owner = {pair: name for name, held in owned.items() for pair in held}
        assert len(owner) == 24, change
        assert all(owner["t", number] == owner["u", number] for number in range(8)), change


def pairs_group(owned: dict[str, list[tuple[str, int]]]) -> Group:
    members = [
        Member(name, ("t", "u", "v"), owned=tuple(pairs), generation=5 if pairs else -1)
        for name, pairs in owned.items()
    ]
    return Group.from_members(dict.fromkeys("tuv", 8), members)


def test_free_and_released_partitions_go_near_within_the_tolerance() -> None:
    """48 partitions, read in one of two racks; 4 members become 6: fewer are read across racks, as evenly."""
    across, largest = np.zeros(2), np.zeros(2)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        load, rack = rng.integers(50, 100, 48), rng.integers(0, 2, 48)
        plain = make_loads(load.tolist(), max_moves=48)
        racks = LoadRacks([["r0"], ["r1"]], {TOPIC: rack.tolist()}, 20)
        for number, loads in enumerate((plain, replace(plain, racks=racks))):
            owner = np.full(48, -1)
            for num_members in range(4, 7):
                names = tuple(f"r{member % 2}" for member in range(num_members))
                group = replace(one_topic(owner.tolist(), num_members), rack_names=names)
                owner = place_by_load(group, IDS, loads).target
                across[number] += load[owner % 2 != rack].sum() / load.sum()
                largest[number] += np.bincount(owner, load).max() / load.sum() * num_members
    assert across[1] < 0.5 * across[0]
    assert largest[1] <= 1.05 * largest[0]


def largest_and_best(group: Group, load: NDArray[np.int64], target: NDArray[np.int32]) -> tuple[float, float]:
    best = LagAwareStickyAssignor(count_slack=0).plan(group.with_state(np.full_like(target, -1), load))
    return float(np.bincount(target, load).max()), max(best.max_ratio, 1.0)


def test_scale_out_stays_near_the_best_whole_partition_assignment() -> None:
    """4 members become 8, one by one; loads by Zipf with exponents up to 0.8, at least 32 partitions."""
    good = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        size, exponent = int(rng.integers(32, 65)), float(rng.choice([0.0, 0.3, 0.6, 0.8]))
        load = rng.permutation(1e6 / np.arange(1, size + 1) ** exponent).astype(np.int64)
        loads = make_loads(load.tolist(), max_moves=1000)
        owner = place_by_load(one_topic([-1] * size, 4), IDS, loads).target.tolist()
        ratios = []
        for num_members in range(5, 9):
            group = one_topic(owner, num_members)
            target = place_by_load(group, IDS, loads).target
            largest, best = largest_and_best(group, load, target)
            ratios.append(largest / best)
            owner = target.tolist()
        good.append(max(ratios) <= 1.15)
    assert sum(good) >= 19


@pytest.mark.parametrize("num_members", [100, pytest.param(1000, marks=pytest.mark.extended)])
@pytest.mark.parametrize("kind", ["nobody owns anything", "one joins", "one leaves", "skewed"])
def test_large_groups_are_placed_evenly(num_members: int, kind: str) -> None:
    rng = np.random.default_rng(7)
    owners = {"one joins": num_members - 1, "nobody owns anything": 1}.get(kind, num_members)
    owner = np.arange(10_000) % owners
    if kind == "one leaves":
        owner = np.where(owner == num_members - 1, -1, owner)
    if kind == "nobody owns anything":
        owner = np.full(10_000, -1)
    loads = make_loads(
        (rng.permutation(1e9 / np.arange(1, 10_001) ** 0.8)).astype(int).tolist(), max_moves=1000
    )
    group = one_topic(owner.tolist(), num_members)
    check_assignment(group, place_by_load(group, IDS, loads).target, count_slack=0)


@for_each(range(30))
def test_members_that_take_everything_are_served_as_by_the_general_steps(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = np.random.default_rng(seed)
    num_members, num_rows = int(chance.integers(2, 60)), int(chance.integers(1, 600))
    owner = chance.integers(0, int(chance.integers(1, num_members + 1)), num_rows)
    owner[chance.random(num_rows) < chance.choice([0.0, 0.0, 0.3, 1.0])] = -1
    # Few distinct loads, so that ties decide.
    loads = make_loads(
        chance.integers(0, chance.choice([3, 20, 2**31]), num_rows).tolist(),
        capacities={f"m:m{number:04}": int(chance.integers(1, 1000)) for number in range(0, num_members, 3)},
        count_slack=int(chance.choice([0, 0, 1, 3, 2**31 - 1])),
        max_moves=int(chance.choice([0, 5, 1_000])),
    )
    group = one_topic(owner.tolist(), num_members)
    by_heaps = place_by_load(group, IDS, loads)
    with monkeypatch.context() as patch:
        patch.setattr(PlaceProblem, "is_equal", False)
        one_by_one = place_by_load(group, IDS, loads)
    assert by_heaps.target.tolist() == one_by_one.target.tolist()
    assert by_heaps.is_uneven == one_by_one.is_uneven
