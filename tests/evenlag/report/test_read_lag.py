"""The groups of the newest snapshot, as the report's headline has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from evenlag.lake.tables import LAG, MEMBERS
from evenlag.report.read_report import group_lags, replayed_series
from tests.support.lakes.snapshots import arrow

READ_AT = datetime(2026, 3, 1, 12, 0, 0, 123_789, UTC)


def test_a_member_that_owns_nothing_counts_as_a_member_and_unknown_lag_as_a_lower_bound() -> None:
    owners_and_lags = [("a", 5), ("a", None), ("b", 3), (None, 2)]
    lag = arrow(
        LAG,
        [
            {
                "group_id": "g",
                "owner_member_id": owner,
                "status": "UNKNOWN" if records is None else "OK",
                "lag_records": records,
                "time_lag_ms": None,
            }
            for owner, records in owners_and_lags
        ],
    )
    members = arrow(MEMBERS, [{"group_id": "g", "member_id": name} for name in ("a", "b", "idle")])
    (found,) = group_lags(lag, members)
    assert (found["num_members"], found["num_partitions"], found["num_unknown_partitions"]) == (3, 4, 1)
    assert (found["lag_records"], found["max_member_lag_records"]) == (10, 5)
    assert found["unknown"] == {"UNKNOWN": 1}


@pytest.mark.parametrize("cut_to_us", [1, 1_000], ids=["microseconds", "of an older version: milliseconds"])
def test_a_simulated_line_begins_at_the_first_snapshot(cut_to_us: int) -> None:
    read_at = [READ_AT + timedelta(minutes=5 * number) for number in range(3)]
    at = [each - timedelta(microseconds=each.microsecond % cut_to_us) for each in read_at]
    earlier = at[0] - timedelta(minutes=5)
    days = [{"at": [earlier, *at], "lag_records": [7, 153, 10, 4], "max_member_lag_records": [7, 100, 5, 4]}]
    found = replayed_series("range", days, read_at[0], read_at[-1])
    assert found.lag_records == (153, 10, 4)
