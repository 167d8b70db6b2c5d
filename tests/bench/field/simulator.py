"""Many runs of the fluid model at once: each is one trace under one contender.

What is modelled. Arrivals of a second are spread evenly over it. A partition is a queue, first in, first out,
in units of work; a pod serves its partitions with equal shares of its speed, and what a partition does not
need goes to the others (:mod:`evenlag.simulation`). A partition is not processed without an owner, while its
owner has no speed, until it is ready again, and in an outage. An owner of `ANY` is a share group: all pods
together serve all partitions.

What is not. Records are a fluid: what is shorter than a second, or than a record's own work, is not seen.
Requests, batches of a fetch, the order in which a consumer polls its partitions, commits and duplicates take
no time; what an observer reads is what is started at that moment. In a share group, records that a pod has
acquired do not wait behind each other while another pod is idle, and what a stopped pod had acquired is free
at once.

A reference: :class:`Bound` is one queue that is served by all speeds. No policy has less work in the system
at any moment, so none drains earlier or has a smaller worst waiting. For records of equal cost it also has
the least record-seconds, in all and above any number of seconds. Its percentiles are no bounds: who lets some
records wait for long may serve the others sooner.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from evenlag.simulation.fluid_model import Servers, advance
from tests.bench.field.waiting import Measures, Traffic, measure_curves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evenlag.lag.arrays import Bools, Floats, Int32s, Int64s
    from tests.bench.field.traces import Trace

NOBODY: Final = -1
ANY: Final = -2
_DUST: Final = 1e-9
# Curves of so many partitions and seconds are kept at once, in 8 bytes each.
_MOST_CELLS: Final = 32_000_000


@dataclass(slots=True)
class Counts:
    """What a run costs.

    unowned_s, consumer_s: Seconds of partitions that nobody processes (no owner, a stopped one, or a pause;
        outages aside), and of pods with a speed. The simulator adds both; the contender counts the rest, and
        adds seconds of pods that run without processing.
    """

    moves: int = 0
    rebalances: int = 0
    unowned_s: float = 0.0
    consumer_s: float = 0.0
    broker_requests: int = 0
    balancer_cpu_s: float = 0.0


class Contender(Protocol):
    """One run's decisions. It is asked at the start (0 s), and whenever `next_s` comes.

    next_s: When it wants to be asked next, later than now; infinite for never.
    owner: [P] index of a pod; `NOBODY` or, for a share group, `ANY`. P may differ from the trace's.
    speed: [J] units of work per second of each of its pods; 0 for a stopped one. J stays.
    ready_s: [P] second from which each partition is processed again.
    """

    next_s: float
    owner: Int32s
    speed: Floats
    ready_s: Floats
    counts: Counts

    def act(self, now_s: float, lag: Int64s, end: Int64s) -> None:
        """Decide, knowing lag and end offsets [P] in records as they are now."""


class Bound:
    """One queue served by all running pods, as if they were one: a reference."""

    def __init__(self, trace: Trace) -> None:
        self.owner = np.zeros(1, dtype=np.int32)
        self.ready_s = np.zeros(1)
        self.speed = np.zeros(1)
        self.next_s = 0.0
        self.counts = Counts()
        self._trace = trace

    def act(self, now_s: float, lag: Int64s, end: Int64s) -> None:  # noqa: ARG002
        """Take the speed of who runs now."""
        pods, changes = self._trace.pods, self._trace.changes
        running = max(change for change in changes if change[0] <= now_s)[1]
        self.speed[:] = sum(pods[number].speed for number in running)
        self.next_s = min((at_s for at_s, _ in changes if at_s > now_s), default=float("inf"))


class Outcome(NamedTuple):
    """The measures and the costs of one run, after the warm-up."""

    measures: Measures
    counts: Counts

    def figures(self) -> dict[str, float]:
        """Return the run's figures of a row of the results."""
        counts = asdict(self.counts)
        hours = counts.pop("consumer_s") / 3600
        return {**self.measures.figures(), **counts, "consumer_hours": hours}


