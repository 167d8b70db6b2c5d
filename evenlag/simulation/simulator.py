"""Replays a group's history: all scenarios in parallel, interval by interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evenlag.simulation.fluid_model import ROUNDING_RECORDS, advance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from evenlag.simulation.fluid_model import Advanced
    from evenlag.simulation.history import History
    from evenlag.simulation.scenarios import Scenario


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """The result of L scenarios.

    backlog: [S, L, P] records in each snapshot; 0 where the row does not exist.
    owner: int32 [S, L, P] from each snapshot on, index of a member, -1 for none.
    processed: [S - 1, L, P] records in the interval after each snapshot.
    lag_records_s: [S - 1, L] lag of the group integrated over the interval after each snapshot, records
        times seconds.
    drain_s: [L, P] seconds from the snapshot with the largest measured lag (``History.most_lag``) until the
        row has processed its backlog of that snapshot; infinite if not within the period.
    """

    backlog: NDArray[np.float64]
    owner: NDArray[np.int32]
    processed: NDArray[np.float64]
    lag_records_s: NDArray[np.float64]
    drain_s: NDArray[np.float64]


class _Drain:
    """When each row has processed its backlog of the snapshot with the largest measured lag."""

    def __init__(self, history: History, place: int, backlog: NDArray[np.float64]) -> None:
        self._history = history
        self._from_s = float(history.at_s[place])
        self.owed = backlog.ravel().copy()
        self.drain_s = np.where(backlog <= ROUNDING_RECORDS, 0.0, np.inf)

    def add(self, place: int, advanced: Advanced) -> None:
        """Add the interval after a snapshot; a row that does not exist at its end has no backlog left."""
        history = self._history
        since_s = history.at_s[place : place + 2] - self._from_s
        paid_s = since_s[0] + advanced.paid_s.reshape(self.drain_s.shape)
        gone_s = np.where(history.live[place + 1], np.inf, since_s[1])
        self.drain_s = np.minimum(self.drain_s, np.minimum(paid_s, gone_s))
        self.owed -= advanced.processed


def simulate(history: History, scenarios: Sequence[Scenario], capacity: NDArray[np.float64]) -> Simulated:
    """Simulate a history under each scenario.

    A row starts with the lag of the first snapshot in which it is known; from then on only the model
    determines it.

    capacity: [M] records per second.
    """
    num_snapshots, num_rows = history.live.shape
    num_scenarios, num_servers = len(scenarios), len(capacity) + 1
    shape = (num_scenarios, num_rows)
    backlog, owner = np.zeros(shape), np.full(shape, -1, dtype=np.int32)
    ready_s = np.zeros(shape)
    backlogs, owners = np.zeros((num_snapshots, *shape)), np.full((num_snapshots, *shape), -1, dtype=np.int32)
    processed = np.zeros((max(num_snapshots - 1, 0), *shape))
    lag_records_s = np.zeros(processed.shape[:2])
    drain_place = history.most_lag
    drain: _Drain | None = None
    # Rows without an owner (-1) have the last server of each scenario, which has capacity 0.
    scenario_server = np.arange(num_scenarios)[:, None] * num_servers
    scenario_capacity = np.tile(np.append(capacity, 0.0), num_scenarios)
    is_begun = np.zeros(num_rows, dtype=np.bool_)
    interval_s = history.interval_s
    for place in range(num_snapshots):
        is_begun &= history.live[place]
        begins = history.live[place] & ~is_begun & np.isfinite(history.lag[place])
        backlog[:, ~is_begun] = 0.0
        backlog[:, begins] = history.lag[place][begins]
        is_begun |= begins
        for number, scenario in enumerate(scenarios):
            ready_s[number] = scenario.step(place, backlog[number])
            owner[number] = scenario.owner
        backlogs[place], owners[place] = backlog, owner
        if place == drain_place:
            drain = _Drain(history, place, backlog)
        if place == num_snapshots - 1:
            break
        rate = np.where(is_begun, history.arrived[place] / interval_s[place], 0.0)
        advanced = advance(
            backlog.ravel(),
            arrival=np.tile(rate, num_scenarios),
            server=(scenario_server + owner % num_servers).ravel(),
            capacity=scenario_capacity,
            ready_s=ready_s.ravel(),
            duration_s=float(interval_s[place]),
            owed=None if drain is None else drain.owed,
        )
        backlog, processed[place] = advanced.backlog.reshape(shape), advanced.processed.reshape(shape)
        lag_records_s[place] = advanced.backlog_records_s.reshape(shape).sum(axis=1)
        if drain is not None:
            drain.add(place, advanced)
    drain_s = np.full(shape, np.inf) if drain is None else drain.drain_s
    return Simulated(backlogs, owners, processed, lag_records_s, drain_s)
