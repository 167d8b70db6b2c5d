"""Whether a group can be planned and can follow a hint, determined from its rows of ``members`` alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from evenlag.enums import EVENLAG_ASSIGNOR, HINTABLE_TYPES, GroupType

if TYPE_CHECKING:
    from evenlag.planning.group_batch import GroupBatch

_CLIENT_ASSIGNS: Final = f"cannot be hinted: the group has selected {{assignor}}, not {EVENLAG_ASSIGNOR}"
_BROKER_ASSIGNS: Final = (
    "cannot be hinted: the brokers assign the group by {assignor}; its clients have to ask for "
    f"group.remote.assignor={EVENLAG_ASSIGNOR}"
)


class GroupSummary(NamedTuple):
    """Summary of a group's rows of ``members``.

    Attributes
    ----------
    state, type, assignor, error
        As in the table; equal in all rows of a group.
    num_rows, num_members, num_subscribed
        Number of rows, of rows with a member, and of rows with a subscription.
    """

    state: str | None
    type: str | None
    assignor: str | None
    error: str | None
    num_rows: int
    num_members: int
    num_subscribed: int


def summarize_groups(batch: GroupBatch) -> list[GroupSummary]:
    """Summarize the rows of ``members`` of each group.

    Parameters
    ----------
    batch
        The groups.

    Returns
    -------
    list of GroupSummary
        In the order of the batch; None and 0 for a group without rows.
    """
    import numpy as np
    import pyarrow as pa

    members, start = batch.members, batch.member_start
    sizes = np.diff(start)
    first = members.take(pa.array(start[:-1], mask=sizes == 0)) if len(start) > 1 else members

    def count(column: str) -> list[int]:
        before = np.zeros(members.num_rows + 1, dtype=np.int64)
        np.cumsum(members[column].is_valid().to_numpy(), out=before[1:])
        counts: list[int] = np.diff(before[start]).tolist()
        return counts

    columns = (first[name].to_pylist() for name in ("group_state", "group_type", "assignor", "error"))
    counts = (sizes.tolist(), count("member_id"), count("subscription"))
    return [GroupSummary(*values) for values in zip(*columns, *counts, strict=True)]


def planning_blocker(group: GroupSummary) -> str | None:
    """Return why a group cannot be planned; None if it can.

    Parameters
    ----------
    group
        The group's summary.

    Returns
    -------
    str or None
        The reason, for the table ``decisions``.

    Examples
    --------
    >>> planning_blocker(GroupSummary("Stable", "classic", "range", None, 2, 2, 2))
    >>> planning_blocker(GroupSummary(None, None, None, None, 0, 0, 0))
    'the group was not read'
    """
    if not group.num_rows:
        return "the group was not read"
    if group.error is not None:
        return f"the group could not be read: {group.error}"
    if not group.num_members:
        if group.type != GroupType.CLASSIC:
            return f"the group speaks the {group.type} protocol and does not show its members"
        return (
            "the group has no members: its application is not running, or takes partitions by assign() and "
            "follows no assignor"
        )
    if group.num_subscribed < group.num_rows:
        return f"the group is {group.state}: the subscriptions of its members are not reported"
    return None


def hint_blocker(group: GroupSummary) -> str | None:
    """Return why a group that can be planned could not follow a hint; None if it could.

    Parameters
    ----------
    group
        The group's summary.

    Returns
    -------
    str or None
        The reason, for the table ``decisions``.

    Examples
    --------
    >>> hint_blocker(GroupSummary("Stable", "classic", "range", None, 2, 2, 2))
    'cannot be hinted: the group has selected range, not evenlag'
    """
    if group.type not in HINTABLE_TYPES:
        needed = " or ".join(HINTABLE_TYPES)
        return f"cannot be hinted: the group speaks the {group.type} protocol, hints need {needed}"
    if group.assignor != EVENLAG_ASSIGNOR:
        message = _BROKER_ASSIGNS if group.type == GroupType.CONSUMER else _CLIENT_ASSIGNS
        return message.format(assignor=group.assignor)
    return None
