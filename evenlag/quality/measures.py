"""The measures of a snapshot that its checks evaluate: Arrow tables in, one row of numbers out.

Counts of groups are additive, so a large snapshot is measured in batches of groups.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import HINTABLE_TYPES, GroupState, LagStatus
from evenlag.lag.arrays import flatten_assignments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    import pyarrow as pa

# Columns that the measures need.
OFFSET_COLUMNS: Final = (
    "topic_id",
    "topic",
    "partition",
    "log_start_offset",
    "high_watermark",
    "last_stable_offset",
    "error",
)
EARLIER_COLUMNS: Final = ("topic_id", "topic", "partition", "high_watermark")
COMMIT_COLUMNS: Final = ("group_id", "error")
MEMBER_COLUMNS: Final = (
    "group_id",
    "group_state",
    "group_type",
    "member_id",
    "subscription",
    "assignment",
    "error",
)
LAG_COLUMNS: Final = (
    "group_id",
    "topic_id",
    "topic",
    "partition",
    "owner_member_id",
    "status",
    "lag_records",
    "log_start_offset",
    "end_offset",
)
_PARTITION: Final = ["topic_id", "topic", "partition"]
_TIMES: Final = ("started_at", "log_start_read_at", "commits_read_at", "end_read_at", "finished_at")


def measure_snapshot(
    marker: Mapping[str, Any], offsets: pa.Table, earlier: pa.Table | None, checked_at: datetime
) -> dict[str, Any]:
    """Measure the marker and the offsets of a snapshot.

    Returns measures by name; one that cannot be computed is None.
    offsets: Its rows of ``offsets``, with :data:`OFFSET_COLUMNS`.
    earlier: Rows of ``offsets`` of the snapshot before, with :data:`EARLIER_COLUMNS`; None: there is none.
    """
    import pyarrow.compute as pc

    times = [marker.get(name) for name in _TIMES]
    known = [moment for moment in times if moment is not None]
    end, start = offsets["high_watermark"], offsets["log_start_offset"]
    stable = offsets["last_stable_offset"]
    is_missing = pc.or_(pc.or_(pc.is_null(end), pc.is_null(start)), pc.is_null(stable))
    return {
        "completeness": marker.get("completeness"),
        "age_s": (checked_at - marker["end_read_at"]).total_seconds(),
        "num_times_out_of_order": sum(later < before for before, later in pairwise(known)),
        "num_partitions_missing": _difference(marker.get("num_partitions"), offsets.num_rows),
        "num_offsets_duplicated": offsets.num_rows - _num_distinct(offsets, _PARTITION),
        "num_offsets_unexplained": _count(pc.and_(is_missing, pc.is_null(offsets["error"]))),
        "num_ends_before_start": _count(pc.or_(_holds(pc.less(end, start)), _holds(pc.less(stable, start)))),
        "num_offsets_backwards": None if earlier is None else _count_backwards(offsets, earlier),
    }


def measure_groups(
    members: pa.Table, commits: pa.Table, lag: pa.Table, topic_sizes: pa.Table
) -> dict[str, int]:
    """Count in the rows of some groups; the counts of batches of groups add up.

    members, commits, lag: All rows of the groups, with :data:`MEMBER_COLUMNS`, :data:`COMMIT_COLUMNS` and
        :data:`LAG_COLUMNS`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    failed = pa.concat_tables(
        [one.filter(pc.is_valid(one["error"])).select(["group_id"]) for one in (members, commits)]
    )
    type_known = pc.is_in(members["group_type"], value_set=_texts(HINTABLE_TYPES))
    hintable = members.filter(type_known)
    strange = pc.and_(
        pc.is_valid(hintable["group_state"]),
        pc.invert(pc.is_in(hintable["group_state"], value_set=_texts(GroupState))),
    )
    return {
        "num_groups": _num_distinct(members, ["group_id"]),
        "num_failed_groups": _num_distinct(failed, ["group_id"]),
        "num_unknown_group_states": _num_distinct(hintable.filter(strange), ["group_id"]),
        "num_partitions_with_two_owners": _count_two_owners(hintable),
        **_measure_lag(lag, members, topic_sizes),
    }


def count_partitions(offsets: pa.Table) -> pa.Table:
    """Count the partitions of each topic.

    offsets: Rows of ``offsets``, with :data:`OFFSET_COLUMNS`.
    """
    distinct = offsets.group_by(["topic", "partition"]).aggregate([])
    counted = distinct.group_by("topic").aggregate([("partition", "count")])
    return counted.select(["topic", "partition_count"]).rename_columns(["topic", "num_partitions"])


def combine(
    marker: Mapping[str, Any], of_snapshot: Mapping[str, Any], of_groups: Iterable[Mapping[str, int]]
) -> dict[str, Any]:
    """Combine the measures of a snapshot to one row."""
    total = measure_nothing()
    for counts in of_groups:
        total = {name: total[name] + counts[name] for name in total}
    num_groups, num_failed = total.pop("num_groups"), total.pop("num_failed_groups")
    return {
        **of_snapshot,
        **total,
        "groups_completeness": 1.0 - num_failed / num_groups if num_groups else 1.0,
        "num_groups_missing": _difference(marker.get("num_groups"), num_groups),
    }


