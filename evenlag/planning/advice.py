"""Advice: how many members a group needs so that records wait no longer than a target.

Partitions are items, members are bins of their measured speeds. Items are packed in decreasing order, into
the member that has most left (worst fit), else into the fullest that still takes one (best fit). The search
begins at a lower bound; where it succeeds there, the number is the least one.

The cost of a change is the R-score of Landau et al. (JPDC 201, 2025, 105071): the work per second of all
partitions that move, in members. Of members of similar speed those with the least R-score may go.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from evenlag.enums import AdviceReason

if TYPE_CHECKING:
    from evenlag.lag.arrays import Bools, Floats, Int64s

# Share of a member's speed that is planned: the rest is for bursts within a step, and for errors of speeds.
_FILL: Final = 0.98
# A backlog is to be gone after so many seconds, or at the end of the horizon.
_DRAIN_S: Final = 600.0
# Less is processed and not committed yet: two commit intervals.
_COMMITTED_S: Final = 10.0
# So many heaviest partitions are placed one by one; the others only by the bound.
_MOST_PLACED: Final = 500
# After so many partitions the bound is looked at.
_ROOM_EVERY: Final = 4
# Speeds within such a factor are similar.
_SIMILAR: Final = 1.25
# Fewer members are advised when fewer have been sufficient for so long.
HOLD_S: Final = 900.0


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """What a group needs.

    members: Least number of members that is found; at most one for each partition.
    reason: What binds. HOT_PARTITION: partitions that no number of members helps. PARTITIONS: their number,
        or that whole partitions do not divide more evenly.
    by_rate: Members that the work needs if it could be divided at will.
    hot: [H] partitions whose records cost more than the fastest member can do; not those of a member whose
        speed is only known as a lower bound.
    partitions_to_add: So many more, with even traffic, give the members that the work needs a partition each.
    moves, r_score: Partitions that move when the group has this number, and their work in members.
    """

    members: int
    reason: AdviceReason
    by_rate: int
    hot: Int64s
    partitions_to_add: int
    moves: int
    r_score: float

    def at_most(self, size: int) -> Advice:
        """Return the advice to a group of so many members that keep up, by lower bounds of their speeds.

        That more are needed, or that a partition is too much for one, does not follow from these.
        """
        members, by_rate = min(self.members, size), min(self.by_rate, size)
        return replace(
            self,
            members=members,
            reason=_reason(members, by_rate, 0),
            by_rate=by_rate,
            partitions_to_add=0,
        )


class Demand(NamedTuple):
    """Work that partitions need per second: [P, K] at several times, and [P] without what waits already."""

    work: Floats
    rate: Floats


def demand(backlog: Floats, arrivals: Floats, step_s: float, target_s: float) -> Demand:
    """Return the work per second that each partition needs in each step, and over the horizon.

    What arrives in a step may wait for the target. The backlog is to be gone soon.

    backlog: [P] units of work. arrivals: [P, K] units of work that arrive in each of K steps of `step_s`.
    """
    horizon_s = step_s * arrivals.shape[1]
    rate = arrivals.sum(axis=1) / horizon_s
    late = (backlog - rate * _COMMITTED_S).clip(min=0.0)
    drained = rate + late / min(_DRAIN_S, horizon_s)
    return Demand(np.column_stack([arrivals / (step_s + target_s), drained]), rate)


def advise(wanted: Demand, speed: Floats, is_bound: Bools, owner: Int64s, typical: float) -> Advice:
    """Return how many members hold a demand.

    speed: [M] units of work per second of the members that there are. is_bound: [M], whether it is at least
        that: such a member may do all that it has. owner: [P], -1 for none.
    typical: Speed of a further member.
    """
    order = fastest_first(wanted.rate, speed, owner)
    num_partitions = len(wanted.rate)
    speeds = np.concatenate([speed[order], np.full(max(num_partitions - len(speed), 0), typical)]) * _FILL
    fastest = float(speeds.max(initial=0.0))
    size = wanted.work.max(axis=1, initial=0.0)
    is_alone = size > fastest
    num_alone = int(is_alone.sum())
    by_rate = _least_members(wanted.work, speeds, typical * _FILL)
    # Of a partition that needs more, one member does what it can.
    divided = _least_members(np.minimum(wanted.work, fastest), speeds, typical * _FILL)
    packing = _Packing(wanted.work[~is_alone])
    least = max(packing.lower_bound(speeds[num_alone:]), divided - num_alone, int(not num_alone))
    found = packing.least_members(speeds[num_alone:], least, num_partitions - num_alone)
    members = max(min(num_alone + found, num_partitions), 1)
    # What nobody owns, one of them may do if all are known as lower bounds only.
    may_do_all = np.append(is_bound, is_bound.all())[owner]
    hot = np.flatnonzero((wanted.rate * _FILL > fastest) & ~may_do_all)
    moves, r_score = _moves(size, owner, speed, may_do_all, order[members:])
    return Advice(
        members,
        _reason(members, by_rate, len(hot)),
        by_rate,
        hot,
        _partitions_to_add(wanted.rate[hot], fastest, by_rate - num_partitions),
        moves,
        r_score,
    )


def _reason(members: int, by_rate: int, num_hot: int) -> AdviceReason:
    if num_hot:
        return AdviceReason.HOT_PARTITION
    return AdviceReason.RATE if members == by_rate else AdviceReason.PARTITIONS


def _partitions_to_add(hot_rate: Floats, fastest: float, missing: int) -> int:
    of_hot = int((np.ceil(hot_rate / fastest) - 1).sum()) if len(hot_rate) else 0
    return max(of_hot, missing, 0)


def fastest_first(rate: Floats, speed: Floats, owner: Int64s) -> Int64s:
    """Return members in the order in which they are kept: by speed, of similar ones those with most work."""
    work = np.bincount(owner[owner >= 0], rate[owner >= 0], minlength=len(speed))
    similar = np.round(np.log(speed) / np.log(_SIMILAR))
    return np.asarray(np.lexsort((-speed, -work, -similar)), dtype=np.int64)


def _least_members(demands: Floats, speeds: Floats, typical: float) -> int:
    """The least number of members whose speeds sum up to the work, also beyond the given ones."""
    work, sums = float(demands.sum(axis=0).max(initial=0.0)), np.cumsum(speeds)
    total = float(sums[-1]) if len(sums) else 0.0
    if work <= total:
        return max(int(np.searchsorted(sums, work)) + 1, 1)
    return max(len(sums) + int(np.ceil((work - total) / typical)), 1)


class _Packing:
    """Partitions in decreasing order of their largest work."""

    def __init__(self, work: Floats) -> None:
        size = work.max(axis=1, initial=0.0)
        order = np.argsort(-size, kind="stable")
        self._work, self._size = work[order], size[order]
        self._rest = np.append(np.cumsum(self._size[::-1])[::-1], 0.0)

    def lower_bound(self, speeds: Floats) -> int:
        """Return the least number of members that may be sufficient: no two large partitions share one."""
        largest = float(speeds.max(initial=0.0))
        return int((self._work > largest / 2).sum(axis=0).max(initial=0))

    def least_members(self, speeds: Floats, least: int, most: int) -> int:
        """Return the least number for which a packing is found; mostly it is near the lower bound."""
        step, low, high = 1, least, least
        while high < most and not self._fits(speeds[:high]):
            low, high, step = high + 1, high + step, 2 * step
        between = range(low, min(high, most))
        return low + bisect_left(between, True, key=lambda count: self._fits(speeds[:count]))

    def _fits(self, speeds: Floats) -> bool:
        """Whether worst fit or best fit finds room for all."""
        return self._place(speeds, is_best=False) or self._place(speeds, is_best=True)

    def _place(self, speeds: Floats, *, is_best: bool) -> bool:
        load = np.zeros((len(speeds), self._work.shape[1]))
        placed = np.zeros(len(speeds))
        for row, work in enumerate(self._work[:_MOST_PLACED]):
            if row % _ROOM_EVERY == 0 and self._is_room(row, placed, speeds):
                return True
            after = (load + work).max(axis=1)
            takes = np.flatnonzero(after <= speeds)
            if not len(takes):
                return False
            share = after[takes] / speeds[takes]
            member = takes[share.argmax() if is_best else share.argmin()]
            load[member] += work
            placed[member] += self._size[row]
        return self._is_room(min(len(self._size), _MOST_PLACED), placed, speeds)

    def _is_room(self, row: int, placed: Floats, speeds: Floats) -> bool:
        """Whether any order places the partitions from `row` on.

        While no member has room for the largest of them, all have more than their speeds without it.
        """
        if row == len(self._size):
            return True
        left = speeds - placed - self._size[row]
        return bool(self._rest[row] <= left.clip(min=0.0).sum())


def _moves(size: Floats, owner: Int64s, speed: Floats, may_do_all: Bools, gone: Int64s) -> tuple[int, float]:
    """Return how many partitions move, and their R-score: those of members that go, and what is too much."""
    is_gone = np.zeros(len(speed), dtype=np.bool_)
    is_gone[gone] = True
    rows = np.flatnonzero(owner >= 0)
    # Members keep their largest partitions as long as these fit.
    rows = rows[np.lexsort((-size[rows], owner[rows]))]
    of = owner[rows]
    sums = np.cumsum(size[rows])
    before = np.concatenate([[0.0], sums])[np.searchsorted(of, of)]
    is_first = np.searchsorted(of, of) == np.arange(len(of))
    is_too_much = (sums - before > _FILL * speed[of] * (1 + 1e-9)) & ~is_first & ~may_do_all[rows]
    is_moved: Bools = is_gone[of] | is_too_much
    if not is_moved.any():
        return 0, 0.0
    return int(is_moved.sum()), float(size[rows][is_moved].sum() / np.median(speed))


class Held(NamedTuple):
    """An advised number of members; fewer have been sufficient since a moment: at most so many of them."""

    members: int
    fewer: int | None = None
    since_s: float | None = None


def hold(before: Held | None, members: int, now_s: float, hold_s: float = HOLD_S) -> Held:
    """Return the number to advise: more at once, fewer when fewer have been sufficient for a while."""
    if before is None or members >= before.members:
        return Held(members)
    if before.fewer is None or before.since_s is None:
        return Held(before.members, members, now_s)
    fewer = max(before.fewer, members)
    if now_s - before.since_s < hold_s:
        return Held(before.members, fewer, before.since_s)
    return Held(fewer) if fewer == members else Held(fewer, members, now_s)
