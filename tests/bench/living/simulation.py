"""Runs one day under one policy, and measures the largest load over time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from assignor_core.group import Group
from assignor_core.protocol import cooperative_step
from tests.bench.field.contenders.group import TOPIC
from tests.bench.field.simulator import Counts, run
from tests.bench.living.policies import View
from tests.bench.living.world import DAY_S, MINUTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from evenlag.lag.arrays import Int32s, Int64s
    from tests.bench.living.policies import Policy, SimHint
    from tests.bench.living.world import Day

CYCLE_S = 300
# From a snapshot until its hint is published, and until all members have followed it.
_PUBLISH_S = 10
_MAX_ROUNDS = 8
_CHANGE, _RECORD, _CYCLE, _HINT = range(4)


@dataclass(eq=False)
class Course:
    """A day under one policy.

    states: (second, members, pod by row) from each rebalance on; members in the order of their ids.
    moves, generations, hints: How often partitions changed owner, rebalances happened, and hints were
        followed.
    """

    states: list[tuple[float, tuple[int, ...], Int32s]] = field(default_factory=list)
    moves: int = 0
    generations: int = 0
    hints: int = 0


def run_day(day: Day, policies: Sequence[tuple[Policy, int]]) -> list[Course]:
    """Return the course of a day under each policy, with its minutes between two measurements of loads."""
    groups = [_Group(day, policy, loads_every_minutes) for policy, loads_every_minutes in policies]
    run([day] * len(groups), groups, step_s=60)
    return [group.course for group in groups]


class _Group:
    """The day's group under a policy: a contender of the simulator, asked when an event is due."""

    def __init__(self, day: Day, policy: Policy, loads_every_minutes: int) -> None:
        self._day, self._policy = day, policy
        self.course = Course()
        self.counts = Counts()
        self.owner = np.full(day.num_partitions, -1, dtype=np.int32)
        self.speed, self.ready_s = np.zeros(len(day.pods)), np.zeros(day.num_partitions)
        self.next_s = 0.0
        self._pods: tuple[int, ...] = ()
        self._generation = 0
        self._window = {_RECORD: loads_every_minutes, _CYCLE: CYCLE_S // 60}
        self._queue: list[tuple[float, int, int]] = [
            *((at_s, _CHANGE, number) for number, (at_s, _) in enumerate(day.changes)),
            *((at_s, _RECORD, 0) for at_s in range(0, DAY_S, 60 * loads_every_minutes)),
            *((at_s, _CYCLE, 0) for at_s in range(0, DAY_S, CYCLE_S)),
        ]
        heapq.heapify(self._queue)
        self._published: list[SimHint] = []

    def act(self, now_s: float, lag: Int64s, end: Int64s) -> None:  # noqa: ARG002 - by the day's loads, not by lag
        """Let all events of this moment happen."""
        while self._queue and self._queue[0][0] <= now_s:
            self._happen(*heapq.heappop(self._queue))
        self.next_s = self._queue[0][0] if self._queue else float("inf")

    def _happen(self, at_s: float, kind: int, number: int) -> None:
        if kind == _CHANGE:
            self._set_members(at_s, self._day.changes[number][1])
        elif kind == _RECORD:
            self._policy.measure(int(at_s), self._measured(at_s, kind))
        elif kind == _CYCLE:
            hint = self._policy.publish(self._view(at_s), self._measured(at_s, kind))
            if hint is not None:
                self._published.append(hint)
                heapq.heappush(self._queue, (at_s + _PUBLISH_S, _HINT, len(self._published) - 1))
        else:
            self._follow(at_s, self._published[number])

    def _measured(self, at_s: float, kind: int) -> NDArray[np.float64]:
        """Return the mean loads of the minutes before."""
        minute = max(1, int(at_s) // 60)
        return np.asarray(self._day.loads[max(0, minute - self._window[kind]) : minute].mean(axis=0))

    def _follow(self, at_s: float, hint: SimHint) -> None:
        if hint.pods == frozenset(self._pods):  # else the plan expires unpublished
            self._policy.receive(hint)
            self.course.hints += 1
            self._rebalance(at_s)

    def _set_members(self, at_s: float, pods: tuple[int, ...]) -> None:
        gone = np.isin(self.owner, pods, invert=True)
        self.owner = np.where(gone, np.int32(-1), self.owner)
        self._pods = tuple(sorted(pods, key=lambda pod: self._day.pods[pod].name))
        self.speed[:] = 0.0
        self.speed[list(pods)] = self._day.speed[list(pods)]
        self._rebalance(at_s)

    def _view(self, at_s: float) -> View:
        size, members = self._day.num_partitions, len(self._pods)
        rows = np.flatnonzero(self.owner >= 0)
        index = np.full(len(self._day.pods), -1)
        index[list(self._pods)] = np.arange(members)
        group = Group.from_arrays(
            topics=[TOPIC],
            num_partitions=np.array([size]),
            member_ids=[self._day.pods[pod].name for pod in self._pods],
            instance_ids=[self._day.pods[pod].instance for pod in self._pods],
            subscriptions=(np.arange(members), np.zeros(members, dtype=np.int64)),
            claims=(rows, index[self.owner[rows]], np.full(len(rows), self._generation)),
        )
        return View(at_s, group, self._pods)

    def _rebalance(self, at_s: float) -> None:
        before = self.owner
        for _ in range(_MAX_ROUNDS):
            view = self._view(at_s)
            step = cooperative_step(view.group, self._policy.decide(view))
            self._generation += 1
            self.course.generations += 1
            handed = step.assignment
            self.owner = np.where(handed >= 0, np.array(self._pods)[handed], -1).astype(np.int32)
            if not step.follow_up:
                break
        self.course.moves += int(((before >= 0) & (before != self.owner)).sum())
        self.course.states.append((at_s, self._pods, self.owner))


def largest_loads(day: Day, course: Course) -> NDArray[np.float64]:
    """Return the largest load by capacity, stretch by stretch: [4, S].

    The rows are: divided by the mean, divided by the least possible, the seconds of the stretch, and how many
    seconds ago the members changed. The least possible is a lower bound: the mean, or what the heaviest
    partition brings its owner.
    """
    capacity = day.capacity
    changed = np.array([at_s for at_s, _ in day.changes])
    stretches = []
    ends = [at_s for at_s, _, _ in course.states[1:]] + [float(DAY_S)]
    for (start_s, pods, owner), end_s in zip(course.states, ends, strict=True):
        minutes = np.arange(int(start_s) // 60, min(-(-int(end_s) // 60), MINUTES))
        loads, chosen = day.loads[minutes], list(pods)
        holds = (owner[:, None] == np.array(chosen)).astype(np.float64)
        largest = (loads @ holds / capacity[chosen]).max(axis=1, initial=0.0)
        mean = loads.sum(axis=1) / capacity[chosen].sum()
        bound = np.maximum(mean, loads.max(axis=1, initial=0.0) / capacity[chosen].max())
        since = np.maximum(start_s, 60 * minutes)
        seconds = (np.minimum(end_s, 60 * (minutes + 1)) - since).clip(min=0.0)
        ago = since - changed[np.searchsorted(changed, since, side="right") - 1]
        stretches.append(np.stack([largest / mean, largest / bound, seconds, ago]))
    return np.concatenate(stretches, axis=1)
