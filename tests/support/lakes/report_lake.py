"""A lake of one afternoon with every part of the report in it, and names that a page must not run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from evenlag.lake.tables import (
    AUDITED_SNAPSHOTS,
    COMPARISONS,
    DECISIONS,
    GATE_RESULTS,
    LAG,
    MEMBERS,
    MEMBERSHIPS,
    OUTCOMES,
    OWNERSHIP,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    PLANS,
    REPLAYS,
    SNAPSHOTS,
    Table,
)
from tests.support.spark_tables import together, write_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CLUSTER, GROUP = "orders", "payments"
HOSTILE = "<script>alert('evenlag')</script>"
FORMULA = "$x_{1}$"
FIRST = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STEP = timedelta(minutes=5)
NUM_READINGS, NUM_PARTITIONS = 24, 8
# Partitions of a topic that the group has left, and their lag.
NUM_LEFT, LEFT_LAG = 2, 1_000_000
# The snapshot that the plan was made from, and the one that shows that the plan was applied.
PLANNED, FOLLOWED = 8, 10
PLAN, REFUSED = "a1" * 32, "b2" * 32
INPUT_HASH = "0" * 64
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
MEMBERS_BY_ID = {"pod-0-aa": "pod-0", "pod-1-bb": FORMULA, "pod-2-cc": HOSTILE}
_IDS = tuple(MEMBERS_BY_ID)


def slot(number: int) -> datetime:
    return FIRST + number * STEP


def snapshot_id(number: int) -> str:
    return f"{slot(number):%Y%m%dT%H%M%S}000Z-aaaaaaaa"


def owner(partition: int, reading: int) -> str | None:
    """Who holds a partition: the first member has the heavy ones until the plan is followed."""
    if partition == NUM_PARTITIONS - 1 and reading < 3:
        return None
    if reading < FOLLOWED:
        return _IDS[0] if partition < 3 else _IDS[1] if partition < 6 else _IDS[2]
    return _IDS[partition % 3]


def lag(partition: int, reading: int) -> int:
    heavy = 4000 if partition < 3 else 100
    return max(0, heavy * (1 + partition) - (reading - FOLLOWED) * 700 * (reading >= FOLLOWED))


def rates(partition: int, reading: int) -> dict[str, float | int | None]:
    """Rates of a partition: the heavy ones fall behind until the plan is followed, then all catch up."""
    arrival, consume = 50.0, 30.0 if partition < 3 and reading < FOLLOWED else 90.0
    drains = 1000 * lag(partition, reading) / (consume - arrival)
    return {
        "arrival_rate_records_per_s": arrival,
        "consume_rate_records_per_s": consume,
        "drain_time_ms": round(drains) if drains >= 0 else None,
    }


def write(root: Path, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows into a table of a lake; what a row lacks is null."""
    head = {"cluster": CLUSTER, "day": FIRST.date(), "group_id": GROUP}
    write_rows(root, table, [head | row for row in rows])


def write_seen(root: Path, *, lag_of_last: int | None = 5) -> None:
    """What every lake contains: snapshots, members and lag; the last snapshot's lag may be unknown."""
    times = ("started_at", "log_start_read_at", "commits_read_at", "end_read_at", "finished_at")
    readings = range(NUM_READINGS)
    write(
        root,
        SNAPSHOTS,
        [
            {"snapshot_id": snapshot_id(n), "slot": slot(n), "kafka_cluster_id": "k"}
            | dict.fromkeys(times, slot(n))
            for n in readings
        ],
    )
    write(
        root,
        MEMBERS,
        [
            {"snapshot_id": snapshot_id(n), "member_id": member, "client_id": name, "read_at": slot(n)}
            for n in readings
            for member, name in MEMBERS_BY_ID.items()
        ],
    )
    rows = [
        {
            "snapshot_id": snapshot_id(n),
            "slot": slot(n),
            "topic_id": TOPIC_ID,
            "topic": "orders",
            "partition": partition,
            "owner_member_id": owner(partition, n),
            "lag_records": None if lag_of_last is None and n == NUM_READINGS - 1 else lag(partition, n),
            "status": "OK",
        }
        | rates(partition, n)
        for n in readings
        for partition in range(NUM_PARTITIONS)
    ]
    last = rows[-1] | {"group_id": HOSTILE, "lag_records": lag_of_last}
    # A topic that the group has left: in no total.
    left = {"topic": "old-orders", "topic_id": "", "owner_member_id": None, "status": "NOT_SUBSCRIBED"}
    known = {"lag_records": LEFT_LAG, "time_lag_ms": 9_000_000}
    write(
        root, LAG, [*rows, *(row | left | known for row in rows if row["partition"] in range(NUM_LEFT)), last]
    )


