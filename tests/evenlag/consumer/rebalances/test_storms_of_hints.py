"""Thirty members that come and go under contradictory hints, beside Kafka's cooperative-sticky assignor.

Both groups see the same changes of members, in simulated time; the plain one has kafka-python's assignor.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from tests.support.consumer.simulated_group import TICK_S, SimGroup, SimMember

_NUM_MEMBERS, _NUM_PARTITIONS = 30, 90
_DURATION_S, _HINT_EVERY_S = 400, 20
_SEEDS = range(3)


@dataclass
class _Figures:
    """Of one run; the longest time is of a partition without an owner."""

    generations: int = 0
    num_followed: int = 0
    longest_unowned_s: float = 0.0


class _Storm:
    """Changes come at the same times in both groups; hints have a random source of their own."""

    def __init__(self, seed: int, *, has_hints: bool) -> None:
        self._group = SimGroup(_NUM_PARTITIONS, seed)
        self._has_hints = has_hints
        self._changes, self._hints = random.Random(seed), random.Random(seed)  # noqa: S311  # repeatable
        self._pods: dict[int, SimMember] = {}
        self._num_pods = 0
        self._wanted: dict[str, list[int]] | None = None
        self._unowned_since: dict[int, float] = {}
        self._figures = _Figures()

    def run(self) -> _Figures:
        for _ in range(_NUM_MEMBERS):
            self._add()
        self._group.run(60)
        first = self._group.generation
        next_change_s, next_hint_s = self._change_s(), self._group.now_s + _HINT_EVERY_S
        end_s = self._group.now_s + _DURATION_S
        while self._group.now_s < end_s:
            if self._group.now_s >= next_change_s:
                self._change()
                next_change_s = self._change_s()
            if self._has_hints and self._group.now_s >= next_hint_s:
                self._publish()
                next_hint_s += _HINT_EVERY_S
            self._group.run(TICK_S)
            self._look()
        self._figures.generations = self._group.generation - first
        return self._figures

    def _change_s(self) -> float:
        return self._group.now_s + self._changes.uniform(5, 60)

    def _change(self) -> None:
        """Let a member join, leave in good order, or be replaced."""
        kind = self._changes.choice(("join", "leave", "replace"))
        if kind != "join":
            pod = self._changes.choice(sorted(self._pods))
            self._group.remove(self._pods.pop(pod).member_id)
        if kind != "leave":
            self._add()

    def _add(self) -> None:
        member = self._group.add()
        if not self._has_hints:
            member.assignor = CooperativeStickyAssignor()
            member.requests = SimpleNamespace(note_join=lambda: None, step=lambda _now_s, _now_ms: None)  # type: ignore[assignment]
        self._pods[self._num_pods] = member
        self._num_pods += 1

    def _publish(self) -> None:
        """Publish a random placement, which contradicts the one before; the leader refuses one of four."""
        names = sorted(self._group.members)
        numbers = list(range(_NUM_PARTITIONS))
        self._hints.shuffle(numbers)
        wanted = {name: sorted(numbers[i :: len(names)]) for i, name in enumerate(names)}
        is_refused = self._hints.random() < 0.25
        self._group.publish(
            wanted, sequence=int(self._group.now_s), max_moves=0 if is_refused else 1000, count_slack=1000
        )
        self._wanted = wanted

    def _look(self) -> None:
        parts = self._group.parts()
        if parts == self._wanted:
            self._figures.num_followed += 1
            self._wanted = None
        unowned = set(range(_NUM_PARTITIONS)).difference(*parts.values())
        now_s = self._group.now_s
        self._unowned_since = {number: self._unowned_since.get(number, now_s) for number in unowned}
        longest_s = now_s - min(self._unowned_since.values(), default=now_s)
        self._figures.longest_unowned_s = max(self._figures.longest_unowned_s, longest_s)


@pytest.mark.extended
def test_a_storm_of_hints_costs_little_more_than_the_changes_themselves() -> None:
    longest_s = {True: 0.0, False: 0.0}
    for seed in _SEEDS:
        plain, hinted = (_Storm(seed, has_hints=has_hints).run() for has_hints in (False, True))
        assert hinted.num_followed >= 5
        assert hinted.generations <= 1.2 * (plain.generations + 2 * hinted.num_followed)
        for has_hints, figures in ((True, hinted), (False, plain)):
            longest_s[has_hints] = max(longest_s[has_hints], figures.longest_unowned_s)
    assert longest_s[True] <= longest_s[False]
