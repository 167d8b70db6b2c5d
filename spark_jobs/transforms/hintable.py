"""Whether a group can be planned, and whether it could follow a hint: from its rows of ``members`` alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_jobs.gates import EVENLAG_ASSIGNOR

if TYPE_CHECKING:
    import pyarrow as pa

_CLASSIC: Final = "classic"


def planning_obstacle(members: pa.Table) -> str | None:
    """Why a group cannot be planned, in plain words; None when it can.

    Parameters
    ----------
    members
        The group's rows: ``group_state, group_type, assignor, member_id, subscription, error``.
    """
    if not members.num_rows:
        return "the group was not read"
    first = members.slice(0, 1).to_pylist()[0]
    if first["error"] is not None:
        return f"the group could not be read: {first['error']}"
    if members["member_id"].null_count == members.num_rows:
        if first["group_type"] != _CLASSIC:
            return f"the group speaks the {first['group_type']} protocol and does not show its members"
        return (
            "the group has no members: its application is not running, or takes partitions by assign() and "
            "follows no assignor"
        )
    if members["subscription"].null_count:
        return f"the group is {first['group_state']}: what its members take does not show"
    return None


def hint_obstacle(members: pa.Table) -> str | None:
    """Why a group that can be planned could not follow a hint; None when it could."""
    first = members.slice(0, 1).to_pylist()[0]
    if first["group_type"] != _CLASSIC:
        return f"cannot be hinted: the group speaks the {first['group_type']} protocol, hints need {_CLASSIC}"
    if first["assignor"] != EVENLAG_ASSIGNOR:
        return f"cannot be hinted: the group has selected {first['assignor']}, not {EVENLAG_ASSIGNOR}"
    return None
