"""What a check is, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Verdict(StrEnum):
    """How it stands with what a check looked at, from well to worst."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    FAILED = "failed"

    @property
    def rank(self) -> int:
        """How bad it is: 0 for ok, up to 3 for failed."""
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found.

    Attributes
    ----------
    verdict
        How it stands.
    told
        What was found, in plain words; for `skipped`, why it was not looked at.
    todo
        What to do about it; empty when there is nothing to do.
    """

    verdict: Verdict
    told: str
    todo: str = ""


def ok(told: str) -> Finding:
    """All is well."""
    return Finding(Verdict.OK, told)


def skipped(why: str) -> Finding:
    """It was not looked at."""
    return Finding(Verdict.SKIPPED, why)


def warning(told: str, todo: str) -> Finding:
    """It works, and may not for long, or not as meant."""
    return Finding(Verdict.WARNING, told, todo)


def failed(told: str, todo: str) -> Finding:
    """It does not work."""
    return Finding(Verdict.FAILED, told, todo)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at.

    Attributes
    ----------
    area, name
        Together its name on the command line: ``brokers.answer``.
    look
        Looks, and tells what it found; may raise, which is a finding too.
    """

    area: str
    name: str
    look: Callable[[], Sequence[Finding]]

    @property
    def full_name(self) -> str:
        """Area and name, as ``--only`` takes them."""
        return f"{self.area}.{self.name}"


@dataclass(frozen=True, slots=True)
class Result:
    """What a check answered.

    Attributes
    ----------
    check
        Its full name.
    cluster
        The cluster it looked at; None for what clusters share.
    findings
        At least one.
    """

    check: str
    cluster: str | None
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of its findings; skipped only when nothing else was found."""
        looked_at = [one.verdict for one in self.findings if one.verdict is not Verdict.SKIPPED]
        return max(looked_at, key=lambda one: one.rank, default=Verdict.SKIPPED)


@dataclass(frozen=True, slots=True)
class Lane:
    """Checks that are done one after another, because they share a connection or a place.

    Attributes
    ----------
    cluster
        As in :class:`Result`.
    checks
        In order.
    close
        Called at the end, whatever happened.
    """

    cluster: str | None
    checks: tuple[Check, ...]
    close: Callable[[], object] = lambda: None
