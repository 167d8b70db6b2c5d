"""How many records a group is behind on partitions, for how long, and how sure that is.

The lag is the end of the log less the offset where the group continues. That is its commit, or where its
clients are reset to: without a commit, with a commit below the log start, or beyond the high watermark. The
end is the high watermark, or the last stable offset for a group with ``read_committed`` consumers. Offsets
count, so control records and records that compaction removed do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.enums import GroupType, IsolationLevel, LagBound, LagStatus, ResetPolicy
from evenlag.lag.arrays import (
    UNKNOWN,
    Bools,
    Int64s,
    Numbers,
    Points,
    codes,
    first_in_lists,
    flags,
    is_valid,
    parents,
    rounded,
    zeros,
)
from evenlag.lake.arrow_schema import arrow_type
from evenlag.lake.tables import LAG

CAUGHT_UP_MS: Final = 60_000
"""A partition behind by no more has caught up: consumers that keep up are behind by their commit interval."""
STORED_ONLY: Final = ("cluster", "day", "snapshot_id", "slot")
"""Columns of ``lag`` that identify a stored snapshot; the formula does not return them."""
# In the order in which they apply.
_STATUSES: Final = (
    LagStatus.NOT_SUBSCRIBED,
    LagStatus.UNKNOWN,
    LagStatus.NO_MEMBERS,
    LagStatus.NO_COMMIT,
    LagStatus.DATA_LOSS,
    LagStatus.OUT_OF_RANGE,
    LagStatus.OK,
)


@dataclass(frozen=True, slots=True)
class _Log:
    """Offsets of N partitions, and what of them is not valid."""

    start: Numbers
    end: Numbers
    committed: Numbers
    is_lost: Bools
    is_beyond: Bools
    is_empty: Bools
    is_read: Bools


@dataclass(frozen=True, slots=True)
class Behind:
    """Lag of N partitions.

    position: Offset where the group continues.
    bound: int64 [N]: index of the bound in :class:`~evenlag.enums.LagBound`; -1: the lag is exact.
    """

    records: Numbers
    position: Numbers
    bound: Int64s


def count_lag(
    partitions: pa.Table,
    groups: pa.Table,
    member_ids: pa.Array,
    rate_window_s: float,
    find_points: Callable[[Behind, Bools], Points] | None = None,
) -> pa.Table:
    """Count the lag of partitions of groups, each row for itself.

    Returns the columns of ``lag`` without :data:`STORED_ONLY`, in the same order of rows.
    partitions, groups, member_ids: As :class:`~evenlag.lag.partitions.JoinedPartitions` has them.
    find_points: Returns the points that times behind are read from; None: the earlier ends.
    """
    # One chunk for each column: lists are taken apart by their positions.
    columns: dict[str, Any] = {name: partitions[name].combine_chunks() for name in partitions.column_names}
    of_group = pa.array(codes(columns["group_id"], groups["group_id"].to_pylist()))
    columns |= {name: groups[name].combine_chunks().take(of_group) for name in groups.column_names[1:]}
    columns |= {f"{name}_member_id": member_ids.take(columns[name]) for name in ("owner", "target")}
    log = _log(columns)
    behind = _behind(columns, log)
    is_left = ~flags(columns["is_subscribed"]) & ~flags(columns["is_empty"])
    is_left &= ~is_valid(columns["owner_member_id"]) & ~is_valid(columns["subscription_problem"])
    status = _status(columns, log, behind, is_left)
    raw = Numbers(log.end.values - log.committed.values, log.is_read & log.committed.known)
    columns |= {
        "status": pa.array([each.value for each in _STATUSES], pa.string()).take(pa.array(status)),
        "lag_records": behind.records.integers,
        "lag_bound": pa.array([each.value for each in LagBound]).take(
            pa.array(behind.bound, mask=behind.bound < 0)
        ),
        "raw_lag_records": raw.integers,
        "end_offset": log.end.integers,
        **_owners(columns, member_ids),
    }
    columns |= _rates_and_times(columns, behind, ~is_left, rate_window_s, find_points)
    schema = pa.schema(
        [(each.name, arrow_type(each.type)) for each in LAG.columns if each.name not in STORED_ONLY]
    )
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


def _log(columns: dict[str, Any]) -> _Log:
    """Which offsets are read, and whether the commit is within the log."""
    start, high = Numbers.of(columns["log_start_offset"]), Numbers.of(columns["high_watermark"])
    committed = Numbers.of(columns["committed_offset"])
    is_stable = _equal(columns["isolation_level"], IsolationLevel.READ_COMMITTED)
    end = Numbers.of(columns["last_stable_offset"]).where(is_stable, high)
    is_read = ~is_valid(columns["offset_error"]) & start.known & end.known & high.known
    commit_at, end_at = Numbers.of_moments(columns["commit_read_at"]), Numbers.of_moments(columns["read_at"])
    # A commit that was read after the end may be newer than it.
    is_later = commit_at.known & end_at.known & (commit_at.values > end_at.values)
    is_share = _equal(columns["group_type"], GroupType.SHARE)
    return _Log(
        start,
        end,
        committed,
        is_lost=committed.known & (committed.values < start.values) & ~is_share,
        is_beyond=committed.known & high.known & (committed.values > high.values) & ~is_later & ~is_share,
        is_empty=is_read & (start.values >= end.values),
        is_read=is_read,
    )


def _behind(columns: dict[str, Any], log: _Log) -> Behind:
    """Where each group continues, and how far that is from the end."""
    num_rows = len(log.is_read)
    is_commit_known = ~is_valid(columns["commit_problem"])
    is_reset = ~log.committed.known | log.is_lost | log.is_beyond
    reset = _reset_offset(columns, log)
    position = reset.where(is_reset, log.committed).only(log.is_read & is_commit_known)
    # A client that knows the leader epoch of its commit continues where the logs diverge (KIP-320): somewhere
    # between the log start and the end.
    has_epoch = Numbers.of(columns["leader_epoch"])
    is_diverged = log.is_beyond & ~log.is_lost & has_epoch.known & (has_epoch.values >= 0) & position.known
    position = position.only(~is_diverged)
    records = Numbers(np.maximum(log.end.values - position.values, 0), position.known | is_diverged)
    records = zeros(num_rows).where(is_diverged | log.is_empty, records)
    bound = np.where(is_diverged & ~log.is_empty, list(LagBound).index(LagBound.LOWER), UNKNOWN)
    return _of_share_groups(columns, log, Behind(records, position, bound))


def _of_share_groups(columns: dict[str, Any], log: _Log, behind: Behind) -> Behind:
    """Lag of share groups: what the broker reports (KIP-1226), else at most what follows the start offset."""
    is_share = _equal(columns["group_type"], GroupType.SHARE)
    if not is_share.any():
        return behind
    reported = Numbers.of(columns["reported_lag_records"])
    started = log.committed.only(log.is_read & ~is_valid(columns["commit_problem"]))
    begin = Numbers(np.maximum(started.values, log.start.values), started.known)
    at_most = Numbers(np.maximum(log.end.values - begin.values, 0), begin.known)
    records = zeros(len(is_share)).where(
        log.is_empty & ~reported.known, reported.where(reported.known, at_most)
    )
    is_bound = ~reported.known & records.known & (records.values > 0)
    bound = np.where(is_bound, list(LagBound).index(LagBound.UPPER), UNKNOWN)
    return Behind(
        records.where(is_share, behind.records),
        begin.where(is_share, behind.position),
        np.where(is_share, bound, behind.bound),
    )


def _reset_offset(columns: dict[str, Any], log: _Log) -> Numbers:
    """Where the clients of each group start without a valid commit."""
    policy = columns["reset_policy"]
    found = log.end.only(_equal(policy, ResetPolicy.LATEST))
    found = log.start.where(_equal(policy, ResetPolicy.EARLIEST), found)
    by_duration = _duration_offset(columns["reset_offsets"], policy)
    later = Numbers(np.maximum(by_duration.values, log.start.values), by_duration.known & log.start.known)
    return found.where(found.known, later)


def _duration_offset(reset_offsets: pa.ListArray, policy: pa.Array) -> Numbers:
    """Where clients start that reset by the duration of their group's reset policy (KIP-1106)."""
    parent, each = parents(reset_offsets), pc.list_flatten(reset_offsets)
    is_its = flags(pc.equal(pc.struct_field(each, "reset_policy"), policy.take(pa.array(parent))))
    first = first_in_lists(is_its, parent, len(reset_offsets))
    return Numbers.of(pc.struct_field(each, "offset")).take(first)


