"""Merge the intervals of consecutive days: the audit's tables split every interval at midnight UTC.

Works on whole columns; only nested values of intervals that reach midnight are compared row by row.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FIRST_INDEX: Final = "first_index"
LAST_INDEX: Final = "last_index"
_OF_THE_LAST: Final = ("last_snapshot_id", "last_seen_at", "next_snapshot_id", "next_seen_at", "returned")
# Content with the clients' names, which maintenance removes from older days: newer days may still have them.
_CLIENT_NAMES: Final = ("client_id", "client_host")
_WITH_NAMES: Final = (*_CLIENT_NAMES, "members")
# Columns that locate an interval in time. All others are its content, which must be equal to merge.
_OF_THE_DAY: Final = (
    "day", "input_hash", "first_snapshot_id", "first_seen_at", "previous_snapshot_id", "previous_seen_at",
    *_OF_THE_LAST, "num_snapshots", "longest_gap_ms", FIRST_INDEX, LAST_INDEX,
)  # fmt: skip


def join_days(intervals: pa.Table, snapshots: pa.Table, key: Sequence[str]) -> pa.Table:
    """Merge intervals that continue from the last snapshot of a day to the first one of the next day.

    The result, by `key`, then time, has the positions of its first and last snapshot in `snapshots`, which
    are those of these days and of the adjacent ones, by start time.
    """
    ids = snapshots["snapshot_id"].combine_chunks()
    for edge, name in (("first", FIRST_INDEX), ("last", LAST_INDEX)):
        index = pc.index_in(intervals[f"{edge}_snapshot_id"], value_set=ids)
        intervals = intervals.append_column(name, index.cast(pa.int64()))
    in_order = sort_intervals(intervals, key)
    joins = _goes_on(in_order, key)
    begins = np.flatnonzero(~joins)
    ends = np.append(begins[1:], in_order.num_rows) - 1 if len(begins) else begins
    joined = in_order.take(pa.array(begins))
    of_the_last = (*_OF_THE_LAST, *_WITH_NAMES, LAST_INDEX)
    for name in [name for name in of_the_last if name in in_order.column_names]:
        joined = _replace(joined, name, in_order[name].take(pa.array(ends)))
    counts = in_order["num_snapshots"].to_numpy()
    joined = _replace(joined, "num_snapshots", pa.array(_reduce(np.add, counts, begins), pa.int32()))
    gaps = np.where(joins, _since_last_ms(in_order), in_order["longest_gap_ms"].to_numpy())
    gaps = np.maximum(gaps, in_order["longest_gap_ms"].to_numpy())
    joined = _replace(joined, "longest_gap_ms", pa.array(_reduce(np.maximum, gaps, begins), pa.int64()))
    return _with_neighbours(joined, snapshots).drop_columns(["day", "input_hash"])


def sort_intervals(intervals: pa.Table, key: Sequence[str]) -> pa.Table:
    """Sort intervals by a key, then by their first snapshot."""
    order = [*((name, "ascending") for name in key), (FIRST_INDEX, "ascending")]
    return intervals.sort_by(order).combine_chunks()


def _goes_on(in_order: pa.Table, key: Sequence[str]) -> np.ndarray:
    """Whether each row continues the previous row: same key, next snapshot, same content; shape (rows,)."""
    count = in_order.num_rows
    joins = np.zeros(count, dtype=bool)
    if count < 2:  # noqa: PLR2004  # nothing to compare
        return joins
    first, last = (in_order[name].to_numpy() for name in (FIRST_INDEX, LAST_INDEX))
    candidates = np.flatnonzero(first[1:] == last[:-1] + 1)
    shown = [name for name in in_order.column_names if name not in _OF_THE_DAY]
    for name in (*key, *(name for name in shown if name not in key)):
        if not len(candidates):
            break
        same = _same_but_for_names if name in _WITH_NAMES else same_as_next
        candidates = candidates[same(in_order[name], candidates)]
    joins[candidates + 1] = True
    return joins


def _same_but_for_names(column: pa.ChunkedArray, rows: np.ndarray) -> np.ndarray:
    """As :func:`same_as_next`; clients' names are equal if either side has none."""
    pairs = zip(*(column.take(pa.array(which)).to_pylist() for which in (rows, rows + 1)), strict=True)
    return np.fromiter(
        (one == other or _nameless(one, other) == _nameless(other, one) for one, other in pairs),
        dtype=bool,
        count=len(rows),
    )


def _nameless(value: Any, other: Any) -> Any:
    """A value without clients' names, if it or the other one has none."""
    if value is None or other is None:
        return None
    if not isinstance(value, list) or (any(_has_names(value)) and any(_has_names(other))):
        return value
    return [member | dict.fromkeys(_CLIENT_NAMES) for member in value]


def _has_names(members: list[dict[str, Any]]) -> Iterator[bool]:
    return (member[name] is not None for member in members for name in _CLIENT_NAMES)


def same_as_next(column: pa.ChunkedArray, rows: np.ndarray) -> np.ndarray:
    """Whether the values of some rows of a column equal those of the rows after them; nulls are equal."""
    before, after = (column.take(pa.array(which)) for which in (rows, rows + 1))
    if pa.types.is_nested(column.type):
        pairs = zip(before.to_pylist(), after.to_pylist(), strict=True)
        return np.fromiter((one == other for one, other in pairs), dtype=bool, count=len(rows))
    both_null = pc.and_(pc.is_null(before), pc.is_null(after))
    same = pc.or_(pc.fill_null(pc.equal(before, after), fill_value=False), both_null)
    return np.asarray(same.to_numpy(), dtype=bool)


def same_key_as_next(rows: pa.Table, key: Sequence[str], chosen: np.ndarray) -> np.ndarray:
    """Return those of the chosen rows whose key equals that of the row after them."""
    for name in key:
        chosen = chosen[same_as_next(rows[name], chosen)]
    return chosen


def _since_last_ms(in_order: pa.Table) -> np.ndarray:
    """Milliseconds from the last snapshot of the previous row to the first one of each row."""
    first, last = (in_order[f"{edge}_seen_at"].to_numpy() for edge in ("first", "last"))
    since = np.zeros(in_order.num_rows, dtype=np.int64)
    since[1:] = (first[1:] - last[:-1]).astype("timedelta64[ms]").astype(np.int64)
    return since


def _reduce(operation: Any, values: np.ndarray, begins: np.ndarray) -> Any:
    return operation.reduceat(values, begins) if len(begins) else values


def _replace(rows: pa.Table, name: str, values: Any) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)


def _with_neighbours(rows: pa.Table, snapshots: pa.Table) -> pa.Table:
    """Fill in the previous and next snapshots where they belong to another day."""
    # The group was read at some time between the start and the end of the snapshot.
    beside = (
        ("previous", rows[FIRST_INDEX].to_numpy() - 1, "started_at"),
        ("next", rows[LAST_INDEX].to_numpy() + 1, "finished_at"),
    )
    for edge, index, moment in beside:
        is_there = (index >= 0) & (index < snapshots.num_rows)
        at = pa.array(np.where(is_there, index, 0), mask=~is_there)
        for name, source in ((f"{edge}_snapshot_id", "snapshot_id"), (f"{edge}_seen_at", moment)):
            found = snapshots[source].take(at)
            rows = _replace(rows, name, pc.coalesce(rows[name], found))
    return rows
