"""Data model of a check: verdicts, findings, results and lanes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Verdict(StrEnum):
    """The verdict of a check, from best to worst."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    FAILED = "failed"

    @property
    def rank(self) -> int:
        """Severity, from 0 (ok) to 3 (failed)."""
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check.

    message: What was found; for `skipped`, why it was not checked.
    remedy: Remedy; empty if none is needed.
    """

    verdict: Verdict
    message: str
    remedy: str = ""


def ok(message: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(Verdict.OK, message)


def skipped(why: str) -> Finding:
    """Return a finding for what was not checked, with the reason."""
    return Finding(Verdict.SKIPPED, why)


def warning(message: str, remedy: str) -> Finding:
    """Return a finding that needs attention: it works now, but not as intended or not permanently."""
    return Finding(Verdict.WARNING, message, remedy)


def failed(message: str, remedy: str) -> Finding:
    """Return a finding for what does not work."""
    return Finding(Verdict.FAILED, message, remedy)


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    area, name: Together its name on the command line, for example ``brokers.answer``.
    look: Runs the check and returns its findings. An exception is a finding, too.
    """

    area: str
    name: str
    look: Callable[[], Sequence[Finding]]

    @property
    def full_name(self) -> str:
        """Area and name, as ``--only`` accepts them."""
        return f"{self.area}.{self.name}"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check.

    check: Full name of the check.
    cluster: Cluster that was checked; None if the check is not about one cluster.
    """

    check: str
    cluster: str | None
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its findings; `skipped` only if all of them are."""
        looked_at = [one.verdict for one in self.findings if one.verdict is not Verdict.SKIPPED]
        return max(looked_at, key=lambda one: one.rank, default=Verdict.SKIPPED)


@dataclass(frozen=True, slots=True)
class Lane:
    """Checks that run in sequence because they share a connection or a resource.

    cluster: As in :class:`Result`.
    close: Called at the end, even if a check fails.
    """

    cluster: str | None
    checks: tuple[Check, ...]
    close: Callable[[], object] = lambda: None
