"""The columns of predictions in ``forecasts``: each snapshot scores earlier ones, and makes new ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.lag.arrays import (
    Bools,
    Floats,
    Int64s,
    as_column,
    as_lists,
    as_structs,
    codes,
    flags,
    floats,
    is_valid,
    largest_in_groups,
    seconds,
)
from evenlag.lag.predictions import MEASURES, Intervals, Members, newer_mean, predict
from evenlag.lag.speeds import NOISE_S
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import FORECASTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.lag.forecast import Seen

LAG_COLUMNS: Final = ("owner_member_id", "lag_records", "lag_bound", "time_lag_ms")
"""Columns of ``lag`` that predictions need."""
# Of each measure, at the next snapshot and at the horizon.
_KINDS: Final = (len(MEASURES), 2)
# A prediction is not scored by a snapshot that is so much earlier or later than it was made for.
_MOST_OFF: Final = 0.5
_NEWEST_IDLE: Final = 0.1
_RULES: Final = ("pending_steady", "pending_by_rate")
_ERRORS: Final = ("steady_error", "by_rate_error")
_PENDING: Final = ("pending", "pending_lower", "pending_upper", *_RULES)


@dataclass(frozen=True, slots=True, eq=False)
class _Before:
    """The state of G groups before a snapshot; arrays of predictions are [G, measures, 2]."""

    read_at_s: Floats
    hash: Int64s
    idle_s: Floats
    ahead_s: Floats
    pending_at_s: Floats
    pending: tuple[Floats, Floats, Floats]
    rules: tuple[Floats, Floats]
    errors: tuple[Floats, Floats]
    intervals: Intervals


def prediction_columns(
    lag: pa.Table, previous: pa.Table, seen: Seen, mean: Floats, consumed: Floats, now_s: float
) -> dict[str, pa.Array]:
    """Return the columns of G groups.

    lag: Their rows in order, with :data:`LAG_COLUMNS` and the speeds of owners.
    previous: One row of ``forecasts`` for each group, null for a new one.
    mean: [N, K] forecast rates. consumed: [N] records per second since then.
    """
    before = _read_state(previous)
    interval_s = now_s - before.read_at_s
    members, hashes = _members(lag, seen, mean, consumed)
    actual = _actual(lag, members, seen)
    same: Bools = (hashes == before.hash) & np.isfinite(before.read_at_s)
    due, scored = _scored(before, same, now_s, actual)
    intervals = before.intervals.after(*scored, np.where(due, actual[:, :, None], np.nan))
    idle_s = _idle(members, before.idle_s, seen.num_groups)
    ahead_s = np.stack([interval_s, seen.horizon_s], axis=1)
    rules = [_predict(members, ahead_s, np.nan_to_num(idle_s), is_steady=rule) for rule in (True, False)]
    errors = [
        newer_mean(error, np.abs(np.where(due, value, np.nan) - actual[:, :, None]))
        for error, value in zip(before.errors, before.rules, strict=True)
    ]
    predicted = np.where(errors[1] < errors[0], rules[1], rules[0])
    predicted = np.where(np.isfinite(actual)[:, :, None], predicted, np.nan)
    bounds = intervals.around(predicted)
    # A prediction for the horizon is pending until it is due, or the assignment is another one.
    is_kept = same[:, None, None] & ~due & _is_before(before, now_s)
    made = (predicted, *bounds)
    olds, news = (*before.pending, *before.rules), (*made, *rules)
    pending = [np.where(is_kept, old, new) for old, new in zip(olds, news, strict=True)]
    numbers = {
        "ahead_s": np.broadcast_to(ahead_s[:, None], predicted.shape),
        **dict(zip(("predicted", "lower", "upper"), made, strict=True)),
        **{
            name: np.where(due, values, np.nan)
            for name, values in zip(("scored", "scored_lower", "scored_upper"), scored, strict=True)
        },
        "actual": np.where(due, actual[:, :, None], np.nan),
        **dict(zip(_PENDING, pending, strict=True)),
        "pending_at": np.where(is_kept, before.pending_at_s, now_s),
        **dict(zip(_ERRORS, errors, strict=True)),
        "mean_error": intervals.error,
        "num_scored": intervals.scored,
        "below": intervals.below,
        "above": intervals.above,
    }
    return {
        "assignment_hash": pa.array(hashes),
        "idle_s": pa.array(idle_s, mask=np.isnan(idle_s)),
        "predictions": _prediction_lists(numbers),
    }


def _predict(members: Members, ahead_s: Floats, idle_s: Floats, *, is_steady: bool) -> Floats:
    """Predictions at both moments of each group: [G, measures, 2]."""
    num_groups = len(idle_s)
    return np.stack(
        [predict(members, at_s, idle_s, num_groups, is_steady=is_steady) for at_s in ahead_s.T], axis=2
    )


def _is_before(before: _Before, now_s: float) -> Bools:
    """Which predictions are not due yet: only those of the horizon can be."""
    is_early: Bools = (now_s - before.pending_at_s < before.ahead_s) & np.array([False, True])
    return is_early


def _scored(
    before: _Before, same: Bools, now_s: float, actual: Floats
) -> tuple[Bools, tuple[Floats, Floats, Floats]]:
    """Which pending predictions the snapshot scores, and they; others are NaN."""
    past = now_s - before.pending_at_s
    is_near = np.abs(past - before.ahead_s) <= _MOST_OFF * before.ahead_s
    is_due = same[:, None, None] & is_near & ~_is_before(before, now_s)
    is_due &= np.isfinite(before.pending[0]) & np.isfinite(actual)[:, :, None]
    first, lower, upper = (np.where(is_due, values, np.nan) for values in before.pending)
    return is_due, (first, lower, upper)


def _members(lag: pa.Table, seen: Seen, mean: Floats, consumed: Floats) -> tuple[Members, Int64s]:
    """The members that own partitions, what has no owner, and a hash of each group's owners."""
    names = pc.unique(lag["owner_member_id"]).drop_null().to_pylist()
    owner = codes(lag["owner_member_id"], names)
    pair, row = np.unique(seen.group * (len(names) + 1) + owner + 1, return_inverse=True)
    group, which = np.divmod(pair, len(names) + 1)
    size = len(pair)

    def total(values: Floats) -> Floats:
        return np.asarray(np.bincount(row, values, size), dtype=np.float64)

    speed, is_bound = np.full(size, np.nan), np.zeros(size, dtype=np.bool_)
    speed[row] = floats(lag["speed_records_per_s"])
    is_bound[row] = flags(lag["speed_is_bound"])
    members = Members(
        group=group,
        is_member=which > 0,
        lag=total(np.nan_to_num(floats(lag["lag_records"]))),
        consumed=total(consumed),
        behind_s=np.nan_to_num(largest_in_groups(floats(lag["time_lag_ms"]) / 1_000, row, size)),
        speed=speed,
        is_bound=is_bound,
        arrivals=np.stack([total(column) for column in mean.T], axis=1),
        step_s=(seen.horizon_s / mean.shape[1])[group],
    )
    return members, _hashes(lag, seen, names, owner)


