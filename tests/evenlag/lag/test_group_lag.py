"""Lag of whole groups: sums, bounds, and what is unknown. Expected values are computed manually."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.enums import LagBound
from evenlag.lag.group_lag import GroupLag, measure_lag
from evenlag.lake.tables import LAG, MEMBERS
from tests.support.lakes.snapshots import NOW, TOPIC_IDS, arrow, member

if TYPE_CHECKING:
    from collections.abc import Sequence

LOWER, UPPER = LagBound.LOWER, LagBound.UPPER
# Lag and drain time of each partition by member: "-" has no owner.
Partitions = dict[str, list[tuple[int | None, int | None]]]
MEASURED: dict[str, tuple[Partitions, GroupLag]] = {
    "known": (
        {"m-1": [(600, 9_000), (300, 2_000)], "m-2": [(100, 500)]},
        GroupLag(3, 0, 1000, 900, 1.8, 9_000),
    ),
    # A member without partitions counts in the mean.
    "idle": ({"m-1": [(100, 1), (300, 7)], "m-2": []}, GroupLag(2, 0, 400, 400, 2.0, 7)),
    "read to the end": ({"m-1": [(0, None)], "m-2": [(0, 0)]}, GroupLag(2, 0, 0, 0, 1.0, 0)),
    # A partition that never drains: no drain time of the group.
    "never": ({"m-1": [(5, 1_000)], "m-2": [(5, None)]}, GroupLag(2, 0, 10, 5, 1.0, None)),
    "partly": (
        {"m-1": [(400, 1), (None, None)], "m-2": [(30, 1), (10, 1)]},
        GroupLag(4, 1, 440, 400, None, None, LOWER),
    ),
    "one member dark": (
        {"m-1": [(None, None), (None, None)], "m-2": [(30, 1), (10, 1)]},
        GroupLag(4, 2, 40, 40, None, None, LOWER),
    ),
    "zero or dark": ({"m-1": [(None, None)], "m-2": [(0, 0)]}, GroupLag(2, 1, 0, 0, None, None, LOWER)),
    "dark": (
        {"m-1": [(None, None)], "m-2": [(None, None)]},
        GroupLag(2, 2, None, None, None, None, LOWER),
    ),
    # A partition that nobody owns adds to the total, and to no member.
    "without an owner": (
        {"m-1": [(10, 4)], "m-2": [(30, 2)], "-": [(500, 90)]},
        GroupLag(3, 0, 540, 30, 1.5, 90),
    ),
}


def lag_of(group: str, partitions: Partitions) -> list[dict[str, Any]]:
    owned = [(owner, lag, drain) for owner, some in partitions.items() for lag, drain in some]
    return [
        {
            "slot": NOW,
            "group_id": group,
            "topic_id": TOPIC_IDS["t"],
            "topic": "t",
            "partition": number,
            "owner_member_id": None if owner == "-" else owner,
            "status": "UNKNOWN" if lag is None else "OK",
            "lag_records": lag,
            "drain_time_ms": drain,
            # As long as the lag in ms, so that each case has its largest time too.
            "time_lag_ms": lag,
        }
        for number, (owner, lag, drain) in enumerate(owned)
    ]


def with_times(lag: GroupLag, partitions: Partitions) -> GroupLag:
    """What the times of :func:`lag_of` add: unknown where a lag is, and then a bound if there is any."""
    lags = [lag for some in partitions.values() for lag, _ in some]
    known = max((lag for lag in lags if lag is not None), default=None)
    if None in lags:
        return replace(lag, time_lag_at_least_ms=known or None, num_unknown_times=lags.count(None))
    return replace(lag, time_lag_ms=known)


def test_the_lag_of_groups_is_measured_apart() -> None:
    rows: list[dict[str, Any]] = []
    for group, (partitions, _) in MEASURED.items():
        rows += lag_of(group, partitions)
        aside = {"topic": "u", "topic_id": TOPIC_IDS["u"], "partition": 0, "status": "NOT_SUBSCRIBED"}
        rows.append(
            rows[-1] | aside | {"lag_records": 77_777, "drain_time_ms": 999_999, "time_lag_ms": 10**9}
        )
    rows.append(rows[-1] | {"group_id": "only aside"})
    people = [member(name, group=group) for group in (*MEASURED, "no rows") for name in ("m-1", "m-2")]
    people += [member(None, group=group, topics=None) for group in MEASURED]
    found = measure_lag(arrow(LAG, rows), arrow(MEMBERS, people))
    left: Any = {"num_not_subscribed_partitions": 1, "not_subscribed_lag_records": 77_777}
    expected = {
        group: replace(with_times(lag, partitions), **left) for group, (partitions, lag) in MEASURED.items()
    }
    found = {group: replace(lag, unevenness=None) for group, lag in found.items()}
    assert found == expected | {"only aside": GroupLag(**left)}


def test_unevenness_is_what_could_be_with_other_members() -> None:
    cases: dict[str, tuple[dict[str, list[int]], float | None]] = {
        # Two members and three reach 1, though their skews are 2 and 3.
        "all on one of two": ({"m-1": [50, 50], "m-2": [0]}, 1.0),
        "all on one of three": ({"m-1": [30, 30, 30], "m-2": [0], "m-3": [0]}, 1.0),
        "even": ({"m-1": [40], "m-2": [40]}, 0.0),
        # 75 of 100 where 50 is possible: (75 - 50) / (100 - 50).
        "half": ({"m-1": [50, 25], "m-2": [25]}, 0.5),
        # A partition of 90 of 100 cannot be divided: nothing could be with others.
        "one hot partition": ({"m-1": [90], "m-2": [10]}, 0.0),
        # Beside a partition of 60 its owner has another 20: (80 - 60) / (100 - 60).
        "a hot partition and more": ({"m-1": [60, 20], "m-2": [20]}, 0.5),
        "one member": ({"m-1": [7, 8]}, 0.0),
        "no lag": ({"m-1": [0], "m-2": [0]}, None),
    }
    rows = [
        row
        for name, (lags, _) in cases.items()
        for row in lag_of(name, {owner: [(lag, None) for lag in owned] for owner, owned in lags.items()})
    ]
    people = [member(owner, group=name) for name, (lags, _) in cases.items() for owner in lags]
    found = measure_lag(arrow(LAG, rows), arrow(MEMBERS, people))
    assert {name: lag.unevenness for name, lag in found.items()} == {
        name: None if wanted is None else pytest.approx(wanted) for name, (_, wanted) in cases.items()
    }


def test_a_group_without_members_has_no_most_loaded_one() -> None:
    rows = arrow(LAG, lag_of("g", {"-": [(7, None), (5, 2)]}))
    nobody = arrow(MEMBERS, [member(None, topics=None, group_state="Empty")])
    assert measure_lag(rows, nobody) == {"g": GroupLag(2, 0, 12, None, None, None, time_lag_ms=7)}
    assert measure_lag(rows.slice(0, 0), nobody) == {}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Lag, bound, time, lower bound of the time.
        (
            [(5, None, 3_000, None), (0, None, 0, None)],
            {"total_lag_records": 5, "time_lag_ms": 3_000},
        ),
        (
            [(9, None, None, 60_000), (5, None, 3_000, None)],
            {"total_lag_records": 14, "time_lag_at_least_ms": 60_000, "num_unknown_times": 1},
        ),
        (
            [(9, None, None, None), (0, None, 0, None)],
            {"total_lag_records": 9, "num_unknown_times": 1},
        ),
        (
            [(0, "LOWER", None, None), (5, None, 3_000, None)],
            {
                "total_lag_records": 5, "lag_bound": LOWER, "num_unknown_partitions": 1,
                "time_lag_at_least_ms": 3_000, "num_unknown_times": 1,
            },
        ),
        (
            [(60, "UPPER", 3_000, None), (5, None, 1_000, None)],
            {"total_lag_records": 65, "lag_bound": UPPER, "time_lag_ms": 3_000},
        ),
        (
            # Neither bound holds of the sum.
            [(60, "UPPER", 3_000, None), (None, None, None, None)],
            {
                "total_lag_records": None, "lag_bound": LOWER, "num_unknown_partitions": 1,
                "time_lag_at_least_ms": 3_000, "num_unknown_times": 1,
            },
        ),
    ],
)  # fmt: skip
def test_what_is_not_exact_is_a_bound_and_never_a_zero(
    rows: Sequence[tuple[Any, ...]], expected: dict[str, Any]
) -> None:
    names = ("lag_records", "lag_bound", "time_lag_ms", "time_lag_at_least_ms")
    table = [{"group_id": "g", "status": "OK"} | dict(zip(names, row, strict=True)) for row in rows]
    found = measure_lag(arrow(LAG, table), arrow(MEMBERS, []))["g"]
    assert replace(found, num_partitions=0) == GroupLag(**expected)


def test_unknown_owners_leave_members_and_skew_open_but_not_the_lag() -> None:
    rows = lag_of("g", {"m-1": [(600, 1)], "-": [(300, 1)]})
    rows[1] |= {"owner_problem": "the group is PreparingRebalance", "subscription_problem": "moving"}
    people = arrow(MEMBERS, [member("m-1"), member("m-2")])
    found = measure_lag(arrow(LAG, rows), people)["g"]
    assert (found.total_lag_records, found.max_member_lag_records, found.lag_skew) == (900, None, None)
    assert (found.commit_problem, found.subscription_problem) == (None, "moving")
    assert found.owner_problem == "the group is PreparingRebalance"
