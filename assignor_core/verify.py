"""The one checker of an assignment, used by the tests, the jobs and the consumer alike."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assignor_core.errors import InvalidAssignmentError
from assignor_core.group import Assignment, Group
from assignor_core.metrics import count_moves, member_counts
from assignor_core.together import unite

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that an assignment breaks.

    Attributes
    ----------
    rule
        SHAPE, MEMBER_RANGE, NOT_SUBSCRIBED, UNASSIGNED, APART, MAX_MOVES or COUNT_SLACK.
    count
        By how much: rows concerned, moves made, or the largest difference of counts.
    message
        What is wrong, with the first examples and the numbers.
    """

    rule: str
    count: int
    message: str


def find_violations(
    group: Group,
    assignment: Assignment,
    *,
    max_moves: int | None = None,
    count_slack: int | None = None,
    complete: bool = True,
    together: Sequence[Sequence[str]] = (),
) -> tuple[Violation, ...]:
    """Return all rules that an assignment breaks. O(P + S) with S subscriptions.

    That no partition is with two members needs no check: a row holds one number.

    Parameters
    ----------
    group, assignment
        The group, and int32 [P]: row → member, -1 for none.
    max_moves
        How many rows may leave a member that owns them (`metrics.count_moves`).
    count_slack
        No partition may be able to go from a member to another that takes it while their counts differ
        by 2 + `count_slack` or more.
    complete
        Whether every row that somebody takes must be with somebody. The first phase of a cooperative
        rebalance is not complete.
    together
        Names of topics whose equal partition numbers must be with one member (`together.unite`).

    Raises
    ------
    ProblemError
        If topics that are to stay together cannot.
    """
    if assignment.shape != (group.num_partitions,) or assignment.dtype != np.int32:
        what = f"int32 [{group.num_partitions}] was expected, not {assignment.dtype} {list(assignment.shape)}"
        return (Violation("SHAPE", 1, what),)
    bad = np.flatnonzero((assignment < -1) | (assignment >= group.num_members))
    if len(bad):
        what = f"{len(bad)} rows are with members that do not exist: {_rows(group, bad)}"
        return (Violation("MEMBER_RANGE", len(bad), what),)
    found: list[Violation] = []
    placed = np.flatnonzero(assignment >= 0)
    alien = placed[~group.subscribes(assignment[placed], group.row_topic[placed])]
    if len(alien):
        what = f"{len(alien)} partitions are with members that do not take them: {_rows(group, alien)}"
        found.append(Violation("NOT_SUBSCRIBED", len(alien), what))
    if complete:
        found += _find_unassigned(group, assignment)
    apart = unite(group, together).num_apart(assignment) if together else 0
    if apart:
        what = f"{apart} partitions are with another member than those that they stay together with"
        found.append(Violation("APART", apart, what))
    moves = count_moves(group, assignment) if max_moves is not None else 0
    if max_moves is not None and moves > max_moves:
        found.append(Violation("MAX_MOVES", moves, f"{moves} moves are more than the {max_moves} allowed"))
    gap = largest_count_gap(group, assignment) if count_slack is not None else 0
    if count_slack is not None and gap >= 2 + count_slack:
        what = f"a partition can go to a member that has {gap} fewer; {1 + count_slack} are allowed"
        found.append(Violation("COUNT_SLACK", gap, what))
    return tuple(found)


def check_assignment(
    group: Group,
    assignment: Assignment,
    *,
    max_moves: int | None = None,
    count_slack: int | None = None,
    complete: bool = True,
) -> None:
    """Do nothing if an assignment keeps all rules.

    Parameters
    ----------
    group, assignment, max_moves, count_slack, complete
        As for `find_violations`.

    Raises
    ------
    InvalidAssignmentError
        If it breaks one; the message names the rules, with numbers.
    """
    found = find_violations(
        group, assignment, max_moves=max_moves, count_slack=count_slack, complete=complete
    )
    if found:
        raise InvalidAssignmentError("; ".join(f"{v.rule}: {v.message}" for v in found[:_SHOWN]))


def largest_count_gap(group: Group, assignment: Assignment) -> int:
    """Return the largest count_a - count_b such that a has a partition that b takes; 0 without any.

    Parameters
    ----------
    group, assignment
        As for `find_violations`.
    """
    counts = member_counts(group, assignment)
    placed = np.flatnonzero(assignment >= 0)
    if not len(placed):
        return 0
    most = np.zeros(group.num_topics, dtype=np.int64)
    least = np.full(group.num_topics, np.iinfo(np.int64).max)
    if group.has_equal_subscriptions:
        least[:] = counts.min()
        most[group.row_topic[placed]] = counts[assignment[placed]].max()
    else:
        np.maximum.at(most, group.row_topic[placed], counts[assignment[placed]])
        sizes = np.diff(group.subscription_start)
        np.minimum.at(least, group.subscription_topic, np.repeat(counts, sizes))
    return max(0, int((most - least)[group.row_topic[placed]].max()))


def _find_unassigned(group: Group, assignment: Assignment) -> list[Violation]:
    somebody = np.zeros(group.num_topics, dtype=np.bool_)
    somebody[group.subscription_topic] = True
    left = np.flatnonzero((assignment < 0) & somebody[group.row_topic])
    if not len(left):
        return []
    what = f"{len(left)} partitions that somebody takes are with nobody: {_rows(group, left)}"
    return [Violation("UNASSIGNED", len(left), what)]


def _rows(group: Group, rows: NDArray[np.int64]) -> str:
    names = [f"{group.topics[group.row_topic[row]]}-{group.row_partition[row]}" for row in rows[:_SHOWN]]
    return ", ".join(names) + (", …" if len(rows) > _SHOWN else "")
