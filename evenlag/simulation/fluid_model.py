"""The fluid model of one interval, from backlogs, arrivals and capacities to backlogs. It is exact."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from evenlag.simulation.history import ROUNDING_RECORDS
from evenlag.simulation.replay_waiting import ReplayWaits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lag.arrays import Bools, Floats, Int32s, Int64s
    from evenlag.simulation.history import History
    from evenlag.simulation.scenarios import Scenario
    from evenlag.simulation.waiting import Waiting


# A billionth of a record or of a second is a rounding error.
_DUST: Final = 1e-9


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


class Servers:
    """N rows in the order of their servers, as segments; to be kept while the owners stay."""

    def __init__(self, server: Int64s, order: Int64s | None = None) -> None:
        self.order = np.argsort(server, kind="stable") if order is None else order
        ranked = server[self.order]
        is_first = np.ones(len(ranked), dtype=np.bool_)
        is_first[1:] = ranked[1:] != ranked[:-1]
        self.starts = np.flatnonzero(is_first)
        self.segment = np.cumsum(is_first) - 1
        self.size = np.diff(self.starts, append=len(ranked))
        self.number = ranked[self.starts]

    def only(self, is_open: Bools) -> Servers:
        """Return some of the segments; the rows' order is then that of the chosen rows."""
        chosen = Servers.__new__(Servers)
        chosen.size = self.size[is_open]
        chosen.starts = np.cumsum(chosen.size) - chosen.size
        chosen.segment = np.repeat(np.arange(len(chosen.size)), chosen.size)
        return chosen

    def level(self, demand: Floats, capacity: Floats) -> Floats:
        """The water level of each segment: [J']; infinite where all demands are met.

        Everybody gets an equal part of the capacity; what some do not need goes to the others, until nobody
        gets more than it needs.
        """
        level = capacity / self.size
        while True:
            is_met = demand < level[self.segment]
            left = capacity - np.add.reduceat(np.where(is_met, demand, 0.0), self.starts)
            sharing = self.size - np.add.reduceat(is_met, self.starts, dtype=np.int64)
            raised = np.divide(left, sharing, out=np.full_like(left, np.inf), where=sharing > 0)
            if not (raised > level).any():
                return level
            level = np.maximum(level, raised)


def advance(
    backlog: Floats,
    *,
    arrival: Floats,
    servers: Servers,
    capacity: Floats,
    ready_s: Floats,
    duration_s: float | Floats,
    owed: Floats | None = None,
    most: Floats | None = None,
) -> Advanced:
    """Advance the model over an interval in which arrival rates and owners are constant.

    Each server jumps from one of its events (a backlog reaches 0, or a row becomes ready) to the next on its
    own clock, with all servers in parallel. The equations are those of :mod:`evenlag.simulation`.

    backlog: [N] records, not negative. The N rows may be partitions of several scenarios.
    arrival: [N] records per second.
    servers: Of the rows; a row without an owner has a server of capacity 0.
    capacity: [J] records per second, finite.
    ready_s: [N] seconds from the start for which the row pauses.
    duration_s: Seconds, of all or of each server [J].
    owed: [N] records; if given, the time when each row has processed as many is computed.
    most: [N] records per second that a row can be processed with at most; None: no limit.

    Notes
    -----
    O(E N) with E the largest number of events of a server: at most its rows and the times when they become
    ready. Between events all rates are constant, so the integral of the backlog and the times are exact.
    """
    nothing, unlimited = np.zeros(len(backlog)), np.full(len(backlog), np.inf)
    columns = (backlog, nothing, nothing, unlimited, arrival, ready_s, unlimited if most is None else most)
    state = np.stack([column[servers.order] for column in columns])
    due = None if owed is None else owed[servers.order]
    clock, end_s = np.zeros(len(servers.number)), np.broadcast_to(duration_s, len(capacity))[servers.number]
    capacity = capacity[servers.number]
    rows, place, result = servers, servers.order, np.empty((4, len(backlog)))
    while len(clock):
        is_open = clock < end_s - _DUST
        if not is_open.all():
            keeps = is_open[rows.segment]
            result[:, place[~keeps]] = state[:4, ~keeps]
            state, place, rows = state[:, keeps], place[keeps], rows.only(is_open)
            clock, end_s, capacity = clock[is_open], end_s[is_open], capacity[is_open]
            due = None if due is None else due[keeps]
        else:
            clock = clock + _step(state, due, rows, capacity, clock, end_s)
    return Advanced(*result)


