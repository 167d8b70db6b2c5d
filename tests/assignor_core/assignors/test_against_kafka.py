"""`range` and `roundrobin` equal Kafka's to the partition; the sticky pair is never worse than Kafka's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from assignor_core.assignors import get_assignor
from assignor_core.group import Group
from assignor_core.members import Member
from assignor_core.metrics import count_moves, member_counts
from assignor_core.verify import check_assignment, find_violations
from tests.support.oracle.kafka_oracle import Oracle, class_path_or_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

CLASS_PATH, REASON = class_path_or_reason()
pytestmark = pytest.mark.skipif(not CLASS_PATH, reason=REASON or "-")
NUM_GROUPS = 400


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    with Oracle(tmp_path_factory.mktemp("oracle"), CLASS_PATH) as running:
        yield running


def make_group(seed: int, *, racks: bool, equal: bool = False, owned: bool = False) -> Group:
    """Return a random group: static and dynamic members, unequal subscriptions, topics of equal size."""
    rng = np.random.default_rng(seed)
    num_members, num_topics = int(rng.integers(1, 9)), int(rng.integers(1, 6))
    topics = {f"t{i}": int(rng.choice([0, 1, 2, 3, 4, 4, 7, 12])) for i in range(num_topics)}
    names = rng.permutation([*"abcdefghijklmnop", "Z", "aa", "\u00e9", "\uffee", "\U0001f600"]).tolist()
    takes_all = equal or rng.random() < 0.4
    held: dict[int, list[tuple[str, int]]] = {}
    for topic, count in topics.items():
        for partition in range(count):
            holder = int(rng.integers(0, num_members + 1))
            held.setdefault(holder, []).append((topic, partition))
    kinds = rng.integers(0, 3, num_members)
    members = [
        Member(
            names[i],
            tuple(topic for topic in topics if takes_all or rng.random() < 0.6),
            instance_id=f"pod-{names[-1 - i]}" if kinds[i] == 0 else None,
            rack=f"r{rng.integers(0, 3)}" if racks and kinds[i] != 1 else None,
            owned=tuple(held.get(i, ())) if owned else (),
            generation=3,
        )
        for i in range(num_members)
    ]
    width = int(rng.integers(1, 4))
    places = {
        topic: [[f"r{r}" for r in rng.permutation(4)[: rng.integers(0, width + 1)]] for _ in range(count)]
        for topic, count in topics.items()
    }
    return Group.from_members(topics, members, racks=places if racks else None)


@pytest.mark.parametrize("racks", [False, True])
def test_range_equals_kafkas(oracle: Oracle, racks: bool) -> None:
    for seed in range(NUM_GROUPS):
        group = make_group(seed, racks=racks)
        ours = get_assignor("range").assign(group).tolist()
        answer = oracle.ask(group, "range").assignment
        assert answer is not None
        assert ours == answer.tolist(), f"seed {seed}"


def test_roundrobin_equals_kafkas(oracle: Oracle) -> None:
    for seed in range(NUM_GROUPS):
        group = make_group(seed, racks=seed % 2 == 0)
        ours = get_assignor("roundrobin").assign(group).tolist()
        answer = oracle.ask(group, "roundrobin").assignment
        assert answer is not None
        assert ours == answer.tolist(), f"seed {seed}"


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("racks", [False, True])
def test_sticky_is_never_worse_than_kafkas(oracle: Oracle, racks: bool, equal: bool) -> None:
    compared = 0
    for seed in range(NUM_GROUPS // 4):
        group = make_group(seed, racks=racks, equal=equal, owned=True)
        ours = get_assignor("cooperative-sticky").assign(group)
        answer = oracle.ask(group, "sticky-target").assignment
        assert answer is not None
        check_assignment(group, ours)
        if not find_violations(group, answer):
            compared += 1
            assert rank(group, ours) <= rank(group, answer), f"seed {seed}"
    # Kafka's gives a member what it does not take when its subscription is empty or it owned that before.
    assert compared >= NUM_GROUPS // 5


def rank(group: Group, assignment: np.ndarray) -> tuple[int, int, int]:
    """Return what the sticky family minimises: squared counts, rows far from their racks, moves."""
    squares = int((member_counts(group, assignment) ** 2).sum())
    far = 0
    if group.row_racks is not None and group.member_rack is not None:
        rows = np.flatnonzero(assignment >= 0)
        rack = group.member_rack[assignment[rows]]
        # Where no member of the topic is near, nobody is far.
        takes = group.subscribed[:, group.row_topic[rows]]
        near = group.row_racks[rows][:, group.member_rack].T & takes & (group.member_rack >= 0)[:, None]
        far = int((~group.row_racks[rows, rack] & (rack >= 0) & near.any(axis=0)).sum())
    return squares, far, count_moves(group, assignment)


def test_java_strings_are_ordered_by_utf_16(oracle: Oracle) -> None:
    members = [Member(name, ("t",)) for name in ("\uffee", "\U0001f600", "a", "\u00e9")]
    group = Group.from_members({"t": 4}, members)
    for name in ("range", "roundrobin"):
        answer = oracle.ask(group, name).assignment
        assert answer is not None
        assert get_assignor(name).assign(group).tolist() == answer.tolist()
