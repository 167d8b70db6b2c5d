"""What the members of a group can process and what will arrive: the inputs of ``load: time``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlag.lag.arrays import Bools, Floats


@dataclass(frozen=True, slots=True, eq=False)
class GroupWork:
    """The work of one group of M members and P partitions over a horizon of K steps.

    A record of cost 1 is one unit of work; costs have median 1.

    speed: [M] units of work per second of a member that always has records; positive.
    is_bound: [M], whether a member's speed is only a lower bound.
    cost: [P] units of work per record.
    arrivals: [S, P, K] records that arrive in each step, in S equally likely scenarios.
    step_s: Seconds of a step.
    unowned_s, stopped_s: Seconds that a plan stops a moved partition, and all others.
    """

    speed: Floats
    is_bound: Bools
    cost: Floats
    arrivals: Floats
    step_s: float
    unowned_s: float
    stopped_s: float
