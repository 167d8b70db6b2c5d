"""Rows that are alike: a class is all partitions that the same members take.

Within a class it matters only how many partitions each member has. That turns a problem of a million
rows into a small matrix, classes x members: one column of it for equal subscriptions, two rows for one
odd subscriber, five independent ones for five disjoint buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from assignor_core.group import Assignment, Group


_INT16_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True)
class Classes:
    """The matrix form of a group.

    `class_of_row` is int32 [P], -1 where nobody takes the topic; `size`, int64 [K], how many partitions a
    class has; `owned`, int64 [K, M], how many of them a member holds that takes them.
    """

    class_of_row: NDArray[np.int32]
    eligible: NDArray[np.bool_]
    size: NDArray[np.int64]
    owned: NDArray[np.int64]


def classes_of(group: Group) -> Classes:
    """Return the classes of a group by its subscriptions. O(M * T + P)."""
    if group.has_equal_subscriptions:
        class_of_topic = np.where(group.subscribed_by_first(), 0, -1).astype(np.int32)
        num_classes = int(bool((class_of_topic == 0).any()))
        eligible = np.ones((num_classes, group.num_members), dtype=np.bool_)
    else:
        eligible, class_of_topic = _distinct_columns(group.subscribed)
    return _with_counts(group, class_of_topic[group.row_topic], eligible)


def split_by_racks(group: Group, classes: Classes) -> tuple[Classes, NDArray[np.bool_]]:
    """Return classes split by the racks of replicas, and where members are far from them: bool [K, M].

    A member is far if it is in none of the racks although some member of the class is. A member without a
    rack reads from anywhere equally well.
    """
    if group.row_racks is None or group.member_rack is None:
        return classes, np.zeros(classes.eligible.shape, dtype=np.bool_)
    weights = np.packbits(group.row_racks, axis=1)
    keys = np.column_stack([classes.class_of_row.view(np.uint8).reshape(-1, 4), weights])
    _, first, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    taken = np.flatnonzero(classes.class_of_row[first] >= 0)
    renumber = np.full(len(first), -1, dtype=np.int32)
    renumber[taken] = np.arange(len(taken))
    eligible = classes.eligible[classes.class_of_row[first[taken]]]
    has_rack = group.member_rack >= 0
    near = np.take(group.row_racks[first[taken]], group.member_rack, axis=1)
    near = near | ~has_rack
    matters = np.any(near & has_rack & eligible, axis=1)
    finer = _with_counts(group, renumber[number.reshape(-1)], eligible)
    return finer, eligible & ~near & matters[:, None]


def _with_counts(group: Group, class_of_row: NDArray[np.int32], eligible: NDArray[np.bool_]) -> Classes:
    num_classes = len(eligible)
    taken = class_of_row[class_of_row >= 0] if (class_of_row < 0).any() else class_of_row
    size = np.bincount(taken, minlength=num_classes).astype(np.int64)
    return Classes(class_of_row, eligible, size, _count_owned(group, class_of_row, num_classes))


def as_int16_if_fits(values: NDArray[np.int32]) -> NDArray[np.int16] | NDArray[np.int32]:
    """Return the values as int16 if they fit: numpy then sorts by radix, ten times faster."""
    if len(values) and int(values.max()) <= _INT16_MAX and int(values.min()) >= -_INT16_MAX:
        return values.astype(np.int16)
    return values


def interleaved_by_topic(group: Group, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ascending rows in the order t0p0, t1p0, ..., t0p1, ...: neighbours are of different topics."""
    return rows[np.argsort(as_int16_if_fits(group.row_partition[rows]), kind="stable")]


def assignment_of_counts(
    group: Group, classes: Classes, wanted: NDArray[np.int64], owners: Assignment | None = None
) -> Assignment:
    """Return an assignment with `wanted` partitions, int64 [K, M]: each member keeps what it has up to that.

    `owners`, int32 [P], has what in the beginning; the live owners without it.
    """
    assignment = (group.live_owner if owners is None else owners).copy()
    num_members = group.num_members
    given = np.maximum(classes.owned - wanted, 0)
    if given.any():
        assignment[_given_rows(group, classes, given)] = -1
    free = np.flatnonzero(assignment < 0)
    row_class = classes.class_of_row[free]
    free = interleaved_by_topic(group, free[row_class >= 0])
    if len(wanted) > 1:
        row_class = classes.class_of_row[free]
        free = free[np.argsort(as_int16_if_fits(row_class), kind="stable")]
    got = np.maximum(wanted - classes.owned, 0)
    everybody = np.arange(num_members, dtype=np.int32)
    # Neighbours in the order go to one member: they are of different topics, so each topic spreads.
    assignment[free] = np.repeat(np.tile(everybody, len(wanted)), got.ravel())
    return assignment


def _given_rows(group: Group, classes: Classes, given: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which rows leave their owners: of each class and owner, the last in the order of dealing."""
    owner = group.live_owner
    num_members = group.num_members
    held = np.flatnonzero(owner >= 0)
    cell = classes.class_of_row[held] * num_members + owner[held]
    losing = given.ravel()[cell] > 0
    held = interleaved_by_topic(group, held[losing])
    cell = classes.class_of_row[held] * num_members + owner[held]
    order = np.argsort(as_int16_if_fits(cell), kind="stable")
    held, cell = held[order], cell[order]
    counts = np.bincount(cell, minlength=given.size)
    from_end = np.cumsum(counts)[cell] - np.arange(len(cell))
    leaving: NDArray[np.int64] = held[from_end <= given.ravel()[cell]]
    return leaving


def _distinct_columns(subscribed: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Return the distinct sets of subscribers, in order of first topic, and each topic's number, -1: none."""
    by_topic = np.ascontiguousarray(subscribed.T)
    packed = np.packbits(by_topic, axis=1)
    numbers: dict[bytes, int] = {bytes(packed.shape[1]): -1}
    first: list[int] = []
    class_of_topic = np.empty(len(by_topic), dtype=np.int32)
    for topic, bits in enumerate(packed):
        key = bits.tobytes()
        if key not in numbers:
            numbers[key] = len(first)
            first.append(topic)
        class_of_topic[topic] = numbers[key]
    return by_topic[first], class_of_topic


def _count_owned(group: Group, class_of_row: NDArray[np.int32], num_classes: int) -> NDArray[np.int64]:
    if not len(group.claim_row):
        return np.zeros((num_classes, group.num_members), dtype=np.int64)
    owner = group.live_owner
    held = np.flatnonzero(owner >= 0)
    cell = class_of_row[held].astype(np.int64) * group.num_members + owner[held]
    counts = np.bincount(cell, minlength=num_classes * group.num_members)
    return counts.reshape(num_classes, group.num_members).astype(np.int64)
