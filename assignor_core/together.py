"""Topics whose equal partition numbers stay with one member: a group in which they are one row (ADR 106)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assignor_core.errors import ProblemError
from assignor_core.group import Assignment, Group


@dataclass(frozen=True, slots=True, eq=False)
class United:
    """A group whose rows are units: the partitions of one number of topics that stay together.

    Attributes
    ----------
    group
        The group of units. The one with the most load of a unit that several members own counts as its
        owner; a topic that stays with others has the name of the first of them.
    unit
        int64 [P], row → row of `group`.
    """

    group: Group
    unit: NDArray[np.int64]

    def sums(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sums over units of float64 [P]."""
        return np.bincount(self.unit, values, minlength=self.group.num_partitions).astype(np.float64)

    def any(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which units have a row of bool [P]."""
        return np.asarray(self.sums(mask) > 0)

    def expand(self, assignment: Assignment) -> Assignment:
        """Return the assignment of all rows, int32 [P], of an assignment of units."""
        return assignment[self.unit]

    def of_units(self, assignment: Assignment) -> Assignment:
        """Return the member that has the first row of each unit, of an assignment of all rows."""
        return assignment[np.unique(self.unit, return_index=True)[1]]

    def num_apart(self, assignment: Assignment) -> int:
        """Return how many rows are with another member than the first of their unit."""
        return int((assignment != self.expand(self.of_units(assignment))).sum())


def unite(group: Group, together: Sequence[Sequence[str]], load: NDArray[Any] | None = None) -> United:
    """Return a group in which the named topics stay together.

    Parameters
    ----------
    group
        The group.
    together
        Lists of names of topics. Topics that the group does not have, or without partitions, are passed over.
    load
        [P], decides who owns a unit of several owners; the lag without it.

    Raises
    ------
    ProblemError
        If topics that are to stay together differ in their partitions or their subscribers, or one is in
        two lists; the message names them.

    Examples
    --------
    >>> from assignor_core.members import Member
    >>> members = [Member("a", ("t", "u"), owned=(("t", 0), ("u", 1))), Member("b", ("t", "u"))]
    >>> united = unite(Group.from_members({"t": 2, "u": 2}, members), [["t", "u"]])
    >>> united.group.num_partitions, united.unit.tolist(), united.group.owner.tolist()
    (2, [0, 1, 0, 1], [0, 0])
    """
    first = _first_topics(group, together)
    kept = np.flatnonzero(first == np.arange(group.num_topics))
    sizes = np.diff(group.topic_start)
    starts = np.zeros(group.num_topics, dtype=np.int64)
    starts[kept] = np.cumsum(sizes[kept]) - sizes[kept]
    unit = starts[first[group.row_topic]] + group.row_partition
    members = np.repeat(np.arange(group.num_members), np.diff(group.subscription_start))
    is_kept = np.isin(group.subscription_topic, kept)
    size = int(sizes[kept].sum())
    owner = _owners(group, unit, size, group.lag if load is None else load)
    owned = np.flatnonzero(owner >= 0)
    united = Group.from_arrays(
        topics=[group.topics[topic] for topic in kept.tolist()],
        num_partitions=sizes[kept],
        member_ids=group.member_ids,
        instance_ids=group.instance_ids,
        subscriptions=(members[is_kept], np.searchsorted(kept, group.subscription_topic[is_kept])),
        claims=(owned, owner[owned], np.zeros(len(owned), dtype=np.int64)),
        lags=_sums(unit, group.lag, size),
        racks=_racks(group, unit, size),
    )
    return United(united, unit)


def can_unite(group: Group, topics: Sequence[str]) -> bool:
    """Return whether topics can stay together: with equal partitions and subscribers.

    Parameters
    ----------
    group
        The group.
    topics
        Names of topics. Others than the group's, or without partitions, are passed over.
    """
    try:
        _first_topics(group, [topics])
    except ProblemError:
        return False
    return True


def _first_topics(group: Group, together: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """Return the first topic that each topic stays with, itself without any: [T]."""
    first = np.arange(group.num_topics)
    number = {name: index for index, name in enumerate(group.topics)}
    sizes, subscribed = np.diff(group.topic_start), group.subscribed
    seen: set[int] = set()
    for names in together:
        topics = sorted({number[name] for name in names if name in number and sizes[number[name]]})
        for topic in topics:
            one, other = group.topics[topics[0]], group.topics[topic]
            if topic in seen:
                raise ProblemError(f"together: the topic {other!r} is in two lists")
            if sizes[topic] != sizes[topics[0]]:
                what = f"{sizes[topics[0]]} and {sizes[topic]} partitions"
                raise ProblemError(f"together: the topics {one!r} and {other!r} have {what}")
            if (subscribed[:, topic] != subscribed[:, topics[0]]).any():
                raise ProblemError(f"together: other members subscribe to {one!r} than to {other!r}")
            first[topic] = topics[0]
        seen.update(topics)
    return first


def _sums(unit: NDArray[np.int64], values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, unit, values)
    return sums


def _owners(group: Group, unit: NDArray[np.int64], size: int, load: NDArray[Any]) -> NDArray[np.int32]:
    """Return the owner of each unit: of several the one with most of its load, then of its rows."""
    owner = np.full(size, -1, dtype=np.int32)
    live = group.live_owner
    rows = np.flatnonzero(live >= 0)
    cells, cell = np.unique(unit[rows] * group.num_members + live[rows], return_inverse=True)
    weight, count = np.bincount(cell, load[rows]), np.bincount(cell)
    order = np.lexsort((-cells, count, weight)) if len(cells) else cells
    # The last of equal places remains.
    units, members = np.divmod(cells[order], max(group.num_members, 1))
    owner[units] = members
    return owner


def _racks(
    group: Group, unit: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]] | None:
    """Return the racks in which all rows of a unit can be read; unknown where there is none."""
    if group.row_racks is None or group.member_rack is None:
        return None
    known = np.asarray(group.row_racks.any(axis=1))
    racks = np.ones((size, group.row_racks.shape[1]), dtype=np.bool_)
    np.logical_and.at(racks, unit, group.row_racks | ~known[:, None])
    racks[~np.isin(np.arange(size), unit[known])] = False
    return group.member_rack, racks
