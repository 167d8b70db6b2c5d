"""Scores of assignments by the lag of a snapshot, for many snapshots at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from assignor_core.algorithms.partition_classes import classes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.group import Group

_NEVER = np.iinfo(np.int64).max // 2


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotScores:
    """Scores of R assignments with the same members, subscriptions and partitions; all [R].

    They are the metrics of :func:`assignor_core.metrics.measure` and related functions, vectorized over
    snapshots.
    """

    unassigned: NDArray[np.int64]
    moves: NDArray[np.int64]
    min_count: NDArray[np.int64]
    max_count: NDArray[np.int64]
    count_gap: NDArray[np.int64]
    balance_score: NDArray[np.int64]
    max_lag: NDArray[np.float64]
    mean_lag: NDArray[np.float64]
    skew: NDArray[np.float64]
    bound: NDArray[np.float64]
    optimality_gap: NDArray[np.float64]
    gain: NDArray[np.float64]

    def without(self, is_unknown: NDArray[np.bool_]) -> SnapshotScores:
        """Return the scores with NaN for what has no lower bound, where some lag is unknown: bool [R]."""
        names = ("mean_lag", "skew", "optimality_gap", "gain")
        return replace(self, **{name: np.where(is_unknown, np.nan, getattr(self, name)) for name in names})


def score_snapshots(
    group: Group,
    lag: NDArray[np.float64],
    before: NDArray[np.int32],
    after: NDArray[np.int32],
) -> SnapshotScores:
    """Score assignments of one group in R snapshots.

    lag: [R, P] records, 0 where unknown.
    before, after: int32 [R, P], row → member, -1 for no owner: the current owner, and the new one.
    """
    num_snapshots, num_members = len(lag), group.num_members
    cell = np.arange(num_snapshots)[:, None] * num_members

    def by_member(owner: NDArray[np.int32], what: NDArray[np.float64] | None) -> NDArray[np.float64]:
        held = owner >= 0
        summed = np.bincount(
            (cell + owner)[held], None if what is None else what[held], minlength=num_snapshots * num_members
        )
        return summed.reshape(num_snapshots, num_members).astype(np.float64)

    counts = by_member(after, None).astype(np.int64)
    lags = by_member(after, lag)
    largest, mean = lags.max(axis=1, initial=0.0), lags.mean(axis=1)
    held_before = by_member(before, lag).max(axis=1, initial=0.0)
    ranks = 2 * np.arange(num_members) - num_members + 1
    bound = lag_bound(group, lag)
    return SnapshotScores(
        unassigned=(after < 0).sum(axis=1),
        moves=((before >= 0) & (before != after)).sum(axis=1),
        min_count=counts.min(axis=1, initial=_NEVER),
        max_count=counts.max(axis=1, initial=0),
        count_gap=_count_gaps(group, after, counts),
        balance_score=(ranks * np.sort(counts, axis=1)).sum(axis=1),
        max_lag=largest,
        mean_lag=mean,
        skew=np.divide(largest, mean, out=np.ones(num_snapshots), where=largest > 0),
        bound=bound,
        optimality_gap=np.divide(largest, bound, out=np.ones(num_snapshots), where=bound > 0) - 1.0,
        gain=1.0 - np.divide(largest, held_before, out=np.ones(num_snapshots), where=held_before > 0),
    )


def lag_bound(group: Group, lag: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a lower bound of the largest member lag over all assignments: [R] records.

    The maximum of: the lag of one partition; the lag that only a set of members subscribes to, divided by
    their number; and all lag divided by the number of members. The same as `LoadPlan.bound` for equal
    capacities.
    """
    classes = classes_of(group)
    taken = classes.class_of_row >= 0
    if not taken.any():
        return np.zeros(len(lag))
    member_of = np.zeros((int(taken.sum()), len(classes.size)))
    member_of[np.arange(len(member_of)), classes.class_of_row[taken]] = 1.0
    by_class = lag[:, taken] @ member_of
    outside = classes.eligible.astype(np.int64) @ (~classes.eligible).astype(np.int64).T
    shares = by_class @ (outside == 0) / classes.eligible.sum(axis=1)
    by_all = by_class.sum(axis=1) / classes.eligible.any(axis=0).sum()
    single = lag[:, taken].max(axis=1)
    return np.asarray(np.maximum(np.maximum(shares.max(axis=1), by_all), single))


def _count_gaps(group: Group, owner: NDArray[np.int32], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """As :func:`assignor_core.verify.largest_count_gap`, by partition classes: [R]."""
    classes = classes_of(group)
    num_snapshots, num_members = counts.shape
    num_classes = len(classes.size)
    if not num_classes:
        return np.zeros(num_snapshots, dtype=np.int64)
    held_rows = (owner >= 0) & (classes.class_of_row >= 0)
    cell = (np.arange(num_snapshots)[:, None] * num_classes + classes.class_of_row) * num_members + owner
    held = np.bincount(cell[held_rows], minlength=num_snapshots * num_classes * num_members)
    held = held.reshape(num_snapshots, num_classes, num_members)
    most = np.where(held > 0, counts[:, None, :], 0).max(axis=2)
    least = np.where(classes.eligible, counts[:, None, :], _NEVER).min(axis=2)
    return np.asarray(np.where(most > 0, most - least, 0).max(axis=1).clip(min=0))
