"""Converts a group's rows of ``lag`` and ``members`` to the arrays of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.enums import GroupType
from evenlag.simulation.history import GroupSnapshots, SnapshotMembers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

_CLASSIC: Final = GroupType.CLASSIC


def read_snapshots(
    lag: pa.Table, members: pa.Table, snapshot_ids: Sequence[str], at_s: NDArray[np.float64]
) -> tuple[GroupSnapshots, NDArray[np.int64]]:
    """Convert a group's rows of ``lag`` and ``members`` to columns.

    snapshot_ids, at_s: [S'] ids and times of all snapshots of the period, ascending, in seconds since the
        epoch.
    """
    import pyarrow as pa

    ids = pa.array(snapshot_ids, pa.string())
    lag_place, member_place = (_places(rows["snapshot_id"], ids) for rows in (lag, members))
    shown = np.unique(np.concatenate([lag_place, member_place]))
    of_all = np.full(len(snapshot_ids), -1, dtype=np.int64)
    of_all[shown] = np.arange(len(shown))
    people = _members_by_snapshot(members, of_all[member_place], len(shown))
    topics, topic_ids = (_names(lag[name].combine_chunks()) for name in ("topic", "topic_id"))
    both = [lag["owner_member_id"].combine_chunks(), members["member_id"].combine_chunks()]
    owners = _names(pa.concat_arrays(both))
    snapshots = GroupSnapshots(
        snapshot=of_all[lag_place],
        topic=_places(lag["topic"], topics),
        topic_id=_places(lag["topic_id"], topic_ids),
        partition=lag["partition"].to_numpy().astype(np.int64),
        lag=_floats(lag["lag_records"]),
        end=_floats(lag["end_offset"]),
        age_s=_floats(lag["time_lag_ms"]) / 1000.0,
        owner=_places(lag["owner_member_id"], owners),
        at_s=at_s[shown],
        topics=tuple(topics.to_pylist()),
        member_ids=tuple(owners.to_pylist()),
        groups=tuple(people),
    )
    return snapshots, shown


def _names(values: pa.Array) -> pa.Array:
    """Distinct values, sorted: rows come in any order, and no result may depend on it."""
    import pyarrow.compute as pc

    return pc.unique(values).drop_null().sort()


def _places(values: pa.ChunkedArray, among: pa.Array) -> NDArray[np.int64]:
    """Index of each value in another array; -1 where it is null or missing."""
    import pyarrow.compute as pc

    found = pc.fill_null(pc.index_in(values.combine_chunks(), value_set=among), -1)
    places: NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return places


def _floats(values: pa.ChunkedArray) -> NDArray[np.float64]:
    import pyarrow as pa

    numbers: NDArray[np.float64] = values.cast(pa.float64()).to_numpy()
    return numbers


def _members_by_snapshot(
    members: pa.Table, place: NDArray[np.int64], num_snapshots: int
) -> list[SnapshotMembers]:
    """The members of each snapshot: a loop over members, not over partitions."""
    rows: list[list[dict[str, Any]]] = [[] for _ in range(num_snapshots)]
    for where, row in zip(place.tolist(), members.to_pylist(), strict=True):
        rows[where].append(row)
    return [_snapshot(found) for found in rows]


def _snapshot(rows: list[dict[str, Any]]) -> SnapshotMembers:
    if not rows:
        return SnapshotMembers((), blocker="the group was not read")
    first = rows[0]
    if first["error"] is not None:
        return SnapshotMembers((), blocker=f"the group could not be read: {first['error']}")
    people = [row for row in rows if row["member_id"] is not None]
    if not people and first["group_type"] != _CLASSIC:
        reason = f"the group speaks the {first['group_type']} protocol and does not show its members"
        return SnapshotMembers((), blocker=reason)
    if any(row["subscription"] is None for row in people):
        return SnapshotMembers(
            (),
            blocker=f"the group is {first['group_state']}: the subscriptions of its members are not reported",
        )
    taken = tuple(
        (row["member_id"], row["group_instance_id"], tuple(sorted(row["subscription"]))) for row in people
    )
    return SnapshotMembers(tuple(sorted(taken, key=lambda person: person[0])), first["assignor"])
