"""Scenarios of a simulation that decide nothing, and estimates that are the same in all cases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from evenlag.simulation.estimates import Case, Estimates
from evenlag.simulation.scenarios import Counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lag.arrays import Floats, Int32s
    from evenlag.simulation.history import History


def constant(history: History, speed: Floats) -> Estimates:
    """Return arrivals that are even over each interval, and members of constant speed [M], in all cases."""
    num_intervals, num_rows = history.arrived.shape
    nothing = np.zeros((len(Case), num_intervals, num_rows))
    even = history.arrived / history.interval_s[:, None]
    return Estimates(
        speed=np.broadcast_to(speed, (len(Case), num_intervals, len(speed))).copy(),
        at_start=nothing,
        at_end=nothing.copy(),
        from_s=np.zeros((len(Case), 2, num_intervals, num_rows)),
        rate=np.broadcast_to(even, (len(Case), 3, num_intervals, num_rows)).copy(),
        weight=np.ones((num_intervals, num_rows)),
        has_stops=np.zeros((num_intervals, num_rows), dtype=np.bool_),
        is_set=np.zeros_like(history.went_back),
        is_observed=np.ones(len(speed), dtype=np.bool_),
    )


@dataclass
class FixedOwners:
    """Owners that stay, and, if given, how long each row pauses in each snapshot."""

    is_real: ClassVar[bool] = False
    owners: Sequence[int]
    pauses: Sequence[Sequence[float]] | None = None
    counts: Counts = field(default_factory=Counts)
    owner: Int32s = field(init=False)

    def __post_init__(self) -> None:
        self.owner = np.array(self.owners, dtype=np.int32)

    def step(self, place: int, backlog: Floats) -> Floats:
        """Pause as said."""
        return np.zeros(len(backlog)) if self.pauses is None else np.array(self.pauses[place])
