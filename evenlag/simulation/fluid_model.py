"""The fluid model of one interval, from backlogs, arrivals and capacities to backlogs. It is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lag.arrays import Floats, Int32s, Int64s
    from evenlag.simulation.history import History
    from evenlag.simulation.scenarios import Scenario


# A billionth of a record or of a second is a rounding error.
_DUST: Final = 1e-9
# Sums of processed and of arrived records are compared: a smaller difference is a rounding error.
ROUNDING_RECORDS: Final = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Advanced:
    """The state of N rows after an interval.

    backlog: [N] records at the end, not negative.
    processed: [N] records; before + arrived = after + processed.
    backlog_records_s: [N] the backlog integrated over the interval, in records times seconds.
    paid_s: [N] seconds from the start until `owed` records are processed; infinite if not within the
        interval.
    """

    backlog: Floats
    processed: Floats
    backlog_records_s: Floats
    paid_s: Floats


def advance(
    backlog: Floats,
    *,
    arrival: Floats,
    server: Int64s,
    capacity: Floats,
    ready_s: Floats,
    duration_s: float,
    owed: Floats | None = None,
) -> Advanced:
    """Advance the model over an interval in which arrival rates and owners are constant.

    Each server jumps from one of its events (a backlog reaches 0, or a row becomes ready) to the next on its
    own clock, with all servers in parallel. The equations are those of :mod:`evenlag.simulation`.

    backlog: [N] records, not negative. The N rows may be partitions of several scenarios.
    arrival: [N] records per second.
    server: [N], row → server, below J; a row without an owner has a server of capacity 0.
    capacity: [J] records per second, finite.
    ready_s: [N] seconds from the start for which the row pauses.
    owed: [N] records; if given, the time when each row has processed as many is computed.

    Notes
    -----
    O(E N log N) with E the largest number of events of a server: at most its rows and the times when they
    become ready. Between events all rates are constant, so the integral of the backlog and the times are
    exact.
    """
    order = np.argsort(server, kind="stable")
    rows = _Rows(server[order], capacity)
    rate_in, ready = arrival[order], ready_s[order]
    left = backlog[order].astype(np.float64)
    due = None if owed is None else owed[order]
    done, area, paid = np.zeros(len(left)), np.zeros(len(left)), np.full(len(left), np.inf)
    clock = np.zeros(len(rows.starts))
    while len(clock) and float(clock.min()) < duration_s - _DUST:
        now = clock[rows.segment]
        is_ready = ready <= now + _DUST
        is_behind = left > _DUST
        demand = np.where(is_ready, np.where(is_behind, np.inf, rate_in), 0.0)
        rate = np.minimum(demand, rows.level(demand)[rows.segment])
        falls_by = rate - rate_in
        until = np.where(is_ready, np.inf, ready - now)
        runs_empty = is_behind & (falls_by > 0)
        np.divide(left, falls_by, out=until, where=runs_empty)
        step = np.minimum(rows.least(until), duration_s - clock)
        took = step[rows.segment]
        if due is not None:
            _note_paid(paid, now, left_due=due - done, rate=rate, took=took)
        done += rate * took
        before = left
        left = np.where(runs_empty & (until <= took), 0.0, np.maximum(left - falls_by * took, 0.0))
        area += 0.5 * (before + left) * took
        clock = clock + np.maximum(step, 0.0)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return Advanced(left[back], done[back], area[back], paid[back])


def _note_paid(paid: Floats, now: Floats, *, left_due: Floats, rate: Floats, took: Floats) -> None:
    """Record when rows have processed what they owe, if within this step."""
    is_paid = np.isinf(paid) & (left_due - rate * took <= ROUNDING_RECORDS)
    needs = np.divide(left_due, rate, out=np.zeros_like(left_due), where=rate > 0)
    np.copyto(paid, now + np.clip(needs, 0.0, took), where=is_paid)


class _Rows:
    """Rows in order of their servers, as segments."""

    def __init__(self, server: Int64s, capacity: Floats) -> None:
        is_first = np.ones(len(server), dtype=np.bool_)
        is_first[1:] = server[1:] != server[:-1]
        self.starts = np.flatnonzero(is_first)
        self.segment = np.cumsum(is_first) - 1
        self.size = np.diff(self.starts, append=len(server))
        self.capacity = capacity[server[self.starts]]
        self.place = np.arange(len(server)) - self.starts[self.segment]

    def least(self, values: Floats) -> Floats:
        """The minimum of each segment."""
        return np.asarray(np.minimum.reduceat(values, self.starts))

    def level(self, demand: Floats) -> Floats:
        """The water level of each segment: [J'].

        With demands in ascending order, ``s_k = (C - sum of the k smallest) / (n - k)`` rises while the k-th
        demand is below it and falls afterwards, so the level is the largest of them. Unlimited demands come
        last and are never among the k.
        """
        ranked = demand[np.lexsort((demand, self.segment))]
        is_limited = np.isfinite(ranked)
        limited = np.where(is_limited, ranked, 0.0)
        before = np.cumsum(limited) - limited
        before -= before[self.starts][self.segment]
        num_limited = np.add.reduceat(is_limited, self.starts, dtype=np.int64)
        candidate = (self.capacity[self.segment] - before) / (self.size[self.segment] - self.place)
        candidate[self.place > num_limited[self.segment]] = -np.inf
        return np.maximum(np.maximum.reduceat(candidate, self.starts), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """The result of L scenarios.

    backlog: [S, L, P] records in each snapshot; 0 where the row does not exist.
    owner: int32 [S, L, P] from each snapshot on, index of a member, -1 for none.
    processed: [S - 1, L, P] records in the interval after each snapshot.
    lag_records_s: [S - 1, L] lag of the group integrated over the interval after each snapshot, records
        times seconds.
    drain_s: [L, P] seconds from the snapshot with the largest measured lag (``History.most_lag``) until the
        row has processed its backlog of that snapshot; infinite if not within the period.
    """

    backlog: Floats
    owner: Int32s
    processed: Floats
    lag_records_s: Floats
    drain_s: Floats


class _Drain:
    """When each row has processed its backlog of the snapshot with the largest measured lag."""

    def __init__(self, history: History, place: int, backlog: Floats) -> None:
        self._history = history
        self._from_s = float(history.at_s[place])
        self.owed = backlog.ravel().copy()
        self.drain_s = np.where(backlog <= ROUNDING_RECORDS, 0.0, np.inf)

    def add(self, place: int, advanced: Advanced) -> None:
        """Add the interval after a snapshot; a row that does not exist at its end has no backlog left."""
        history = self._history
        since_s = history.at_s[place : place + 2] - self._from_s
        paid_s = since_s[0] + advanced.paid_s.reshape(self.drain_s.shape)
        gone_s = np.where(history.live[place + 1], np.inf, since_s[1])
        self.drain_s = np.minimum(self.drain_s, np.minimum(paid_s, gone_s))
        self.owed -= advanced.processed


def simulate(history: History, scenarios: Sequence[Scenario], capacity: Floats) -> Simulated:
    """Simulate a history under each scenario, with the members' capacities in records per second.

    A row starts with the lag of the first snapshot in which it is known; from then on only the model
    determines it.
    """
    num_snapshots, num_rows = history.live.shape
    num_scenarios, num_servers = len(scenarios), len(capacity) + 1
    shape = (num_scenarios, num_rows)
    backlog, owner = np.zeros(shape), np.full(shape, -1, dtype=np.int32)
    ready_s = np.zeros(shape)
    backlogs, owners = np.zeros((num_snapshots, *shape)), np.full((num_snapshots, *shape), -1, dtype=np.int32)
    processed = np.zeros((max(num_snapshots - 1, 0), *shape))
    lag_records_s = np.zeros(processed.shape[:2])
    drain_place = history.most_lag
    drain: _Drain | None = None
    # Rows without an owner (-1) have the last server of each scenario, which has capacity 0.
    scenario_server = np.arange(num_scenarios)[:, None] * num_servers
    scenario_capacity = np.tile(np.append(capacity, 0.0), num_scenarios)
    is_begun = np.zeros(num_rows, dtype=np.bool_)
    interval_s = history.interval_s
    for place in range(num_snapshots):
        is_begun &= history.live[place]
        begins = history.live[place] & ~is_begun & np.isfinite(history.lag[place])
        backlog[:, ~is_begun] = 0.0
        backlog[:, begins] = history.lag[place][begins]
        is_begun |= begins
        for number, scenario in enumerate(scenarios):
            ready_s[number] = scenario.step(place, backlog[number])
            owner[number] = scenario.owner
        backlogs[place], owners[place] = backlog, owner
        if place == drain_place:
            drain = _Drain(history, place, backlog)
        if place == num_snapshots - 1:
            break
        rate = np.where(is_begun, history.arrived[place] / interval_s[place], 0.0)
        advanced = advance(
            backlog.ravel(),
            arrival=np.tile(rate, num_scenarios),
            server=(scenario_server + owner % num_servers).ravel(),
            capacity=scenario_capacity,
            ready_s=ready_s.ravel(),
            duration_s=float(interval_s[place]),
            owed=None if drain is None else drain.owed,
        )
        backlog, processed[place] = advanced.backlog.reshape(shape), advanced.processed.reshape(shape)
        lag_records_s[place] = advanced.backlog_records_s.reshape(shape).sum(axis=1)
        if drain is not None:
            drain.add(place, advanced)
    drain_s = np.full(shape, np.inf) if drain is None else drain.drain_s
    return Simulated(backlogs, owners, processed, lag_records_s, drain_s)