def write_planned(root: Path) -> None:
    """A plan that was followed, one that was refused."""
    before = {"max_member_lag_records": 24_000, "mean_member_lag_records": 8800.0, "lag_skew": 2.7}
    after = before | {"max_member_lag_records": 12_500}
    plan = {
        "mode": "auto",
        "assignor": "lag-aware-sticky",
        "moves": 5,
        "gain": 0.4,
        "metrics_before": before,
        "metrics_after": after,
    }
    write(
        root,
        PLANS,
        [
            plan | {"plan_id": PLAN, "snapshot_id": snapshot_id(PLANNED), "slot": slot(PLANNED)},
            plan | {"plan_id": REFUSED, "snapshot_id": snapshot_id(15), "slot": slot(15)},
        ],
    )
    moved = [p for p in range(NUM_PARTITIONS) if owner(p, PLANNED) != owner(p, FOLLOWED)]
    write(
        root,
        PLAN_ASSIGNMENTS,
        [
            {
                "plan_id": PLAN,
                "snapshot_id": snapshot_id(PLANNED),
                "topic_id": TOPIC_ID,
                "topic": "orders",
                "partition": p,
                "owner_before": owner(p, PLANNED),
                "owner_after": owner(p, FOLLOWED),
                "moved": True,
                "lag_records": lag(p, PLANNED),
            }
            for p in moved
        ],
    )
    values = {"plan_id": PLAN, "snapshot_id": snapshot_id(PLANNED), "actor": "policy"}
    refused = {"plan_id": REFUSED, "snapshot_id": snapshot_id(15), "actor": "gates", "at": slot(15)}
    write(
        root,
        PLAN_EVENTS,
        [
            values | {"event": "PROPOSED", "at": slot(PLANNED)},
            values | {"event": "APPROVED", "at": slot(PLANNED)},
            values | {"event": "APPLIED", "at": slot(FOLLOWED), "reason": "every hinted partition is held"},
            refused | {"event": "PROPOSED"},
            refused | {"event": "REJECTED", "reason": f"cooldown: {HOSTILE}"},
        ],
    )
    published = {"event": "PUBLISHED", "at": slot(PLANNED) + timedelta(seconds=40), "sequence": 7}
    write(root, PLAN_EVENTS, [values | published])
    gate = {"plan_id": REFUSED, "snapshot_id": snapshot_id(15), "message": "within its limits"}
    write(
        root,
        GATE_RESULTS,
        [
            gate | {"gate": "max_moves", "passed": True},
            gate | {"gate": "cooldown", "passed": False, "message": "the last hint is 300 s old"},
        ],
    )
    write(
        root,
        OUTCOMES,
        [
            {
                "plan_id": PLAN,
                "snapshot_id": snapshot_id(FOLLOWED),
                "slot": slot(FOLLOWED),
                "outcome": "APPLIED",
                "adherence": 1.0,
                "max_member_lag_actual_records": 12_400,
            }
        ],
    )
    write(
        root,
        DECISIONS,
        [
            {
                "snapshot_id": snapshot_id(n),
                "slot": slot(n),
                "policy_hash": "0" * 64,
                "policy_mode": "auto",
                "decision": "PROPOSED" if n in {PLANNED, 15} else "NO_CHANGE",
                "reason": None if n in {PLANNED, 15} else "nothing would gain enough",
            }
            for n in range(NUM_READINGS)
        ],
    )


def write_audited(root: Path) -> None:
    """Partition ownership, as the audit stores it."""
    rows = []
    for partition in range(NUM_PARTITIONS):
        starts = [n for n in range(NUM_READINGS) if n == 0 or owner(partition, n) != owner(partition, n - 1)]
        for start, after in zip(starts, [*starts[1:], None], strict=True):
            last = NUM_READINGS - 1 if after is None else after - 1
            member = owner(partition, start)
            rows.append(
                _stretch(start, last, after)
                | {
                    "topic_id": TOPIC_ID,
                    "topic": "orders",
                    "partition": partition,
                    "state": "NOBODY" if member is None else "OWNED",
                    "reason": "no member took it" if member is None else None,
                    "member_id": member,
                    "client_id": MEMBERS_BY_ID.get(member or ""),
                    "num_owners": int(member is not None),
                }
            )
    write(root, OWNERSHIP, rows)
    changes = [n for n in range(NUM_READINGS) if n in {0, 3, FOLLOWED}]
    memberships = []
    for start, after in zip(changes, [*changes[1:], None], strict=True):
        last = NUM_READINGS - 1 if after is None else after - 1
        memberships.append(_stretch(start, last, after) | _membership(start))
    write(root, MEMBERSHIPS, memberships)
    times = {"started_at", "finished_at", "slot"}
    readings = [
        {"snapshot_id": snapshot_id(n), "input_hash": INPUT_HASH} | dict.fromkeys(times, slot(n))
        for n in range(NUM_READINGS)
    ]
    write(root, AUDITED_SNAPSHOTS, readings)


