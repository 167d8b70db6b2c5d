"""Place by load: what a leader does with fresh loads and without a hint that fits (ADR 63).

Owned partitions stay, free ones go to the members with the least load for their capacity, then a few moves
and swaps lower the largest load. All is in integers, ties included: the broker plug-in gives the same
target.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from assignor_core.algorithms.partition_classes import classes_of
from assignor_core.algorithms.place.search import lower
from assignor_core.algorithms.place.state import PlaceProblem, PlaceState
from assignor_core.algorithms.place.steps import place, repair, share_of
from assignor_core.errors import HintMismatchError
from assignor_core.hint import member_key
from assignor_core.record import MAX_PARTITIONS_IN_ALL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from assignor_core.group import Assignment, Group
    from assignor_core.loads import LoadsPayload

__all__ = ["Placement", "place_by_load", "row_loads"]

_PASSES = 4
# A step must gain this part of the mean level: to move what a member owns costs it a pause.
_GAIN_SHARE = 32
# Where counts are even and nothing is free, the highest level must sink by this part of the mean level: a
# rebalance that has another reason, such as a sync that came late, is not followed by one more for little.
_WORTH_A_REBALANCE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where the partitions of a group are to go.

    Attributes
    ----------
    target
        int32 [P], row → member, -1 where nobody takes the topic. Before the two-phase step.
    is_uneven
        Whether counts are less even than the limits ask for, and one more rebalance can repair that: free
        partitions are placed without taking any from others.
    """

    target: Assignment
    is_uneven: bool


def place_by_load(group: Group, topic_ids: Mapping[str, str], loads: LoadsPayload) -> Placement:
    """Place the partitions of a group by their loads.

    The second round of a cooperative rebalance, computed by any leader from the claims alone, gives the
    same target: there the partitions that the first round released are free.

    Parameters
    ----------
    group
        The group as its leader sees it, with the claims of all members.
    topic_ids
        Topic ids by name, in the text form of hints.
    loads
        The group's loads, capacities and limits.

    Raises
    ------
    HintMismatchError
        If the loads cannot be used: the id of a topic is unknown, or there are too many partitions.
    """
    if any(topic not in topic_ids for topic in group.topics):
        raise HintMismatchError("the broker's metadata hold no topic ids")
    if group.num_partitions > MAX_PARTITIONS_IN_ALL:
        raise HintMismatchError(f"{group.num_partitions} partitions are too many to be placed by load")
    classes = classes_of(group)
    by_id = np.argsort(np.array([topic_ids[topic] for topic in group.topics], dtype=np.str_))
    rank = np.empty(group.num_topics, dtype=np.int64)
    rank[by_id] = np.arange(group.num_topics)
    rows = np.flatnonzero(classes.class_of_row >= 0)
    # In each topic the rows of a group are in the order of partitions.
    rows = rows[np.argsort(rank[group.row_topic[rows]], kind="stable")]
    # Topics without partitions are no part of a member's share.
    with_rows = np.flatnonzero(classes.size)
    keys = map(member_key, group.member_ids, group.instance_ids)
    problem = PlaceProblem(
        load=row_loads(group, topic_ids, loads)[rows],
        row_class=np.searchsorted(with_rows, classes.class_of_row[rows]),
        eligible=classes.eligible[with_rows],
        capacity=np.array(
            [loads.capacities.get(key, loads.default_capacity) for key in keys], dtype=np.int64
        ),
        count_slack=loads.count_slack,
    )
    placed, is_uneven = _solve(problem, group.live_owner[rows].astype(np.int64), loads.max_moves)
    target = np.full(group.num_partitions, -1, dtype=np.int32)
    target[rows] = placed
    return Placement(target, is_uneven)


def row_loads(group: Group, topic_ids: Mapping[str, str], loads: LoadsPayload) -> NDArray[np.int64]:
    """Return the load of each row; an unknown one is the mean of its topic, or of all topics.

    Parameters
    ----------
    group
        The group.
    topic_ids
        Topic ids by name, of all topics of the group.
    loads
        The group's loads.

    Returns
    -------
    numpy.ndarray
        int64 [P].
    """
    known = [load for values in loads.loads.values() for load in values if load is not None]
    mean_of_all = sum(known) // len(known) if known else 0
    result = np.empty(group.num_partitions, dtype=np.int64)
    starts = group.topic_start.tolist()
    for topic, (start, end) in zip(group.topics, pairwise(starts), strict=True):
        result[start:end] = _topic_loads(loads.loads.get(topic_ids[topic], ()), end - start, mean_of_all)
    return result


def _topic_loads(values: Sequence[int | None], size: int, mean_of_all: int) -> NDArray[np.int64]:
    known = [load for load in values if load is not None]
    mean = sum(known) // len(known) if known else mean_of_all
    filled = np.full(size, mean, dtype=np.int64)
    given = [mean if load is None else load for load in values[:size]]
    filled[: len(given)] = given
    return filled


def _solve(problem: PlaceProblem, owner: NDArray[np.int64], max_moves: int) -> tuple[NDArray[np.int64], bool]:
    state = PlaceState(problem, owner)
    owned = owner >= 0
    free = np.flatnonzero(~owned)
    budget = max(max_moves, _share_of_empty(state))
    place(state, free)
    base = state.copy()
    left = repair(state, budget, owned, empty_only=len(free) > 0)
    best = _improve(state, base, budget, 0 if len(free) else left)
    is_settled = not len(free) and left == budget
    if _releases_more(best, base) or (is_settled and not _is_worth_it(best, base)):
        best = base
    needs = best.needs()
    can_go_on = max_moves > 0 or bool((needs[best.count == 0] > 0).any())
    is_uneven = bool(needs.any()) and can_go_on and (len(free) > 0 or len(best.changed(base)) > 0)
    return best.target, is_uneven


def _is_worth_it(best: PlaceState, base: PlaceState) -> bool:
    least_gain = base.problem.share_of_mean(_WORTH_A_REBALANCE)
    return int(best.level.max(initial=0)) <= int(base.level.max(initial=0)) - least_gain


def _share_of_empty(state: PlaceState) -> int:
    total = 0
    for member in np.flatnonzero(state.count == 0).tolist():
        num_rows, num_members, _, _ = share_of(state, member)
        total += max(1, num_rows // num_members) if num_rows else 0
    return total


def _improve(state: PlaceState, base: PlaceState, budget: int, left: int) -> PlaceState:
    best, best_score = base, base.score()
    for _ in range(_PASSES):
        lower(state, left, _GAIN_SHARE)
        result = _replace(base, state.changed(base))
        score = result.score()
        if score >= best_score:
            break
        best, best_score, state = result, score, result.copy()
        left = budget - len(result.changed(base)) if left else 0
        if left <= 0:
            break
    return best


def _replace(base: PlaceState, released: NDArray[np.int64]) -> PlaceState:
    """Place released rows again, as the next round will; a row that comes back is not released."""
    while True:
        state = base.without(released)
        place(state, released)
        kept = state.changed(base)
        if len(kept) == len(released):
            return state
        released = kept


def _releases_more(best: PlaceState, base: PlaceState) -> bool:
    """Return whether the follow-up, in which the released rows are free, would release others."""
    return repair(best.copy(), 1, best.target == base.target, empty_only=True) == 0
