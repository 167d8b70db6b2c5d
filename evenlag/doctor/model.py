"""Data model of a check: verdicts, findings, results and lanes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The verdict of a check, from best to worst."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    FAILED = "failed"

    @property
    def rank(self) -> int:
        """Severity, from 0 to 3."""
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check; `message` is why it was not checked if it was skipped."""

    verdict: Verdict
    message: str
    remedy: str = ""


# Each of these returns a list of one finding: a check returns it, or adds it to what it has found.
def ok(message: str) -> list[Finding]:
    """Report no problem."""
    return [Finding(Verdict.OK, message)]


def skipped(why: str) -> list[Finding]:
    """Report what was not checked."""
    return [Finding(Verdict.SKIPPED, why)]


def warning(message: str, remedy: str) -> list[Finding]:
    """Report what works now, but not as intended or not permanently."""
    return [Finding(Verdict.WARNING, message, remedy)]


def failed(message: str, remedy: str) -> list[Finding]:
    """Report what does not work."""
    return [Finding(Verdict.FAILED, message, remedy)]


@dataclass(frozen=True, slots=True)
class Check:
    """One check: `look` runs it. An exception is a finding, too."""

    area: str
    name: str
    look: Callable[[], Sequence[Finding]]

    @property
    def full_name(self) -> str:
        """The name that ``--only`` accepts, for example ``brokers.answer``."""
        return f"{self.area}.{self.name}"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check, by its full name; `cluster` is None if it is not about one cluster."""

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
    """Checks that run in sequence because they share a connection or a resource, closed at the end."""

    cluster: str | None
    checks: tuple[Check, ...]
    close: Callable[[], object] = lambda: None
