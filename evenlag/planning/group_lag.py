"""What one snapshot shows of whole groups: their lag, their state, and how far they follow a plan."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evenlag.enums import LagStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

LAG_COLUMNS: Final = ("group_id", "status", "owner_member_id", "lag_records", "drain_time_ms")
MEMBER_COLUMNS: Final = (
    "group_id",
    "group_state",
    "assignor",
    "member_id",
    "group_instance_id",
    "assignment",
    "target_assignment",
)
ASSIGNMENT_COLUMNS: Final = (
    "plan_id",
    "group_id",
    "topic",
    "partition",
    "owner_after_key",
    "lag_records",
)
_PLACE: Final = ["group_id", "owner_after_key", "topic", "partition"]


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Lag of one group in a snapshot, in records; partitions that no member subscribes to are left out.

    Attributes
    ----------
    num_partitions, num_unknown_partitions
        Partitions, and those of them whose lag is not known.
    total_lag_records
        Total lag; a lower bound where some lag is not known, None where none is.
    max_member_lag_records
        Lag of the most loaded member, with the same limits; None also for a group without members.
    lag_skew
        Largest by mean lag of a member; None where any lag is not known, because a skew has no lower bound.
    drain_time_ms
        Longest drain time of a partition; None when a partition never drains, or a lag is not known.
    """

    num_partitions: int
    num_unknown_partitions: int
    total_lag_records: int | None
    max_member_lag_records: int | None
    lag_skew: float | None
    drain_time_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """State of a group, and its selected assignor; None where the snapshot does not show it."""

    state: str | None
    assignor: str | None


@dataclass(frozen=True, slots=True)
class Adherence:
    """Shares of a plan's partitions at their hinted members, and the lag that it was planned with.

    Attributes
    ----------
    assigned
        By the current assignment; None when no partition of the plan has an owner.
    targeted
        By the coordinator's target assignment; None for a classic group, which has none.
    total_lag_records
        Lag of the plan's partitions when planned; None when none is known.
    num_left
        Members that the hint gives partitions, and that are no longer in the group.
    num_members
        Members of the group.
    """

    assigned: float | None
    targeted: float | None
    total_lag_records: int | None
    num_left: int = 0
    num_members: int = 0


def measure_lag(lag: pa.Table, members: pa.Table) -> dict[str, GroupLag]:
    """Measure the lag of each group that has rows of ``lag``.

    Parameters
    ----------
    lag
        Rows of ``lag`` of one snapshot, with :data:`LAG_COLUMNS`.
    members
        Rows of ``members`` of these groups, with ``group_id`` and ``member_id``.

    Returns
    -------
    dict
        By group id.
    """
    import pyarrow.compute as pc

    counted = lag.filter(pc.fill_null(pc.not_equal(lag["status"], LagStatus.NOT_SUBSCRIBED), False))
    drains = pc.and_kleene(pc.is_valid(counted["lag_records"]), pc.is_valid(counted["drain_time_ms"]))
    never = pc.invert(pc.or_(pc.fill_null(pc.equal(counted["lag_records"], 0), False), drains))
    totals = (
        counted.append_column("never", pc.cast(never, "int64"))
        .group_by("group_id")
        .aggregate(
            [
                ("lag_records", "count", pc.CountOptions(mode="all")),
                ("lag_records", "sum"),
                ("lag_records", "count", pc.CountOptions(mode="only_null")),
                ("never", "sum"),
                ("drain_time_ms", "max"),
            ]
        )
    )
    by_member = _member_lags(counted, members)
    names = ["group_id", "num", "total", "unknown", "never", "drain"]
    found = {}
    for row in totals.select(_aggregated(totals.column_names)).rename_columns(names).to_pylist():
        lags = [one for one in by_member.get(row["group_id"], ()) if one is not None]
        is_any_known = row["unknown"] < row["num"]
        found[row["group_id"]] = GroupLag(
            num_partitions=row["num"],
            num_unknown_partitions=row["unknown"],
            total_lag_records=row["total"],
            max_member_lag_records=max(lags, default=None) if is_any_known else None,
            lag_skew=_skew(lags) if row["unknown"] == 0 else None,
            drain_time_ms=(row["drain"] or 0) if row["never"] == 0 else None,
        )
    return found


def measure_status(members: pa.Table) -> dict[str, GroupStatus]:
    """Return the status of each group that has rows of ``members``, by group id."""
    grouped = members.group_by("group_id").aggregate([("group_state", "max"), ("assignor", "max")])
    return {
        row["group_id"]: GroupStatus(row["group_state_max"], row["assignor_max"])
        for row in grouped.to_pylist()
    }


