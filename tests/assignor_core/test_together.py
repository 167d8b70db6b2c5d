"""Topics that stay together: the group of units, and what the checker says of partitions that are apart."""

from __future__ import annotations

import numpy as np
import pytest

from assignor_core.assignors import assignor_names, get_assignor
from assignor_core.errors import ProblemError, SubscriptionsDifferError
from assignor_core.group import Group
from assignor_core.members import Member
from assignor_core.metrics import member_lags
from assignor_core.together import unite
from assignor_core.verify import find_violations

LISTS = [["orders", "payments"], ["a", "c", "gone"]]


def random_group(seed: int) -> Group:
    """Return members that take orders and payments, or a and c, or both, and some other."""
    rng = np.random.default_rng(seed)
    pairs, others = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    counts = {"orders": pairs, "payments": pairs, "a": others, "c": others, "other": int(rng.integers(0, 4))}
    members: list[Member] = []
    taken: dict[int, list[str]] = {}
    for number in range(int(rng.integers(1, 6))):
        both = seed % 2 == 0 or rng.random() < 0.5
        taken[number] = ["orders", "payments", *(["a", "c", "other"] if both else [])]
    owned: dict[int, list[tuple[str, int]]] = {number: [] for number in taken}
    for topic, count in counts.items():
        takers = [number for number, topics in taken.items() if topic in topics]
        for partition in range(count if takers else 0):
            if rng.random() < 0.9:
                owned[int(rng.choice(takers))].append((topic, partition))
    members = [Member(f"m{n}", tuple(taken[n]), owned=tuple(owned[n]), generation=1) for n in taken]
    lags = {topic: rng.integers(0, 100, count).tolist() for topic, count in counts.items()}
    return Group.from_members(counts, members, lags=lags)


def pairs_apart(group: Group, assignment: np.ndarray) -> int:
    """Count, partition by partition, those that are not with the first topic's of their number."""
    owner = {
        (group.topics[topic], partition): int(member)
        for topic, partition, member in zip(group.row_topic, group.row_partition, assignment, strict=True)
    }
    follows = {"payments": "orders", "c": "a"}
    return sum(
        owner[follows[topic], number] != member
        for (topic, number), member in owner.items()
        if topic in follows
    )


@pytest.mark.parametrize("name", assignor_names())
def test_assignors_keep_units_together(name: str) -> None:
    for seed in range(20):
        group = random_group(seed)
        united = unite(group, LISTS)
        try:
            planned = get_assignor(name).assign(united.group)
        except SubscriptionsDifferError:
            continue
        assignment = united.expand(planned)
        assert find_violations(group, assignment, together=LISTS) == ()
        assert pairs_apart(group, assignment) == 0
        assert member_lags(united.group, planned).tolist() == member_lags(group, assignment).tolist()


def test_checker_counts_partitions_that_are_apart() -> None:
    for seed in range(20):
        group = random_group(seed)
        assignment = get_assignor("roundrobin").assign(group)
        apart = pairs_apart(group, assignment)
        found = find_violations(group, assignment, together=LISTS)
        assert [(v.rule, v.count) for v in found] == ([("APART", apart)] if apart else [])


def test_owner_of_a_unit_is_who_has_most_of_its_load() -> None:
    members = [
        Member("a", ("t", "u"), owned=(("t", 0), ("u", 1))),
        Member("b", ("t", "u"), owned=(("u", 0),)),
    ]
    group = Group.from_members({"t": 2, "u": 2}, members, lags={"t": [5, 0], "u": [6, 0]})
    assert unite(group, [["u", "t"]]).group.owner.tolist() == [1, 0]
    assert unite(group, [["u", "t"]], np.array([9.0, 0.0, 6.0, 0.0])).group.owner.tolist() == [0, 0]


def test_unit_is_read_in_a_rack_where_all_its_partitions_are() -> None:
    members = [Member("a", ("t", "u"), rack="x"), Member("b", ("t", "u"), rack="y")]
    racks = {"t": [["x", "y"], ["x"], [], []], "u": [["y"], ["y"], ["y"], []]}
    united = unite(Group.from_members({"t": 4, "u": 4}, members, racks=racks), [["t", "u"]]).group
    assert united.row_racks is not None
    assert united.row_racks.tolist() == [[False, True], [False, False], [False, True], [False, False]]


@pytest.mark.parametrize(
    ("topics", "takes", "together", "message"),
    [
        ({"t": 2, "u": 3}, ("t", "u"), [["t", "u"]], "the topics 't' and 'u' have 2 and 3 partitions"),
        ({"t": 2, "u": 2}, ("t",), [["t", "u"]], "other members subscribe to 't' than to 'u'"),
        ({"t": 2, "u": 2}, ("t", "u"), [["t", "u"], ["u", "t"]], "the topic 't' is in two lists"),
    ],
)
def test_topics_that_cannot_stay_together_are_named(
    topics: dict[str, int], takes: tuple[str, ...], together: list[list[str]], message: str
) -> None:
    group = Group.from_members(topics, [Member("a", ("t", "u")), Member("b", takes)])
    with pytest.raises(ProblemError, match=f"together: {message}"):
        unite(group, together)
