"""Validation results as the Data Docs show them: expectations, plans, snapshots and runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from evenlag.policy.gate_contract import Comparison

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

_SIGNS: Final = {Comparison.EQUAL: "=", Comparison.AT_MOST: "≤", Comparison.AT_LEAST: "≥"}


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation of a suite, independent of any run.

    name: The gate or check.
    kind: Type of the expectation, as Great Expectations names it.
    observed: Name of the observed value.
    comparison: How it must compare to the limit.
    table: The table that it checks; empty: a plan.
    """

    name: str
    kind: str
    observed: str
    comparison: Comparison
    fails_when: str
    table: str = ""

    @property
    def sign(self) -> str:
        """The comparison as a sign."""
        return _SIGNS[self.comparison]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one expectation for one row: a plan, or a snapshot.

    passed: The verdict of the validation.
    observed, allowed: The value and its limit as they are recorded; None: unknown.
    """

    passed: bool
    observed: str | None
    allowed: str | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class PlanResults:
    """The results of one plan, by gate."""

    plan_id: str
    group_id: str
    results: Mapping[str, Result]

    @property
    def passed(self) -> bool:
        """Whether the plan passed all gates."""
        return all(result.passed for result in self.results.values())


@dataclass(frozen=True, slots=True)
class Run:
    """What one run evaluated.

    num_plans: Number of plans, of which `plans` may be a part.
    checks: Results of the quality checks by name; empty if the snapshot was not checked.
    num_differing: Number of verdicts that are not those on record.
    """

    snapshot_id: str
    slot: datetime
    plans: Sequence[PlanResults] = ()
    num_plans: int = 0
    checks: Mapping[str, Result] = field(default_factory=dict)
    num_differing: int = 0

    @property
    def num_rejected(self) -> int:
        """Number of plans that failed a gate."""
        return sum(not plan.passed for plan in self.plans)

    @property
    def failed_checks(self) -> list[str]:
        """Names of the checks that failed."""
        return [name for name, result in self.checks.items() if not result.passed]

    @property
    def failed_gates(self) -> list[str]:
        """Names of the gates that a plan failed."""
        names = {name for plan in self.plans for name, result in plan.results.items() if not result.passed}
        return sorted(names)
