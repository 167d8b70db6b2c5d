"""Whether a group can be planned, and whether it could follow a hint: from its rows of ``members`` alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from evenlag.publishing.gates import CLASSIC, CONSUMER, EVENLAG_ASSIGNOR, HINTABLE_TYPES

if TYPE_CHECKING:
    from evenlag.planning.group_batch import GroupBundle

_CLIENT_ASSIGNS: Final = f"cannot be hinted: the group has selected {{assignor}}, not {EVENLAG_ASSIGNOR}"
_BROKER_ASSIGNS: Final = (
    "cannot be hinted: the brokers assign the group by {assignor}; its clients have to ask for "
    f"group.remote.assignor={EVENLAG_ASSIGNOR}"
)


class GroupReading(NamedTuple):
    """What a group's rows of ``members`` say of it as a whole.

    Attributes
    ----------
    state, type, assignor, error
        As in the table; alike in all rows of a group.
    num_rows, num_shown, num_subscribed
        How many rows there are, with a member in them, and with what it takes.
    """

    state: str | None
    type: str | None
    assignor: str | None
    error: str | None
    num_rows: int
    num_shown: int
    num_subscribed: int


def read_groups(bundle: GroupBundle) -> list[GroupReading]:
    """What is known of each group of a bundle, in their order; all None and 0 for a group without rows."""
    import numpy as np
    import pyarrow as pa

    members, start = bundle.members, bundle.member_start
    sizes = np.diff(start)
    first = members.take(pa.array(start[:-1], mask=sizes == 0)) if len(start) > 1 else members

    def count(column: str) -> list[int]:
        before = np.zeros(members.num_rows + 1, dtype=np.int64)
        np.cumsum(members[column].is_valid().to_numpy(), out=before[1:])
        counts: list[int] = np.diff(before[start]).tolist()
        return counts

    columns = (first[name].to_pylist() for name in ("group_state", "group_type", "assignor", "error"))
    counts = (sizes.tolist(), count("member_id"), count("subscription"))
    return [GroupReading(*values) for values in zip(*columns, *counts, strict=True)]


def planning_obstacle(group: GroupReading) -> str | None:
    """Why a group cannot be planned, in plain words; None when it can."""
    if not group.num_rows:
        return "the group was not read"
    if group.error is not None:
        return f"the group could not be read: {group.error}"
    if not group.num_shown:
        if group.type != CLASSIC:
            return f"the group speaks the {group.type} protocol and does not show its members"
        return (
            "the group has no members: its application is not running, or takes partitions by assign() and "
            "follows no assignor"
        )
    if group.num_subscribed < group.num_rows:
        return f"the group is {group.state}: the subscriptions of its members are not reported"
    return None


def hint_obstacle(group: GroupReading) -> str | None:
    """Why a group that can be planned could not follow a hint; None when it could."""
    if group.type not in HINTABLE_TYPES:
        needed = " or ".join(HINTABLE_TYPES)
        return f"cannot be hinted: the group speaks the {group.type} protocol, hints need {needed}"
    if group.assignor != EVENLAG_ASSIGNOR:
        told = _BROKER_ASSIGNS if group.type == CONSUMER else _CLIENT_ASSIGNS
        return told.format(assignor=group.assignor)
    return None
