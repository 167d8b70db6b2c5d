"""Contract of the entries of ``GATES``: observed value, limit, message, documentation.

Plain data without pydantic, pandas or Spark. Settings, expectations, alerts, simulations and the gates page
are derived from the same entries, and executors import them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Comparison(StrEnum):
    """How an observed value must compare to its limit."""

    EQUAL = "equal"
    AT_MOST = "at_most"
    AT_LEAST = "at_least"

    def holds(self, observed: Any, allowed: Any) -> bool:
        """Return whether a known value is within its limit."""
        if self is Comparison.EQUAL:
            return bool(observed == allowed)
        return bool(observed <= allowed) if self is Comparison.AT_MOST else bool(observed >= allowed)


@dataclass(frozen=True, slots=True)
class Fixed:
    """A limit that no setting changes."""

    value: Any

    def allowed(self, _settings: Mapping[str, Any], _plan: Mapping[str, Any]) -> Any:
        """Return the limit: always the same value."""
        return self.value


@dataclass(frozen=True, slots=True)
class RuleSetting:
    """A limit that is a setting of the group's rule, declared there because the planner uses it too.

    kind: Its type, ``int`` or ``float``.
    """

    name: str
    kind: type
    plus: int = 0

    def allowed(self, settings: Mapping[str, Any], _plan: Mapping[str, Any]) -> Any:
        """Return the limit for a group.

        settings: The group's settings as plain values.
        """
        return settings[self.name] + self.plus


@dataclass(frozen=True, slots=True)
class GateSetting:
    """A limit that only its gate uses. It declares the setting of this name in a rule's ``gates``.

    default: Its default; the type of the default is the type of the setting.
    ge, gt, le, lt: Its bounds, as pydantic names them; None for no bound.
    """

    name: str
    default: int | float
    description: str
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    @property
    def kind(self) -> type:
        """The setting's type."""
        return type(self.default)

    def allowed(self, settings: Mapping[str, Any], _plan: Mapping[str, Any]) -> Any:
        """Return the limit for a group.

        settings: The group's settings as plain values.
        """
        return settings["gates"][self.name]


@dataclass(frozen=True, slots=True)
class PlanLimit:
    """A limit that is computed from the plan's own inputs.

    compute: Computes the limit from the values of `inputs`, in that order; an input may be None or NaN.
    """

    inputs: tuple[str, ...]
    compute: Callable[..., Any]

    def allowed(self, _settings: Mapping[str, Any], plan: Mapping[str, Any]) -> Any:
        """Return the limit for a plan."""
        return self.compute(*(plan[name] for name in self.inputs))


Limit = Fixed | RuleSetting | GateSetting | PlanLimit


class _Varying:
    """A value of an example that differs between runs; the same in any format."""

    def __format__(self, _spec: str) -> str:
        return "…"

    def __str__(self) -> str:
        return "…"


VARYING: Final = _Varying()


@dataclass(frozen=True, slots=True)
class Example:
    """A plan that fails the gate, for the gates page.

    plan: What is wrong with the plan.
    observed, allowed: The values in its gate result; :data:`VARYING` if they differ between runs.
    """

    plan: str
    observed: Any
    allowed: Any


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate.

    fails_when: When a plan fails it, for the gates page.
    observed: Name of the observed value.
    comparison: How the value must compare to the limit. An unknown value fails, unless `null_passes`.
    message: Message of a failure, with the fields ``{observed}`` and ``{allowed}``.
    example: A plan that fails.
    inputs: Inputs of a plan from which the observed value is computed: columns of ``plans``, measures of
        its ``metrics_before`` and ``metrics_after`` as ``before_…`` and ``after_…``, and the columns that
        ``evenlag.planning.gate_inputs`` adds. Empty: the input with the name `observed`.
    compute: Computes the observed value from the values of `inputs`, in that order. It must work on single
        numbers and on arrays with one element per plan, so it may use arithmetic only. None: the input
        itself.
    null_passes: Whether an unknown value passes. For example, a group without a previous hint has no
        cooldown.
    is_routine: Whether healthy groups fail it regularly. A plan that fails only such gates raises no alert.
    not_simulated: Why simulations do not apply the gate; None if they do.
    """

    name: str
    fails_when: str
    observed: str
    comparison: Comparison
    limit: Limit
    message: str
    example: Example
    inputs: tuple[str, ...] = ()
    compute: Callable[..., Any] | None = None
    null_passes: bool = False
    is_routine: bool = False
    not_simulated: str | None = None

    @property
    def limit_column(self) -> str:
        """Name of the column with the limits, next to that of the observed values."""
        return f"allowed_{self.name}"

    @property
    def observed_inputs(self) -> tuple[str, ...]:
        """Inputs of the observed value, in the order in which `compute` takes them."""
        return self.inputs or (self.observed,)

    @property
    def all_inputs(self) -> tuple[str, ...]:
        """Inputs of the observed value and of the limit."""
        return self.observed_inputs + (self.limit.inputs if isinstance(self.limit, PlanLimit) else ())

    def observe(self, plan: Mapping[str, Any]) -> Any:
        """Compute the observed value.

        Returns a number or an array, as the inputs are.
        plan: The inputs by name: numbers of one plan, or arrays with one element per plan.
        """
        values = [plan[name] for name in self.observed_inputs]
        return values[0] if self.compute is None else self.compute(*values)

    def passes(self, settings: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
        """Evaluate the gate for one plan.

        settings: The group's settings as plain values.
        """
        observed = self.observe(plan)
        if is_unknown(observed):
            return self.null_passes
        return self.comparison.holds(observed, self.limit.allowed(settings, plan))

    def explain(self, observed: Any, allowed: Any) -> str:
        """Describe a failure.

        observed, allowed: The value, None or NaN if it is unknown, and its limit.
        """
        if is_unknown(observed):
            return f"{self.observed} is not known, so {self.name} cannot be passed"
        return self.message.format(observed=observed, allowed=allowed)


def is_unknown(value: Any) -> bool:
    """Return whether a value is None or NaN."""
    return value is None or bool(value != value)  # noqa: PLR0124 - only NaN is not equal to itself
