"""Gates in a simulation: those whose inputs a simulation can compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assignor_core.metrics import count_moves
from assignor_core.objective import relative_gain
from assignor_core.verify import largest_count_gap
from evenlag.policy.gates import SIMULATED_GATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from assignor_core.group import Group

# Known before planning. A gate without other inputs is evaluated first: if it fails, nothing is planned.
EARLY_INPUTS: Final = frozenset({"since_last_hint_s"})
_EARLY_GATES: Final = tuple(gate for gate in SIMULATED_GATES if EARLY_INPUTS.issuperset(gate.all_inputs))
_PLAN_GATES: Final = tuple(gate for gate in SIMULATED_GATES if gate not in _EARLY_GATES)


def may_plan(settings: Mapping[str, Any], since_last_hint_s: float) -> bool:
    """Evaluate the gates that need no plan.

    settings: The group's settings as plain values.
    since_last_hint_s: Time since the scenario last changed the assignment, in seconds; NaN if it never did.
    """
    inputs = {"since_last_hint_s": since_last_hint_s}
    return all(gate.passes(settings, inputs) for gate in _EARLY_GATES)


def passes_gates(settings: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    """Evaluate the gates that need a plan.

    settings: The group's settings as plain values.
    plan: The inputs by name, usually a :class:`SimulatedPlan`.
    """
    return all(gate.passes(settings, plan) for gate in _PLAN_GATES)


class SimulatedPlan(Mapping[str, Any]):
    """Inputs of the gates for one simulated plan; each is computed when a gate reads it.

    group: The group with its owners and lag.
    target: int32 [P]: the planned owners, -1 for none.
    load: [P] load by partition, in records or records per second.
    capacity: [M] capacity by member.
    """

    def __init__(
        self,
        group: Group,
        target: NDArray[np.int32],
        load: NDArray[np.float64],
        capacity: NDArray[np.float64],
    ) -> None:
        self.group = group
        self.target = target
        self.load = load
        self.capacity = capacity

    def __getitem__(self, name: str) -> Any:
        return PLAN_INPUTS[name](self)

    def __iter__(self) -> Iterator[str]:
        return iter(PLAN_INPUTS)

    def __len__(self) -> int:
        return len(PLAN_INPUTS)


def _counts(plan: SimulatedPlan) -> NDArray[np.int64]:
    """Planned partitions by member."""
    return np.bincount(plan.target[plan.target >= 0], minlength=plan.group.num_members)


PLAN_INPUTS: Final[dict[str, Callable[[SimulatedPlan], Any]]] = {
    "count_gap": lambda plan: largest_count_gap(plan.group, plan.target),
    "moves": lambda plan: count_moves(plan.group, plan.target),
    "gain": lambda plan: relative_gain(plan.load, plan.capacity, plan.group.live_owner, plan.target),
    "num_members": lambda plan: plan.group.num_members,
    "num_partitions": lambda plan: plan.group.num_partitions,
    "after_min_member_partitions": lambda plan: int(_counts(plan).min()),
    "after_max_member_partitions": lambda plan: int(_counts(plan).max()),
}
