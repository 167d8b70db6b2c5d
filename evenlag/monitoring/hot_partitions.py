"""Partitions that reassignment cannot help: each has more lag than an even share of its group's lag."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenlag.enums import LagStatus
from evenlag.lag.group_lag import is_inexact
from evenlag.lake.filters import Filter
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import LAG, MEMBERS

# Share of its owner's lag. The planner calls a partition dominating from the same share.
_DOMINATES: Final = 0.98
# A smaller lag is noise, or is consumed soon.
MIN_LAG_RECORDS: Final = 1_000
_MIN_SHARE: Final = 2.0
# Only these statuses can have a lag that is not exact: most rows of a large snapshot need not be read.
_MAY_BE_UNKNOWN: Final = frozenset(LagStatus) - {LagStatus.OK, LagStatus.NOT_SUBSCRIBED}


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


def find_hot_partitions(
    reader: LakeReader, snapshot: Mapping[str, Any], is_wanted: Callable[[str], bool]
) -> dict[str, HotPartition | None]:
    """Find the groups of a snapshot whose most loaded member is so because of one partition.

    A partition counts if its lag is at least 1,000 records, at least twice an even share of its group's lag,
    and nearly all of its owner's lag: then no assignment lowers the largest lag of a member. While the lag of
    any partition of a group is not known, its even share is not known either: the group stays open.

    Returns by group; None: it cannot be judged.
    """
    wanted = snapshot_filters(snapshot)
    heavy: list[Filter] = [
        ("lag_records", ">=", MIN_LAG_RECORDS),
        ("status", "!=", LagStatus.NOT_SUBSCRIBED),
    ]
    candidates = reader.read(LAG, columns=["group_id"], filters=[*wanted, *heavy])["group_id"].unique()
    found: dict[str, HotPartition | None] = dict.fromkeys(
        filter(is_wanted, _groups_of_unknown_lag(reader, wanted))
    )
    groups = [name for name in candidates.to_pylist() if is_wanted(name) and name not in found]
    if not groups:
        return found
    of_groups: list[Filter] = [*wanted, ("group_id", "in", groups)]
    columns = ("group_id", "topic", "partition", "owner_member_id", "lag_records")
    lag = reader.read(LAG, columns=columns, filters=[*of_groups, ("status", "!=", LagStatus.NOT_SUBSCRIBED)])
    members = reader.read(MEMBERS, columns=["group_id", "member_id"], filters=of_groups)
    return found | {hot.group_id: hot for hot in hot_in(lag, members)}


def _groups_of_unknown_lag(reader: LakeReader, wanted: list[Filter]) -> list[str]:
    may_be_unknown: list[Filter] = [*wanted, ("status", "in", sorted(_MAY_BE_UNKNOWN))]
    lag = reader.read(LAG, columns=["group_id", "lag_records", "lag_bound"], filters=may_be_unknown)
    names: list[str] = lag.filter(is_inexact(lag))["group_id"].unique().to_pylist()
    return names


def hot_in(lag: pa.Table, members: pa.Table) -> list[HotPartition]:
    """Find the hot partitions of groups whose lag is completely known: at most one per group."""
    owned = lag.filter(pc.is_valid(lag["owner_member_id"]))
    by_member = owned.group_by(["group_id", "owner_member_id"]).aggregate([("lag_records", "sum")])
    largest = _by_group(by_member.group_by("group_id").aggregate([("lag_records_sum", "max")]))
    total = _by_group(lag.group_by("group_id").aggregate([("lag_records", "sum")]))
    size = _by_group(members.group_by("group_id").aggregate([("member_id", "count")]))
    # Sorted, the first row of each group is its heaviest partition.
    heaviest = (
        owned.sort_by([("lag_records", "descending"), ("topic", "ascending"), ("partition", "ascending")])
        .group_by("group_id", use_threads=False)
        .aggregate([("topic", "first"), ("partition", "first"), ("lag_records", "first")])
    )
    found = []
    for row in heaviest.to_pylist():
        group_id, alone = row["group_id"], row["lag_records_first"] or 0
        num_members = size.get(group_id) or 0
        if num_members < 2:  # noqa: PLR2004  # with one member there is nobody to share with
            continue
        mean = (total[group_id] or 0) / num_members
        is_hot = alone >= max(MIN_LAG_RECORDS, _MIN_SHARE * mean)
        if is_hot and alone >= _DOMINATES * (largest[group_id] or 0):
            found.append(HotPartition(group_id, row["topic_first"], row["partition_first"], alone, mean))
    return found


def _by_group(table: pa.Table) -> dict[str, Any]:
    """Values of the only column besides ``group_id``, by group."""
    (measure,) = [name for name in table.column_names if name != "group_id"]
    return dict(zip(table["group_id"].to_pylist(), table[measure].to_pylist(), strict=True))
