"""Without a hint of theirs, groups get from the plug-in what Kafka's uniform assignor would give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.broker_plugin.test_assign import PLAN, SCENE
from tests.support.broker_plugin.problems import HINTS, hint

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
