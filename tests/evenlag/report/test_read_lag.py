"""The groups of the newest snapshot, as the report's headline has them."""

from __future__ import annotations

from evenlag.report.read_lag import group_lags


def test_a_member_that_owns_nothing_counts_as_a_member_and_unknown_lag_as_a_lower_bound() -> None:
    import pyarrow as pa

    owners_and_lags = [("a", 5), ("a", None), ("b", 3), (None, 2)]
    lag = pa.Table.from_pylist(
        [
            {
                "group_id": "g",
                "owner_member_id": owner,
                "status": "UNKNOWN" if records is None else "OK",
                "lag_records": records,
                "time_lag_ms": None,
            }
            for owner, records in owners_and_lags
        ]
    )
    members = pa.Table.from_pylist([{"group_id": "g", "member_id": name} for name in ("a", "b", "idle")])
    (found,) = group_lags(lag, members)
    assert (found.num_members, found.num_partitions, found.num_unknown) == (3, 4, 1)
    assert (found.lag_records, found.max_member_lag_records) == (10, 5)
    assert found.unknown == {"UNKNOWN": 1}
