"""The checks of a snapshot's tables, as data, and their recorded verdicts.

``spark_jobs.steps.check_snapshot`` measures a snapshot as one row, and evaluates all checks of that row with
Great Expectations. A check is one entry here and one measure, from Arrow tables. Counts of groups are
additive, so a large snapshot is measured in batches of groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenlag.enums import HINTABLE_TYPES, GroupState, LagStatus
from evenlag.lag.arrays import flatten_assignments
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import LAG, MEMBERS, OFFSETS, QUALITY_RESULTS, SNAPSHOTS
from evenlag.policy.gates import Comparison, Entry

if TYPE_CHECKING:
    from evenlag.lake.reader import LakeReader

# Alerts report it by a kind of its own, with the number of partitions.
_COMPLETENESS: Final = "snapshot_complete"
# Columns that the measures need.
OFFSET_COLUMNS: Final = (
    "topic_id", "topic", "partition", "log_start_offset", "high_watermark", "last_stable_offset", "error",
)  # fmt: skip
EARLIER_COLUMNS: Final = ("topic_id", "topic", "partition", "high_watermark")
COMMIT_COLUMNS: Final = ("group_id", "error")
MEMBER_COLUMNS: Final = (
    "group_id", "group_state", "group_type", "member_id", "subscription", "assignment", "error",
)  # fmt: skip
LAG_COLUMNS: Final = (
    "group_id", "topic_id", "topic", "partition", "owner_member_id", "status", "lag_records",
    "log_start_offset", "end_offset",
)  # fmt: skip
# What `measure_groups` returns.
_GROUP_COUNTS: Final = (
    "num_groups", "num_failed_groups", "num_unknown_group_states", "num_partitions_with_two_owners",
    "num_lag_missing", "num_lag_duplicated", "num_unknown_statuses", "num_status_misfits",
    "num_lag_outside_log", "num_owners_unknown",
)  # fmt: skip
_PARTITION: Final = ["topic_id", "topic", "partition"]
_TIMES: Final = ("started_at", "log_start_read_at", "commits_read_at", "end_read_at", "finished_at")


class Suite(StrEnum):
    """A suite of checks: of what brokers answered (bronze), or of the lag computed from it (silver)."""

    BRONZE = "bronze"
    SILVER = "silver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Entry):
    """One check of a snapshot; an unknown measure passes where the first snapshot has no earlier one.

    limit: A value, or the name of a setting of the cluster's ``quality``.
    stops: Whether a failure may stop planning (``on_failure: stop``). Not if only the groups concerned are
        left out: what one group does stops no other.
    """

    limit: float | str = 0
    stops: bool = True

    @property
    def suite(self) -> Suite:
        """The suite of the table."""
        return Suite.SILVER if self.table == LAG.name else Suite.BRONZE

    def allowed(self, settings: Mapping[str, Any]) -> Any:
        """Return the limit by the cluster's settings of ``quality``."""
        return settings[self.limit] if isinstance(self.limit, str) else self.limit


