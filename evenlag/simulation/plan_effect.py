"""What a followed plan has saved: a replay of what ran, beside one in which every partition stayed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from evenlag.lag.arrays import Floats, Int32s
from evenlag.planning.evaluations import PlanEffect
from evenlag.planning.group_work import FollowTimes
from evenlag.simulation.estimates import Case, Estimates
from evenlag.simulation.fluid_model import simulate
from evenlag.simulation.history import History
from evenlag.simulation.scenarios import Counts


@dataclass(slots=True)
class _Owned:
    """A scenario of given owners in each snapshot, and of seconds for which rows then pause: [S, P] each."""

    is_real: ClassVar[bool] = False
    owners: Int32s
    pause_s: Floats
    counts: Counts = field(default_factory=Counts)
    owner: Int32s = field(init=False)

    def __post_init__(self) -> None:
        self.owner = self.owners[0]

    def step(self, place: int, backlog: Floats) -> Floats:
        """Process a snapshot; see :class:`~evenlag.simulation.scenarios.Scenario`."""
        del backlog
        self.owner = self.owners[place]
        return np.asarray(self.pause_s[place])


def measure_effect(
    history: History, estimates: Estimates, times: FollowTimes, since_s: float
) -> PlanEffect | None:
    """Measure a plan from the last snapshot before it was published on; None: no interval shows it.

    since_s: The time of that snapshot, in seconds since the epoch; earlier ones only tell speeds.
    """
    first = int(np.searchsorted(history.at_s, since_s))
    before = history.owner[first] if first < history.num_snapshots else history.owner[-1]
    is_moved = (history.owner >= 0) & (before >= 0) & (history.owner != before)
    is_moved[: first + 1] = False
    shown = np.flatnonzero(is_moved[:-1].any(axis=1))
    if not len(shown):
        return None
    nothing = np.zeros(history.owner.shape)
    stops = nothing.copy()
    stops[shown[0]] = np.where(is_moved[shown[0]], times.unowned_s, times.stopped_s)
    scenarios = (
        _Owned(_stayed(history, first), nothing),
        _Owned(history.owner, nothing),
        _Owned(history.owner, stops),
    )
    area = simulate(history, scenarios, estimates).lag_records_s[Case.LIKELY, first:]
    stay, actual, stopped = area.sum(axis=0)
    return PlanEffect(float(stay), float(actual), float(stopped - actual))


def _stayed(history: History, first: int) -> Int32s:
    """Owners if nothing had moved since: [S, P]; what a member leaves behind goes where it really went."""
    owners = history.owner.copy()
    for place in range(first + 1, len(owners)):
        number = int(history.structure[place])
        if number >= 0:
            before = owners[place - 1]
            is_there = history.structures[number].place[before] >= 0
            owners[place] = np.where(is_there & history.live[place], before, owners[place])
    return owners
