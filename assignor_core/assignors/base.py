"""What an assignor declares and promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from assignor_core.errors import ProblemError
from assignor_core.group import Assignment, Group

COOPERATIVE = "COOPERATIVE"
EAGER = "EAGER"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an assignor: a field of its class, and a setting where a policy has one of its name.

    Attributes
    ----------
    name
        The field's name.
    kind
        ``int`` or ``float``.
    meaning
        What it does, for the reference.
    minimum, below
        The allowed range: from `minimum` up to, and without, `below`.
    in_simulations
        The default in a simulation, which plans thousands of snapshots; None: the field's own default.

    Examples
    --------
    >>> share = Parameter("min_gain", float, "share of the load", below=1)
    >>> share.parse("0.25"), share.range_text
    (0.25, 'from 0 to below 1')
    """

    name: str
    kind: type[int | float]
    meaning: str
    minimum: float = 0
    below: float | None = None
    in_simulations: float | None = None

    @property
    def range_text(self) -> str:
        """The allowed range in words."""
        return (
            f"at least {self.minimum}" if self.below is None else f"from {self.minimum} to below {self.below}"
        )

    def parse(self, text: str) -> int | float:
        """Return the value that a text states.

        Raises
        ------
        ValueError
            If the text is no number of this kind.
        """
        return self.kind(text)

    def check(self, value: float) -> None:
        """Check the range of a value.

        Raises
        ------
        ProblemError
            If the value is out of range; the message names the parameter, the range and the value.
        """
        if value < self.minimum or (self.below is not None and value >= self.below) or value != value:  # noqa: PLR0124 - NaN
            raise ProblemError(f"{self.name} must be {self.range_text}: {value}")


# Sums of counts are int64: whole numbers stay far below.
WHOLE_BELOW = 2**31
COUNT_SLACK = Parameter("count_slack", int, "counts may differ by 1 + this", below=WHOLE_BELOW)


class Assignor(ABC):
    """An algorithm with its declarations; it keeps no state between calls.

    Nothing outside the class names an assignor but the list in `assignor_core.assignors`: settings,
    simulations, the command and the reference derive from these declarations.

    Attributes
    ----------
    name
        The name in policies and on the wire, as Kafka or we call it.
    protocols
        The rebalance protocols it can be used with, the best first.
    parameters
        Its parameters: each is a field of the class with a default.
    uses_lag
        Whether the assignment depends on the lag, so that a new snapshot is a reason to ask again; others
        are asked only when the group rebalances anyway, as in Kafka.
    uses_load
        Whether `target` evens out the load that a policy chooses, for members of given capacities.
    plans_once
        Whether the rounds of a rebalance complete its first target; others are asked again in each round.
    """

    __slots__ = ()

    name: ClassVar[str]
    protocols: ClassVar[tuple[str, ...]] = (EAGER,)
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    uses_lag: ClassVar[bool] = False
    uses_load: ClassVar[bool] = False
    plans_once: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for parameter in self.parameters:
            value: Any = getattr(self, parameter.name)
            # None: no limit, where a field allows it.
            if value is not None:
                parameter.check(value)

    @abstractmethod
    def assign(self, group: Group) -> Assignment:
        """Return the owner of each partition.

        Parameters
        ----------
        group
            Members, subscriptions, owners and lags; not changed.

        Returns
        -------
        Assignment
            A new int32 [P], row → member index, -1 where no member subscribes.
        """

    def target(
        self,
        group: Group,
        *,
        load: NDArray[Any],
        capacity: NDArray[Any],
        pinned: NDArray[Any],
    ) -> Assignment:
        """Return the assignment with some rows left where they are.

        Parameters
        ----------
        group
            As for `assign`.
        load
            float64 [P], what each row adds to its member's load; for assignors with `uses_load`.
        capacity
            float64 [M], how much load each member can process, relative to the others; likewise.
        pinned
            bool [P], rows that stay with their live owner.

        Returns
        -------
        Assignment
            int32 [P], row → member index, -1 for none.
        """
        import numpy as np

        del load, capacity
        return np.where(pinned, group.live_owner, self.assign(group)).astype(np.int32)
