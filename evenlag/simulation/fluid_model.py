"""The fluid model of one interval, from backlogs, arrivals and capacities to backlogs. It is exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from evenlag.simulation.estimates import Case, Estimates
from evenlag.simulation.history import ROUNDING_RECORDS, History, sum_by_member
from evenlag.simulation.replay_waiting import ReplayWaits
from evenlag.simulation.waiting import Waiting

if TYPE_CHECKING:
    from evenlag.lag.arrays import Bools, Floats, Int64s
    from evenlag.simulation.scenarios import Scenario


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
    """N rows in the order of their servers, as segments; to be kept while the owners stay.

    weight: [N] positive shares of the rows of a server that all wait; None: equal ones.
    """

    def __init__(self, server: Int64s, order: Int64s | None = None, weight: Floats | None = None) -> None:
        self.order = np.argsort(server, kind="stable") if order is None else order
        ranked = server[self.order]
        is_first = np.ones(len(ranked), dtype=np.bool_)
        is_first[1:] = ranked[1:] != ranked[:-1]
        self.starts = np.flatnonzero(is_first)
        self.segment = np.cumsum(is_first) - 1
        self.weight = np.ones(len(ranked)) if weight is None else weight[self.order]
        self.number = ranked[self.starts]

    def only(self, is_open: Bools) -> Servers:
        """Return some of the segments; the rows' order is then that of the chosen rows."""
        chosen = Servers.__new__(Servers)
        size = np.diff(self.starts, append=len(self.segment))[is_open]
        chosen.starts = np.cumsum(size) - size
        chosen.segment = np.repeat(np.arange(len(size)), size)
        chosen.weight = self.weight[is_open[self.segment]]
        return chosen

    def share(self, demand: Floats, capacity: Floats) -> Floats:
        """Share the capacity of each segment by the weights of its rows: [N'].

        No row gets more than it needs; what some do not need goes to the others.
        """
        weight = self.weight
        level = capacity / np.add.reduceat(weight, self.starts)
        while True:
            is_met = demand < level[self.segment] * weight
            left = capacity - np.add.reduceat(np.where(is_met, demand, 0.0), self.starts)
            sharing = np.add.reduceat(np.where(is_met, 0.0, weight), self.starts)
            raised = np.divide(left, sharing, out=np.full_like(left, np.inf), where=sharing > 0)
            if not (raised > level).any():
                # Not infinity times no weight.
                return np.minimum(demand, np.where(is_met, np.inf, level[self.segment] * weight))
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
    later: tuple[Floats, Floats] | None = None,
) -> Advanced:
    """Advance the model over an interval in which owners are constant.

    Each server jumps from one of its events (a backlog reaches 0, or a row becomes ready) to the next on its
    own clock, with all servers in parallel. The equations are those of :mod:`evenlag.simulation`.

    backlog: [N] records, not negative. The N rows may be partitions of several scenarios.
    arrival: [N] records per second, at first.
    servers: Of the rows; a row without an owner has a server of capacity 0.
    capacity: [J] records per second, finite.
    ready_s: [N] seconds from the start for which the row pauses.
    duration_s: Seconds, of all or of each server [J].
    owed: [N] records; if given, the time when each row has processed as many is computed.
    later: [K, N] seconds, ascending by row, and the records per second that arrive from then on; None: the
        arrivals are constant.

    Notes
    -----
    O(E N) with E the largest number of events of a server: at most its rows, the times when they become
    ready and those when their arrivals change. Between events all rates are constant, so the integral of the
    backlog and the times are exact.
    """
    nothing, unlimited = np.zeros(len(backlog)), np.full(len(backlog), np.inf)
    columns = (backlog, nothing, nothing, unlimited, arrival, ready_s)
    state = np.stack([column[servers.order] for column in columns])
    due = None if owed is None else owed[servers.order]
    changes = np.stack(later)[:, :, servers.order] if later is not None else np.zeros((2, 0, len(backlog)))
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
            due, changes = None if due is None else due[keeps], changes[:, :, keeps]
        else:
            clock = clock + _step(state, due, changes, rows, capacity, clock, end_s)
    return Advanced(*result)