def _status(columns: dict[str, Any], log: _Log, behind: Behind, is_left: Bools) -> Int64s:
    """Index of the first status that applies."""
    is_unread = ~log.is_read | is_valid(columns["commit_problem"])
    conditions = (
        is_left,
        is_unread & ~behind.records.known,
        flags(columns["is_empty"]),
        # The commits of a group that could not be read are not missing.
        ~log.committed.known
        & ~is_valid(columns["commit_problem"])
        & ~is_valid(columns["reported_lag_records"]),
        log.is_lost,
        log.is_beyond,
        np.ones(len(is_left), dtype=np.bool_),
    )
    return np.asarray(np.argmax(np.vstack(conditions), axis=0), dtype=np.int64)


def _owners(columns: dict[str, Any], member_ids: pa.Array) -> dict[str, Any]:
    """The owner of each partition, and why it is unknown; members of share groups share partitions."""
    owner, count = columns["owner_member_id"], columns["num_owners"]
    is_shared = pa.array(_equal(columns["group_type"], GroupType.SHARE))
    several = pc.fill_null(pc.not_equal(columns["owner"], columns["last_owner"]), False)
    last = member_ids.take(columns["last_owner"])
    others = pc.if_else(pc.fill_null(pc.greater(count, 2), False), ", …, ", ", ")
    problem = pc.binary_join_element_wise(
        "owned by ", count.cast(pa.string()), " members: ", owner, others, last, ""
    )
    none = pa.scalar(None, pa.string())
    several_owners = pc.if_else(pc.and_(several, pc.invert(is_shared)), problem, none)
    unknown = pc.if_else(pc.is_valid(owner), none, columns["owner_problem"])
    return {
        "owner_member_id": pc.if_else(pc.and_(several, is_shared), none, owner),
        "owner_problem": pc.coalesce(several_owners, unknown),
    }


