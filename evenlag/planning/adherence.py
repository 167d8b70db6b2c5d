"""What one snapshot shows of whole groups beside their lag: their state, and how far they follow a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

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
class GroupStatus:
    """State of a group, and its selected assignor; None where the snapshot does not show it."""

    state: str | None
    assignor: str | None


@dataclass(frozen=True, slots=True)
class Adherence:
    """Shares of a plan's partitions at their hinted members, and the lag that it was planned with.

    assigned: By the current assignment; None when no partition of the plan has an owner.
    targeted: By the coordinator's target assignment; None for a classic group, which has none.
    total_lag_records: Lag of the plan's partitions when planned; None when none is known.
    num_left: Members that the hint gives partitions, and that are no longer in the group.
    """

    assigned: float | None
    targeted: float | None
    total_lag_records: int | None
    num_left: int = 0
    num_members: int = 0


def measure_status(members: pa.Table) -> dict[str, GroupStatus]:
    """Return the status of each group that has rows of ``members``, by group id."""
    grouped = members.group_by("group_id").aggregate([("group_state", "max"), ("assignor", "max")])
    return {
        row["group_id"]: GroupStatus(row["group_state_max"], row["assignor_max"])
        for row in grouped.to_pylist()
    }


def measure_adherence(assignments: pa.Table, members: pa.Table) -> dict[str, Adherence]:
    """Measure how far groups follow their plans.

    Returns by plan id; a plan without rows is missing.
    assignments: Rows of ``plan_assignments``, with :data:`ASSIGNMENT_COLUMNS`.
    members: Rows of ``members`` of the plans' groups in one snapshot, with :data:`MEMBER_COLUMNS`.
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

    Returns ``group_id``, ``owner_after_key`` (the member as a hint names it), ``topic``, ``partition``.
    column: ``assignment`` or ``target_assignment``; null gives no rows.
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