def _step(
    state: Floats,
    due: Floats | None,
    changes: Floats,
    rows: Servers,
    capacity: Floats,
    clock: Floats,
    end_s: Floats,
) -> Floats:
    """Advance each server to its next event, and return the seconds until then: [J']."""
    left, done, area, paid, rate_in, ready = state
    now = clock[rows.segment]
    changes_in = np.full(len(now), np.inf)
    for from_s, rate in zip(*changes, strict=True):
        is_later = from_s > now + _DUST
        rate_in = np.where(is_later, rate_in, rate)
        changes_in = np.where(is_later, np.minimum(changes_in, from_s - now), changes_in)
    is_ready = ready <= now + _DUST
    is_behind = left > _DUST
    demand = np.where(is_ready, np.where(is_behind, np.inf, rate_in), 0.0)
    rate = rows.share(demand, capacity)
    falls_by = rate - rate_in
    until = np.where(is_ready, np.inf, ready - now)
    runs_empty = is_behind & (falls_by > 0)
    np.divide(left, falls_by, out=until, where=runs_empty)
    next_s = np.minimum.reduceat(np.minimum(until, changes_in), rows.starts)
    step = np.maximum(np.minimum(next_s, end_s - clock), 0.0)
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
    """The result of L scenarios. Without another word, in the likely case of the estimates.

    backlog: [S, L, P] records in each snapshot; 0 where the row does not exist.
    processed: [S - 1, L, P] records in the interval after each snapshot.
    lag_records_s: [3, S - 1, L] lag of the group integrated over the interval after each snapshot, records
        times seconds; the least and the most are bounds.
    max_member_lag: [3, S, L] records of the most loaded member in each snapshot.
    drain_s: [L, P] seconds from the snapshot with the largest measured lag (``History.most_lag``) until the
        row has processed its backlog of that snapshot; infinite if not within the period.
    waiting: [L] how long records wait, see :class:`~evenlag.simulation.replay_waiting.ReplayWaits`.
    """

    backlog: Floats
    processed: Floats
    lag_records_s: Floats
    max_member_lag: Floats
    drain_s: Floats
    waiting: tuple[Waiting, ...]


class _Drain:
    """When each row has processed its backlog of the snapshot with the largest measured lag."""

    def __init__(self, history: History, place: int, backlog: Floats) -> None:
        self._history = history
        self._from_s = float(history.at_s[place])
        self.owed = backlog.copy()
        self.drain_s = np.where(backlog <= ROUNDING_RECORDS, 0.0, np.inf)

    def add(self, place: int, begin_s: float, processed: Floats, paid_s: Floats) -> None:
        """Add a part of the interval after a snapshot, which begins so many seconds later: [L, P] each.

        A row that does not exist at the end of the interval has no backlog left.
        """
        history = self._history
        since_s = history.at_s[place : place + 2] - self._from_s
        gone_s = np.where(history.live[place + 1], np.inf, since_s[1])
        self.drain_s = np.minimum(self.drain_s, np.minimum(since_s[0] + begin_s + paid_s, gone_s))
        self.owed -= processed


def simulate(history: History, scenarios: Sequence[Scenario], estimates: Estimates) -> Simulated:
    """Simulate a history under each scenario, in the three cases of the estimates.

    A row starts with the lag of the first snapshot in which it is known; from then on only the model
    determines it, until the group's offset is set again. Scenarios decide by the likely case.
    """
    return Replay(history, scenarios, estimates).run()