def measure_adherence(assignments: pa.Table, members: pa.Table) -> dict[str, Adherence]:
    """Measure how far groups follow their plans.

    Parameters
    ----------
    assignments
        Rows of ``plan_assignments``, with :data:`ASSIGNMENT_COLUMNS`.
    members
        Rows of ``members`` of the plans' groups in one snapshot, with :data:`MEMBER_COLUMNS`.

    Returns
    -------
    dict
        By plan id; a plan without rows is missing.
    """
    import pyarrow.compute as pc

    hinted = assignments.filter(pc.is_valid(assignments["owner_after_key"]))
    rows = hinted.select(["plan_id", *_PLACE])
    assigned, targeted = (
        _shares(rows, explode_assignments(members, column)) for column in ("assignment", "target_assignment")
    )
    with_target = members.filter(pc.is_valid(members["target_assignment"]))
    has_target = set(pc.unique(with_target["group_id"]).to_pylist())
    totals = assignments.group_by(["plan_id", "group_id"]).aggregate([("lag_records", "sum")])
    present = _keys_by(members.append_column("key", _member_keys(members)), "group_id", "key")
    wanted = _keys_by(hinted, "plan_id", "owner_after_key")
    return {
        row["plan_id"]: Adherence(
            assigned.get(row["plan_id"]),
            targeted.get(row["plan_id"]) if row["group_id"] in has_target else None,
            row["lag_records_sum"],
            len(wanted.get(row["plan_id"], frozenset()) - present.get(row["group_id"], frozenset())),
            len(present.get(row["group_id"], frozenset())),
        )
        for row in totals.to_pylist()
    }


def explode_assignments(members: pa.Table, column: str) -> pa.Table:
    """Return a row for each partition that a member owns.

    Parameters
    ----------
    members
        Rows of ``members``.
    column
        ``assignment`` or ``target_assignment``; null gives no rows.

    Returns
    -------
    pyarrow.Table
        ``group_id``, ``owner_after_key`` (the member as a hint names it), ``topic``, ``partition``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    listed = members[column].combine_chunks()
    topics = pc.list_flatten(listed)
    partitions = pc.struct_field(topics, "partitions")
    topic = pc.list_parent_indices(partitions)
    member = pc.list_parent_indices(listed).take(topic)
    return pa.table(
        {
            "group_id": members["group_id"].take(member),
            "owner_after_key": _member_keys(members).take(member),
            "topic": pc.struct_field(topics, "topic").take(topic),
            "partition": pc.list_flatten(partitions),
        }
    )


def _member_keys(members: pa.Table) -> pa.ChunkedArray:
    """Members as a hint names them; null for a row without a member."""
    import pyarrow.compute as pc

    instance = members["group_instance_id"]
    return pc.if_else(
        pc.is_valid(instance),
        pc.binary_join_element_wise("i:", instance, ""),
        pc.binary_join_element_wise("m:", members["member_id"], ""),
    )


def _keys_by(rows: pa.Table, name: str, key: str) -> dict[str, frozenset[str]]:
    """The different keys of each value of a column."""
    grouped = rows.group_by(name).aggregate([(key, "distinct")])
    return {
        row[name]: frozenset(each for each in row[f"{key}_distinct"] if each is not None)
        for row in grouped.to_pylist()
    }


def _shares(rows: pa.Table, held: pa.Table) -> dict[str, float]:
    """Share of each plan's rows that are in `held`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    places = held.group_by(_PLACE).aggregate([])
    marked = places.append_column("is_held", pa.array([1.0] * places.num_rows, pa.float64()))
    joined = rows.join(marked, keys=_PLACE, join_type="left outer")
    is_held = pc.fill_null(joined["is_held"], 0.0)
    shares = joined.select(["plan_id"]).append_column("share", is_held).group_by("plan_id")
    return {row["plan_id"]: row["share_mean"] for row in shares.aggregate([("share", "mean")]).to_pylist()}


def _member_lags(counted: pa.Table, members: pa.Table) -> Mapping[str, list[int | None]]:
    """Lag of each member by group; 0 without partitions, None where all its partitions are unknown."""
    import pyarrow.compute as pc

    owned = counted.filter(pc.is_valid(counted["owner_member_id"]))
    sums = owned.group_by(["group_id", "owner_member_id"]).aggregate([("lag_records", "sum")])
    names = ("group_id", "owner_member_id", "lag_records_sum")
    columns = (sums[name].to_pylist() for name in names)
    by_owner = {(group, member): lag for group, member, lag in zip(*columns, strict=True)}
    alive = members.filter(pc.is_valid(members["member_id"])).group_by(["group_id", "member_id"])
    lags: dict[str, list[int | None]] = defaultdict(list)
    for row in alive.aggregate([]).to_pylist():
        lags[row["group_id"]].append(by_owner.get((row["group_id"], row["member_id"]), 0))
    return lags


def _skew(lags: list[int]) -> float | None:
    if not lags:
        return None
    largest = max(lags)
    return largest * len(lags) / sum(lags) if largest > 0 else 1.0


def _aggregated(names: list[str]) -> list[int]:
    """Indexes of the key and of the five aggregates: two of them have the same name."""
    key = names.index("group_id")
    return [key, *(index for index in range(len(names)) if index != key)]
