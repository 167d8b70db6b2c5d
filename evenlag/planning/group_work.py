"""What the members of a group can process and what will arrive: the inputs of ``load: time``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from evenlag.lag.arrays import Bools, Floats, Int64s


@dataclass(frozen=True, slots=True, eq=False)
class GroupWork:
    """The work of one group of M members and P partitions over a horizon of K steps.

    A record of cost 1 is one unit of work; costs have median 1.

    speed: [M] units of work per second of a member that always has records; positive.
    is_bound: [M], whether a member's speed is only a lower bound.
    cost: [P] units of work per record.
    arrivals: [P, K] records that are expected in each step.
    error: [P, K] standard deviation of the records that arrive until the end of each step.
    step_s: Seconds of a step.
    unowned_s, stopped_s: Seconds that a plan stops a moved partition, and all others.
    """

    speed: Floats
    is_bound: Bools
    cost: Floats
    arrivals: Floats
    error: Floats
    step_s: float
    unowned_s: float
    stopped_s: float

    @property
    def horizon_s(self) -> float:
        """Seconds of all steps."""
        return float(self.step_s * self.arrivals.shape[1])

    def united(self, unit: Int64s, num_units: int) -> GroupWork:
        """Return the work of units of partitions: [P] unit of each; costs are then 1."""
        sums = np.zeros((2, num_units, self.arrivals.shape[1]))
        np.add.at(sums[0], unit, self.arrivals * self.cost[:, None])
        np.add.at(sums[1], unit, (self.error * self.cost[:, None]) ** 2)
        return replace(self, cost=np.ones(num_units), arrivals=sums[0], error=np.sqrt(sums[1]))
