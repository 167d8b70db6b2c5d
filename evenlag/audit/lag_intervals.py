"""Intervals of stalled partitions and of partitions with lag but without an owner."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.adherence import member_key
from evenlag.audit.interval_merge import FIRST_INDEX, same_as_next
from evenlag.enums import LagStatus, OwnershipState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from evenlag.audit.period import AuditedPeriod
    from evenlag.lake.reader import LakeReader

_PARTITION: Final = ("group_id", "topic", "topic_id", "partition")
_UNHELD_STATUSES: Final = (LagStatus.NO_MEMBERS, LagStatus.NOT_SUBSCRIBED)


def read_lag_intervals(reader: LakeReader, period: AuditedPeriod) -> dict[str, list[dict[str, Any]]]:
    """Read the partitions that stalled, and the partitions with lag that no live member subscribes to.

    Returns ``stalled`` and ``unheld``: one row per partition (and owner, where it stalled) and interval,
    with ``lag_records`` (the maximum), ``num_snapshots``, the first and last snapshot of the interval and
    its bounds.
    """
    from evenlag.lake.tables import LAG

    columns = [*_PARTITION, "owner_member_id", "snapshot_id", "read_at", "lag_records"]
    filters = period.slot_filters()
    stalled = reader.read(LAG, columns=columns, filters=[*filters, ("stalled", "=", True)])
    unheld = reader.read(
        LAG,
        columns=columns,
        filters=[*filters, ("status", "in", _UNHELD_STATUSES), ("lag_records", ">", 0)],
    )
    return {
        "stalled": _intervals(period, stalled, (*_PARTITION, "owner_member_id")),
        "unheld": _intervals(period, unheld, _PARTITION),
    }


def last_holders(period: AuditedPeriod, unheld: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Find the last owner of partitions that have lag but no owner.

    Yields each of these rows with ``member_id``, the last owner before the interval, and ``is_alive``:
    whether the group has it, or its static member under another id, at the end of the interval. Rows
    without an earlier owner in the period are left out: their owner is not known.
    """
    import pyarrow.compute as pc

    wanted = list(unheld)
    ownership = period.ownership
    groups = {row["group_id"] for row in wanted}
    held = ownership.filter(
        pc.and_(
            pc.equal(ownership["state"], OwnershipState.OWNED),
            pc.is_in(ownership["group_id"], _strings(groups)),
        )
    )
    columns = ("group_id", "topic", "topic_id", "partition", FIRST_INDEX, "member_id", "owner_key")
    last: dict[tuple[Any, ...], list[tuple[int, str, str]]] = {}
    for *partition, first_index, member_id, key in zip(
        *(held[name].to_pylist() for name in columns), strict=True
    ):
        last.setdefault(tuple(partition), []).append((first_index, member_id, key))
    alive = _member_keys(period, groups)
    for row in wanted:
        before = [
            holder
            for holder in last.get(tuple(row[name] for name in _PARTITION), ())
            if holder[0] < row[FIRST_INDEX]
        ]
        if before:
            _, member_id, key = max(before)
            end = row[FIRST_INDEX] + row["num_snapshots"] - 1
            known = [keys for first_index, keys in alive.get(row["group_id"], ()) if first_index <= end]
            yield row | {"member_id": member_id, "is_alive": bool(known) and key in known[-1]}


def _member_keys(period: AuditedPeriod, groups: set[str]) -> dict[str, list[tuple[int, set[str]]]]:
    """First snapshot and members, as hints name them, of each known interval of some groups, oldest first."""
    import pyarrow.compute as pc

    rows = period.memberships
    rows = rows.filter(pc.and_(pc.is_in(rows["group_id"], _strings(groups)), rows["is_known"]))
    found: dict[str, list[tuple[int, set[str]]]] = defaultdict(list)
    for row in rows.sort_by(FIRST_INDEX).select(["group_id", FIRST_INDEX, "members"]).to_pylist():
        found[row["group_id"]].append((row[FIRST_INDEX], {member_key(each) for each in row["members"]}))
    return found


def _strings(values: Iterable[str]) -> pa.Array:
    import pyarrow as pa

    return pa.array(sorted(values), pa.string())


def _intervals(period: AuditedPeriod, rows: pa.Table, key: Sequence[str]) -> list[dict[str, Any]]:
    """Merge the rows of consecutive snapshots with the same key into intervals."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    place = pc.index_in(rows["snapshot_id"], value_set=period.snapshot_ids()).cast(pa.int64())
    rows = rows.append_column(FIRST_INDEX, place).filter(pc.is_valid(place))
    if rows.num_rows == 0:
        return []
    order = [*((name, "ascending") for name in key), (FIRST_INDEX, "ascending")]
    rows = rows.sort_by(order).combine_chunks()
    places = rows[FIRST_INDEX].to_numpy()
    goes_on = np.flatnonzero(places[1:] == places[:-1] + 1)
    for name in key:
        goes_on = goes_on[same_as_next(rows[name], goes_on)]
    begins = np.ones(rows.num_rows, dtype=bool)
    begins[goes_on + 1] = False
    first = np.flatnonzero(begins)
    last = np.append(first[1:], rows.num_rows) - 1
    heads = rows.select([*key, FIRST_INDEX]).take(pa.array(first)).to_pylist()
    most = np.maximum.reduceat(rows["lag_records"].fill_null(0).to_numpy(), first).tolist()
    return [
        head
        | _moments(period, head[FIRST_INDEX], until)
        | {"lag_records": lag_records, "member_id": head.get("owner_member_id")}
        for head, until, lag_records in zip(heads, places[last].tolist(), most, strict=True)
    ]


def _moments(period: AuditedPeriod, first: int, last: int) -> dict[str, Any]:
    def column_at(place: int, name: str) -> Any:
        is_there = 0 <= place < period.snapshots.num_rows
        return period.snapshots[name][place].as_py() if is_there else None

    return {
        "first_snapshot_id": column_at(first, "snapshot_id"),
        "first_seen_at": column_at(first, "finished_at"),
        "last_snapshot_id": column_at(last, "snapshot_id"),
        "last_seen_at": column_at(last, "finished_at"),
        "previous_seen_at": column_at(first - 1, "started_at"),
        "next_seen_at": column_at(last + 1, "finished_at"),
        "num_snapshots": last - first + 1,
    }
