"""A group whose number of processes is decided while it runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.bench.field.contenders.group import Fleet, GroupContender, changes_with_outages
from tests.bench.field.timings import POD_START
from tests.bench.field.traces import Pod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.field.contenders.group import Observed
    from tests.bench.field.traces import Trace


class ScaledGroup(GroupContender):
    """Up to a process for each partition; at first as many run as in the trace.

    Processes have the speeds of the trace's first ones, in turn, and no instance ids. Of what the trace
    changes, outages and restarts count: as many processes are down as it has fewer than at its start.

    wanted: Processes that there are to be, in the order of their creation.
    """

    def __init__(self, trace: Trace) -> None:
        first = [trace.pods[pod] for pod in trace.changes[0][1]]
        pods = [
            Pod(f"replica-{number:03}", None, first[number % len(first)].speed)
            for number in range(max(len(first), trace.num_partitions))
        ]
        self.wanted: list[int] = list(range(len(first)))
        self._started: set[int] = set(self.wanted)
        self._down: list[int] = []
        self._is_outage = False
        super().__init__(trace, fleet=Fleet(pods, ((0, tuple(self.wanted)),)))

    def start(self, seen: Observed) -> None:
        """Start as many processes as the trace, and queue its changes."""
        self.begin(self.wanted, seen)
        for at_s, running in changes_with_outages(self.trace, self.trace.changes)[1:]:
            self.at(at_s, partial(self._disturb, len(running)))

    def scale_to(self, wanted: Sequence[int], seen: Observed) -> None:
        """Create and remove processes, so that there are these."""
        for pod in set(wanted) - set(self.wanted):
            start_s = POD_START.draw(self.chance)
            self.counts.consumer_s += start_s
            self.at(seen.now_s + start_s, partial(self._started_now, pod))
        self.wanted = list(wanted)
        self._started &= set(wanted)
        self._down = [pod for pod in self._down if pod in self._started]
        self._run(seen)

    def replicas(self, count: int) -> list[int]:
        """Return so many processes: the oldest ones, and unused ones."""
        unused = [pod for pod in range(len(self.fleet.pods)) if pod not in self.wanted]
        return (self.wanted + unused)[:count]

    def _started_now(self, pod: int, seen: Observed) -> None:
        if pod in self.wanted:
            self._started.add(pod)
            self._run(seen)

    def _disturb(self, num_running: int, seen: Observed) -> None:
        self._is_outage = num_running == 0
        num_down = 0 if self._is_outage else max(0, len(self.trace.changes[0][1]) - num_running)
        self._down = self._down[max(0, len(self._down) - num_down) :]
        while len(self._down) < min(num_down, len(self._started)):
            self._down.append(int(self.chance.choice(sorted(self._started.difference(self._down)))))
        self._run(seen)

    def _run(self, seen: Observed) -> None:
        running = set[int]() if self._is_outage else self._started.difference(self._down)
        self.run_processes(running, seen)
