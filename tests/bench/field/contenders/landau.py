"""The autoscaler of Landau, Saurabh, Andrade and Barbosa (JPDC 201, 2025, 105071) with Modified Worst Fit.

From the description in Landau's thesis (github.com/landaudiogo/thesis-document, ``chapter_development.tex``
and ``chapter_integration.tex``), which the paper builds on. Partitions are items whose size is their write
speed, averaged over 30 s; consumers are bins of 75 % of a consumer's speed (1.5 of 2.0 MB/s there; here a
setting). The controller packs again when a consumer is above its speed, a partition has no consumer, or 10 s
have passed. It waits until new consumers are ready, then tells consumers to stop and to start partitions;
they hear it once per cycle, and a partition that moves is started when its old consumer has stopped it.
Consumers use ``assign()``: there is no group that rebalances, and a consumer that restarts goes on with what
it had.

Here, speeds are in records instead of bytes, and as the model has one speed for all consumers, it is their
mean.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tests.bench.field.contenders.group import WithoutGroup
from tests.bench.field.contenders.scaling import ScaledGroup
from tests.bench.field.simulator import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assignor_core.group import Group
    from evenlag.lag.arrays import Bools, Floats, Int32s, Int64s
    from tests.bench.field.contenders.group import Observed
    from tests.bench.field.traces import Trace


class _Bins:
    """Bins by number, with what is in them."""

    def __init__(self, size: Floats, capacity: float) -> None:
        self._size, self._capacity = size, capacity
        self.level: dict[int, float] = {}
        self._count: dict[int, int] = {}
        self.bin_of: Int32s = np.full(len(size), NOBODY, dtype=np.int32)

    def create(self, number: int | None = None) -> int:
        """Create a bin, by default the lowest that does not exist."""
        if number is None:
            number = next(each for each in range(len(self.level) + 1) if each not in self.level)
        self.level.setdefault(number, 0.0)
        self._count.setdefault(number, 0)
        return number

    def fits(self, item: int, number: int) -> bool:
        """Return whether an item fits; into an empty bin everything does."""
        return not self._count[number] or self.level[number] + self._size[item] <= self._capacity

    def worst_fit(self, item: int) -> int | None:
        """Return the bin with the least in it that an item fits into; the lowest number of equal ones."""
        fitting = [number for number in self.level if self.fits(item, number)]
        return min(fitting, key=lambda number: (self.level[number], number), default=None)

    def put(self, item: int, number: int) -> None:
        """Put an item into a bin."""
        self.level[number] += float(self._size[item])
        self._count[number] += 1
        self.bin_of[item] = number


def modified_worst_fit(owner: Int32s, size: Floats, capacity: float) -> Int32s:
    """Pack items, each in the bin `owner` or in none (`NOBODY`), and return their bins.

    Bins are emptied from the fullest down. Their items go, the smallest first, into bins that already exist
    in the result; when one fits into none, the bin is kept and takes its other items, the largest first. What
    does not fit is placed last, the largest first, each where most is free, else into its old or a new bin.
    """
    bins = _Bins(size, capacity)
    rest = np.flatnonzero(owner == NOBODY).tolist()
    numbers = np.unique(owner[owner != NOBODY])
    levels = np.array([size[owner == number].sum() for number in numbers])
    for number in numbers[np.argsort(-levels, kind="stable")].tolist():
        held = np.flatnonzero(owner == number)
        items = held[np.argsort(size[held], kind="stable")].tolist()
        while items and (found := bins.worst_fit(items[0])) is not None:
            bins.put(items.pop(0), found)
        if items:
            bins.create(number)
        while items and bins.fits(items[-1], number):
            bins.put(items.pop(), number)
        rest += items
    for item in sorted(rest, key=lambda item: (-size[item], item)):
        found = bins.worst_fit(item)
        if found is None:
            old = int(owner[item])
            found = bins.create(old if old != NOBODY and old not in bins.level else None)
        bins.put(item, found)
    return bins.bin_of


def r_score(before: Int32s, after: Int32s, size: Floats, capacity: float) -> float:
    """Return the size of all items that move, in bins: what accumulates while they are not consumed."""
    return float(size[(before != NOBODY) & (before != after)].sum() / capacity)


class LandauMwf(ScaledGroup, WithoutGroup):
    """See the module.

    fill: Share of a consumer's speed that is packed.
    r_scores: Of each change of the assignment.
    """

    # Their monitor measures in a loop without a stated pause.
    MEASURE_S: ClassVar[float] = 5.0
    WINDOW_S: ClassVar[float] = 30.0
    SENTINEL_S: ClassVar[float] = 10.0
    # WAIT_TIME_SECS: how long a consumer gathers a batch before it looks for commands.
    CYCLE_S: ClassVar[float] = 1.0

    def __init__(self, trace: Trace, *, fill: float) -> None:
        pods = [trace.pods[pod].speed for pod in trace.changes[0][1]]
        cost = np.average(trace.cost, weights=trace.counts.sum(axis=0))
        self._consumer_rate = float(np.mean(pods) / cost)
        self._fill = fill
        self._ends: deque[tuple[float, Int64s]] = deque()
        self._is_changing = False
        self._decided_s = 0.0
        self.r_scores: list[float] = []
        super().__init__(trace)

    def start(self, seen: Observed) -> None:
        """Start, and measure at intervals."""
        super().start(seen)
        self.every(self.MEASURE_S, self.MEASURE_S, self._measure)

    def target(self, group: Group, members: Sequence[int], seen: Observed) -> Int32s:
        """Return the assignment at the start, without any measurement: in turn."""
        del seen
        return (np.arange(group.num_partitions) % len(members)).astype(np.int32)

    def _measure(self, seen: Observed) -> None:
        self.counts.broker_requests += 1
        self._ends.append((seen.now_s, seen.end))
        while self._ends[-1][0] - self._ends[0][0] > self.WINDOW_S:
            self._ends.popleft()
        if self._is_changing or self._is_outage or len(self._ends) == 1:
            return
        (first_s, first), (last_s, last) = self._ends[0], self._ends[-1]
        with self.deciding():
            rate = np.minimum((last - first) / (last_s - first_s), self._consumer_rate)
            if not self._is_due(rate, seen):
                return
            self._decided_s = seen.now_s
            capacity = self._fill * self._consumer_rate
            chosen = modified_worst_fit(self.owner, rate, capacity)
        if not np.array_equal(chosen, self.owner):
            self.r_scores.append(r_score(self.owner, chosen, rate, self._consumer_rate))
            self._change(chosen, seen)

    def _is_due(self, rate: Floats, seen: Observed) -> bool:
        has_owner = self.owner >= 0
        level = np.bincount(self.owner[has_owner], rate[has_owner])
        is_exceeded = bool((level > self._consumer_rate).any())
        return is_exceeded or not has_owner.all() or seen.now_s - self._decided_s >= self.SENTINEL_S

    def _change(self, chosen: Int32s, seen: Observed) -> None:
        self._is_changing = True
        new = np.setdiff1d(chosen, self.wanted).tolist()
        self.scale_to([*self.wanted, *new], seen)
        self._instruct_when_ready(chosen, seen)

    def _instruct_when_ready(self, chosen: Int32s, seen: Observed) -> None:
        """Wait until all consumers of the new assignment run, then let them stop and start partitions."""
        if not (self.speed[np.unique(chosen)] > 0).all():
            self.at(seen.now_s + 1.0, partial(self._instruct_when_ready, chosen))
            return
        self.counts.rebalances += 1
        self.counts.moves += int((chosen != self.owner).sum())
        stops_s, starts_s = self.chance.uniform(0.0, self.CYCLE_S, (2, len(self.speed)))
        leaving = np.unique(self.owner[chosen != self.owner])
        for pod in leaving.tolist():
            rows = (self.owner == pod) & (chosen != pod)
            stop_s = 0.0 if pod == NOBODY else float(stops_s[pod])
            # A command and an acknowledgement for each stop and each start.
            self.counts.broker_requests += 2 + 2 * len(np.unique(chosen[rows]))
            self.at(seen.now_s + stop_s, partial(self._move, rows, chosen, starts_s))
        self.at(seen.now_s + 2 * self.CYCLE_S, self._end_change)

    def _move(self, rows: Bools, chosen: Int32s, starts_s: Floats, seen: Observed) -> None:
        self.owner = np.where(rows, chosen, self.owner).astype(np.int32)
        self.ready_s = np.where(rows, seen.now_s + starts_s[chosen], self.ready_s)

    def _end_change(self, seen: Observed) -> None:
        self._is_changing = False
        self.scale_to([pod for pod in self.wanted if (self.owner == pod).any()], seen)
