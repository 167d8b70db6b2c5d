"""A consumer group in simulation: who runs, which partitions each member owns, and what rebalances cost.

The base of all contenders but the share group. A subclass gives the target of a rebalance, and may add timers
and processes. Members join, leave and rebalance as Kafka's clients do:

- a dynamic member that stops leaves the group at once; its partitions wait for the rebalance;
- a static member keeps its partitions while it is away, for `timings.SESSION_TIMEOUT_S` at most (KIP-345);
- members are in the order of their ids, which are random but for static members of the classic protocol,
  whose ids begin with the instance id: who gets what at first is by chance;
- a classic rebalance waits for static members that are away, a KIP-848 one does not;
- one rebalance runs at a time. Changes before it begins are part of it, later ones of the next;
- a cooperative rebalance stops the partitions that move, and the others briefly; an eager one stops all.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from assignor_core.group import Group
from tests.bench.field.simulator import NOBODY, Counts
from tests.bench.field.timings import SESSION_TIMEOUT_S, SYNC_S, clients

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from evenlag.lag.arrays import Bools, Floats, Int32s, Int64s
    from tests.bench.field.timings import Cost
    from tests.bench.field.traces import Pod, Trace

TOPIC, TOPIC_ID = "orders", "AAAAAAAAAAAAAAAAAAAAAQ"
TOPIC_IDS = {TOPIC: TOPIC_ID}
# How often a rebalance that waits for a static member looks whether it is back.
AWAY_CHECK_S = 0.5


class Fleet(NamedTuple):
    """Processes that may run, and which do: (second, indices of running ones), ascending, the first at 0."""

    pods: Sequence[Pod]
    changes: Sequence[tuple[int, Sequence[int]]]


class Observed(NamedTuple):
    """What a decision may read: the time, and lag and end offset by partition, in records."""

    now_s: float
    lag: Int64s
    end: Int64s


Event = Callable[[Observed], None]


class SentWork:
    """What was sent until each second of a trace, and the work of a partition's first records.

    by_second: [T + 1, P] units of work.
    """

    def __init__(self, trace: Trace) -> None:
        records, work = (
            np.insert(each, 0, 0, axis=0).cumsum(axis=0) for each in trace.arrivals(trace.num_partitions)
        )
        self.by_second: Floats = work
        # Partitions one after the other, each with larger numbers than the one before: one search finds all.
        self._first = np.arange(trace.num_partitions) * (records.max() + 1)
        self._records, self._work = (records + self._first).T.ravel(), work.T.ravel()
        self._last = np.arange(1, trace.num_partitions + 1) * len(work) - 1

    def before(self, offset: Int64s) -> Floats:
        """Return the work of the records before an offset of each partition: [P]."""
        wanted = self._first + offset
        step = np.searchsorted(self._records, wanted, side="right") - 1
        is_last = step == self._last
        step = step - is_last
        base, rise = self._records[step], self._work[step + 1] - self._work[step]
        share = rise / np.maximum(self._records[step + 1] - base, 1)
        return np.where(is_last, self._work[self._last], share * (wanted - base) + self._work[step])


class GroupContender:
    """A group with an assignor; see the module, and `tests.bench.field.simulator.Contender`.

    members: Processes that the coordinator counts as members, static ones that are away included.
    """

    client: ClassVar[str] = "java"
    is_eager: ClassVar[bool] = False
    waits_for_static: ClassVar[bool] = True

    def __init__(
        self, trace: Trace, *, num_partitions: int | None = None, fleet: Fleet | None = None
    ) -> None:
        self.trace = trace
        self.fleet = fleet or Fleet(trace.pods, trace.changes)
        self.costs = clients()[self.client]
        self.chance = np.random.default_rng([39, 2, trace.seed])
        size, num_pods = num_partitions or trace.num_partitions, len(self.fleet.pods)
        self.owner: Int32s = np.full(size, NOBODY, dtype=np.int32)
        self.ready_s: Floats = np.zeros(size)
        self.speed: Floats = np.zeros(num_pods)
        self.counts = Counts()
        self.next_s = 0.0
        self.members: set[int] = set()
        self._is_running: Bools = np.zeros(num_pods, dtype=np.bool_)
        self._lives = np.zeros(num_pods, dtype=np.int64)
        self._ids: dict[tuple[int, int], str] = {}
        self._joined_s = np.zeros(num_pods)
        self._away_since: dict[int, float] = {}
        # Owners before what was freed and is not assigned yet.
        self._before = self.owner.copy()
        self._generation = 0
        self._begins_s, self._busy_until_s = -math.inf, -math.inf
        self._queue: list[tuple[float, int, Event]] = []
        self._num_queued = 0
        self.start(Observed(0.0, np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)))

    def act(self, now_s: float, lag: Int64s, end: Int64s) -> None:
        """Do what is due."""
        while self._queue and self._queue[0][0] <= now_s:
            heapq.heappop(self._queue)[2](Observed(now_s, lag, end))
        self.next_s = self._queue[0][0] if self._queue else math.inf

    def at(self, at_s: float, event: Event) -> None:
        """Queue an event."""
        self._num_queued += 1
        heapq.heappush(self._queue, (at_s, self._num_queued, event))

    def every(self, interval_s: float, first_s: float, event: Event) -> None:
        """Queue an event that repeats."""

        def again(seen: Observed) -> None:
            self.at(seen.now_s + interval_s, again)
            event(seen)

        self.at(first_s, again)

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Count the process time of a decision."""
        started_s = time.process_time()
        yield
        self.counts.balancer_cpu_s += time.process_time() - started_s

    # What subclasses define.

    def target(self, group: Group, members: Sequence[int], seen: Observed) -> Int32s:
        """Return the target of a rebalance: row → index of a member of the group."""
        raise NotImplementedError

    def start(self, seen: Observed) -> None:
        """Start the processes of second 0 as a group that has settled, and queue the changes."""
        first, *others = changes_with_outages(self.trace, self.fleet.changes)
        self.begin(first[1], seen)
        for at_s, running in others:
            self.at(at_s, partial(self.run_processes, running))

    def begin(self, running: Iterable[int], seen: Observed) -> None:
        """Start processes as a group that has settled."""
        pods = list(running)
        self._is_running[pods] = True
        self._lives[pods] = 1
        self.members.update(pods)
        for pod in pods:
            self._set_up(pod)
        members = self.ordered(self.members)
        chosen = self.target(self.group(members, seen.lag), members, seen)
        first = self.trace.first_owner
        self.owner = np.array(first or np.array(members)[chosen], dtype=np.int32)
        self._before = self.owner.copy()

    # The group.

    def is_rebalancing(self, seen: Observed) -> bool:
        """Return whether a rebalance is queued or runs."""
        return self._busy_until_s > seen.now_s

    def member_id(self, pod: int) -> str:
        """Return the id of a member: a dynamic one gets another whenever it starts."""
        instance_id = self.fleet.pods[pod].instance_id
        life = 0 if instance_id else int(self._lives[pod])
        if (pod, life) not in self._ids:
            drawn = np.random.default_rng([39, 3, self.trace.seed, pod, life]).bytes(16).hex()
            is_named = instance_id and self.client != "kip848"
            self._ids[pod, life] = f"{instance_id}-{drawn}" if is_named else drawn
        return self._ids[pod, life]

    def ordered(self, members: Iterable[int]) -> list[int]:
        """Return members in the order of their ids, as groups have them."""
        return sorted(members, key=self.member_id)

    def group(self, members: Sequence[int], lag: Int64s) -> Group:
        """Return the group of ordered members as its leader sees it."""
        index = np.full(len(self.fleet.pods), NOBODY)
        index[members] = np.arange(len(members))
        owner = np.where(self.owner >= 0, index[self.owner], NOBODY)
        rows = np.flatnonzero(owner >= 0)
        return Group.from_arrays(
            topics=[TOPIC],
            num_partitions=np.array([len(self.owner)]),
            member_ids=[self.member_id(pod) for pod in members],
            instance_ids=[self.fleet.pods[pod].instance_id for pod in members],
            subscriptions=(np.arange(len(members)), np.zeros(len(members), dtype=np.int64)),
            claims=(rows, owner[rows], np.full(len(rows), self._generation)),
            lags=lag,
        )

    # Processes.

    @property
    def running(self) -> list[int]:
        """The processes that run."""
        return np.flatnonzero(self._is_running).tolist()

    def run_processes(self, running: Iterable[int], seen: Observed) -> None:
        """Start and stop processes, so that these run from now on."""
        wanted = np.zeros(len(self._is_running), dtype=np.bool_)
        wanted[list(running)] = True
        stopped, started = self._is_running & ~wanted, wanted & ~self._is_running
        self._is_running = wanted
        for pod in np.flatnonzero(stopped).tolist():
            self._stop_process(pod, seen)
        for pod in np.flatnonzero(started).tolist():
            self.start_process(pod, seen)

    def _set_up(self, pod: int) -> None:
        self.speed = self.speed.copy()
        self.speed[pod] = self.fleet.pods[pod].speed if self._is_running[pod] else 0.0

    def _stop_process(self, pod: int, seen: Observed) -> None:
        self._set_up(pod)
        if pod not in self.members or pod in self._away_since:
            return
        if self.fleet.pods[pod].instance_id:
            self._away_since[pod] = seen.now_s
            self.at(seen.now_s + SESSION_TIMEOUT_S, partial(self._expire, pod))
        else:
            self._leave(pod, seen)

    def _expire(self, pod: int, seen: Observed) -> None:
        if seen.now_s >= self._away_since.get(pod, math.inf) + SESSION_TIMEOUT_S:
            del self._away_since[pod]
            self._leave(pod, seen)

    def _leave(self, pod: int, seen: Observed) -> None:
        self.members.discard(pod)
        self.owner = np.where(self.owner == pod, NOBODY, self.owner).astype(np.int32)
        if self.members:
            self.rebalance_after_leave(seen)

    def start_process(self, pod: int, seen: Observed) -> None:
        """Start a process: a new member joins, a static one that is known fetches again."""
        if pod in self.members:
            start_s = self.costs.start.draw(self.chance)
            self.counts.consumer_s += start_s
            self.at(seen.now_s + start_s, partial(self._come_back, pod))
            return
        self._lives[pod] += 1
        self._set_up(pod)
        self._joined_s[pod] = seen.now_s
        self.members.add(pod)
        self.rebalance_after_join(seen)

    def _come_back(self, pod: int, seen: Observed) -> None:
        if not self._is_running[pod]:
            return
        if self._away_since.pop(pod, None) is None:
            self.start_process(pod, seen)
        self._set_up(pod)

    # Rebalances.

    def rebalance_after_leave(self, seen: Observed) -> None:
        """Rebalance after a member has left: it ends with the last heartbeat of the others."""
        if self.is_eager:
            self._rebalance_eagerly(seen, 0.0)
            return
        begins_s = self._next_begin(seen)
        if begins_s is not None:
            beats = self.costs.heartbeats(self.chance, len(self.members))
            self._queue_settling(begins_s, float(beats.max()) + SYNC_S, self.costs.join, unowned_s=0.0)
            self.counts.rebalances += 1

    def rebalance_after_join(self, seen: Observed) -> None:
        """Rebalance after a process has started."""
        if self.is_eager:
            self._rebalance_eagerly(seen, self.costs.start.draw(self.chance))
        else:
            self._rebalance(seen, self.costs.join)

    def rebalance_on_request(self, seen: Observed) -> None:
        """Rebalance because a member, or the broker, asks for it; in an outage nobody does."""
        if not self.members:
            return
        if self.is_eager:
            self._rebalance_eagerly(seen, 0.0)
        else:
            self._rebalance(seen, self.costs.follow)

    def _rebalance(self, seen: Observed, cost: Cost) -> None:
        begins_s = self._next_begin(seen)
        if begins_s is None:
            return
        follow_s = cost.follow.draw(self.chance)
        unowned_s = min(cost.unowned.draw(self.chance), follow_s)
        self._queue_settling(begins_s, follow_s, cost, unowned_s=unowned_s)
        self.counts.rebalances += round(cost.rebalances.draw(self.chance))

    def _queue_settling(self, begins_s: float, length_s: float, cost: Cost, *, unowned_s: float) -> None:
        self._busy_until_s = ready_s = begins_s + length_s
        stop_s = cost.stop.draw(self.chance)
        self.at(ready_s - unowned_s, lambda later: self._settle(later, begins_s, ready_s, stop_s))

    def _rebalance_eagerly(self, seen: Observed, after_s: float) -> None:
        begins_s = self._next_begin(seen)
        if begins_s is None:
            return
        members = self.ordered(self.members)
        beats_s = begins_s + after_s + self.costs.heartbeats(self.chance, len(members))
        for pod, at_s in zip(members, beats_s.tolist(), strict=True):
            self.at(at_s, partial(self._revoke, pod))
        self._busy_until_s = ready_s = float(beats_s.max()) + SYNC_S
        self.counts.rebalances += 1
        self.at(ready_s, lambda later: self._settle(later, begins_s, ready_s, 0.0))

    def _next_begin(self, seen: Observed) -> float | None:
        """Return when a rebalance begins; None if the next one has not begun: the change is part of that."""
        if self._begins_s >= seen.now_s and self.is_rebalancing(seen):
            return None
        self._begins_s = max(seen.now_s, self._busy_until_s)
        return self._begins_s

    def _revoke(self, pod: int, _seen: Observed) -> None:
        self.owner = np.where(self.owner == pod, NOBODY, self.owner).astype(np.int32)

    def _settle(self, seen: Observed, begins_s: float, ready_s: float, stop_s: float) -> None:
        if self._away_since and self.waits_for_static:
            later_s = ready_s + AWAY_CHECK_S
            self._busy_until_s = max(self._busy_until_s, later_s)
            self.at(seen.now_s + AWAY_CHECK_S, lambda later: self._settle(later, begins_s, later_s, stop_s))
            return
        members = self.ordered(pod for pod in self.members if self._joined_s[pod] <= begins_s)
        if not members:
            return
        group = self.group(members, seen.lag)
        with self.deciding():
            chosen = self.target(group, members, seen)
        self._generation += 1
        self.assign(np.append(members, NOBODY)[chosen].astype(np.int32), seen, ready_s, stop_s)

    def assign(self, target: Int32s, seen: Observed, ready_s: float, stop_s: float = 0.0) -> None:
        """Give each partition to a process: what changes is processed from `ready_s` on, the rest stops."""
        self.counts.moves += int(((self._before >= 0) & (self._before != target)).sum())
        stays = target == self.owner
        self.ready_s = np.where(stays, np.maximum(self.ready_s, seen.now_s + stop_s), ready_s)
        self.owner, self._before = target, target.copy()


class WithoutGroup(GroupContender):
    """Processes that no coordinator rebalances: who stops is idle, and who starts goes on after its start."""

    def start_process(self, pod: int, seen: Observed) -> None:
        """Start a process."""
        start_s = self.costs.start.draw(self.chance)
        self.counts.consumer_s += start_s
        self.at(seen.now_s + start_s, lambda _later: self._set_up(pod))

    def _stop_process(self, pod: int, seen: Observed) -> None:
        del seen
        self._set_up(pod)


def changes_with_outages(
    trace: Trace, changes: Sequence[tuple[int, Sequence[int]]]
) -> list[tuple[int, Sequence[int]]]:
    """Return changes of processes with the trace's outages: nobody runs, then whoever runs by the changes."""
    seconds = sorted({at_s for at_s, _ in changes} | {at_s for outage in trace.outages for at_s in outage})

    def running(at_s: int) -> Sequence[int]:
        if any(first <= at_s < end for first, end in trace.outages):
            return ()
        return next(pods for second, pods in reversed(changes) if second <= at_s)

    return [(at_s, running(at_s)) for at_s in seconds]
