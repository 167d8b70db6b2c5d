"""How fast the members of groups process records, and what the records of partitions cost, from snapshots.

Between two snapshots a member has processed what it has committed. If it had a backlog at both ends, it was
*busy*, and that is its speed; else its speed is at least that (a right-censored observation). A backlog
counts only beyond two commit intervals: a smaller one may be processed and not committed yet. The state is
recursive: an interval needs what was known before it, and nothing older.

A member may report how long it has processed records. Then it is not asked for a backlog, and that time
counts, unless it had a backlog and reports less than half of the interval.

Speeds are in records of cost 1 per second. Costs have median 1; all of them are 1 until a member has
processed other mixes of partitions than before: no other observation tells costs from speeds. A mix that
costs more is processed more slowly by the same member, so each busy interval with another mix is one equation
for the costs. One step of normalised least mean squares on their logarithms fits them to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from assignor_core.assignors import COOPERATIVE, assignor_classes
from evenlag.enums import EVENLAG_ASSIGNOR

if TYPE_CHECKING:
    from evenlag.lag.arrays import Bools, Floats, Int64s

COOPERATIVE_ASSIGNORS: Final = frozenset(
    {EVENLAG_ASSIGNOR, *(each.name for each in assignor_classes() if COOPERATIVE in each.protocols)}
)
"""Names of assignors whose rebalances stop only the partitions that move."""
COMMIT_INTERVAL_S: Final = 5.0
"""``auto.commit.interval.ms`` of Kafka's clients."""
NOISE_S: Final = 2 * COMMIT_INTERVAL_S
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
# Of a reported minute, whose mix may differ by chance alone: at least this, and so many times the median
# squared difference of the group's members in the interval.
_REPORTED_VARIANCE: Final = 0.03**2
_BY_MEDIAN_DIFFERENCE: Final = 4.0
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
    reported_s: [M] seconds in which the member processed these records, as it reports them; NaN: unknown.
    """

    duration_s: Floats
    identity: Int64s
    is_steady: Bools
    owner: Int64s
    processed: Floats
    before: Floats
    after: Floats
    reported_s: Floats


class BusyReports(NamedTuple):
    """What commits of P partitions report (:class:`assignor_core.busy_time.BusyTime`): [P]; -1: nothing."""

    busy_ms: Int64s
    since_ms: Int64s


def reported_seconds(
    owner: Int64s, processed: Floats, before: BusyReports, now: BusyReports, num_members: int
) -> Floats:
    """Return the busy seconds of an interval: [M]; NaN where they are not those of what was processed.

    A partition without progress may have the report of an earlier owner. The others are committed by their
    member, whose last report is of all that it has committed: it may commit only where there is progress.
    """
    is_owned = owner >= 0
    has_progress = is_owned & (processed > 0)
    since_ms = _largest(owner, now.since_ms, has_progress, num_members)
    expected = np.append(since_ms, -1)[owner]
    is_own = [is_owned & (expected >= 0) & (each.since_ms == expected) for each in (before, now)]
    foreign = owner[has_progress & ~(is_own[0] & is_own[1])]
    is_known = (since_ms >= 0) & (np.bincount(foreign, minlength=num_members) == 0)
    first_ms, last_ms = (
        _largest(owner, each.busy_ms, own, num_members)
        for each, own in zip((before, now), is_own, strict=True)
    )
    return np.where(is_known, (last_ms - first_ms) / 1000, np.nan)


def _largest(owner: Int64s, values: Int64s, chosen: Bools, num_members: int) -> Int64s:
    """Return the largest of each member's chosen values: [M]; -1 for none."""
    found = np.full(num_members, -1, dtype=np.int64)
    np.maximum.at(found, owner[chosen], values[chosen])
    return found


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


def uncommitted(consumed: Floats) -> Floats:
    """Return the lag that may be processed and not committed yet, by records consumed per second.

    What is consumed in two commit intervals bounds it, not what arrives. Nothing of unknown rates (NaN).
    """
    return NOISE_S * np.fmax(consumed, 0.0)


def update(state: SpeedState, interval: Interval) -> SpeedState:
    """Return what is known after an interval."""
    done = _Done.of(state, interval)
    passed_s = interval.duration_s.clip(min=0.0)
    fades = np.exp(-passed_s / _FORGET_S)[state.identity_group]
    state = replace(
        state,
        busy_s=state.busy_s * fades,
        at_least=state.at_least * fades,
        done_records=state.done_records * fades[state.done_identity],
    )
    fitted = _fit_costs(state, interval, done)
    return _add_busy(_bound(fitted, interval, done), interval, done)


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
    """What members have done in an interval: work [M] in records of cost 1, and in how many busy seconds.

    scale: [M] the share of what was processed that counts as work: a seek is none.
    is_busy: [M], whether the busy seconds are known: reported, or all because of a backlog.
    commit_s: [M] how long commits may be late; reports are as late.
    """

    duration_s: Floats
    busy_s: Floats
    commit_s: Floats
    is_reported: Bools
    work: Floats
    scale: Floats
    is_busy: Bools
    is_counted: Bools
    rows: Int64s

    @classmethod
    def of(cls, state: SpeedState, interval: Interval) -> _Done:
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
        had_backlog = backlog > uncommitted(_divide(records, duration_s))
        # A member with a backlog that says it was idle waits for something that it does not count.
        least_s = np.where(had_backlog, duration_s / 2, 0.0)
        reported_s = interval.reported_s
        is_reported = (reported_s > least_s) & (reported_s <= duration_s + COMMIT_INTERVAL_S)
        is_busy = is_counted & ~missing & (had_backlog | is_reported)
        busy_s = np.where(is_reported, reported_s, duration_s)
        commit_s = np.where(is_reported, 0.0, COMMIT_INTERVAL_S)
        known = _divide(state.busy_work, state.busy_s)[interval.identity] * busy_s
        is_seek = (state.busy_s[interval.identity] >= FEWEST_BUSY_S) & (work > _MOST_BY_KNOWN * known)
        scale = np.where(is_seek, _MOST_BY_KNOWN * _divide(known, work), 1.0)
        return cls(duration_s, busy_s, commit_s, is_reported, scale * work, scale, is_busy, is_counted, rows)


