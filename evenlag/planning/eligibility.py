"""Whether a group can be planned and can follow a hint.

A plan needs three facts of the group: its commits, its subscription and its owners. A lag needs its commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from evenlag.enums import EVENLAG_ASSIGNOR, HINTABLE_TYPES, MEMBERLESS_STATES, GroupType

if TYPE_CHECKING:
    from evenlag.planning.group_batch import GroupBatch

_CLIENT_ASSIGNS: Final = f"cannot be hinted: the group has selected {{assignor}}, not {EVENLAG_ASSIGNOR}"
_BROKER_ASSIGNS: Final = (
    "cannot be hinted: the brokers assign the group by {assignor}; its clients have to ask for "
    f"group.remote.assignor={EVENLAG_ASSIGNOR}"
)


class GroupSummary(NamedTuple):
    """Summary of a group's rows of ``members`` and ``lag``.

    state, type, assignor, error: As in the table; equal in all rows of a group.
    num_rows, num_members, num_subscribed: Number of rows, of rows with a member, and of rows with a
        subscription.
    subscription_error, assignment_error: Why a member's subscription or assignment is unknown; None: they
        are known.
    commit_problem, owner_problem: Why the commits, or the owner of a partition, are unknown.
    """

    state: str | None
    type: str | None
    assignor: str | None
    error: str | None
    num_rows: int
    num_members: int
    num_subscribed: int
    subscription_error: str | None = None
    assignment_error: str | None = None
    commit_problem: str | None = None
    owner_problem: str | None = None


def summarize_groups(batch: GroupBatch) -> list[GroupSummary]:
    """Summarize the rows of each group.

    Returns in the order of the batch; None and 0 for a group without rows.
    """
    members, start = batch.members, batch.member_start
    sizes = np.diff(start)
    first = members.take(pa.array(start[:-1], mask=sizes == 0)) if len(start) > 1 else members

    def count(column: str) -> list[int]:
        before = np.zeros(members.num_rows + 1, dtype=np.int64)
        np.cumsum(members[column].is_valid().to_numpy(), out=before[1:])
        counts: list[int] = np.diff(before[start]).tolist()
        return counts

    def first_error(column: str) -> list[str | None]:
        rows = np.flatnonzero(members[column].is_valid().to_numpy())
        place = np.searchsorted(rows, start[:-1])
        rows = np.append(rows, members.num_rows)
        found = np.where(rows[place] < start[1:], rows[place], -1)
        errors: list[str | None] = members[column].take(pa.array(found, mask=found < 0)).to_pylist()
        return errors

    columns = (first[name].to_pylist() for name in ("group_state", "group_type", "assignor", "error"))
    counts = (sizes.tolist(), count("member_id"), count("subscription"))
    errors = (first_error(name) for name in ("subscription_error", "assignment_error"))
    groups = range(len(batch.group_ids))
    of_lag = ([of.get(each) for each in groups] for of in (batch.commit_problem, batch.owner_problem))
    return [GroupSummary(*values) for values in zip(*columns, *counts, *errors, *of_lag, strict=True)]


def planning_blocker(group: GroupSummary) -> str | None:
    """Return why a group cannot be planned; None if it can.

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
    return _not_planned(group) or _unknown_fact(group)


def _not_planned(group: GroupSummary) -> str | None:
    """Why no plan is made for such a group."""
    if group.type is not None and group.type not in HINTABLE_TYPES:
        return f"it is a {group.type} group: only classic and consumer groups are planned"
    if not group.num_members:
        if group.type != GroupType.CLASSIC and group.state not in MEMBERLESS_STATES:
            return f"the group speaks the {group.type} protocol and does not show its members"
        return (
            "the group has no members: its application is not running, or takes partitions by assign() and "
            "follows no assignor"
        )
    return None


def _unknown_fact(group: GroupSummary) -> str | None:
    """Which of the facts that a plan needs is unknown, and why."""
    if group.num_subscribed < group.num_rows and group.subscription_error is None:
        return f"the group is {group.state}: the subscriptions of its members are not reported"
    facts = {
        "the subscription of a member": group.subscription_error,
        "the assignment of a member": group.assignment_error,
        "the commit of each partition": group.commit_problem,
        "the owner of a partition": group.owner_problem,
    }
    unknown = (f"{fact} is unknown: {reason}" for fact, reason in facts.items() if reason is not None)
    return next(unknown, None)


def hint_blocker(group: GroupSummary) -> str | None:
    """Return why a group that can be planned could not follow a hint; None if it could.

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
