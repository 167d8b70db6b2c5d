"""How fast the members of groups process records, and what the records of partitions cost, from snapshots.

Between two snapshots a member has processed what it has committed. If it had a backlog at both ends, it was
*busy*, and that is its speed; else its speed is at least that (a right-censored observation). A backlog
counts only beyond two commit intervals: a smaller one may be processed and not committed yet. The state is
recursive: an interval needs what was known before it, and nothing older.

Speeds are in records of cost 1 per second. Costs have median 1; all of them are 1 until a member has
processed other mixes of partitions than before: no other observation tells costs from speeds. A mix that
costs more is processed more slowly by the same member, so each busy interval with another mix is one equation
for the costs. One step of normalised least mean squares on their logarithms fits them to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from assignor_core.assignors import COOPERATIVE, assignor_classes
from evenlag.enums import EVENLAG_ASSIGNOR

if TYPE_CHECKING:
    from evenlag.lag.arrays import Bools, Floats, Int32s, Int64s

COOPERATIVE_ASSIGNORS: Final = frozenset(
    {EVENLAG_ASSIGNOR, *(each.name for each in assignor_classes() if COOPERATIVE in each.protocols)}
)
"""Names of assignors whose rebalances stop only the partitions that move."""
COMMIT_INTERVAL_S: Final = 5.0
"""``auto.commit.interval.ms`` of Kafka's clients."""
FEWEST_BUSY_S: Final = 30.0
"""With fewer busy seconds, a speed is a lower bound only."""
# Evidence is forgotten with busy time, so that a speed that has changed is found again, and with any time, so
# that an old one loses confidence.
_FORGET_BUSY_S: Final = 1_800.0
_FORGET_S: Final = 86_400.0
# The group's median counts as so many busy seconds; of these the confidence is one half.
_PRIOR_BUSY_S: Final = 10.0
_HALF_CONFIDENCE_S: Final = 60.0
_MOST_BY_MEDIAN: Final = 32.0
_MOST_COST: Final = 16.0
# A rate of so many times the known speed is no processing but a seek.
_MOST_BY_KNOWN: Final = 4.0
# Variance of the logarithms of costs, and of a busy minute's rate beside what commits explain; the share of
# the work that must be of other partitions before costs are fitted.
_COST_VARIANCE: Final = 0.25
_RATE_VARIANCE: Final = 0.05**2
_FEWEST_CHANGED: Final = 0.05
_MOST_STEP: Final = 0.5
# Work of a partition on a member is forgotten below this share of the member's mean partition.
_FEWEST_WORK: Final = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class SpeedState:
    """What is known of K identities and P partitions of G groups.

    An identity is what keeps its speed: a static member, a client, or all other members of a group.

    identity_group, partition_group: int64 [K], [P].
    busy_s: [K] seconds of members that were busy, with what is forgotten.
    at_least: [K] largest speed known as a lower bound; 0: none.
    cost: [P] work of a record, positive.
    done_identity, done_partition, done_records: [Q] records of a partition that an identity has processed in
        its busy seconds.
    """

    num_groups: int
    identity_group: Int64s
    partition_group: Int64s
    busy_s: Floats
    at_least: Floats
    cost: Floats
    done_identity: Int64s
    done_partition: Int64s
    done_records: Floats

    @classmethod
    def unknown(cls, num_groups: int, identity_group: Int64s, partition_group: Int64s) -> SpeedState:
        """Return the state before the first interval."""
        size, nothing = len(partition_group), np.zeros(0, dtype=np.int64)
        return cls(
            num_groups,
            identity_group,
            partition_group,
            busy_s=np.zeros(len(identity_group)),
            at_least=np.zeros(len(identity_group)),
            cost=np.ones(size),
            done_identity=nothing,
            done_partition=nothing,
            done_records=np.zeros(0),
        )

    @property
    def busy_work(self) -> Floats:
        """Work that was processed in the busy seconds: [K]."""
        work = self.cost[self.done_partition] * self.done_records
        return _sums(self.done_identity, work, len(self.busy_s))


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """What M members of G groups have done between two snapshots.

    duration_s: [G] between the reads of a group's commits. Not positive: nothing is known of the group.
    identity: int64 [M].
    is_steady: bool [M], false for a member that had other partitions meanwhile, or was stopped.
    owner: int64 [P] index of the member that owns the partition at both ends, -1 for none.
    processed: [P] records; NaN: unknown.
    before, after: [P] lag in records at both ends; NaN: unknown.
    """

    duration_s: Floats
    identity: Int64s
    is_steady: Bools
    owner: Int64s
    processed: Floats
    before: Floats
    after: Floats


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredSpeeds:
    """Speeds of K identities.

    speed: [K] records of cost 1 per second; NaN where nothing is known of the group.
    is_bound: bool [K], the speed is at least that.
    confidence: [K] from 0 (it is the group's median, or a lower bound) to 1.
    """

    speed: Floats
    is_bound: Bools
    confidence: Floats


