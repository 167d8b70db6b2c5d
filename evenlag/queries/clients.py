"""Client ids of members: a member id is long and changes with each restart, a client id is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

CLIENT_COLUMNS: Final = ("member_id", "group_instance_id", "client_id")


def client_names(members: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the name of each member's client.

    Returns instance id, or else client id, by member id; empty text where neither is known.
    members: Rows with :data:`CLIENT_COLUMNS`; a row without a member id is ignored.
    """
    return {
        row["member_id"]: row["group_instance_id"] or row["client_id"] or ""
        for row in members
        if row["member_id"] is not None
    }


def read_group_members(
    reader: LakeReader, cluster: str, snapshot_id: str, group_id: str
) -> list[dict[str, Any]]:
    """Read the members of a group in one snapshot.

    Returns rows with :data:`CLIENT_COLUMNS`; none if the snapshot is not, or no longer, in the lake.
    """
    from evenlag.lake.snapshot_ids import slot_day
    from evenlag.lake.tables import MEMBERS

    wanted: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", "=", slot_day(snapshot_id)),
        ("snapshot_id", "=", snapshot_id),
        ("group_id", "=", group_id),
    ]
    rows: list[dict[str, Any]] = reader.read(MEMBERS, columns=CLIENT_COLUMNS, filters=wanted).to_pylist()
    return rows