CHECKS: Final = (
    Check(
        "snapshot_complete",
        SNAPSHOTS.name,
        fails_when="fewer partitions than `min_completeness` could be read",
        observed="completeness",
        comparison=Comparison.AT_LEAST,
        limit="min_completeness",
        message="{observed:.2%} of the partitions could be read, {allowed:.2%} are required",
    ),
    Check(
        "groups_complete",
        MEMBERS.name,
        fails_when="the members and commits of fewer groups than `min_completeness` could be read",
        observed="groups_completeness",
        comparison=Comparison.AT_LEAST,
        limit="min_completeness",
        message="{observed:.2%} of the groups could be read, with their commits; {allowed:.2%} are required",
    ),
    Check(
        "snapshot_fresh",
        SNAPSHOTS.name,
        fails_when="the end offsets were read more than `max_age_s` before the check",
        observed="age_s",
        comparison=Comparison.AT_MOST,
        limit="max_age_s",
        message="the end offsets were read {observed:.0f} s before the check, {allowed} s are allowed",
    ),
    Check(
        "reads_in_order",
        SNAPSHOTS.name,
        fails_when="log starts, commits and log ends were not read in this order",
        observed="num_times_out_of_order",
        message="{observed} of the snapshot's times are out of order: was a clock set back?",
    ),
    Check(
        "offsets_recorded",
        OFFSETS.name,
        fails_when="the number of rows is not the number of partitions in the marker",
        observed="num_partitions_missing",
        message="the marker counts {observed:+} partitions more than the table has rows",
    ),
    Check(
        "offsets_unique",
        OFFSETS.name,
        fails_when="a partition of a topic id has two rows",
        observed="num_offsets_duplicated",
        message="{observed} partitions have more than one row",
    ),
    Check(
        "offsets_known",
        OFFSETS.name,
        fails_when="an offset is missing without an error",
        observed="num_offsets_unexplained",
        message="{observed} partitions lack an offset, and no error says why",
    ),
    Check(
        "end_not_before_start",
        OFFSETS.name,
        fails_when="a high watermark or last stable offset is below the log start offset",
        observed="num_ends_before_start",
        message="{observed} partitions end before they start",
    ),
    Check(
        "offsets_not_backwards",
        OFFSETS.name,
        fails_when=(
            "the high watermark of a partition is lower than in the snapshot before, with the same topic id"
        ),
        observed="num_offsets_backwards",
        message=(
            "the high watermark of {observed} partitions is lower than in the snapshot before: records were "
            "lost (unclean leader election?), or another cluster was read"
        ),
        null_passes=True,
    ),
    Check(
        "groups_recorded",
        MEMBERS.name,
        fails_when="the number of groups is not the number of groups in the marker",
        observed="num_groups_missing",
        message="the marker counts {observed:+} groups more than the table has",
    ),
    Check(
        "group_states_known",
        MEMBERS.name,
        fails_when="a group has a state that evenlag does not know",
        observed="num_unknown_group_states",
        message="{observed} groups have a state that evenlag does not know: are the brokers newer?",
    ),
    Check(
        "one_owner",
        MEMBERS.name,
        fails_when="two members of a group own the same partition",
        observed="num_partitions_with_two_owners",
        message="{observed} partitions have two owners in one group: `evenlag audit anomalies` names them",
        stops=False,
    ),
    Check(
        "lag_recorded",
        LAG.name,
        fails_when="a partition that a live member subscribes to has no row",
        observed="num_lag_missing",
        message="{observed} partitions of subscribed topics have no lag",
    ),
    Check(
        "lag_unique",
        LAG.name,
        fails_when="a partition has two rows in one group",
        observed="num_lag_duplicated",
        message="{observed} partitions have more than one row in their group",
    ),
    Check(
        "statuses_known",
        LAG.name,
        fails_when="a row has no status, or one that evenlag does not know",
        observed="num_unknown_statuses",
        message="{observed} rows have no status that evenlag knows",
    ),
    Check(
        "status_fits_lag",
        LAG.name,
        fails_when="the lag is null where the status is OK, or known where it is UNKNOWN",
        observed="num_status_misfits",
        message="{observed} rows have a lag that does not fit their status",
    ),
    Check(
        "lag_within_log",
        LAG.name,
        fails_when="the lag is negative, or larger than the log between its start and its end",
        observed="num_lag_outside_log",
        message="{observed} rows have a negative lag, or one larger than the log",
    ),
    Check(
        "owners_are_members",
        LAG.name,
        fails_when="the owner of a partition is not a member of the group",
        observed="num_owners_unknown",
        message="{observed} partitions have an owner that is not a member of the group",
    ),
)


