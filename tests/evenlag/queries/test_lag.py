"""Lag by group and member: an unknown lag is not zero. Expected values are computed manually."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from evenlag.formatting import at_least, at_least_of, bounded, bounded_duration, exact_of
from evenlag.kafka.member_protocol import OTHER_PROTOCOL
from evenlag.kafka.offsets import _NOT_MEASURED
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import LAG, MEMBERS
from evenlag.queries.lag import group_rows, left_topics_text, member_rows, unknown_facts, unmeasured

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
    # Its commits are known, its owners are not.
    "rebalancing": {"a": [], "b": [], None: [7, 8]},
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
                "time_lag_at_least_ms": 500 if lag == 30 else None,
                "owner_problem": "moving" if owner is None and group == "rebalancing" else None,
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
        "rebalancing": (2, 0, 15, None, None),
    }
    assert {row["num_members"] for row in found.values()} == {2}
    of_times = ("time_lag_ms", "time_lag_at_least_ms", "num_unknown_time_lags")
    times = {group: tuple(row[name] for name in of_times) for group, row in found.items()}
    assert times["known"] == (600_000, None, 0)
    assert (times["partly"], times["one-dark"]) == ((None, 400_000, 2), (None, 10_000, 3))
    # A time of 0 beside unknown ones is no bound.
    assert (times["zero-or-dark"], times["dark"]) == ((None, None, 1), (None, None, 7))
    assert found["partly"]["statuses"] == {"OK": 4, "UNKNOWN": 1}


def test_the_furthest_behind_come_first_and_groups_without_any_known_lag_last() -> None:
    order = [row["group_id"] for row in group_rows(*tables(GROUPS))]
    assert order == [
        "known", "partly", "idle", "unowned-dark", "one-dark", "rebalancing", "zero-or-dark",
        "dark", "dark-but-idle",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("idle", [("a", 2, 0, 400), ("b", 0, 0, 0)]),
        ("partly", [("a", 2, 1, 400), ("b", 2, 0, 40), (None, 1, 0, 5)]),
        ("one-dark", [("b", 2, 0, 40), ("a", 2, 2, None)]),
        ("rebalancing", [(None, 2, 0, 15), ("a", 0, 0, None), ("b", 0, 0, None)]),
    ],
)
def test_a_member_of_whose_partitions_none_is_known_is_not_behind_by_nothing(
    group: str, expected: list[tuple[str | None, int, int, int | None]]
) -> None:
    found = member_rows(*tables({group: GROUPS[group]}))
    names = ("member_id", "num_partitions", "num_unknown_partitions", "lag_records")
    assert [tuple(row[name] for name in names) for row in found] == expected


def test_what_a_group_has_left_and_what_is_unknown_of_it_stand_beside_its_lag() -> None:
    import pyarrow as pa

    lag, members = tables({"g": {"a": [10], "b": [20]}})
    left = lag.slice(1).set_column(lag.column_names.index("status"), "status", [["NOT_SUBSCRIBED"]])
    rows = [
        *members.to_pylist(),
        {"group_id": "expression", "member_id": "c", "subscription_error": "not RE2: look-ahead"},
        {"group_id": "denied", "member_id": None, "error": "not authorised"},
    ]
    described = pa.Table.from_pylist(rows, schema=arrow_schema(MEMBERS))
    both = pa.concat_tables([lag.slice(0, 1), left])
    found = {row["group_id"]: row for row in group_rows(both, described)}
    assert (found["g"]["lag_records"], found["g"]["num_partitions"], found["g"]["lag_skew"]) == (10, 1, 2.0)
    assert (found["g"]["num_not_subscribed_partitions"], found["g"]["not_subscribed_lag_records"]) == (1, 20)
    assert [row["lag_records"] for row in member_rows(both, members.slice(0, 2))] == [10, 0]
    assert left_topics_text(found.values()) == (
        "Not counted: 20 records on 1 partition that no member subscribes to"
    )
    # A group without partitions is listed, too.
    assert found["expression"]["lag_records"] is None
    facts = {name: unknown_facts(row) for name, row in found.items()}
    assert facts == {
        "g": "",
        "rebalancing": "",
        "expression": "subscription unknown: not RE2: look-ahead",
        "denied": "subscription and owners unknown: not authorised",
    }


def test_what_is_no_consumer_group_and_what_is_not_measured_say_so_in_place_of_a_lag() -> None:
    import pyarrow as pa

    row = {"group_id": "share", "topic": "t", "partition": 0, "status": "UNKNOWN"}
    lag = [
        row | {"commit_problem": _NOT_MEASURED},
        row | {"group_id": "failed", "commit_problem": "NotCoordinatorError"},
        row | {"group_id": "known", "lag_records": 3, "status": "OK", "subscription_problem": OTHER_PROTOCOL},
    ]
    members = [
        {"group_id": "workers", "member_id": "w", "subscription_error": f"{OTHER_PROTOCOL}: 'connect'"}
    ]
    found = group_rows(
        pa.Table.from_pylist(lag, schema=arrow_schema(LAG)),
        pa.Table.from_pylist(members, schema=arrow_schema(MEMBERS)),
    )
    assert {row["group_id"]: unmeasured(row) for row in found} == {
        "share": "not measured",
        "failed": None,
        "known": None,
        "workers": "not a consumer group",
    }


def test_lower_bounds_say_that_they_are() -> None:
    assert (at_least(4403, 10), at_least(4403, 0), at_least(None, 24)) == ("≥ 4,403", "4,403", "-")
    assert at_least(4403, None) == "4,403"
    assert (bounded_duration(None, 125_000), bounded_duration(8000, None)) == ("≥ 2 min 5 s", "8 s")
    assert [bounded(7, bound) for bound in ("LOWER", "UPPER", None)] == ["≥ 7", "≤ 7", "7"]
    assert at_least_of(4403, 10, 24) == "at least 4,403 (10 of 24 unknown)"
    assert (at_least_of(None, 24, 24), at_least_of(None, 0, None)) == ("- (24 of 24 unknown)", "-")
    assert exact_of(2.42, 10, 24, digits=2) == "- (10 of 24 unknown)"
    assert exact_of(2.42, 0, 24, digits=2) == "2.42"
