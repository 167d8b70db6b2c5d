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

from typing import TYPE_CHECKING

import numpy as np

from assignor_core.algorithms.flow import FAR, JUMP, Flow, find_circles
from assignor_core.algorithms.levels import cut, fill

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["balance", "fill_free"]

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
            filled = fill(before, int(free[number]))
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

    Parameters
    ----------
    owned, eligible, size
        As in `Classes`.
    count_slack
        With more than 0, chains are not looked for: partitions pass on straight between counts that differ by
        2 + `count_slack` or more, and the moves are few, but not proved to be the fewest.
    price
        int64 [K, M], an extra price of having a partition, in moves (for racks); comes after evenness.
    held
        int64 [M], what everybody has beside, that counts and never moves.
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
        if int(cut(tops, amount).max()) - (low + amount) < gap:
            last = amount
        else:
            first = amount + 1
    given: NDArray[np.int64] = np.minimum(tops - cut(tops, first), most)
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
