"""The measures of one run, from the curves of a simulation or from the journals of a broker.

Waiting is that of :mod:`evenlag.simulation.waiting`, from the scheduled send. Only records sent after the
warm-up count; those that are not started at the end of the trace wait until then; of several starts of a
record the first one counts.

**Drain** is the time from one moment until every record sent before it is started, or until the end. The
moment is the end of the trace's last outage; without one, the second after the warm-up in which the run has
most records that are sent and not started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from evenlag.simulation.waiting import SentCurves, Waiting, Waits, measure_waiting

if TYPE_CHECKING:
    from evenlag.lag.arrays import Bools, Floats, Int64s

_DUST = 1e-9


class Traffic(Protocol):
    """What is sent: a :class:`~tests.bench.field.traces.Trace`, or what has these parts of one."""

    @property
    def duration_s(self) -> int: ...
    @property
    def warm_up_s(self) -> int: ...
    @property
    def outages(self) -> tuple[tuple[int, int], ...]: ...
    def arrivals(self, num_partitions: int) -> tuple[Int64s, Floats]: ...


class Measures(NamedTuple):
    """Of one run.

    unfinished: Records sent after the warm-up and not started at the end.
    lag: [T + 1] records that are sent and not started, those of the warm-up included.
    """

    waiting: Waiting
    drain_s: float
    unfinished: float
    lag: Floats

    def figures(self) -> dict[str, float]:
        """Return the figures of a row of the results; ``above_5s`` is a share, ``record_s_above_5s`` not."""
        shares = zip(("above_5s", "above_30s", "above_300s"), shares_above(self.waiting), strict=True)
        figures = {**self.waiting._asdict(), **dict(shares)}
        return {**figures, "drain_s": self.drain_s, "unfinished": self.unfinished}


def shares_above(waiting: Waiting) -> tuple[float, ...]:
    """Return the shares of record-time above 5, 30 and 300 seconds; 0 where nothing waits."""
    return tuple(above / waiting.record_s if waiting.record_s > 0 else 0.0 for above in waiting[6:])


def measure_curves(trace: Traffic, at_s: Floats, work: Floats, records: Floats, backlog: Floats) -> Measures:
    """Measure a simulated run; its curves are linear between these seconds, [T + 1].

    work, records: [T + 1, P] units of work and records sent until then.
    backlog: [T + 1, P] units of work that are not done.
    """
    counted = np.diff(records, axis=0)
    counted[at_s[:-1] < trace.warm_up_s] = 0.0
    started = np.maximum.accumulate(work - backlog, axis=0)
    curves = SentCurves(work, np.broadcast_to(at_s[:, None], work.shape), counted)
    waits = _waits(curves, at_s, started, work[-1], backlog > _DUST)
    lag = _lag(work, records, started, backlog > _DUST)
    total = lag.sum(axis=1)
    begin = drain_begin(trace, at_s, total)
    # Less by a rounding error, since the curve may stay where it is reached.
    owed = work[begin] - _DUST
    drained_s = [
        float(np.interp(owed[row], started[begin:, row], at_s[begin:], right=at_s[-1]))
        for row in np.flatnonzero(backlog[begin] > _DUST)
    ]
    return Measures(
        waiting=measure_waiting(waits.of_all(float(counted.sum()))),
        drain_s=max(drained_s, default=float(at_s[begin])) - float(at_s[begin]),
        unfinished=float(np.minimum(lag[-1], counted.sum(axis=0)).sum()),
        lag=total,
    )


def _waits(curves: SentCurves, at_s: Floats, started: Floats, sent: Floats, is_behind: Bools) -> Waits:
    """Return the waits of what is started in seconds with a backlog, and of what is left at the end [P]."""
    # By partition: a search for ascending values is several times as fast.
    partition, second = np.nonzero((is_behind[:-1] | is_behind[1:]).T)
    left = np.flatnonzero(is_behind[-1])
    parts = [
        np.concatenate([started[second + shift, partition], rest[left]])
        for shift, rest in ((0, started[-1]), (1, sent))
    ]
    moments_s = [np.append(at_s[second + shift], np.full(len(left), at_s[-1])) for shift in (0, 1)]
    return curves.waits(np.append(partition, left), np.stack(parts), np.stack(moments_s))[1]


def _lag(work: Floats, records: Floats, started: Floats, is_behind: Bools) -> Floats:
    """Return records that are sent and not started: [T + 1, P]."""
    lag = np.zeros_like(work)
    for partition in range(work.shape[1]):
        behind = is_behind[:, partition]
        begun = np.interp(started[behind, partition], work[:, partition], records[:, partition])
        lag[behind, partition] = records[behind, partition] - begun
    return lag


def measure_records(trace: Traffic, sent_s: Floats, record: Int64s, started_s: Floats) -> Measures:
    """Measure a run by its journals, in seconds from the start of the trace.

    sent_s: [N] when each record was to be sent.
    record, started_s: [M] starts of work: index of the record, and when; in any order, with repetitions.
    """
    end_s = float(trace.duration_s)
    first_s = np.full(len(sent_s), np.inf)
    np.minimum.at(first_s, record, started_s)
    until_s = np.minimum(np.maximum(first_s, sent_s), end_s)
    is_counted = sent_s >= trace.warm_up_s
    waited_s = (until_s - sent_s)[is_counted]
    seconds = np.arange(trace.duration_s + 1.0)
    sent, begun = (np.searchsorted(np.sort(moments), seconds) for moments in (sent_s, first_s))
    lag = (sent - begun).clip(min=0).astype(np.float64)
    begin = drain_begin(trace, seconds, lag)
    return Measures(
        waiting=measure_waiting(Waits(waited_s, waited_s, np.ones(len(waited_s)))),
        drain_s=float(until_s[sent_s < begin].max(initial=begin)) - begin,
        unfinished=float((first_s[is_counted] >= end_s).sum()),
        lag=lag,
    )


def drain_begin(trace: Traffic, at_s: Floats, lag: Floats) -> int:
    """Return the place from which the drain of a run is measured, by its lag [T + 1] at these seconds."""
    if trace.outages:
        return int(np.searchsorted(at_s, trace.outages[-1][1]))
    return int(np.where(at_s >= trace.warm_up_s, lag, -1.0).argmax())