class Replay:
    """The state of a simulation: C cases of L scenarios with P rows each."""

    def __init__(self, history: History, scenarios: Sequence[Scenario], estimates: Estimates) -> None:
        num_snapshots, num_rows = history.live.shape
        self._history, self._scenarios, self._estimates = history, scenarios, estimates
        self._num_servers = estimates.speed.shape[2] + 1
        self._shape = (len(Case), len(scenarios), num_rows)
        self._backlog = np.zeros(self._shape)
        self._owner = np.full(self._shape[1:], -1, dtype=np.int32)
        self._ready_s = np.zeros(self._shape[1:])
        self._backlogs = np.zeros((num_snapshots, *self._shape[1:]))
        intervals = max(num_snapshots - 1, 0)
        self._processed = np.zeros((intervals, *self._shape[1:]))
        self._area = np.zeros((len(Case), intervals, len(scenarios)))
        self._max_lag = np.zeros((len(Case), num_snapshots, len(scenarios)))
        self._waits = ReplayWaits(history, estimates, len(scenarios))
        self._drain: _Drain | None = None
        self._is_begun = np.zeros(num_rows, dtype=np.bool_)

    def run(self) -> Simulated:
        """Simulate, and return the result."""
        num_snapshots = self._history.num_snapshots
        for place in range(num_snapshots):
            self._see(place)
            if place < num_snapshots - 1:
                self._advance_interval(place)
        drain_s = np.full(self._shape[1:], np.inf) if self._drain is None else self._drain.drain_s
        area, max_lag = around_likely(self._area), around_likely(self._max_lag)
        waiting = self._waits.measure()
        return Simulated(self._backlogs, self._processed, area, max_lag, drain_s, waiting)

    def _see(self, place: int) -> None:
        """Begin and end rows, and let the scenarios decide."""
        history = self._history
        self._is_begun &= history.live[place]
        is_new = history.live[place] & ~self._is_begun & np.isfinite(history.lag[place])
        self._backlog[..., ~self._is_begun] = 0.0
        self._backlog[..., is_new] = history.lag[place][is_new]
        self._is_begun |= is_new
        likely = self._backlog[Case.LIKELY]
        for number, scenario in enumerate(self._scenarios):
            self._ready_s[number] = scenario.step(place, likely[number])
            self._owner[number] = scenario.owner
        self._backlogs[place] = likely
        self._max_lag[:, place] = self._member_lag(self._backlog)[..., :-1].max(axis=2, initial=0.0)
        self._measure(place)
        if place == history.most_lag:
            self._drain = _Drain(history, place, likely)

    def _measure(self, place: int) -> None:
        """Let the bounds of what really ran begin again at the lag that was measured."""
        known = self._history.known[place]
        for number, scenario in enumerate(self._scenarios):
            if scenario.is_real:
                self._backlog[Case.LEAST :, number, known] = self._history.lag[place, known]

    def _member_lag(self, backlog: Floats) -> Floats:
        """Lag of each member, the last for rows without an owner: [C, L, M + 1]."""
        owner = np.broadcast_to(self._owner, self._shape).reshape(-1, self._shape[2])
        by_member = sum_by_member(
            owner % self._num_servers,
            np.ones(owner.shape, np.bool_),
            backlog.reshape(owner.shape),
            self._num_servers,
        )
        return by_member.reshape(*self._shape[:2], self._num_servers)

    def _advance_interval(self, place: int) -> None:
        estimates = self._estimates
        # Rows without an owner (-1) have the last server of each scenario, which has capacity 0.
        number = np.arange(self._shape[0] * self._shape[1]).reshape(*self._shape[:2], 1)
        servers = Servers(
            (number * self._num_servers + self._owner % self._num_servers).ravel(),
            weight=np.broadcast_to(estimates.weight[place], self._shape).ravel(),
        )
        speed = np.concatenate([estimates.speed[:, place], np.zeros((len(Case), 1))], axis=1)
        capacity = np.repeat(speed, self._shape[1], axis=0).ravel()
        self._bound_area(place, speed)
        self._backlog += np.where(self._is_begun, estimates.at_start[:, place], 0.0)[:, None]
        for span_s in pairwise(self._cuts_s(place)):
            self._advance_part(place, span_s, servers, capacity)
        self._backlog += np.where(self._is_begun, estimates.at_end[:, place], 0.0)[:, None]
        self._leave(place + 1)

    def _cuts_s(self, place: int) -> list[float]:
        """Return the begin and the end of the interval after a snapshot, and the ends of pauses within it."""
        interval_s = float(self._history.interval_s[place])
        cuts_s = np.append(self._ready_s.clip(0.0, interval_s), [0.0, interval_s])
        return list(np.unique(cuts_s).tolist())

    def _advance_part(
        self, place: int, span_s: tuple[float, float], servers: Servers, capacity: Floats
    ) -> None:
        (begin_s, end_s), drain, estimates = span_s, self._drain, self._estimates
        shape = self._shape
        rate = np.where(self._is_begun, estimates.rate[:, :, place], 0.0)
        rate, from_s = (_spread(each, shape) for each in (rate, estimates.from_s[:, :, place] - begin_s))
        owed = None
        if drain is not None:
            owed = np.concatenate([drain.owed.ravel(), np.zeros(2 * drain.owed.size)])
        advanced = advance(
            self._backlog.ravel(),
            arrival=rate[0],
            later=(from_s, rate[1:]),
            servers=servers,
            capacity=capacity,
            ready_s=np.broadcast_to(self._ready_s, shape).ravel() - begin_s,
            duration_s=end_s - begin_s,
            owed=owed,
        )
        before, self._backlog = self._backlog[Case.LIKELY], advanced.backlog.reshape(shape)
        area, processed, paid_s = (
            each.reshape(shape)[Case.LIKELY]
            for each in (advanced.backlog_records_s, advanced.processed, advanced.paid_s)
        )
        self._processed[place] += processed
        self._area[Case.LIKELY, place] += area.sum(axis=1)
        self._waits.add(place, span_s, before, self._backlog[Case.LIKELY], area)
        if drain is not None:
            drain.add(place, begin_s, processed, paid_s)

    def _leave(self, place: int) -> None:
        """Let go what the log no longer has, and what a new offset passes, at the end of an interval."""
        history, is_set = self._history, self._estimates.is_set[place]
        is_last = place == history.num_snapshots - 1
        goes = self._is_begun & (is_last | ~history.live[place] | is_set)
        likely = self._backlog[Case.LIKELY].copy()
        kept = np.minimum(self._backlog, np.where(history.live[place], history.retained[place], np.inf))
        self._waits.end(place, self._is_begun, likely, np.where(goes, 0.0, kept[Case.LIKELY]))
        is_reset = is_set & self._is_begun & np.isfinite(history.lag[place])
        self._backlog = np.where(is_reset, np.nan_to_num(history.lag[place]), kept)
        if self._drain is not None and is_set.any():
            at_s = history.at_s[place] - history.at_s[history.most_lag]
            self._drain.drain_s = np.where(is_set, np.minimum(self._drain.drain_s, at_s), self._drain.drain_s)

    def _bound_area(self, place: int, speed: Floats) -> None:
        """Bound the area under the lag: nothing comes before the end, or all as soon as it can have come."""
        estimates = self._estimates
        lasts_s = float(self._history.interval_s[place])
        early, rest = (
            np.where(self._is_begun, each, 0.0)
            for each in (
                estimates.at_start[Case.LEAST, place],
                estimates.rate[Case.LEAST, 1, place]
                * (estimates.from_s[Case.LEAST, 1, place] - estimates.from_s[Case.LEAST, 0, place]),
            )
        )
        rest_s = rest * (lasts_s - estimates.from_s[Case.LEAST, 0, place])
        begin = self._member_lag(self._backlog)
        most = self._member_lag(self._backlog + early)[Case.MOST]
        paused_s = self._ready_s.max(axis=1, initial=0.0).clip(max=lasts_s)[:, None]
        least_area = _area_of_drain(begin[Case.LEAST], speed[Case.LEAST], lasts_s)
        most_area = most * paused_s + _area_of_drain(most, speed[Case.MOST], lasts_s - paused_s)
        self._area[Case.LEAST, place] = least_area.sum(axis=1)
        self._area[Case.MOST, place] = most_area.sum(axis=1) + rest_s.sum()


def around_likely(values: Floats) -> Floats:
    """Return values by case with bounds that contain the likely ones."""
    likely = values[Case.LIKELY]
    return np.stack([likely, np.minimum(values[Case.LEAST], likely), np.maximum(values[Case.MOST], likely)])


def _spread(values: Floats, shape: tuple[int, int, int]) -> Floats:
    """Spread values [C, K, P] over the rows of all scenarios: [K, C * L * P]."""
    rows = np.broadcast_to(values.transpose(1, 0, 2)[:, :, None], (values.shape[1], *shape))
    return np.ascontiguousarray(rows).reshape(values.shape[1], -1)


def _area_of_drain(backlog: Floats, speed: Floats, lasts_s: float | Floats) -> Floats:
    """Integrate a backlog that is processed and to which nothing comes, in records times seconds."""
    needs_s = np.divide(backlog, speed, out=np.full_like(backlog, np.inf), where=speed > 0)
    until_s = np.minimum(needs_s, lasts_s)
    return np.asarray(until_s * (backlog - speed * until_s / 2))