def _rates_and_times(
    columns: dict[str, Any],
    behind: Behind,
    is_counted: Bools,
    rate_window_s: float,
    find_points: Callable[[Behind, Bools], Points] | None,
) -> dict[str, Any]:
    """Rates, the time behind and the time until the group has caught up; of rows that count the times."""
    read_at, commit_at = (Numbers.of_moments(columns[name]) for name in ("read_at", "commit_read_at"))
    high, committed = Numbers.of(columns["high_watermark"]), Numbers.of(columns["committed_offset"])
    ends = Points.of(columns["end_points"])
    arrival = ends.rate(read_at, high, rate_window_s)
    consume = Points.of(columns["commit_points"]).rate(commit_at, committed, rate_window_s)
    points = ends.without_lost_records(high) if find_points is None else find_points(behind, is_counted)
    time, at_least = points.time_behind_ms(behind.position, read_at, high)
    lag = behind.records
    is_exact = lag.known & (behind.bound < 0)
    is_none = is_exact & (lag.values == 0)
    # A share group's oldest unprocessed record is at its start offset, whatever the bound of its lag.
    has_lag = lag.known & (lag.values > 0) & is_counted
    falls_by = consume.values - arrival.values
    is_falling = is_exact & arrival.known & consume.known & (falls_by > 0)
    drain = np.divide(1000.0 * lag.values, falls_by, out=np.zeros(len(falls_by)), where=is_falling)
    is_caught_up = is_none | (is_exact & has_lag & time.known & (time.values <= CAUGHT_UP_MS))
    zero = zeros(len(is_none))
    is_still = is_valid(columns["owner_member_id"]) & consume.known & (consume.values == 0) & is_counted
    return {
        "arrival_rate_records_per_s": arrival.floats,
        "consume_rate_records_per_s": consume.floats,
        "time_lag_ms": zero.where(is_none, time.only(has_lag)).only(is_counted).integers,
        "time_lag_at_least_ms": at_least.only(has_lag).integers,
        # Rates that are nearly equal give a time that is no BIGINT: such a lag never drains.
        "drain_time_ms": zero.where(is_caught_up, Numbers(rounded(drain), is_falling))
        .only(is_counted)
        .integers,
        "stalled": pa.array(is_still & (lag.values > 0), pa.bool_(), mask=~lag.known & is_still),
    }


def _equal(column: Any, value: str) -> Bools:
    return flags(pc.equal(column, value))