def update(
    state: SpeedState, interval: Interval, *, commit_interval_s: float = COMMIT_INTERVAL_S
) -> SpeedState:
    """Return what is known after an interval."""
    done = _Done.of(state, interval, commit_interval_s)
    passed_s = interval.duration_s.clip(min=0.0)
    fades = np.exp(-passed_s / _FORGET_S)[state.identity_group]
    state = replace(
        state,
        busy_s=state.busy_s * fades,
        at_least=state.at_least * fades,
        done_records=state.done_records * fades[state.done_identity],
    )
    fitted = _fit_costs(state, interval, done, commit_interval_s)
    return _add_busy(_bound(fitted, interval, done, commit_interval_s), interval, done)


def estimate(state: SpeedState) -> MeasuredSpeeds:
    """Return the speeds that are known."""
    group, busy_s = state.identity_group, state.busy_s
    measured = _divide(state.busy_work, busy_s)
    is_known = (busy_s >= FEWEST_BUSY_S) & (measured > 0)
    median = _medians(measured, group, is_known, state.num_groups)
    by_bounds = _medians(state.at_least, group, state.at_least > 0, state.num_groups)
    median = np.where(np.isnan(median), by_bounds, median)[group]
    weight = np.where(measured > 0, busy_s, 0.0)
    log_measured = np.log(np.where(measured > 0, measured, 1.0))
    with np.errstate(invalid="ignore"):
        mean = (weight * log_measured + _PRIOR_BUSY_S * np.log(median)) / (weight + _PRIOR_BUSY_S)
        shrunk = np.exp(mean)
        speed = np.maximum(shrunk, state.at_least).clip(median / _MOST_BY_MEDIAN, median * _MOST_BY_MEDIAN)
    return MeasuredSpeeds(speed, ~is_known, weight / (weight + _HALF_CONFIDENCE_S))


@dataclass(frozen=True, slots=True, eq=False)
class _Done:
    """What members have done in an interval: work [M] in records of cost 1, and who was busy."""

    duration_s: Floats
    work: Floats
    is_busy: Bools
    is_counted: Bools
    rows: Int64s

    @classmethod
    def of(cls, state: SpeedState, interval: Interval, commit_interval_s: float) -> _Done:
        num_members = len(interval.identity)
        duration_s = interval.duration_s[state.identity_group[interval.identity]]
        is_known = np.isfinite(interval.processed) & (interval.processed >= 0)
        is_known &= np.isfinite(interval.before) & np.isfinite(interval.after)
        is_owned = interval.owner >= 0
        rows = np.flatnonzero(is_owned & is_known)
        owner = interval.owner[rows]
        missing = np.bincount(interval.owner[is_owned & ~is_known], minlength=num_members) > 0
        records = _sums(owner, interval.processed[rows], num_members)
        work = _sums(owner, state.cost[rows] * interval.processed[rows], num_members)
        is_counted = interval.is_steady & (duration_s > 0) & (records > 0)
        backlog = np.minimum(
            _sums(owner, interval.before[rows], num_members),
            _sums(owner, interval.after[rows], num_members),
        )
        floor = 2 * commit_interval_s * _divide(records, duration_s)
        is_busy = is_counted & ~missing & (backlog > floor)
        return cls(duration_s, work, is_busy, is_counted, rows)


def _bound(state: SpeedState, interval: Interval, done: _Done, commit_interval_s: float) -> SpeedState:
    """Raise lower bounds to what was processed, and lower them to what busy members processed at most.

    A commit may be of records that were processed up to a commit interval before the interval began.
    """
    counted, busy = done.is_counted, done.is_busy & (done.duration_s > commit_interval_s)
    lowest, highest = (
        _mean_by(interval.identity[chosen], _divide(done.work, done.duration_s + shift)[chosen], state)
        for chosen, shift in ((counted, commit_interval_s), (busy, -commit_interval_s))
    )
    at_least = np.fmin(np.fmax(state.at_least, lowest), highest)
    return replace(state, at_least=at_least)