def _membership(reading: int) -> dict[str, Any]:
    held = {member: [p for p in range(NUM_PARTITIONS) if owner(p, reading) == member] for member in _IDS}
    members = [
        {
            "member_id": member,
            "client_id": name,
            "subscription": ["orders"],
            "assignment": [{"topic": "orders", "partitions": held[member]}],
        }
        for member, name in MEMBERS_BY_ID.items()
    ]
    topics = [{"topic": "orders", "topic_id": TOPIC_ID, "num_partitions": NUM_PARTITIONS}]
    head = {"group_state": "Stable", "group_type": "classic", "assignor": "evenlag", "is_known": True}
    return head | {"num_members": len(members), "members": members, "topics": topics}


def _stretch(start: int, last: int, after: int | None) -> dict[str, Any]:
    """The columns that describe an interval of snapshots in every table of the audit."""
    return {
        "first_snapshot_id": snapshot_id(start),
        "first_seen_at": slot(start),
        "last_snapshot_id": snapshot_id(last),
        "last_seen_at": slot(last),
        "previous_snapshot_id": snapshot_id(start - 1) if start else None,
        "previous_seen_at": slot(start - 1) if start else None,
        "next_snapshot_id": None if after is None else snapshot_id(after),
        "next_seen_at": None if after is None else slot(after),
        "num_snapshots": last - start + 1,
        "longest_gap_ms": 300_000,
        "input_hash": INPUT_HASH,
    }


def write_compared(root: Path) -> None:
    """Four policies over the day, and what really ran."""
    share_by_policy = {
        "observed": 1.0,
        "lag-aware-sticky": 0.55,
        "cooperative-sticky": 1.05,
        "range": 1.2,
        HOSTILE: 0.8,
    }
    readings = range(NUM_READINGS)
    total = [sum(lag(p, n) for p in range(NUM_PARTITIONS)) for n in readings]
    rows = []
    for number, (policy, share) in enumerate(share_by_policy.items()):
        lags = [int(value * (1 + (share - 1) * n / NUM_READINGS)) for n, value in enumerate(total)]
        rows.append(
            {
                "policy": policy,
                "assignor": None if policy == "observed" else policy,
                "period_start": slot(0),
                "period_end": slot(NUM_READINGS - 1),
                "num_snapshots": NUM_READINGS,
                "at": [slot(n) for n in readings],
                "lag_records": lags,
                "max_member_lag_records": [value // 2 for value in lags],
                "mean_lag_records": sum(lags) / len(lags),
                "max_lag_records": max(lags),
                "waiting_p95_ms": int(share * 300_000),
                "waiting_p99_ms": int(share * 400_000),
                "record_s": 1_000.0 * share,
                "record_s_above_5s": 900.0 * share,
                "record_s_above_30s": 500.0 * share,
                "record_s_above_300s": 100.0 * share,
                "max_time_lag_ms": int(share * 500_000),
                "takeover_moves": 0,
                "num_observed_capacities": 3,
                "num_assumed_capacities": 0,
                "drain_time_ms": None if share > 1 else 900_000,
                "moves": 5 * number,
                "rebalances": number,
                "paused_ms": 4000 * number,
                "median_error": 0.04 if policy == "observed" else None,
                "p95_error": 0.1 if policy == "observed" else None,
                "median_error_records": 90.0 if policy == "observed" else None,
                "p95_error_records": 700.0 if policy == "observed" else None,
                "num_error_snapshots": 12 if policy == "observed" else None,
            }
        )
    write(root, REPLAYS, rows)
    write(
        root,
        COMPARISONS,
        [
            {"snapshot_id": snapshot_id(n), "slot": slot(n), "policy": policy, "optimality_gap": share / 10}
            for n in (0, 1)
            for policy, share in share_by_policy.items()
        ],
    )


def write_lake(root: Path) -> Path:
    """Write all of it; returns the lake's root."""
    with together():
        for part in (write_seen, write_planned, write_audited, write_compared):
            part(root)
    return root
