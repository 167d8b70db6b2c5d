"""Scenarios of a simulation that decide nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from evenlag.simulation.scenarios import Counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lag.arrays import Floats, Int32s


@dataclass
class FixedOwners:
    """Owners that stay, and, if given, how long each row pauses in each snapshot."""

    is_real: ClassVar[bool] = False
    owners: Sequence[int]
    pauses: Sequence[Sequence[float]] | None = None
    name: str = "fixed"
    counts: Counts = field(default_factory=Counts)
    owner: Int32s = field(init=False)

    def __post_init__(self) -> None:
        self.owner = np.array(self.owners, dtype=np.int32)

    def step(self, place: int, backlog: Floats) -> Floats:
        """Pause as said."""
        return np.zeros(len(backlog)) if self.pauses is None else np.array(self.pauses[place])
