"""Plain numbers about an assignment, with their units in their names."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from assignor_core.group import Assignment, Group


@dataclass(frozen=True, slots=True)
class Metrics:
    """How even an assignment is.

    Attributes
    ----------
    max_member_lag_records, mean_member_lag_records
        The lag of the member that is furthest behind, and of all on average.
    lag_skew
        Their ratio: 1.0 when all are behind alike, and when nobody is behind at all.
    min_member_partitions, max_member_partitions
        The fewest and the most partitions that a member has.
    balance_score
        KIP-54's: the sum over all pairs of members of how far their counts differ; 0 is even.
    unassigned_partitions
        Rows that nobody has.
    """

    max_member_lag_records: int
    mean_member_lag_records: float
    lag_skew: float
    min_member_partitions: int
    max_member_partitions: int
    balance_score: int
    unassigned_partitions: int

    def as_dict(self) -> dict[str, int | float]:
        """Return the numbers by name, in the order in which they stand here."""
        return asdict(self)


def member_counts(group: Group, assignment: Assignment) -> NDArray[np.int64]:
    """Return how many partitions each member has: int64 [M].

    Parameters
    ----------
    group, assignment
        The group, and int32 [P]: row → member index, -1 for none.
    """
    return np.bincount(assignment[assignment >= 0], minlength=group.num_members).astype(np.int64)


def member_lags(group: Group, assignment: Assignment) -> NDArray[np.int64]:
    """Return how far each member is behind, in records: int64 [M], exact for any lags.

    Parameters
    ----------
    group, assignment
        The group, and int32 [P]: row → member index, -1 for none.
    """
    lag = np.zeros(group.num_members, dtype=np.int64)
    rows = np.flatnonzero((assignment >= 0) & (group.lag > 0))
    # bincount's weights are floats, exact below 2**53 only; add.at is not, and slow: choose by the sum.
    if float(group.lag[rows].sum(dtype=np.float64)) < 2**52:
        weights = group.lag[rows].astype(np.float64)
        return np.bincount(assignment[rows], weights, minlength=group.num_members).astype(np.int64)
    np.add.at(lag, assignment[rows], group.lag[rows])
    return lag


def measure(group: Group, assignment: Assignment) -> Metrics:
    """Return the numbers of one assignment. O(P + M log M).

    Parameters
    ----------
    group, assignment
        The group, and int32 [P]: row → member index, -1 for none.

    Examples
    --------
    >>> from assignor_core.group import Group
    >>> from assignor_core.members import Member
    >>> members = [Member("a", ("t",)), Member("b", ("t",))]
    >>> group = Group.from_members({"t": 3}, members, lags={"t": [9, 1, 2]})
    >>> measure(group, np.array([0, 1, 1], dtype=np.int32)).lag_skew
    1.5
    """
    counts = member_counts(group, assignment)
    lags = member_lags(group, assignment)
    largest = int(lags.max(initial=0))
    mean = float(lags.mean()) if len(lags) else 0.0
    ranks = np.arange(len(counts), dtype=np.int64)
    # In ascending order, the i-th count is the larger of a pair i times and the smaller M - 1 - i times.
    score = int(((2 * ranks - len(counts) + 1) * np.sort(counts)).sum())
    return Metrics(
        max_member_lag_records=largest,
        mean_member_lag_records=mean,
        lag_skew=largest / mean if largest else 1.0,
        min_member_partitions=int(counts.min()) if len(counts) else 0,
        max_member_partitions=int(counts.max(initial=0)),
        balance_score=score,
        unassigned_partitions=int((assignment < 0).sum()),
    )


def count_moves(group: Group, assignment: Assignment) -> int:
    """Return how many partitions change hands: a row whose owner is a member is with another one, or none.

    Placing a free row is no move; taking one from an owner that does not subscribe to it any more is.

    Parameters
    ----------
    group, assignment
        The group, and int32 [P]: row → member index, -1 for none.
    """
    return int(((group.owner >= 0) & (group.owner != assignment)).sum())