def _bound(state: SpeedState, interval: Interval, done: _Done) -> SpeedState:
    """Raise lower bounds to what was processed, and lower them to what busy members processed at most.

    A commit may be of records that were processed up to a commit interval before the interval began.
    """
    counted, busy = done.is_counted, done.is_busy & (done.busy_s > done.commit_s)
    lowest, highest = (
        _mean_by(interval.identity[chosen], _divide(done.work, seconds)[chosen], state)
        for chosen, seconds in (
            (counted, done.duration_s + COMMIT_INTERVAL_S),
            (busy, done.busy_s - done.commit_s),
        )
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
    added_s = _sums(identity, done.busy_s[busy], len(state.busy_s))
    kept = np.exp(-added_s / _FORGET_BUSY_S)
    rows = done.rows[done.is_busy[interval.owner[done.rows]]]
    owner = interval.owner[rows]
    before, now = state.done_identity * size + state.done_partition, interval.identity[owner] * size + rows
    unique, place = np.unique(np.concatenate([before, now]), return_inverse=True)
    records = [state.done_records * kept[state.done_identity], done.scale[owner] * interval.processed[rows]]
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


def _fit_costs(state: SpeedState, interval: Interval, done: _Done) -> SpeedState:
    """Fit the costs to the busy intervals in which a member has processed another mix than before."""
    size = len(state.busy_s)
    # The rates of members that share an identity differ by more than their mixes.
    is_alone = np.bincount(interval.identity, minlength=size) == 1
    is_used = done.is_busy & (is_alone & (state.busy_s >= FEWEST_BUSY_S))[interval.identity]
    work, seconds, commit_s, is_reported = np.zeros(size), np.ones(size), np.zeros(size), np.zeros(size, bool)
    used = interval.identity[is_used]
    work[used], seconds[used] = done.work[is_used], done.busy_s[is_used]
    commit_s[used], is_reported[used] = done.commit_s[is_used], done.is_reported[is_used]
    total = state.busy_work
    is_fit = (work > 0) & (total > 0)
    rows = done.rows[is_used[interval.owner[done.rows]]]
    identity, partition, change = _mix_changes(state, interval, rows, np.where(is_fit, work, 0.0), total)
    # Half of the absolute changes is the share of the work that is of other partitions.
    is_other = _sums(identity, np.abs(change), size) / 2 >= np.where(is_reported, 0.0, _FEWEST_CHANGED)
    rows = np.flatnonzero(is_other[identity])
    identity, partition, change = identity[rows], partition[rows], change[rows]
    if not len(identity):
        return state
    known = np.where(is_fit, _divide(total, state.busy_s), 1.0)
    faster = np.log(np.where(is_fit, work / seconds, 1.0) / known)
    noise = (commit_s / seconds) ** 2 / 6 + _rate_noise(state, seconds, faster, is_fit & is_reported)
    spread = _COST_VARIANCE * _sums(identity, change**2, size) + noise
    gain = _COST_VARIANCE * change / spread[identity]
    step = _sums(partition, -gain * faster[identity], len(state.cost))
    return _change_costs(state, step.clip(-_MOST_STEP, _MOST_STEP))


def _rate_noise(state: SpeedState, seconds: Floats, faster: Floats, is_reported: Bools) -> Floats:
    """Return the variance of the logarithms of rates that mixes do not explain: [K]."""
    per_minute = 60.0 / seconds + 60.0 / state.busy_s.clip(min=FEWEST_BUSY_S)
    usual = _medians(faster**2 / per_minute, state.identity_group, is_reported, state.num_groups)
    reported = np.fmax(_REPORTED_VARIANCE, _BY_MEDIAN_DIFFERENCE * usual)[state.identity_group]
    return np.where(is_reported, reported, _RATE_VARIANCE) * per_minute


def _mix_changes(
    state: SpeedState, interval: Interval, rows: Int64s, work: Floats, total: Floats
) -> tuple[Int64s, Int64s, Floats]:
    """Return how shares of identities' work differ from before: identity, partition and difference, [D] each.

    work, total: [K] work in the interval, and before it; identities without work are left out.
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
    return identity, partition, change


def _change_costs(state: SpeedState, step: Floats) -> SpeedState:
    """Return the state with other costs, by steps of their logarithms; their median in a group is 1."""
    is_fitted = np.bincount(state.partition_group[step != 0], minlength=state.num_groups) > 0
    cost = state.cost * np.exp(step)
    median = _medians(cost, state.partition_group, np.ones(len(cost), dtype=np.bool_), state.num_groups)
    scale = np.where(is_fitted, median, 1.0)[state.partition_group]
    return replace(state, cost=(cost / scale).clip(1 / _MOST_COST, _MOST_COST))


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
