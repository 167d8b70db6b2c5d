"""Moves and swaps between two members, for the search of `lag-aware-sticky`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assignor_core.algorithms.load_state import MANY, Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.algorithms.load_state import LoadState

__all__ = ["pair_steps"]


def pair_steps(state: LoadState, giver: int, taker: int) -> list[Step]:
    """Return the best moves and swaps from one member to another that counts and the budget allow."""
    rows = state.movable_rows(giver, taker)
    if not len(rows):
        return []
    out_costs = state.move_costs(rows, giver, taker)
    steps = []
    if _may_shift(state, giver, taker):
        allowed = _may_hold(state, rows, taker, 1)
        steps += _best(state, giver, taker, rows[allowed], None, out_costs[allowed])
    back = state.movable_rows(taker, giver)
    if len(back):
        steps += _swaps(state, giver, taker, rows, out_costs, back)
    return steps


def _swaps(
    state: LoadState,
    giver: int,
    taker: int,
    rows: NDArray[np.int64],
    out_costs: NDArray[np.int64],
    back: NDArray[np.int64],
) -> list[Step]:
    keep = _may_hold(state, rows, taker, 0)
    rows, out_costs = rows[keep], out_costs[keep]
    back = back[_may_hold(state, back, giver, 0)]
    if not len(rows) or not len(back):
        return []
    back_costs = state.move_costs(back, taker, giver)
    capacity = state.capacity
    ideal = (state.loads[giver] * capacity[taker] - state.loads[taker] * capacity[giver]) / (
        capacity[giver] + capacity[taker]
    )
    steps: list[Step] = []
    # Once with all rows in exchange, and once with those that cost nothing more.
    for cheap in (False, True):
        pool = back_costs <= 0 if cheap else np.ones(len(back), dtype=np.bool_)
        if not pool.any() or (cheap and pool.all()):
            continue
        steps += _nearest_swaps(state, giver, taker, (rows, out_costs), (back[pool], back_costs[pool]), ideal)
    return steps


def _nearest_swaps(
    state: LoadState,
    giver: int,
    taker: int,
    out: tuple[NDArray[np.int64], NDArray[np.int64]],
    back: tuple[NDArray[np.int64], NDArray[np.int64]],
    ideal: float,
) -> list[Step]:
    rows, out_costs = out
    others, back_costs = back
    place = np.searchsorted(state.load[others], state.load[rows] - ideal)
    steps: list[Step] = []
    for shift in (-1, 0):
        index = np.clip(place + shift, 0, len(others) - 1)
        steps += _best(state, giver, taker, rows, others[index], out_costs + back_costs[index])
    return steps


def _best(
    state: LoadState,
    giver: int,
    taker: int,
    rows: NDArray[np.int64],
    back: NDArray[np.int64] | None,
    costs: NDArray[np.int64],
) -> list[Step]:
    """Return the best affordable step, and the best of the cheaper ones."""
    shift = state.load[rows] if back is None else state.load[rows] - state.load[back]
    value = state.pair_value(giver, taker, shift)
    steps = []
    for limit in sorted({min(state.limits.budget, most) for most in (0, 1, 2)}):
        affordable = np.flatnonzero(costs <= limit)
        if len(affordable):
            i = int(affordable[np.lexsort((costs[affordable], value[affordable]))[0]])
            other = -1 if back is None else int(back[i])
            steps.append(Step(float(value[i]), int(costs[i]), int(rows[i]), taker, other))
    return steps


def _may_shift(state: LoadState, giver: int, taker: int) -> bool:
    """Whether the giver can do with one fewer, by the counts of those that could give to it."""
    if len(state.eligible) == 1 and state.counts[giver] > state.counts[taker]:
        return True
    reachable = state.eligible[:, giver]
    most = np.where(state.held[reachable] > 0, state.counts, 0).max(initial=0)
    return bool(max(most, state.counts[taker] + 1) - (state.counts[giver] - 1) <= state.limits.gap)


def _may_hold(state: LoadState, rows: NDArray[np.int64], taker: int, more: int) -> NDArray[np.bool_]:
    """Whether the taker, then with `more` partitions, may hold these rows beside who else takes them."""
    least = np.where(state.eligible, state.counts, MANY).min(axis=1)
    fits = state.counts[taker] + more - least <= state.limits.gap
    if more and not bool(fits[state.held[:, taker] > 0].all()):
        return np.zeros(len(rows), dtype=np.bool_)
    return np.asarray(fits[state.row_class[rows]], dtype=np.bool_)