def _step(
    state: Floats, due: Floats | None, rows: Servers, capacity: Floats, clock: Floats, end_s: Floats
) -> Floats:
    """Advance each server to its next event, and return the seconds until then: [J']."""
    left, done, area, paid, rate_in, ready, most = state
    now = clock[rows.segment]
    is_ready = ready <= now + _DUST
    is_behind = left > _DUST
    demand = np.where(is_ready, np.where(is_behind, most, np.minimum(rate_in, most)), 0.0)
    rate = np.minimum(demand, rows.level(demand, capacity)[rows.segment])
    falls_by = rate - rate_in
    until = np.where(is_ready, np.inf, ready - now)
    runs_empty = is_behind & (falls_by > 0)
    np.divide(left, falls_by, out=until, where=runs_empty)
    step = np.maximum(np.minimum(np.minimum.reduceat(until, rows.starts), end_s - clock), 0.0)
    took = step[rows.segment]
    if due is not None:
        _note_paid(paid, now, left_due=due - done, rate=rate, took=took)
    done += rate * took
    after = np.where(runs_empty & (until <= took), 0.0, np.maximum(left - falls_by * took, 0.0))
    area += 0.5 * (left + after) * took
    left[:] = after
    return step


def _note_paid(paid: Floats, now: Floats, *, left_due: Floats, rate: Floats, took: Floats) -> None:
    """Record when rows have processed what they owe, if within this step."""
    is_paid = np.isinf(paid) & (left_due - rate * took <= ROUNDING_RECORDS)
    needs = np.divide(left_due, rate, out=np.zeros_like(left_due), where=rate > 0)
    np.copyto(paid, now + np.clip(needs, 0.0, took), where=is_paid)


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
    waiting: [L] how long records wait, see :class:`~evenlag.simulation.replay_waiting.ReplayWaits`.
    """

    backlog: Floats
    owner: Int32s
    processed: Floats
    lag_records_s: Floats
    drain_s: Floats
    waiting: tuple[Waiting, ...]


class _Drain:
    """When each row has processed its backlog of the snapshot with the largest measured lag."""

    def __init__(self, history: History, place: int, backlog: Floats) -> None:
        self._history = history
        self._from_s = float(history.at_s[place])
        self.owed = backlog.ravel().copy()
        self.drain_s = np.where(backlog <= ROUNDING_RECORDS, 0.0, np.inf)

    def add(self, place: int, begin_s: float, advanced: Advanced) -> None:
        """Add a part of the interval after a snapshot, which begins so many seconds later.

        A row that does not exist at the end of the interval has no backlog left.
        """
        history = self._history
        since_s = history.at_s[place : place + 2] - self._from_s
        paid_s = since_s[0] + begin_s + advanced.paid_s.reshape(self.drain_s.shape)
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
    waits = ReplayWaits(history, num_scenarios)
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
        servers = Servers((scenario_server + owner % num_servers).ravel())
        for begin_s, end_s in pairwise(_moments(ready_s, float(interval_s[place]))):
            advanced = advance(
                backlog.ravel(),
                arrival=np.tile(rate, num_scenarios),
                servers=servers,
                capacity=scenario_capacity,
                ready_s=ready_s.ravel() - begin_s,
                duration_s=end_s - begin_s,
                owed=None if drain is None else drain.owed,
            )
            before, backlog = backlog, advanced.backlog.reshape(shape)
            area = advanced.backlog_records_s.reshape(shape)
            processed[place] += advanced.processed.reshape(shape)
            lag_records_s[place] += area.sum(axis=1)
            waits.add(place, (begin_s, end_s), before, backlog, area)
            if drain is not None:
                drain.add(place, begin_s, advanced)
        is_last = place == num_snapshots - 2
        waits.end(place + 1, is_begun & (is_last | ~history.live[place + 1]), backlog)
    drain_s = np.full(shape, np.inf) if drain is None else drain.drain_s
    return Simulated(backlogs, owners, processed, lag_records_s, drain_s, waits.measure())


def _moments(ready_s: Floats, interval_s: float) -> list[float]:
    """Return the ends of the pauses within an interval, and its own."""
    moments: list[float] = np.unique(np.append(ready_s.clip(0.0, interval_s), [0.0, interval_s])).tolist()
    return moments
