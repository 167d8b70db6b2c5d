"""Terminal tables of plans: what gates observed and allow."""

from __future__ import annotations

import pytest

from evenlag.cli.plans import gate_values


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        (("0.6364723706243521", "0.1"), ("0.6365", "0.1")),
        (("180.117246", "5"), ("180.1", "5")),
        (("1234.56", "1046540"), ("1,235", "1,046,540")),
        (("4", "1000.0"), ("4", "1,000")),
        (("Stable", "Stable"), ("Stable", "Stable")),
        (("nan", None), ("nan", "")),
        # Rounded, the gate would seem to fail for nothing.
        (("0.0999999", "0.1"), ("0.0999999", "0.1")),
    ],
)
def test_numbers_are_rounded_only_as_far_as_they_stay_different(
    reported: tuple[str, str | None], shown: tuple[str, str]
) -> None:
    assert gate_values(*reported) == shown
