"""Whether a followed plan was worth it: the expected words are written manually."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from evenlag.overview.model import LastHint, LastPlan
from evenlag.overview.page import evaluation_text

AT = datetime(2026, 3, 1, tzinfo=UTC)
OPEN = "whether it was worth it is open"


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        # 600 of 1,000 became 300 of 1,200.
        ({}, "worth it so far: share of the lag 60.0 % → 25.0 %"),
        # The lag fell with the traffic alone.
        ({"actual_records": 80, "total_actual_records": 100, "predicted": 50},
         "not worth it so far: share of the lag 60.0 % → 80.0 %"),
        # No more than predicted is good, whatever its share.
        ({"actual_records": 80, "total_actual_records": 100, "predicted": 80},
         "worth it so far: share of the lag 60.0 % → 80.0 %"),
        ({"actual_records": 0, "total_actual_records": 0}, "worth it so far: no lag is left"),
        ({"num_unknown": 1}, OPEN),
        ({"unknown_before": 1}, OPEN),
        ({"actual_records": None, "total_actual_records": None}, OPEN),
        ({"before_records": 0, "total_before_records": 0}, OPEN),
        ({"is_evaluated": True, "paid_off": True}, "worth it"),
        ({"is_evaluated": True, "paid_off": False}, "not worth it"),
        ({"is_evaluated": True}, OPEN),
        ({"outcome": "IGNORED"}, None),
    ],
)  # fmt: skip
def test_it_follows_the_evaluation_or_else_the_share_of_the_lag(
    known: dict[str, Any], expected: str | None
) -> None:
    shown = dict(known)
    predicted, unknown = shown.pop("predicted", 310), shown.pop("unknown_before", 0)
    plan = LastPlan("p", AT, "APPLIED", None, 3, 600, predicted, unknown)
    values = {"outcome": "APPLIED", "reason": None, "before_records": 600, "actual_records": 300}
    values |= {"total_before_records": 1_000, "total_actual_records": 1_200}
    assert evaluation_text(plan, LastHint("p", AT, **(values | shown))) == expected
