"""What became of hints that brokers follow: what the coordinator wants counts beside what is held."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from evenlag.enums import OutcomeReason
from evenlag.lake.tables import LAG, MEMBERS, OUTCOMES, PLAN_ASSIGNMENTS
from evenlag.planning.outcomes import build_outcomes
from evenlag.planning.published_plans import PublishedPlan
from tests.support.lakes.snapshots import DAY, HEAD, NOW, SNAPSHOT, TOPIC_IDS, arrow, marker, member

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

Held = dict[str, list[int]]
Rows = list[dict[str, Any]]
WANTED: Held = {"m-1": [0, 1], "m-2": [2, 3]}
OLD: Held = {"m-1": [2, 3], "m-2": [0, 1]}
HALF: Held = {"m-1": [0, 2], "m-2": [1, 3]}
METRICS: dict[str, Any] = {
    "slot": NOW - timedelta(seconds=60),
    "expected": [
        {"measure": "total_lag_records", "is_horizon": False, "ahead_s": 50.0}
        | {"predicted": 7.0, "lower": 2.0, "upper": 9.0}
    ],
    "metrics_before": {"max_member_lag_records": 9, "lag_skew": 1.0},
    "metrics_after": {"max_member_lag_records": 5, "lag_skew": 1.0},
}


def published(name: str, *, expires_at: datetime) -> PublishedPlan:
    """A plan of a group with its own name, an hour after its hint."""
    return PublishedPlan(name, name, SNAPSHOT, DAY, NOW - timedelta(hours=1), expires_at)


def settle(
    pending: Sequence[PublishedPlan],
    assignments: Rows,
    members: Rows,
    lag: Rows,
    heads: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, dict[str, Any]]:
    """Rows of ``outcomes`` by plan."""
    built = build_outcomes(
        pending,
        heads or {plan.plan_id: METRICS for plan in pending},
        assignments=arrow(PLAN_ASSIGNMENTS, assignments),
        members=arrow(MEMBERS, members),
        lag=arrow(LAG, lag),
        marker=HEAD | marker(),
        run_id="r",
    )
    assert all(set(row) == set(OUTCOMES.column_names) for row in built)
    return {row["plan_id"]: row for row in built}


def people(group: str, held: Mapping[str, Sequence[int]], target: Held | None) -> list[dict[str, Any]]:
    rows = []
    for name, numbers in held.items():
        row = member(name, group=group, held={"t": numbers})
        if target is not None:
            row |= {
                "group_type": "consumer",
                "target_assignment": [{"topic": "t", "partitions": target[name]}],
            }
        rows.append(row)
    return rows


def planned_rows(name: str) -> list[dict[str, Any]]:
    """The plan of a group with its own name: WANTED."""
    return [
        {
            "plan_id": name,
            "group_id": name,
            "topic_id": TOPIC_IDS["t"],
            "topic": "t",
            "partition": number,
            "owner_after": owner,
            "owner_after_key": f"m:{owner}",
            "moved": True,
        }
        for owner, numbers in WANTED.items()
        for number in numbers
    ]


def test_expiry_ends_no_hint_that_the_coordinator_has_taken_up() -> None:
    groups: dict[str, tuple[Held, Held | None, bool]] = {
        "done": (WANTED, WANTED, True),
        "under-way": (OLD, WANTED, True),
        "refused": (OLD, OLD, True),
        "half": (OLD, HALF, True),
        "open": (OLD, OLD, False),
        "classic": (OLD, None, True),
    }
    hour = timedelta(hours=1)
    pending = [
        published(name, expires_at=NOW - hour / 2 if over else NOW + hour)
        for name, (*_, over) in groups.items()
    ]
    assignments = [row for name in groups for row in planned_rows(name)]
    members = [row for name, (held, target, _) in groups.items() for row in people(name, held, target)]
    found = settle(pending, assignments, members, [])
    shown = {
        name: (row["outcome"], row["adherence"], row["target_adherence"])
        for name, row in sorted(found.items())
    }
    assert shown == {
        "classic": ("EXPIRED", 0.0, None),
        "done": ("APPLIED", 1.0, 1.0),
        "half": ("EXPIRED", 0.0, 0.5),
        "refused": ("EXPIRED", 0.0, 0.0),
    }
    over = "the hint's time is over with 0 % of its partitions as hinted"
    assert found["classic"]["reason"] == over
    assert found["half"]["reason"] == f"{over}, and 50 % in the coordinator's target"


def unread(group: str) -> dict[str, Any]:
    """Return the row of a group that no broker lists, and whose coordinator does not answer."""
    return member(None, group=group, group_state=None, assignor=None, error="NotCoordinatorError")


def test_each_reason_has_a_code_and_the_code_has_the_outcome() -> None:
    soon, past = NOW + timedelta(hours=1), NOW - timedelta(minutes=30)
    # The newer plan, when the hint expires, members planned for, and the members of the snapshot.
    cases: dict[str, tuple[str | None, datetime, int, Rows]] = {
        "as hinted": (None, past, 2, people("as hinted", WANTED, None)),
        "replaced": ("newer", soon, 2, people("replaced", OLD, None)),
        "range": (None, soon, 2, [row | {"assignor": "range"} for row in people("range", OLD, None)]),
        "empty": (None, soon, 2, [member(None, group="empty", group_state="Empty", assignor=None)]),
        "gone": (None, soon, 2, []),
        "not listed": (None, soon, 2, [unread("not listed")]),
        "not listed, over": (None, past, 2, [unread("not listed, over")]),
        "waits": (None, soon, 2, people("waits", OLD, None)),
        "same": (None, past, 2, people("same", OLD, None)),
        "restarted": (None, past, 2, people("restarted", {"m-1": [2, 3], "m-8": [0, 1]}, None)),
        "joined": (None, past, 2, people("joined", OLD | {"m-3": []}, None)),
        "unread": (None, past, 2, [member(None, group="unread", error="TimeoutError")]),
        "nothing planned": (None, past, 2, people("nothing planned", OLD, None)),
    }
    pending = [
        replace(published(name, expires_at=at), next_plan_id=newer) for name, (newer, at, *_) in cases.items()
    ]
    heads = {name: METRICS | {"num_members": planned} for name, (_, _, planned, _) in cases.items()}
    assignments = [row for name in cases if name != "nothing planned" for row in planned_rows(name)]
    members = [row for *_, rows in cases.values() for row in rows]
    found = settle(pending, assignments, members, [], heads)
    shown = {name: (row["outcome"], row["reason_code"]) for name, row in found.items()}
    assert shown == {
        "as hinted": ("APPLIED", "AS_HINTED"),
        "replaced": ("IGNORED", "NEWER_HINT"),
        "range": ("IGNORED", "OTHER_ASSIGNOR"),
        "empty": ("IGNORED", "NO_MEMBERS"),
        "gone": ("IGNORED", "NO_MEMBERS"),
        "not listed, over": ("EXPIRED", "UNKNOWN"),
        "same": ("EXPIRED", "NOT_FOLLOWED"),
        "restarted": ("EXPIRED", "MEMBERS_CHANGED"),
        "joined": ("EXPIRED", "MEMBERS_CHANGED"),
        "unread": ("EXPIRED", "UNKNOWN"),
        "nothing planned": ("EXPIRED", "UNKNOWN"),
    }
    assert {code for _, code in shown.values()} == set(OutcomeReason)
    over = "the hint's time is over with 0 % of its partitions as hinted"
    assert {name: row["reason"] for name, row in found.items()} == {
        "as hinted": "every hinted partition is with its hinted member",
        "replaced": "a newer plan took its place: newer",
        "range": "the group has selected range",
        "empty": "the group has no members any more",
        "gone": "the group has no members any more",
        "not listed, over": over,
        "same": over,
        "restarted": f"{over}; the group's members have changed since",
        "joined": f"{over}; the group's members have changed since",
        "unread": over,
        "nothing planned": None,
    }


# Lags by member, None where the lag is not known; then, computed manually: partitions, unknown ones, the
# largest lag of a member, the skew, the total.
LAGS: dict[str, tuple[dict[str, list[int | None]], tuple[Any, ...]]] = {
    "known": ({"m-1": [600, 300], "m-2": [100]}, (3, 0, 900, 1.8, 1000)),
    "idle": ({"m-1": [100, 300], "m-2": []}, (2, 0, 400, 2.0, 400)),
    "partly": ({"m-1": [400, None], "m-2": [30, 10]}, (4, 1, 400, None, 440)),
    "one-dark": ({"m-1": [None, None], "m-2": [30, 10]}, (4, 2, 40, None, 40)),
    "zero-or-dark": ({"m-1": [None], "m-2": [0]}, (2, 1, 0, None, 0)),
    "dark": ({"m-1": [None, None], "m-2": [None]}, (3, 3, None, None, None)),
    "no-rows": ({"m-1": [], "m-2": []}, (None, None, None, None, None)),
}


def test_what_a_snapshot_does_not_know_is_not_counted_as_no_lag() -> None:
    hour = timedelta(hours=1)
    pending = [published(name, expires_at=NOW - hour / 2) for name in LAGS]
    head = {"slot": NOW, "topic_id": TOPIC_IDS["t"], "topic": "t"}
    rows: list[dict[str, Any]] = []
    for group, (by_member, _) in LAGS.items():
        owned = [(member, lag) for member, lags in by_member.items() for lag in lags]
        rows += [
            head
            | {
                "group_id": group,
                "partition": number,
                "owner_member_id": member,
                "status": "UNKNOWN" if lag is None else "OK",
                "lag_records": lag,
            }
            for number, (member, lag) in enumerate(owned)
        ]
        if by_member["m-1"]:
            aside = {"group_id": group, "topic": "u", "topic_id": TOPIC_IDS["u"], "partition": 0}
            rows.append(head | aside | {"status": "NOT_SUBSCRIBED", "lag_records": None})
    members = [row for name in LAGS for row in people(name, OLD, None)]
    columns = (
        "num_partitions",
        "num_unknown_partitions",
        "max_member_lag_actual_records",
        "lag_skew_actual",
        "total_lag_actual_records",
    )
    found = settle(pending, [], members, rows)
    shown = {name: tuple(row[column] for column in columns) for name, row in found.items()}
    assert shown == {name: expected for name, (_, expected) in LAGS.items()}


def test_an_outcome_has_what_its_plan_expected_and_what_the_publishing_saw_of_its_cost() -> None:
    hour = timedelta(hours=1)
    cost = {"follow_ms": 6500, "rebalancing_ms": 2500, "num_triggers": 1}
    plans = [
        replace(published("seen", expires_at=NOW + hour), cost=cost),
        published("unseen", expires_at=NOW + hour),
    ]
    names = [plan.plan_id for plan in plans]
    rows = settle(
        plans,
        [row for name in names for row in planned_rows(name)],
        [row for name in names for row in people(name, WANTED, None)],
        [{**row, "status": "OK", "lag_records": 3} for name in names[:1] for row in planned_rows(name)],
    )
    (expected,) = rows["seen"]["expected"]
    assert (expected["predicted"], expected["actual"], expected["held"]) == (7.0, 12.0, False)
    assert rows["unseen"]["expected"] is None
    assert {name: rows["seen"][name] for name in cost} == cost
    assert {name: rows["unseen"][name] for name in cost} == dict.fromkeys(cost)
