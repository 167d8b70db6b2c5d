"""What the tests of the doctor have in common: the time, and the verdict of findings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from evenlag.doctor.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.doctor.model import Finding

# The time at which the tests judge.
NOW = datetime(2026, 11, 22, 2, tzinfo=UTC)


def worst(found: Sequence[Finding]) -> str:
    """Return the worst verdict of findings, after a check that all faults say what to do."""
    assert found
    assert all(one.remedy for one in found if one.verdict.rank >= Verdict.WARNING.rank), "it says what to do"
    return max((one.verdict for one in found), key=lambda one: one.rank).value
