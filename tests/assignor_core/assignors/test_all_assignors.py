"""What all assignors promise alike, and the examples of the KIPs for each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.assignors import assignor_names, get_assignor
from assignor_core.errors import SubscriptionsDifferError
from assignor_core.group import Group
from assignor_core.members import Member
from assignor_core.metrics import count_moves, measure, member_counts
from assignor_core.verify import check_assignment
from tests.support.improving_chain import has_improving_chain
from tests.support.strategies import groups

NAMES = (
    "constrained-cooperative-sticky",
    "cooperative-sticky",
    "fair",
    "fairest-sticky",
    "lag-aware",
    "lag-aware-sticky",
    "range",
    "roundrobin",
    "sticky",
)


def assign(name: str, topics: dict[str, int], members: list[Member]) -> dict[str, list[tuple[str, int]]]:
    group = Group.from_members(topics, members)
    return group.to_mapping(get_assignor(name).assign(group))


def test_all_nine_are_there() -> None:
    assert assignor_names() == NAMES


@given(st.sampled_from(NAMES), groups(lags=True), groups(lags=True, equal=True))
def test_every_result_is_valid_and_repeatable(name: str, any_group: Group, equal_group: Group) -> None:
    for group in (equal_group, any_group):
        if name.startswith("constrained") and not group.has_equal_subscriptions:
            with pytest.raises(SubscriptionsDifferError):
                get_assignor(name).assign(group)
            continue
        assignment = get_assignor(name).assign(group)
        assert assignment.dtype == np.int32
        check_assignment(group, assignment)
        assert (get_assignor(name).assign(group) == assignment).all()


@given(st.sampled_from(NAMES), groups(lags=True, equal=True))
def test_topic_that_nobody_takes_changes_nothing(name: str, group: Group) -> None:
    pairs = np.repeat(np.arange(group.num_members), np.diff(group.subscription_start))
    more = Group.from_arrays(
        topics=[*group.topics, "zz"],
        num_partitions=np.append(np.diff(group.topic_start), 3),
        member_ids=group.member_ids,
        subscriptions=(pairs, group.subscription_topic),
        claims=(group.claim_row, group.claim_member, group.claim_generation),
        lags=np.append(group.lag, [7, 0, 9]),
    )
    assignment = get_assignor(name).assign(more)
    assert assignment[-3:].tolist() == [-1, -1, -1]
    assert (assignment[:-3] == get_assignor(name).assign(group)).all()


@given(groups())
def test_fair_is_as_even_as_can_be_and_blind_to_owners(group: Group) -> None:
    assignment = get_assignor("fair").assign(group)
    assert not has_improving_chain(group, assignment)
    pairs = np.repeat(np.arange(group.num_members), np.diff(group.subscription_start))
    fresh = Group.from_arrays(
        topics=group.topics,
        num_partitions=np.diff(group.topic_start),
        member_ids=group.member_ids,
        subscriptions=(pairs, group.subscription_topic),
    )
    assert (get_assignor("fair").assign(fresh) == assignment).all()


@given(groups())
def test_fairest_sticky_moves_nothing_and_fills_as_evenly_as_it_can(group: Group) -> None:
    assignment = get_assignor("fairest-sticky").assign(group)
    live = group.live_owner
    assert (assignment[live >= 0] == live[live >= 0]).all()
    # Of what was free, nothing can go on to a member with two fewer, directly.
    counts = member_counts(group, assignment)
    for row in np.flatnonzero((live < 0) & (assignment >= 0)):
        takers = group.subscribed[:, group.row_topic[row]]
        assert counts[assignment[row]] - counts[takers].min() <= 1


def test_range_gives_stretches_and_the_first_get_more() -> None:
    members = [Member("C0", ("t0", "t1")), Member("C1", ("t0", "t1"))]
    assert assign("range", {"t0": 3, "t1": 3}, members) == {
        "C0": [("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)],
        "C1": [("t0", 2), ("t1", 2)],
    }


def test_static_members_come_first_by_instance_id() -> None:
    members = [Member("a", ("t",)), Member("z", ("t",), "pod-0"), Member("b", ("t",), "pod-1")]
    for name in ("range", "roundrobin"):
        assert assign(name, {"t": 3}, members) == {"z": [("t", 0)], "b": [("t", 1)], "a": [("t", 2)]}


def test_roundrobin_example_of_kip_54_is_uneven() -> None:
    members = [Member("C0", ("t0",)), Member("C1", ("t0", "t1")), Member("C2", ("t0", "t1", "t2"))]
    assert assign("roundrobin", {"t0": 1, "t1": 2, "t2": 3}, members) == {
        "C0": [("t0", 0)],
        "C1": [("t1", 0)],
        "C2": [("t1", 1), ("t2", 0), ("t2", 1), ("t2", 2)],
    }


def test_sticky_examples_of_kip_54() -> None:
    # Example 1: three consumers, four topics of two partitions; C1 leaves, and C0 and C2 keep all they had.
    topics = {f"t{i}": 2 for i in range(4)}
    everything = tuple(topics)
    fresh = [Member(name, everything) for name in ("C0", "C1", "C2")]
    first = assign("sticky", topics, fresh)
    assert sorted(map(len, first.values())) == [2, 3, 3]
    left = [Member(name, everything, owned=tuple(first[name]), generation=1) for name in ("C0", "C2")]
    second = assign("sticky", topics, left)
    assert [len(owned) for owned in second.values()] == [4, 4]
    assert all(set(first[name]) <= set(second[name]) for name in ("C0", "C2"))
    # Example 2: C0 takes t0, C1 t0 and t1, C2 all three. C0 leaves, and only its own partition moves.
    topics = {"t0": 1, "t1": 2, "t2": 3}
    takes = {"C0": ("t0",), "C1": ("t0", "t1"), "C2": ("t0", "t1", "t2")}
    first = assign("sticky", topics, [Member(name, taken) for name, taken in takes.items()])
    assert first == {
        "C0": [("t0", 0)],
        "C1": [("t1", 0), ("t1", 1)],
        "C2": [("t2", 0), ("t2", 1), ("t2", 2)],
    }
    left = [Member(name, takes[name], owned=tuple(first[name]), generation=1) for name in ("C1", "C2")]
    second = assign("sticky", topics, left)
    assert second == {"C1": [("t0", 0), *first["C1"]], "C2": first["C2"]}


def test_sticky_beside_its_alternatives_as_in_kip_54() -> None:
    # A third member joins two that hold three each: sticky moves two, fair forgets, fairest leaves it empty.
    owned = {"C0": tuple(("t", p) for p in range(3)), "C1": tuple(("t", p) for p in range(3, 6))}
    members = [Member(name, ("t",), owned=owned.get(name, ()), generation=1) for name in ("C0", "C1", "C2")]
    group = Group.from_members({"t": 6}, members)
    moves = {
        name: count_moves(group, get_assignor(name).assign(group)) for name in ("sticky", "fairest-sticky")
    }
    assert moves == {"sticky": 2, "fairest-sticky": 0}
    scores = {
        name: measure(group, get_assignor(name).assign(group)).balance_score
        for name in ("sticky", "fair", "fairest-sticky")
    }
    assert scores == {"sticky": 0, "fair": 0, "fairest-sticky": 6}


def test_kip_615_fills_steals_until_filled_and_hands_out() -> None:
    # Nine partitions, four members: everybody gets two, one gets three. C0 holds five, C1 two, C2 one.
    held = {"C0": range(5), "C1": range(5, 7), "C2": range(7, 8), "C3": range(0)}
    members = [Member(n, ("t",), owned=tuple(("t", p) for p in ps), generation=1) for n, ps in held.items()]
    group = Group.from_members({"t": 9}, members)
    assignment = get_assignor("constrained-cooperative-sticky").assign(group)
    # C2 and C3 lack three: the free one and two stolen from C0, which keeps the one that is left over.
    assert member_counts(group, assignment).tolist() == [3, 2, 2, 2]
    assert count_moves(group, assignment) == 2
    assert assignment[8] in {2, 3}


def test_constrained_names_who_differs() -> None:
    members = [Member("a", ("t",)), Member("b", ("t", "u"))]
    with pytest.raises(SubscriptionsDifferError, match="'a' and 'b' only one subscribes to 'u'"):
        assign("constrained-cooperative-sticky", {"t": 1, "u": 1}, members)


def test_range_keeps_to_racks_and_topics_of_one_shape_together() -> None:
    members = [Member("a", ("t", "u"), rack="r1"), Member("b", ("t", "u"), rack="r0")]
    racks = {name: [["r0"], ["r1"]] for name in ("t", "u")}
    group = Group.from_members({"t": 2, "u": 2}, members, racks=racks)
    assert group.to_mapping(get_assignor("range").assign(group)) == {
        "a": [("t", 1), ("u", 1)],
        "b": [("t", 0), ("u", 0)],
    }


@given(st.data())
def test_sticky_puts_racks_after_evenness_and_before_moves(data: st.DataObject) -> None:
    rack = st.sampled_from(["r0", "r1", "r2"])
    num_members = data.draw(st.integers(1, 4))
    counts = {f"t{i}": data.draw(st.integers(0, 4)) for i in range(2)}
    held: dict[int, list[tuple[str, int]]] = {}
    for name, count in counts.items():
        for partition in range(count):
            held.setdefault(data.draw(st.integers(-1, num_members - 1)), []).append((name, partition))
    members = [
        Member(f"m{i}", tuple(counts), rack=data.draw(rack), owned=tuple(held.get(i, ())), generation=1)
        for i in range(num_members)
    ]
    racks = {n: [data.draw(st.lists(rack, unique=True)) for _ in range(c)] for n, c in counts.items()}
    group = Group.from_members(counts, members, racks=racks)
    assignment = get_assignor("cooperative-sticky").assign(group)
    check_assignment(group, assignment, count_slack=0)

    def rank(assigned: np.ndarray) -> tuple[int, int]:
        if group.row_racks is None or group.member_rack is None:
            return 0, count_moves(group, assigned)
        near = group.row_racks[np.arange(len(assigned)), group.member_rack[assigned]]
        return -int(near.sum()), count_moves(group, assigned)

    # No swap of two partitions, and no move between equal counts, is better.
    best = rank(assignment)
    sizes = member_counts(group, assignment)
    for row, member in enumerate(assignment):
        for other in range(group.num_members):
            if sizes[member] == sizes[other] + 1:
                changed = assignment.copy()
                changed[row] = other
                assert rank(changed) >= best
    for one in range(len(assignment)):
        for two in range(one):
            changed = assignment.copy()
            changed[[one, two]] = assignment[[two, one]]
            assert rank(changed) >= best