def _mean_by(identity: Int64s, values: Floats, state: SpeedState) -> Floats:
    """Return the mean of each identity's values: [K], NaN where it has none."""
    size = len(state.busy_s)
    count = np.bincount(identity, minlength=size)
    return np.where(count > 0, _divide(_sums(identity, values, size), count.astype(np.float64)), np.nan)


def _add_busy(state: SpeedState, interval: Interval, done: _Done) -> SpeedState:
    """Add busy members' records and seconds to the evidence, and forget older ones."""
    busy = np.flatnonzero(done.is_busy)
    identity, size = interval.identity[busy], max(len(state.cost), 1)
    added_s = _sums(identity, done.duration_s[busy], len(state.busy_s))
    kept = np.exp(-added_s / _FORGET_BUSY_S)
    known = _divide(state.busy_work, state.busy_s)[interval.identity] * done.duration_s
    is_seek = (state.busy_s[interval.identity] >= FEWEST_BUSY_S) & (done.work > _MOST_BY_KNOWN * known)
    scale = np.where(is_seek, _MOST_BY_KNOWN * _divide(known, done.work), 1.0)
    rows = done.rows[done.is_busy[interval.owner[done.rows]]]
    owner = interval.owner[rows]
    before, now = state.done_identity * size + state.done_partition, interval.identity[owner] * size + rows
    unique, place = np.unique(np.concatenate([before, now]), return_inverse=True)
    records = [state.done_records * kept[state.done_identity], scale[owner] * interval.processed[rows]]
    identities, partitions = np.divmod(unique, size)
    return _forget_small(
        replace(
            state,
            busy_s=state.busy_s * kept + added_s,
            done_identity=identities,
            done_partition=partitions,
            done_records=_sums(place, np.concatenate(records), len(unique)),
        )
    )


def _forget_small(state: SpeedState) -> SpeedState:
    """Forget partitions that a member has hardly processed, with their part of its busy seconds."""
    work = state.cost[state.done_partition] * state.done_records
    total, size = state.busy_work, np.bincount(state.done_identity, minlength=len(state.busy_s))
    is_kept = work * size[state.done_identity] >= _FEWEST_WORK * total[state.done_identity]
    is_kept &= work > 0
    kept = _sums(state.done_identity[is_kept], work[is_kept], len(total))
    return replace(
        state,
        busy_s=state.busy_s * np.where(total > 0, _divide(kept, total), 1.0),
        done_identity=state.done_identity[is_kept],
        done_partition=state.done_partition[is_kept],
        done_records=state.done_records[is_kept],
    )


def _fit_costs(state: SpeedState, interval: Interval, done: _Done, commit_interval_s: float) -> SpeedState:
    """Fit the costs to the busy intervals in which a member has processed another mix than before."""
    size = len(state.busy_s)
    # The rates of members that share an identity differ by more than their mixes.
    is_alone = np.bincount(interval.identity, minlength=size) == 1
    is_used = done.is_busy & (is_alone & (state.busy_s >= FEWEST_BUSY_S))[interval.identity]
    work, seconds = np.zeros(size), np.ones(size)
    work[interval.identity[is_used]] = done.work[is_used]
    seconds[interval.identity[is_used]] = done.duration_s[is_used]
    total = state.busy_work
    is_fit = (work > 0) & (total > 0)
    rows = done.rows[is_used[interval.owner[done.rows]]]
    identity, partition, change = _mix_changes(state, interval, rows, np.where(is_fit, work, 0.0), total)
    if not len(identity):
        return state
    known = np.where(is_fit, _divide(total, state.busy_s), 1.0)
    faster = np.log(np.where(is_fit, work / seconds, 1.0) / known)
    by_commits = (commit_interval_s / seconds) ** 2 / 6
    noise = by_commits + _RATE_VARIANCE * (60.0 / seconds + 60.0 / state.busy_s.clip(min=FEWEST_BUSY_S))
    spread = _COST_VARIANCE * _sums(identity, change**2, size) + noise
    gain = _COST_VARIANCE * change / spread[identity]
    step = _sums(partition, -gain * faster[identity], len(state.cost))
    return _with_costs(state, np.log(state.cost) + step.clip(-_MOST_STEP, _MOST_STEP))


