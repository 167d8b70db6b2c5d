"""Every move and swap of one member's rows at once, for the search of `lag-aware-sticky`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assignor_core.algorithms.load_state import MANY, Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.algorithms.load_state import LoadState

__all__ = ["best_of_all"]

# A step that a bound on loads excludes is excluded by more than the rounding error of a sum.
_ROUNDING = 1e-9


def best_of_all(state: LoadState, giver: int, ratio: float, threshold: float, thrift: float) -> Step | None:
    """Look at every move and every swap of the giver's rows at once: rows x (members + other rows).

    Most of them cannot reach the threshold by their loads alone, and are excluded first.

    Parameters
    ----------
    ratio
        The giver's load by capacity.
    threshold
        A step must bring the larger of both loads by capacity below this.
    thrift
        As for `LoadSearch`.
    """
    rows = state.rows[giver]
    if state.has_pins:
        rows = rows[~state.pinned[rows]]
    # A step has to take this much from the giver, and its taker has to have room for as much.
    least_shift = float(state.loads[giver]) - (threshold + _ROUNDING * ratio) * float(state.capacity[giver])
    given = state.load[rows]
    first = int(given.searchsorted(least_shift, side="right"))
    room = threshold * state.capacity - state.loads
    viable = room > least_shift - _ROUNDING * threshold * state.capacity
    if first == len(rows) or not viable.any():
        return None
    rows, given = rows[first:], given[first:]
    most_back = float(given[-1]) - least_shift
    movers, others, allowed = _columns(state, giver, rows, viable, most_back)
    if not len(movers) and not len(others):
        return None
    # The first columns are moves, one a member; the others are swaps, one a row.
    takers = np.concatenate([movers, state.assignment[others]])
    back = np.concatenate([np.zeros(len(movers)), state.load[others]])
    shift = given[:, None] - back
    left = (state.loads[giver] - shift) / state.capacity[giver]
    value = np.maximum(left, (state.loads[takers] + shift) / state.capacity[takers])
    good = value < threshold if allowed is None else allowed & (value < threshold)
    lines, columns = good.nonzero()
    if not len(lines):
        return None
    value, taker = value[lines, columns], takers[columns]
    owner = state.owner[rows[lines]]
    cost = (owner == giver).astype(np.int64) - (owner == taker)
    swapped = columns >= len(movers)
    if swapped.any():
        other_owner = state.owner[others[columns[swapped] - len(movers)]]
        cost[swapped] += (other_owner == taker[swapped]).astype(np.int64) - (other_owner == giver)
    weighed = np.where(cost <= state.limits.budget, (ratio - value) / np.maximum(cost, 0.5) ** thrift, 0.0)
    best = int(weighed.argmax())
    if weighed[best] <= 0:
        return None
    other = int(others[columns[best] - len(movers)]) if swapped[best] else -1
    return Step(float(value[best]), int(cost[best]), int(rows[lines[best]]), int(taker[best]), other)


def _columns(
    state: LoadState, giver: int, rows: NDArray[np.int64], viable: NDArray[np.bool_], most_back: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_] | None]:
    """Return members to move to, rows to swap with, and which pairs are allowed; None for all.

    Parameters
    ----------
    viable
        bool [M], who has room.
    most_back
        A row as heavy as this, or more, would give back too much.
    """
    if len(state.eligible) == 1:
        movable, swappable = _allowed_to_all(state, giver)
        # The last place is what -1, nobody, looks up.
        holds = np.append(swappable & viable, False)
        exchanged = holds[state.assignment]
        exchanged &= state.load < most_back
        if state.has_pins:
            exchanged &= ~state.pinned
        return (movable & viable).nonzero()[0], exchanged.nonzero()[0], None
    others = np.flatnonzero((state.assignment >= 0) & (state.assignment != giver) & ~state.pinned)
    others = others[viable[state.assignment[others]] & (state.load[others] < most_back)]
    others = others[state.eligible[state.row_class[others], giver]]
    members = np.flatnonzero(viable)
    allowed = _allowed(state, giver, rows, others)
    kept = np.concatenate([members, len(state.loads) + np.arange(len(others))])
    return members, others, allowed[:, kept]


def _allowed_to_all(state: LoadState, giver: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """As `_allowed`, where all rows are of one class: bool [M], who may take one more, who may swap."""
    gap, counts, eligible = state.limits.gap, state.counts, state.eligible[0]
    more = counts - (int(np.where(eligible, counts, MANY).min()) + gap)
    most = int(counts.max()) if eligible[giver] else 0
    held = int(counts[giver])
    shifts = np.maximum(counts + 1, most) <= gap + held - 1
    shifts |= counts < held
    shifts[giver] = False
    swaps = eligible & (more <= 0)
    swaps = swaps if swaps[giver] else np.zeros_like(swaps)
    swaps[giver] = False
    return eligible & (more < 0) & shifts, swaps


def _allowed(
    state: LoadState, giver: int, rows: NDArray[np.int64], others: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which moves and swaps subscriptions and counts allow: bool [rows, M + others]."""
    gap, counts = state.limits.gap, state.counts
    least = np.where(state.eligible, counts, MANY).min(axis=1)
    keeps = state.eligible & (counts[None, :] - least[:, None] <= gap)
    gains = state.eligible & (counts[None, :] + 1 - least[:, None] <= gap)
    gains &= (gains | (state.held == 0)).all(axis=0)
    most = np.where(state.held[state.eligible[:, giver]] > 0, counts, 0).max(initial=0)
    shifts = np.maximum(most, counts + 1) - (counts[giver] - 1) <= gap
    if len(state.eligible) == 1:
        shifts |= counts < counts[giver]
    shifts[giver] = False
    classes = state.row_class[rows]
    moves = gains[classes] & shifts
    fits_giver = keeps[state.row_class[others], giver]
    swaps = keeps[classes][:, state.assignment[others]] & fits_giver
    return np.concatenate([moves, swaps], axis=1)
