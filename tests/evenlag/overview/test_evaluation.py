"""Whether a followed plan was worth it: the expected words are written manually."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from evenlag.overview.model import LastHint
from evenlag.overview.page import evaluation_text

AT = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, "whether it was worth it is known at its horizon"),
        ({"is_evaluated": True, "paid_off": True}, "worth it"),
        ({"is_evaluated": True, "paid_off": False}, "not worth it"),
        ({"is_evaluated": True}, "whether it was worth it is open"),
        ({"outcome": "IGNORED"}, None),
    ],
)
def test_it_follows_the_evaluation(known: dict[str, Any], expected: str | None) -> None:
    values = {"outcome": "APPLIED", "reason": None, "before_records": 600, "actual_records": 300}
    assert evaluation_text(LastHint("p", AT, **(values | known))) == expected
