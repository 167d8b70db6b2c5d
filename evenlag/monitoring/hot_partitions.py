"""Partitions that reassignment cannot help: each has more lag than an even share of its group's lag."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenlag.lag.group_lag import counted_rows, is_inexact
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import LAG, MEMBERS

# Share of its owner's lag. The planner calls a partition dominating from the same share.
_DOMINATES: Final = 0.98
# A smaller lag is noise, or is consumed soon.
_MIN_LAG_RECORDS: Final = 1_000
_MIN_SHARE: Final = 2.0


@dataclass(frozen=True, slots=True)
class HotPartition:
    """A partition that dominates its group's lag; an even share of that is the mean per member."""

    group_id: str
    topic: str
    partition: int
    lag_records: int
    mean_member_lag_records: float

    @property
    def message(self) -> str:
        """Description for users."""
        return (
            f"not fixable by rebalancing: {self.topic}-{self.partition} alone is {self.lag_records:,} records"
            f" behind, an even share of the group's lag is {self.mean_member_lag_records:,.0f} a member. A "
            "partition cannot be split: look at its key's traffic or at its consumer"
        )


def find_hot_partitions(reader: LakeReader, snapshot: Mapping[str, Any]) -> dict[str, HotPartition | None]:
    """Find the groups of a snapshot whose most loaded member is so because of one partition."""
    filters = snapshot_filters(snapshot)
    columns = ("group_id", "topic", "partition", "owner_member_id", "status", "lag_records", "lag_bound")
    lag = reader.read(LAG, columns=columns, filters=filters)
    return hot_partitions(
        counted_rows(lag), reader.read(MEMBERS, columns=["group_id", "member_id"], filters=filters)
    )


def hot_partitions(lag: pa.Table, members: pa.Table) -> dict[str, HotPartition | None]:
    """Return the hot partition of each group that has one; None: it cannot be judged.

    A partition counts if its lag is at least 1,000 records, at least twice an even share of its group's lag,
    and nearly all of its owner's lag: then no assignment lowers the largest lag of a member. While the lag of
    any partition of a group is not known, its even share is not known either: the group stays open.

    lag: Rows that :func:`~evenlag.lag.group_lag.counted_rows` returns.
    """
    unknown = lag.filter(is_inexact(lag))["group_id"].unique()
    # Few groups have a partition that may be hot; the others need no sums.
    heavy = lag.filter(pc.greater_equal(lag["lag_records"], _MIN_LAG_RECORDS))["group_id"].unique()
    groups = lag["group_id"]
    known = lag.filter(pc.and_(pc.is_in(groups, heavy), pc.invert(pc.is_in(groups, unknown))))
    owned = known.filter(pc.is_valid(known["owner_member_id"]))
    by_member = owned.group_by(["group_id", "owner_member_id"]).aggregate([("lag_records", "sum")])
    largest = _by_group(by_member.group_by("group_id").aggregate([("lag_records_sum", "max")]))
    total = _by_group(known.group_by("group_id").aggregate([("lag_records", "sum")]))
    size = _by_group(members.group_by("group_id").aggregate([("member_id", "count")]))
    # Sorted, the first row of each group is its heaviest partition.
    heaviest = (
        owned.sort_by([("lag_records", "descending"), ("topic", "ascending"), ("partition", "ascending")])
        .group_by("group_id", use_threads=False)
        .aggregate([("topic", "first"), ("partition", "first"), ("lag_records", "first")])
    )
    found: dict[str, HotPartition | None] = dict.fromkeys(unknown.to_pylist())
    for row in heaviest.to_pylist():
        group_id, alone = row["group_id"], row["lag_records_first"] or 0
        num_members = size.get(group_id) or 0
        if num_members < 2:  # noqa: PLR2004  # with one member there is nobody to share with
            continue
        mean = (total[group_id] or 0) / num_members
        is_hot = alone >= max(_MIN_LAG_RECORDS, _MIN_SHARE * mean)
        if is_hot and alone >= _DOMINATES * (largest[group_id] or 0):
            found[group_id] = HotPartition(group_id, row["topic_first"], row["partition_first"], alone, mean)
    return found


def _by_group(table: pa.Table) -> dict[str, Any]:
    """Values of the only column besides ``group_id``, by group."""
    (measure,) = [name for name in table.column_names if name != "group_id"]
    return dict(zip(table["group_id"].to_pylist(), table[measure].to_pylist(), strict=True))
