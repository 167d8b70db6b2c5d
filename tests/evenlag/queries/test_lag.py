"""Lag by group and member: an unknown lag is not zero. Expected values are computed manually."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from evenlag.formatting import at_least, at_least_duration, at_least_of, exact_of
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import LAG, MEMBERS
from evenlag.queries.lag import group_rows, member_rows

if TYPE_CHECKING:
    import pyarrow as pa

# By owner (None: nobody), the lag of each partition; None: not known.
Lags = dict[str | None, list[int | None]]
GROUPS: dict[str, Lags] = {
    "known": {"a": [600, 300], "b": [100]},
    "idle": {"a": [100, 300], "b": []},
    "partly": {"a": [400, None], "b": [30, 10], None: [5]},
    "one-dark": {"a": [None, None], "b": [30, 10]},
    "unowned-dark": {"a": [70], "b": [30], None: [None]},
    "zero-or-dark": {"a": [None], "b": [0]},
    # Seven partitions of which none is known: the group's commits could not be read.
    "dark": {"a": [None] * 4, "b": [None] * 3},
    "dark-but-idle": {"a": [None], "b": []},
    "rebalancing": {"a": [], "b": [], None: [None, None]},
}


def tables(groups: dict[str, Lags]) -> tuple[pa.Table, pa.Table]:
    import pyarrow as pa

    rows: list[dict[str, Any]] = []
    members: list[dict[str, Any]] = []
    for group, by_owner in groups.items():
        owned = [(owner, lag) for owner, lags in by_owner.items() for lag in lags]
        rows += [
            {
                "group_id": group,
                "owner_member_id": owner,
                "topic": "t",
                "partition": number,
                "status": "UNKNOWN" if lag is None else "OK",
                "lag_records": lag,
                # A second behind for each record; of a lag of 30 the history does not reach back far enough.
                "time_lag_ms": None if lag in {None, 30} else 1000 * (lag or 0),
            }
            for number, (owner, lag) in enumerate(owned)
        ]
        members += [{"group_id": group, "member_id": owner} for owner in by_owner if owner is not None]
    members.append({"group_id": "rebalancing", "member_id": None})
    return (
        pa.Table.from_pylist(rows, schema=arrow_schema(LAG)),
        pa.Table.from_pylist(members, schema=arrow_schema(MEMBERS)),
    )


def test_a_group_s_lag_is_a_lower_bound_while_any_is_unknown_and_null_while_all_is() -> None:
    found = {row["group_id"]: row for row in group_rows(*tables(GROUPS))}
    names = ("num_partitions", "num_unknown_partitions", "lag_records", "max_member_lag_records", "lag_skew")
    assert {group: tuple(found[group][name] for name in names) for group in GROUPS} == {
        "known": (3, 0, 1000, 900, 1.8),
        "idle": (2, 0, 400, 400, 2.0),
        "partly": (5, 1, 445, 400, None),
        "one-dark": (4, 2, 40, 40, None),
        "unowned-dark": (3, 1, 100, 70, None),
        "zero-or-dark": (2, 1, 0, 0, None),
        "dark": (7, 7, None, None, None),
        "dark-but-idle": (1, 1, None, None, None),
        "rebalancing": (2, 2, None, None, None),
    }
    assert {row["num_members"] for row in found.values()} == {2}
    times = {group: (row["time_lag_ms"], row["num_unknown_time_lags"]) for group, row in found.items()}
    assert (times["known"], times["partly"], times["one-dark"]) == ((600_000, 0), (400_000, 2), (10_000, 3))
    assert times["dark"] == (None, 7)
    assert found["partly"]["statuses"] == {"OK": 4, "UNKNOWN": 1}


def test_the_furthest_behind_come_first_and_groups_without_any_known_lag_last() -> None:
    order = [row["group_id"] for row in group_rows(*tables(GROUPS))]
    assert order == [
        "known", "partly", "idle", "unowned-dark", "one-dark", "zero-or-dark",
        "dark", "dark-but-idle", "rebalancing",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("idle", [("a", 2, 0, 400), ("b", 0, 0, 0)]),
        ("partly", [("a", 2, 1, 400), ("b", 2, 0, 40), (None, 1, 0, 5)]),
        ("one-dark", [("b", 2, 0, 40), ("a", 2, 2, None)]),
        ("rebalancing", [(None, 2, 2, None), ("a", 0, 0, None), ("b", 0, 0, None)]),
    ],
)
def test_a_member_of_whose_partitions_none_is_known_is_not_behind_by_nothing(
    group: str, expected: list[tuple[str | None, int, int, int | None]]
) -> None:
    found = member_rows(*tables({group: GROUPS[group]}))
    names = ("member_id", "num_partitions", "num_unknown_partitions", "lag_records")
    assert [tuple(row[name] for name in names) for row in found] == expected


def test_lower_bounds_say_that_they_are() -> None:
    assert (at_least(4403, 10), at_least(4403, 0), at_least(None, 24)) == ("≥ 4,403", "4,403", "-")
    assert at_least(4403, None) == "4,403"
    assert (at_least_duration(125_000, 1), at_least_duration(8000, 0)) == ("≥ 2 min 5 s", "8 s")
    assert at_least_of(4403, 10, 24) == "at least 4,403 (10 of 24 unknown)"
    assert (at_least_of(None, 24, 24), at_least_of(None, 0, None)) == ("- (24 of 24 unknown)", "-")
    assert exact_of(2.42, 10, 24, digits=2) == "- (10 of 24 unknown)"
    assert exact_of(2.42, 0, 24, digits=2) == "2.42"
