"""The flow behind the sticky family: how many of each class every member has, and what passing on costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FAR", "JUMP", "Flow", "find_circles"]

# More than any way costs, and so little that sums of three stay within int32.
FAR = 2**28
JUMP = -2


class Flow:
    """A matrix of counts, classes x members, with its costs kept up to date.

    Parameters
    ----------
    have, owned, eligible
        int64, int64, bool [K, M]: the flow to begin with, what is owned, who takes what.
    price
        int64 [K, M] or None: an extra price of each partition that a member has.
    counts
        int64 [M], all that each member has.

    Attributes
    ----------
    out, into
        int32 [K, M]: the cost of taking one from a member, and of giving it one; FAR where that cannot be.
    """

    def __init__(
        self,
        have: NDArray[np.int64],
        owned: NDArray[np.int64],
        eligible: NDArray[np.bool_],
        price: NDArray[np.int64] | None,
        counts: NDArray[np.int64],
    ) -> None:
        self.have = have.astype(np.int32)
        self.owned = owned.astype(np.int32)
        self.eligible = eligible
        self.price = None if price is None else price.astype(np.int32)
        self.counts = counts
        self.out = (self.have <= self.owned).astype(np.int32)
        self.into = -(self.have < self.owned).astype(np.int32)
        if self.price is not None:
            self.out -= self.price
            self.into += self.price
        self.out[self.have == 0] = FAR
        self.into[~eligible] = FAR
        self._may_take = np.where(eligible, np.int32(0), np.int32(FAR))
        self._buffer = np.empty_like(self.out)

    def move(self, number: int, giver: int, taker: int, amount: int) -> None:
        """Pass some of a class from one member to another; the counts are the caller's to change."""
        self.have[number, giver] -= amount
        self.have[number, taker] += amount
        for member in (giver, taker):
            have, owned = int(self.have[number, member]), int(self.owned[number, member])
            price = 0 if self.price is None else int(self.price[number, member])
            self.out[number, member] = (have <= owned) - price if have else FAR
            self.into[number, member] = price - (have < owned)

    def go(self, members: list[int], via_class: NDArray[np.int64], via_member: NDArray[np.int64]) -> None:
        """Pass one on to each of the members, by the class and from whom the search says."""
        for member in members:
            self.move(int(via_class[member]), int(via_member[member]), member, 1)

    def distances(
        self, sources: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """Return the cheapest ways from the sources to every member, with what leads there.

        Prices and earnings are left out here: without negative costs the search ends, and cancelling
        circles sets right what that costs.
        """
        num_members = len(sources)
        out = self.out if self.price is None else np.where(self.have > 0, self.have <= self.owned, FAR)
        distance = np.where(sources, np.int32(0), np.int32(FAR))
        via_class = np.full(num_members, -1, dtype=np.int64)
        via_member = np.full(num_members, -1, dtype=np.int64)
        while True:
            np.add(out, distance, out=self._buffer)
            found, classes, givers, better = self._best(self._buffer, self._may_take, distance)
            if not len(better):
                return distance, via_class, via_member
            distance[better] = found
            via_class[better], via_member[better] = classes, givers

    def relax(
        self, distance: NDArray[np.int32], via_class: NDArray[np.int64], via_member: NDArray[np.int64]
    ) -> bool:
        """Shorten all ways by one more arc or jump, in place; return whether any became shorter."""
        np.add(self.out, distance, out=self._buffer)
        found, classes, givers, better = self._best(self._buffer, self.into, distance)
        jump, jumper = self._jumps(distance)
        via = distance.copy()
        via[better] = found
        hop = np.flatnonzero(jump < via)
        via_class[better], via_member[better] = classes, givers
        via_class[hop], via_member[hop] = JUMP, jumper[hop]
        via[hop] = jump[hop]
        distance[:] = via
        return bool(len(better) or len(hop))

    def _best(
        self, leaving: NDArray[np.int32], arriving: NDArray[np.int32], distance: NDArray[np.int32]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return, for the members that can be reached cheaper: how cheap, by which class, from whom, who."""
        from_class = leaving.min(axis=1)
        usable = np.flatnonzero(from_class < FAR)
        if len(usable) == len(from_class):
            reach = arriving + from_class[:, None]
        else:
            reach = arriving[usable] + from_class[usable, None]
        if not len(reach):
            none = np.zeros(0, dtype=np.int64)
            return none.astype(np.int32), none, none, none
        cheapest = reach.min(axis=0)
        better = np.flatnonzero((cheapest < distance) & (cheapest < FAR // 2))
        classes = usable[reach[:, better].argmin(axis=0)]
        needed, place = np.unique(classes, return_inverse=True)
        givers = leaving[needed].argmin(axis=1)[place]
        return cheapest[better], classes, givers, better

    def _jumps(self, distance: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return, per member, the cheapest way to anybody with one partition fewer, and to whom."""
        order = np.lexsort((distance, self.counts))
        ranked = self.counts[order]
        place = np.searchsorted(ranked, self.counts - 1)
        place = np.minimum(place, len(ranked) - 1)
        jumper = order[place]
        there = ranked[place] == self.counts - 1
        return np.where(there, distance[jumper], np.int32(FAR)), jumper


def find_circles(via_member: NDArray[np.int64]) -> list[list[int]]:
    """Return all circles of predecessors: the members of each, every one followed by who leads to it."""
    parents = via_member.tolist()
    seen_from = [0] * len(parents)
    circles = []
    for start in range(len(parents)):
        member, path = start, []
        while member >= 0 and not seen_from[member]:
            seen_from[member] = start + 1
            path.append(member)
            member = parents[member]
        if member >= 0 and path and seen_from[member] == start + 1:
            circles.append(path[path.index(member) :])
    return circles
