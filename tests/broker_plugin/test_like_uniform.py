"""Without a hint of theirs, groups get from the plug-in what Kafka's uniform assignor would give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assignor_core.assignors import get_assignor
from assignor_core.group import Group
from assignor_core.metrics import count_moves, member_counts
from tests.broker_plugin.test_assign import PLAN, SCENE
from tests.support.broker_plugin.problems import HINTS, A, Consumer, Scene, hint

if TYPE_CHECKING:
    from tests.support.broker_plugin.harness import Harness

ROUNDS = 6
# What must have happened often enough for the comparison to mean anything.
HAPPENED = {
    "began", "joined", "left", "restarted", "grew", "subscribed", "asked", "homogeneous", "heterogeneous",
    "moved", "stayed",
}  # fmt: skip


def compare(harness: Harness, first: int, last: int, **changes: Any) -> dict[str, Any]:
    """Compare random groups by their seeds; the table has a hint of another group."""
    question = SCENE.read(hint(SCENE.payload(PLAN))).question()
    asked = {"fallback": "uniform", "rounds": ROUNDS, "first": first, "last": last}
    return harness.ask("like_uniform", **question | asked | changes)


@pytest.mark.parametrize(
    "num_groups", [300, pytest.param(10_000, marks=pytest.mark.extended)], ids=["some", "ten thousand"]
)
@pytest.mark.parametrize("hint_topic", [HINTS, None], ids=["known", "unknown"])
def test_random_groups_have_the_counts_and_moves_of_uniform(
    harness: Harness, num_groups: int, hint_topic: str | None
) -> None:
    answer = compare(harness, 0, num_groups, hint_topic=hint_topic)
    assert answer["differences"] == []
    assert set(answer["seen"]) == HAPPENED
    assert min(answer["seen"].values()) >= num_groups / 20, answer["seen"]


def test_another_assignor_would_be_noticed(harness: Harness) -> None:
    assert compare(harness, 0, 50, fallback="range")["num_different"] > 10


def test_cooperative_sticky_has_the_counts_and_moves_of_uniform_for_one_topic(harness: Harness) -> None:
    """Simulations take it for Kafka's uniform assignor."""
    chance = np.random.default_rng(39)
    moved = 0
    for _ in range(100):
        num_members, num_partitions = chance.integers(1, 12), chance.integers(1, 60)
        # Some partitions have nobody, some members nothing, and who has the most is drawn.
        owner = np.minimum(*chance.integers(-1, num_members, (2, num_partitions)))
        names = [f"m-{number:02}" for number in range(num_members)]
        rows = np.flatnonzero(owner >= 0)
        group = Group.from_arrays(
            topics=[A],
            num_partitions=np.array([num_partitions]),
            member_ids=names,
            subscriptions=(np.arange(num_members), np.zeros(num_members, dtype=np.int64)),
            claims=(rows, owner[rows], np.ones(len(rows), dtype=np.int64)),
        )
        held = [np.flatnonzero(owner == number).tolist() for number in range(num_members)]
        pods = tuple(
            Consumer(name, held={A: rows} if rows else {}) for name, rows in zip(names, held, strict=True)
        )
        placed = Scene(pods, {A: int(num_partitions), HINTS: 1}).read().ask(harness)["uniform"]
        kafkas = np.full(num_partitions, -1, dtype=np.int32)
        for name, topics in placed.items():
            kafkas[topics.get(A, [])] = names.index(name)
        ours = get_assignor("cooperative-sticky").assign(group)
        assert sorted(member_counts(group, ours)) == sorted(member_counts(group, kafkas))
        assert count_moves(group, ours) == count_moves(group, kafkas)
        moved += count_moves(group, ours) > 0
    assert moved > 50