def _hashes(lag: pa.Table, seen: Seen, names: list[str], owner: Int64s) -> Int64s:
    """A sum over the partitions of each group, the same in any order and process."""
    topics = pc.unique(lag["topic"]).to_pylist()
    of_owner, of_topic = (
        np.array([_hash(name) for name in ("", *texts)], dtype=np.uint64) for texts in (names, topics)
    )
    topic = of_topic[codes(lag["topic"], topics) + 1]
    mixed = topic + lag["partition"].to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * (of_owner[owner + 1] | np.uint64(1))
    found = np.zeros(seen.num_groups, dtype=np.uint64)
    np.add.at(found, seen.group, mixed ^ (mixed >> np.uint64(29)))
    return found.view(np.int64)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _actual(lag: pa.Table, members: Members, seen: Seen) -> Floats:
    """The measures of each group: [G, measures]; NaN where a lag is not exact, or a time unknown."""
    num_groups = seen.num_groups
    is_exact = is_valid(lag["lag_records"]) & ~is_valid(lag["lag_bound"])
    total = np.bincount(members.group, members.lag, num_groups)
    of_members, times = np.where(members.is_member, members.lag, np.nan), floats(lag["time_lag_ms"])
    largest = largest_in_groups(of_members, members.group, num_groups)
    behind_ms = np.nan_to_num(largest_in_groups(times, seen.group, num_groups))
    has_members = np.bincount(members.group, members.is_member, num_groups) > 0
    is_known = np.bincount(seen.group, ~is_exact, num_groups) == 0
    is_timed = np.bincount(seen.group, np.isnan(times), num_groups) == 0
    known = np.stack([is_known, is_known & has_members, is_known & is_timed], axis=1)
    return np.where(known, np.stack([total, largest, behind_ms], axis=1), np.nan)


