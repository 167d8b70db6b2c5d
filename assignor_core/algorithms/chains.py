"""Counts for unequal subscriptions: as even as chains of members can make them, by the fewest moves.

The problem is a flow. Each class sends its partitions to its members; what one member passes on, through
a class, to the next is an arc of the residual graph. Two facts make it exact:

- The sum of squared counts is minimal if and only if no path leads from a member to one with at least
  two fewer (an *improving* path).
- Among the assignments with that sum, moves are fewest if and only if no closed way costs less than
  nothing, where passing on a partition that one owned costs 1, taking one's own back earns 1, and a way
  may jump from a member with c partitions to any with c + 1 (a *neutral* exchange of ranks). A way with
  other jumps can be cut into such ways, because no improving path is left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from assignor_core.algorithms.levels import lower_highest, raise_lowest

_ENOUGH_TO_PASS_ON = 2
_SWEEPS = 8


def fill_free(
    owned: NDArray[np.int64],
    eligible: NDArray[np.bool_],
    size: NDArray[np.int64],
    held: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return the counts with everything owned kept and the rest filled in, the choosiest class first.

    A first filling cannot know what later classes bring, so each class is taken back and filled in again
    until that changes nothing.
    """
    free = size - owned.sum(axis=1)
    counts = owned.sum(axis=0) + (0 if held is None else held)
    placed = np.zeros_like(owned)
    order = [k for k in np.argsort(eligible.sum(axis=1), kind="stable").tolist() if free[k]]
    takers = {k: np.flatnonzero(eligible[k]) for k in order}
    for sweep in range(_SWEEPS):
        changed = False
        for number in order:
            who = takers[number]
            before = counts[who] - placed[number, who]
            if sweep and int(counts[who].max()) - int(counts[who].min()) <= 1:
                continue
            filled = raise_lowest(before, int(free[number]))
            changed |= not np.array_equal(filled, counts[who])
            placed[number, who] = filled - before
            counts[who] = filled
        if not changed or len(order) == 1:
            break
    return owned + placed


def balance(
    owned: NDArray[np.int64],
    eligible: NDArray[np.bool_],
    size: NDArray[np.int64],
    *,
    count_slack: int = 0,
    price: NDArray[np.int64] | None = None,
    held: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Return int64 [K, M]: the most even counts, and among these the fewest moves.

    With `count_slack` chains are not looked for: partitions pass on straight between counts that differ by
    2 + `count_slack` or more, and the moves are few, but not proved to be the fewest. `price`, int64 [K, M],
    is an extra price of having a partition, in moves (for racks), after evenness; `held`, int64 [M], what
    each member has beside, that counts and never moves.
    """
    have = fill_free(owned, eligible, size, held)
    if not have.size:
        return have
    counts = have.sum(axis=0) + (0 if held is None else held)
    flow = Flow(have, owned, eligible, price, counts)
    while _pass_straight(flow, _ENOUGH_TO_PASS_ON + count_slack):
        pass
    if not count_slack:
        _pass_along_chains(flow)
        while _cancel_circles(flow):
            pass
    return flow.have.astype(np.int64)


def _pass_straight(flow: Flow, gap: int) -> bool:
    """Fill each member, the least loaded first, from those with `gap` more; whether anything went."""
    passed = False
    for taker in np.argsort(flow.counts, kind="stable").tolist():
        if int(flow.counts.max()) - int(flow.counts[taker]) < gap:
            break
        passed |= _fill_one(flow, taker, gap)
    return passed


def _fill_one(flow: Flow, taker: int, gap: int) -> bool:
    classes = np.flatnonzero(flow.eligible[:, taker])
    cheapest = flow.out[classes].min(axis=0, initial=FAR)
    givers = np.flatnonzero((cheapest < FAR) & (flow.counts >= flow.counts[taker] + gap))
    if not len(givers):
        return False
    have = flow.have[np.ix_(classes, givers)]
    tops = flow.counts[givers]
    wanted = _how_many(tops, have.sum(axis=0, dtype=np.int64), int(flow.counts[taker]), gap)
    for index in np.flatnonzero(wanted).tolist():
        giver, left = int(givers[index]), int(wanted[index])
        # What costs nothing goes first, and of equals the class it has most of.
        while left:
            column = flow.out[classes, giver]
            best = int(np.lexsort((-flow.have[classes, giver], column))[0])
            number = int(classes[best])
            spare = int(flow.have[number, giver] - flow.owned[number, giver])
            amount = min(left, spare if spare > 0 else int(flow.have[number, giver]))
            flow.move(number, giver, taker, amount)
            left -= amount
        flow.counts[giver] -= int(wanted[index])
        flow.counts[taker] += int(wanted[index])
    return bool(wanted.any())


def _how_many(tops: NDArray[np.int64], most: NDArray[np.int64], low: int, gap: int) -> NDArray[np.int64]:
    """Return how many each giver gives so that the taker is less than `gap` below those with more."""
    first, last = 0, int(np.minimum(most, tops).sum())
    while first < last:
        amount = (first + last) // 2
        if int(lower_highest(tops, amount).max()) - (low + amount) < gap:
            last = amount
        else:
            first = amount + 1
    given: NDArray[np.int64] = np.minimum(tops - lower_highest(tops, first), most)
    return given


def _pass_along_chains(flow: Flow) -> None:
    """Pass partitions on along the cheapest chains until none leads over a gap of two."""
    active = flow.eligible.any(axis=0)
    while active.any():
        most = flow.counts[active].max()
        distance, via_class, via_member = flow.distances(active & (flow.counts == most))
        reached = distance < FAR
        low = np.flatnonzero(reached & (flow.counts <= most - _ENOUGH_TO_PASS_ON))
        if not len(low):
            # Nothing leads out of what was reached, so it is settled as a whole.
            active &= ~reached
            continue
        used = np.zeros(len(flow.counts), dtype=np.bool_)
        for last in low[np.lexsort((low, distance[low], flow.counts[low]))].tolist():
            chain = _chain(last, via_member)
            # Chains that share no member do not touch each other's arcs.
            if not used[chain].any():
                used[chain] = True
                flow.go(chain[:-1], via_class, via_member)
                flow.counts[last] += 1
                flow.counts[chain[-1]] -= 1


def _chain(last: int, via_member: NDArray[np.int64]) -> list[int]:
    chain = [last]
    while via_member[chain[-1]] >= 0:
        chain.append(int(via_member[chain[-1]]))
    return chain


def _cancel_circles(flow: Flow) -> bool:
    """Find ways round that cost less than nothing and go them; return whether there were any."""
    num_members = len(flow.counts)
    distance = np.zeros(num_members, dtype=np.int32)
    via_class = np.full(num_members, -1, dtype=np.int64)
    via_member = np.full(num_members, -1, dtype=np.int64)
    while flow.relax(distance, via_class, via_member):
        circles = find_circles(via_member)
        for circle in circles:
            flow.go([m for m in circle if via_class[m] != JUMP], via_class, via_member)
            for member in circle:
                if via_class[member] == JUMP:
                    # The giver ends a chain and has one more; this member begins the next, with one fewer.
                    flow.counts[via_member[member]] += 1
                    flow.counts[member] -= 1
        if circles:
            return True
    return False


# More than any way costs, and so little that sums of three stay within int32.
FAR = 2**28
JUMP = -2


class Flow:
    """A matrix of counts, classes x members, with its costs kept up to date.

    `have`, `owned` int64 and `eligible` bool [K, M] are the flow to begin with, what is owned, and who takes
    what; `out` and `into`, int32 [K, M], the cost of taking one from a member and of giving it one, FAR where
    that cannot be.
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