def read_results(reader: LakeReader, snapshot: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read the verdicts of a snapshot: none if it was not checked."""
    found: list[dict[str, Any]] = reader.read(QUALITY_RESULTS, filters=snapshot_filters(snapshot)).to_pylist()
    return found


def stopping_failures(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the failures for which no group is planned where the policy says ``on_failure: stop``."""
    local = {check.name for check in CHECKS if not check.stops}
    return [result for result in results if not result["passed"] and result["check_name"] not in local]


def failures_by_table(results: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Return messages by table, without that of an incomplete snapshot; None if it was not checked."""
    if not results:
        return None
    found: dict[str, list[str]] = {}
    for result in results:
        if not result["passed"] and result["check_name"] != _COMPLETENESS:
            message = f"{result['check_name']}: {result['message']}"
            found.setdefault(result["table_name"], []).append(message)
    return {name: "; ".join(sorted(messages)) for name, messages in sorted(found.items())}


def measure_snapshot(
    marker: Mapping[str, Any], offsets: pa.Table, earlier: pa.Table | None, checked_at: datetime
) -> dict[str, Any]:
    """Measure the marker and the offsets of a snapshot, and those of the one before; None: not known.

    Returns measures by name; one that cannot be computed is None.
    """
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
        "num_ends_before_start": _count(pc.or_kleene(pc.less(end, start), pc.less(stable, start))),
        "num_offsets_backwards": None if earlier is None else _count_backwards(offsets, earlier),
    }


def measure_groups(
    members: pa.Table, commits: pa.Table, lag: pa.Table, topic_sizes: pa.Table
) -> dict[str, int]:
    """Count in all rows of some groups; the counts of batches of groups add up."""
    failed = pa.concat_tables(
        [one.filter(pc.is_valid(one["error"])).select(["group_id"]) for one in (members, commits)]
    )
    hintable = members.filter(_is_one_of(members["group_type"], HINTABLE_TYPES))
    state = hintable["group_state"]
    strange = pc.and_(pc.is_valid(state), pc.invert(_is_one_of(state, GroupState)))
    return {
        "num_groups": _num_distinct(members, ["group_id"]),
        "num_failed_groups": _num_distinct(failed, ["group_id"]),
        "num_unknown_group_states": _num_distinct(hintable.filter(strange), ["group_id"]),
        "num_partitions_with_two_owners": _count_two_owners(hintable),
        **_measure_lag(lag, members, topic_sizes),
    }


def count_partitions(offsets: pa.Table) -> pa.Table:
    """Count the partitions of each topic."""
    distinct = offsets.group_by(["topic", "partition"]).aggregate([])
    counted = distinct.group_by("topic").aggregate([("partition", "count")])
    return counted.select(["topic", "partition_count"]).rename_columns(["topic", "num_partitions"])


def combine(
    marker: Mapping[str, Any], of_snapshot: Mapping[str, Any], of_groups: Iterable[Mapping[str, int]]
) -> dict[str, Any]:
    """Combine the measures of a snapshot to one row."""
    total = dict.fromkeys(_GROUP_COUNTS, 0)
    for counts in of_groups:
        total = {name: total[name] + counts[name] for name in total}
    num_groups, num_failed = total.pop("num_groups"), total.pop("num_failed_groups")
    return {
        **of_snapshot,
        **total,
        "groups_completeness": 1.0 - num_failed / num_groups if num_groups else 1.0,
        "num_groups_missing": _difference(marker.get("num_groups"), num_groups),
    }


def _measure_lag(lag: pa.Table, members: pa.Table, topic_sizes: pa.Table) -> dict[str, int]:
    records, status = lag["lag_records"], lag["status"]
    misfits = pc.or_(
        pc.and_(_is_one_of(status, (LagStatus.UNKNOWN,)), pc.is_valid(records)),
        pc.and_(_is_one_of(status, (LagStatus.OK,)), pc.is_null(records)),
    )
    length = pc.subtract(lag["end_offset"], lag["log_start_offset"])
    is_longer = pc.greater(records, pc.max_element_wise(length, 0, skip_nulls=False))
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
        "num_unknown_statuses": _count(pc.invert(_is_one_of(status, LagStatus))),
        "num_status_misfits": _count(misfits),
        "num_lag_outside_log": _count(pc.or_kleene(pc.less(records, 0), is_longer)),
        "num_owners_unknown": pc.sum(strangers["count_all"]).as_py() or 0,
    }


def _count_lag_missing(lag: pa.Table, members: pa.Table, topic_sizes: pa.Table) -> int:
    """Partitions of subscribed topics without a row; a duplicate must not hide a missing one."""
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
    before = earlier.rename_columns([*_PARTITION, "earlier"])
    both = offsets.select([*_PARTITION, "high_watermark"]).join(before, _PARTITION, join_type="inner")
    return _count(pc.less(both["high_watermark"], both["earlier"]))


def _difference(expected: int | None, found: int) -> int | None:
    return None if expected is None else expected - found


def _num_distinct(rows: pa.Table, columns: list[str]) -> int:
    number: int = rows.group_by(columns).aggregate([]).num_rows
    return number


def _count(is_true: Any) -> int:
    """How often a condition holds; not where it is null."""
    return pc.sum(is_true).as_py() or 0


def _is_one_of(values: pa.ChunkedArray, members: Iterable[StrEnum]) -> Any:
    """Whether a text is one of an enumeration's; false where it is null."""
    return pc.is_in(values, value_set=pa.array([each.value for each in members], pa.string()))