def _idle(members: Members, before: Floats, num_groups: int) -> Floats:
    """Seconds of arrivals that the members who keep up are behind, with those before."""
    rate = members.arrivals[:, 0]
    idle = members.is_member & (rate > 0) & (members.lag <= NOISE_S * rate)
    lag, came = (
        np.bincount(members.group, np.where(idle, each, 0.0), num_groups) for each in (members.lag, rate)
    )
    now = np.divide(lag, came, out=np.full(num_groups, np.nan), where=came > 0)
    mixed = np.where(np.isfinite(before), before + _NEWEST_IDLE * (now - before), now)
    return np.where(np.isfinite(now), mixed, before)


def _read_state(previous: pa.Table) -> _Before:
    """State of one row for each group; that of a group with other predictions begins as that of a new one."""
    num_groups, kinds = previous.num_rows, _KINDS[0] * _KINDS[1]
    lists = previous["predictions"].combine_chunks()
    is_whole = np.asarray(pc.fill_null(pc.equal(pc.list_value_length(lists), kinds), False))
    each = pc.list_flatten(lists.filter(pa.array(is_whole)))

    def numbers(name: str, new: float = np.nan) -> Floats:
        found = np.full((num_groups, *_KINDS), new)
        column = pc.struct_field(each, name)
        values = seconds(column) if pa.types.is_timestamp(column.type) else floats(column)
        found[is_whole] = np.where(np.isfinite(values), values, new).reshape(-1, *_KINDS)
        return found

    new = Intervals.new((num_groups, *_KINDS))
    hashes = pc.fill_null(previous["assignment_hash"], 0).to_numpy()
    return _Before(
        read_at_s=seconds(previous["read_at"]),
        hash=np.asarray(hashes, dtype=np.int64),
        idle_s=floats(previous["idle_s"]),
        ahead_s=numbers("ahead_s"),
        pending_at_s=numbers("pending_at"),
        pending=(numbers("pending"), numbers("pending_lower"), numbers("pending_upper")),
        rules=(numbers(_RULES[0]), numbers(_RULES[1])),
        errors=(numbers(_ERRORS[0]), numbers(_ERRORS[1])),
        intervals=Intervals(
            numbers("mean_error"),
            numbers("num_scored", 0.0),
            numbers("below", float(new.below.flat[0]) if num_groups else 0.0),
            numbers("above", float(new.above.flat[0]) if num_groups else 0.0),
        ),
    )


def _prediction_lists(numbers: Mapping[str, Floats]) -> pa.ListArray:
    """One list of structs for each group."""
    kind = arrow_schema(FORECASTS).field("predictions").type.value_type
    num_groups, num_each = len(numbers["predicted"]), _KINDS[0] * _KINDS[1]
    place = np.arange(num_groups * num_each)
    flat = {name: np.ascontiguousarray(values).reshape(len(place)) for name, values in numbers.items()}
    actual, lower, upper = (flat[name] for name in ("actual", "scored_lower", "scored_upper"))
    held = (actual >= lower) & (actual <= upper)
    columns = {
        "measure": pa.array(MEASURES).take(pa.array(place // _KINDS[1] % _KINDS[0])),
        "is_horizon": pa.array(place % _KINDS[1] == 1),
        "held": pa.array(held, mask=~np.isfinite(actual) | ~np.isfinite(lower)),
        **{name: as_column(values, kind.field(name).type) for name, values in flat.items()},
    }
    return as_lists(as_structs(columns, kind), np.full(num_groups, num_each))