def _mix_changes(
    state: SpeedState, interval: Interval, rows: Int64s, work: Floats, total: Floats
) -> tuple[Int64s, Int64s, Floats]:
    """Return how shares of identities' work differ from before: identity, partition and difference, [D] each.

    work, total: [K] work in the interval, and before it. Mixes that are nearly the same are left out.
    """
    size = max(len(state.cost), 1)
    known = np.flatnonzero(work[state.done_identity] > 0)
    known_identity, known_partition = state.done_identity[known], state.done_partition[known]
    before = state.cost[known_partition] * state.done_records[known] / total[known_identity]
    rows = rows[work[interval.identity[interval.owner[rows]]] > 0]
    identity = interval.identity[interval.owner[rows]]
    share = state.cost[rows] * interval.processed[rows] / work[identity]
    keys = np.concatenate([identity * size + rows, known_identity * size + known_partition])
    unique, place = np.unique(keys, return_inverse=True)
    change = _sums(place, np.concatenate([share, -before]), len(unique))
    identity, partition = np.divmod(unique, size)
    # Half of the absolute changes is the share of the work that is of other partitions.
    is_other = _sums(identity, np.abs(change), len(work)) / 2 >= _FEWEST_CHANGED
    kept = is_other[identity]
    return identity[kept], partition[kept], change[kept]


def _with_costs(state: SpeedState, log_cost: Floats) -> SpeedState:
    """Return the state with costs of median 1 in each group that has others than 1."""
    is_fitted = np.bincount(state.partition_group[log_cost != 0], minlength=state.num_groups) > 0
    every = np.ones(len(log_cost), dtype=np.bool_)
    median = _medians(np.exp(log_cost), state.partition_group, every, state.num_groups)
    scale = np.where(is_fitted, median, 1.0)[state.partition_group]
    cost = (np.exp(log_cost) / scale).clip(1 / _MOST_COST, _MOST_COST)
    return replace(state, cost=cost)


def _medians(values: Floats, group: Int64s, chosen: Bools, num_groups: int) -> Floats:
    """Return the median of the chosen values of each group: [G], NaN where there are none."""
    values, group = values[chosen], group[chosen]
    order = np.lexsort((values, group))
    values = values[order]
    size = np.bincount(group, minlength=num_groups)
    start = np.cumsum(size) - size
    found = np.full(num_groups, np.nan)
    has = size > 0
    low, high = (start + (size - 1) // 2)[has], (start + size // 2)[has]
    found[has] = (values[low] + values[high]) / 2
    return found


def _sums(index: Int64s, values: Floats, size: int) -> Floats:
    """Sum values by index: [size]."""
    return np.bincount(index, values, size).astype(np.float64)


def _divide(above: Floats, below: Floats) -> Floats:
    """Return quotients; 0 where the divisor is not positive."""
    return np.divide(above, below, out=np.zeros(len(above)), where=below > 0)


class GroupSpeeds:
    """Speeds of one group, snapshot by snapshot: for simulations, where members keep their indexes.

    Call :meth:`observe` once a cycle with what is read of the group, then read :attr:`measured` (of each
    member that was ever there) and :attr:`cost` (of each partition).
    """

    def __init__(self, num_members: int, num_partitions: int) -> None:
        of_group = np.zeros(num_members, dtype=np.int64), np.zeros(num_partitions, dtype=np.int64)
        self._state = SpeedState.unknown(1, *of_group)
        self._last: tuple[float, Int64s, Int64s, Int32s] | None = None

    @property
    def measured(self) -> MeasuredSpeeds:
        """Speeds of the members."""
        return estimate(self._state)

    @property
    def cost(self) -> Floats:
        """Costs of the partitions' records."""
        return self._state.cost

    def observe(
        self, at_s: float, lag: Int64s, end: Int64s, owner: Int32s, *, is_rebalancing: bool = False
    ) -> None:
        """Add a snapshot: lag, end offset and owner (index of a member, -1 for none) of each partition."""
        last, self._last = self._last, None if is_rebalancing else (at_s, lag, end, owner.copy())
        if last is None or is_rebalancing:
            return
        num_members = len(self._state.busy_s)
        changed = last[3] != owner
        is_steady = np.ones(num_members, dtype=np.bool_)
        for owners in (last[3][changed], owner[changed]):
            is_steady[owners[owners >= 0]] = False
        self._state = update(
            self._state,
            Interval(
                duration_s=np.array([at_s - last[0]]),
                identity=np.arange(num_members),
                is_steady=is_steady,
                owner=owner.astype(np.int64),
                processed=((end - lag) - (last[2] - last[1])).astype(np.float64),
                before=last[1].astype(np.float64),
                after=lag.astype(np.float64),
            ),
        )