def measure_nothing() -> dict[str, int]:
    """Return the counts of no groups: zero for each name of :func:`measure_groups`."""
    return dict.fromkeys(
        (
            "num_groups",
            "num_failed_groups",
            "num_unknown_group_states",
            "num_partitions_with_two_owners",
            "num_lag_missing",
            "num_lag_duplicated",
            "num_unknown_statuses",
            "num_status_misfits",
            "num_lag_outside_log",
            "num_owners_unknown",
        ),
        0,
    )


def _measure_lag(lag: pa.Table, members: pa.Table, topic_sizes: pa.Table) -> dict[str, int]:
    import pyarrow.compute as pc

    records, status = lag["lag_records"], lag["status"]
    is_unknown = pc.equal(status, LagStatus.UNKNOWN.value)
    must_have = pc.is_in(status, value_set=_texts((LagStatus.OK,)))
    misfits = pc.or_(
        _holds(pc.and_(is_unknown, pc.is_valid(records))), pc.and_(must_have, pc.is_null(records))
    )
    length = pc.subtract(lag["end_offset"], lag["log_start_offset"])
    outside = pc.or_(
        _holds(pc.less(records, 0)),
        _holds(pc.greater(records, pc.max_element_wise(length, 0, skip_nulls=False))),
    )
    people = members.filter(pc.is_valid(members["member_id"])).select(["group_id", "member_id"])
    owned = lag.filter(pc.is_valid(lag["owner_member_id"])).select(["group_id", "owner_member_id"])
    owners = owned.group_by(["group_id", "owner_member_id"]).aggregate([([], "count_all")])
    strangers = owners.join(
        people.group_by(["group_id", "member_id"]).aggregate([]),
        keys=["group_id", "owner_member_id"],
        right_keys=["group_id", "member_id"],
        join_type="left anti",
    )
    return {
        "num_lag_missing": _count_lag_missing(lag, members, topic_sizes),
        "num_lag_duplicated": lag.num_rows - _num_distinct(lag, ["group_id", *_PARTITION]),
        "num_unknown_statuses": _count(pc.invert(pc.is_in(status, value_set=_texts(LagStatus)))),
        "num_status_misfits": _count(misfits),
        "num_lag_outside_log": _count(outside),
        "num_owners_unknown": pc.sum(strangers["count_all"]).as_py() or 0,
    }


def _count_lag_missing(lag: pa.Table, members: pa.Table, topic_sizes: pa.Table) -> int:
    """Partitions of subscribed topics without a row; a duplicate must not hide a missing one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    listed = members["subscription"].combine_chunks()
    subscribed = pa.table(
        {
            "group_id": members["group_id"].take(pc.list_parent_indices(listed)),
            "topic": pc.list_flatten(listed),
        }
    )
    distinct = lag.group_by(["group_id", *_PARTITION]).aggregate([])
    rows = distinct.group_by(["group_id", "topic"]).aggregate([([], "count_all")])
    wanted = (
        subscribed.group_by(["group_id", "topic"]).aggregate([]).join(topic_sizes, "topic", join_type="inner")
    )
    both = wanted.join(rows, ["group_id", "topic"], join_type="left outer")
    missing = pc.subtract(both["num_partitions"], pc.fill_null(both["count_all"], 0))
    return pc.sum(pc.max_element_wise(missing, 0)).as_py() or 0


def _count_two_owners(members: pa.Table) -> int:
    """Partitions that more than one member of a group owns, as (group, topic, partition)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    assigned = flatten_assignments(members["assignment"])
    owned = pa.table(
        {
            "group_id": members["group_id"].take(pa.array(assigned.member)),
            "topic": assigned.topics.take(pa.array(assigned.topic_at)),
            "partition": assigned.partition,
        }
    )
    counted = owned.group_by(["group_id", "topic", "partition"]).aggregate([([], "count_all")])
    return _count(pc.greater(counted["count_all"], 1))


def _count_backwards(offsets: pa.Table, earlier: pa.Table) -> int:
    import pyarrow.compute as pc

    before = earlier.rename_columns([*_PARTITION, "earlier"])
    both = offsets.select([*_PARTITION, "high_watermark"]).join(before, _PARTITION, join_type="inner")
    return _count(_holds(pc.less(both["high_watermark"], both["earlier"])))


def _difference(expected: int | None, found: int) -> int | None:
    return None if expected is None else expected - found


def _num_distinct(rows: pa.Table, columns: list[str]) -> int:
    number: int = rows.group_by(columns).aggregate([]).num_rows
    return number


def _count(is_true: Any) -> int:
    import pyarrow.compute as pc

    return pc.sum(is_true).as_py() or 0


def _holds(condition: Any) -> Any:
    """A condition, false where it is null."""
    import pyarrow.compute as pc

    return pc.fill_null(condition, False)


def _texts(values: Iterable[Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array([value.value for value in values], pa.string())