def run(traces: Sequence[Traffic], contenders: Sequence[Contender], *, step_s: int = 1) -> list[Outcome]:
    """Run each contender on the trace of the same place; the traces have the same length.

    step_s: Seconds of each row of the traces' arrivals, which are even within it. Contenders may be asked at
        any moment.
    """
    pairs = list(zip(traces, contenders, strict=True))
    outcomes: list[Outcome] = []
    while pairs:
        cells = np.cumsum(
            [(trace.duration_s // step_s + 1) * len(contender.owner) for trace, contender in pairs]
        )
        fit = max(1, int(np.searchsorted(cells, _MOST_CELLS, side="right")))
        outcomes += _Batch(pairs[:fit], step_s).run()
        pairs = pairs[fit:]
    return outcomes


class _Arrivals:
    """Arrivals of the distinct traces and numbers of partitions of a batch, a column each partition.

    work: [T, C] units in each step. sent: [2, C, T + 1] cumulative work and records.
    """

    def __init__(self, pairs: Sequence[tuple[Traffic, Contender]], step_s: int) -> None:
        self._step_s = step_s
        first: dict[tuple[int, int], int] = {}
        tables: list[tuple[Int64s, Floats]] = []
        self.columns: list[Int64s] = []
        width = 0
        for trace, contender in pairs:
            key = id(trace), len(contender.owner)
            if key not in first:
                first[key] = width
                width += key[1]
                tables.append(trace.arrivals(key[1]))
            self.columns.append(first[key] + np.arange(key[1]))
        records, self.work = (np.concatenate(each, axis=1) for each in zip(*tables, strict=True))
        self.sent = np.zeros((2, width, len(self.work) + 1))
        np.cumsum(self.work.T, axis=1, out=self.sent[0, :, 1:])
        np.cumsum(records.T, axis=1, out=self.sent[1, :, 1:])

    def sent_by(self, columns: Int64s, now_s: float) -> tuple[Floats, Floats]:
        """Return work and records sent until a moment: [P] each."""
        step = min(int(now_s / self._step_s), len(self.work) - 1)
        before, after = self.sent[:, columns, step], self.sent[:, columns, step + 1]
        work, records = before + (now_s / self._step_s - step) * (after - before)
        return work, records

    def records_at(self, columns: Int64s, work: Floats) -> Floats:
        """Return how many records were sent with so much work: [P]."""
        low, high = np.zeros(len(columns), dtype=np.int64), np.full(len(columns), len(self.work))
        while (high - low > 1).any():
            middle = (low + high) // 2
            is_below = self.sent[0, columns, middle] <= work
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        before, after = self.sent[:, columns, low], self.sent[:, columns, high]
        rise = after[0] - before[0]
        share = np.divide(work - before[0], rise, out=np.zeros_like(rise), where=rise > 0)
        return np.asarray(before[1] + share * (after[1] - before[1]))


class _Run(NamedTuple):
    """One run's trace and contender, its rows and servers in a batch, and its columns of the arrivals."""

    trace: Traffic
    contender: Contender
    rows: slice
    servers: slice
    columns: Int64s


class _Batch:
    """Runs as rows of arrays: a row each partition; servers are a run's pods, `ANY` and `NOBODY`."""

    def __init__(self, pairs: Sequence[tuple[Traffic, Contender]], step_s: int) -> None:
        self._arrivals = _Arrivals(pairs, step_s)
        self._at_s = step_s * np.arange(len(self._arrivals.work) + 1.0)
        self._runs = list(_runs_of(pairs, self._arrivals.columns))
        rows, servers = self._runs[-1].rows.stop, self._runs[-1].servers.stop
        self._column = np.concatenate(self._arrivals.columns)
        self._run_of_row = np.repeat(np.arange(len(pairs)), [len(run.columns) for run in self._runs])
        sizes = [run.servers.stop - run.servers.start for run in self._runs]
        self._run_of_server = np.repeat(np.arange(len(pairs)), sizes)
        self._next_s = np.zeros(len(pairs))
        self._server, self._order = np.zeros(rows, dtype=np.int64), np.arange(rows)
        self._ready_s = np.zeros(rows)
        self._capacity = np.zeros(servers)
        self._servers: Servers | None = None
        self._is_up = np.stack([_is_up(trace, self._at_s[:-1]) for trace, _ in pairs], axis=1)
        self._up_s = np.zeros((len(pairs), len(self._at_s)))
        np.cumsum(self._is_up.T * step_s, axis=1, out=self._up_s[:, 1:])
        self._counted_s = np.zeros(len(pairs))
        self._warm: list[Counts] = [Counts() for _ in pairs]
        self.backlog = np.zeros((len(self._at_s), rows))

    def run(self) -> Iterator[Outcome]:
        """Simulate, and yield the outcome of each run."""
        for step in range(len(self._at_s) - 1):
            self._advance_step(step)
        for number, run in enumerate(self._runs):
            self._count(number, self._at_s[-1])
            counts = _difference(run.contender.counts, self._warm[number])
            work, records = self._arrivals.sent[:, run.columns].transpose(0, 2, 1)
            backlog = self.backlog[:, run.rows]
            yield Outcome(measure_curves(run.trace, self._at_s, work, records, backlog), counts)

    def _advance_step(self, step: int) -> None:
        backlog, end_s = self.backlog[step], self._at_s[step + 1]
        clock_s = np.full(len(self._runs), self._at_s[step])
        while (is_open := clock_s < end_s).any():
            for number in np.flatnonzero(is_open & (self._next_s <= clock_s + _DUST)).tolist():
                self._ask(number, float(clock_s[number]), backlog)
            until_s = np.minimum(self._next_s, end_s)
            backlog = self._serve(step, backlog, clock_s, until_s)
            clock_s = until_s
        self.backlog[step + 1] = backlog

    def _serve(self, step: int, backlog: Floats, clock_s: Floats, until_s: Floats) -> Floats:
        if self._servers is None:
            self._servers = Servers(self._server, self._order)
        return advance(
            backlog,
            arrival=self._arrivals.work[step, self._column] / (self._at_s[1] - self._at_s[0]),
            servers=self._servers,
            capacity=self._capacity * self._is_up[step, self._run_of_server],
            ready_s=self._ready_s - clock_s[self._run_of_row],
            duration_s=(until_s - clock_s)[self._run_of_server],
        ).backlog

    def _ask(self, number: int, now_s: float, backlog: Floats) -> None:
        run = self._runs[number]
        contender = run.contender
        self._count(number, now_s)
        end, lag = self._observed(run, now_s, backlog[run.rows])
        contender.act(now_s, lag, end)
        if not contender.next_s > now_s:
            raise ValueError(f"{type(contender).__name__} wants to be asked at {contender.next_s} s again")
        self._next_s[number] = contender.next_s
        speed, owner = contender.speed, contender.owner
        is_shared = owner == ANY
        if is_shared.any() and not is_shared.all():
            raise ValueError("a share group has all partitions")
        self._capacity[run.servers] = [*speed, speed.sum(), 0.0]
        self._ready_s[run.rows] = contender.ready_s
        server = run.servers.start + owner % (len(speed) + 2)
        if (server != self._server[run.rows]).any():
            self._server[run.rows] = server
            self._order[run.rows] = run.rows.start + np.argsort(server, kind="stable")
            self._servers = None

    def _observed(self, run: _Run, now_s: float, backlog: Floats) -> tuple[Int64s, Int64s]:
        """Return end offsets and lag, in records."""
        work, records = self._arrivals.sent_by(run.columns, now_s)
        end = np.floor(records + _DUST)
        started = end.copy()
        behind = np.flatnonzero(backlog > _DUST)
        started[behind] = np.floor(
            self._arrivals.records_at(run.columns[behind], work[behind] - backlog[behind]) + _DUST
        )
        return end.astype(np.int64), (end - started).clip(min=0).astype(np.int64)

    def _count(self, number: int, now_s: float) -> None:
        """Add what the run has cost since it was last asked."""
        run = self._runs[number]
        warm_up_s = run.trace.warm_up_s
        if self._counted_s[number] < warm_up_s <= now_s:
            self._integrate(number, warm_up_s)
            self._warm[number] = replace(run.contender.counts)
        self._integrate(number, now_s)

    def _integrate(self, number: int, until_s: float) -> None:
        run, since_s = self._runs[number], self._counted_s[number]
        up_s = self._up_s[number]
        capacity = self._capacity[self._server[run.rows]]
        from_s = np.where(capacity > 0, self._ready_s[run.rows].clip(since_s, until_s), until_s)
        begun_s, ended_s = np.interp([since_s, until_s], self._at_s, up_s)
        counts = run.contender.counts
        counts.unowned_s += float((np.interp(from_s, self._at_s, up_s) - begun_s).sum())
        counts.consumer_s += float((ended_s - begun_s) * (self._capacity[run.servers][:-2] > 0).sum())
        self._counted_s[number] = until_s


def _runs_of(pairs: Sequence[tuple[Traffic, Contender]], columns: Sequence[Int64s]) -> Iterator[_Run]:
    row = server = 0
    for (trace, contender), own in zip(pairs, columns, strict=True):
        rows, servers = slice(row, row + len(own)), slice(server, server + len(contender.speed) + 2)
        yield _Run(trace, contender, rows, servers, own)
        row, server = rows.stop, servers.stop


def _is_up(trace: Traffic, at_s: Floats) -> Bools:
    is_up = np.ones(len(at_s), dtype=np.bool_)
    for begin, end in trace.outages:
        is_up &= (at_s < begin) | (at_s >= end)
    return is_up


def _difference(counts: Counts, before: Counts) -> Counts:
    return Counts(*(getattr(counts, each.name) - getattr(before, each.name) for each in fields(Counts)))
