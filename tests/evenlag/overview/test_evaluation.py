"""Whether a followed plan was worth it: the expected words are written manually."""

from __future__ import annotations

from typing import Any

import pytest

from evenlag.overview.page import evaluation_text


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, "whether it was worth it is known at its horizon"),
        ({"paid_off": True}, "worth it"),
        ({"paid_off": False}, "not worth it"),
        ({"paid_off": None}, "whether it was worth it is open"),
        ({"outcome": "IGNORED"}, None),
    ],
)
def test_it_follows_the_evaluation(known: dict[str, Any], expected: str | None) -> None:
    assert evaluation_text({"outcome": "APPLIED"} | known) == expected
