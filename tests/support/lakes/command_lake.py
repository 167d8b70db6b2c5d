"""A small lake of two slots, written by the tables' contracts."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from evenlag.lake.tables import (
    GATE_RESULTS,
    LAG,
    OUTCOMES,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    PLANS,
    SNAPSHOTS,
    Table,
)
from tests.support import spark_tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

DAY = date(2026, 11, 21)
FIRST_SLOT = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)
SECOND_SLOT = datetime(2026, 11, 21, 13, 5, tzinfo=UTC)
FIRST, SECOND = "20261121T130000000Z-aaaaaaaa", "20261121T130500000Z-bbbbbbbb"
APPLIED_PLAN, REJECTED_PLAN = "a1" * 32, "b2" * 32
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def write_rows(lake: Path, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows into a table of a lake; what a row lacks is null."""
    head = {"cluster": "orders", "day": DAY}
    spark_tables.write_rows(lake, table, [head | row for row in rows])


def _metrics(largest: int, mean: float) -> dict[str, Any]:
    return {
        "max_member_lag_records": largest,
        "mean_member_lag_records": mean,
        "lag_skew": largest / mean,
        "min_member_partitions": 2,
        "max_member_partitions": 2,
        "balance_score": 0,
    }


def _lag_rows(
    snapshot_id: str, slot: datetime, lags: Mapping[int, tuple[str | None, int | None, str]]
) -> list[Any]:
    return [
        {
            "snapshot_id": snapshot_id,
            "slot": slot,
            "group_id": "payments",
            "topic_id": TOPIC_ID,
            "topic": "orders",
            "partition": partition,
            "owner_member_id": owner,
            "lag_records": lag,
            "status": status,
            "time_lag_ms": None if lag is None else lag * 10,
        }
        for partition, (owner, lag, status) in lags.items()
    ]


def _plan(plan_id: str, snapshot_id: str, slot: datetime, before: int, after: int) -> dict[str, Any]:
    return {
        "snapshot_id": snapshot_id,
        "slot": slot,
        "plan_id": plan_id,
        "group_id": "payments",
        "mode": "auto",
        "assignor": "lag-aware",
        "settings": "{}",
        "policy_hash": "0" * 64,
        "fingerprint": "f" * 64,
        "payload": "{}",
        "payload_bytes": 2,
        "num_members": 2,
        "num_partitions": 4,
        "num_unassigned_partitions": 0,
        "num_unknown_partitions": 0,
        "moves": 1,
        "gain": 0.5,
        "metrics_before": _metrics(before, before / 2),
        "metrics_after": _metrics(after, before / 2),
    }


def _event(
    plan_id: str, snapshot_id: str, event: str, at: datetime, reason: str | None = None
) -> dict[str, Any]:
    return {
        "snapshot_id": snapshot_id,
        "plan_id": plan_id,
        "group_id": "payments",
        "event": event,
        "reason": reason,
        "actor": "policy",
        "at": at,
    }


def write_lake(lake: Path) -> None:
    """Write two snapshots of one group, a plan that was followed and one that was rejected."""
    read_times = ("started_at", "log_start_read_at", "commits_read_at", "end_read_at", "finished_at")
    for snapshot_id, slot in ((FIRST, FIRST_SLOT), (SECOND, SECOND_SLOT)):
        marker = {"snapshot_id": snapshot_id, "slot": slot, "kafka_cluster_id": "k"} | dict.fromkeys(
            read_times, slot
        )
        write_rows(lake, SNAPSHOTS, [marker])
    first = {0: ("c0-x", 900, "OK"), 1: ("c0-x", 600, "OK"), 2: ("c1-y", 10, "OK"), 3: ("c1-y", 0, "OK")}
    second = {
        0: ("c0-x", 800, "OK"),
        1: ("c1-y", 500, "OK"),
        2: ("c1-y", 10, "OK"),
        3: (None, None, "UNKNOWN"),
    }
    write_rows(lake, LAG, _lag_rows(FIRST, FIRST_SLOT, first) + _lag_rows(SECOND, SECOND_SLOT, second))
    write_rows(
        lake,
        PLANS,
        [
            _plan(APPLIED_PLAN, FIRST, FIRST_SLOT, 1500, 900),
            _plan(REJECTED_PLAN, SECOND, SECOND_SLOT, 800, 790),
        ],
    )
    write_rows(
        lake,
        PLAN_EVENTS,
        [
            _event(APPLIED_PLAN, FIRST, "PROPOSED", FIRST_SLOT),
            _event(APPLIED_PLAN, FIRST, "APPROVED", FIRST_SLOT),
            _event(APPLIED_PLAN, SECOND, "APPLIED", SECOND_SLOT, "every hinted partition is held"),
            _event(REJECTED_PLAN, SECOND, "PROPOSED", SECOND_SLOT),
            _event(REJECTED_PLAN, SECOND, "REJECTED", SECOND_SLOT, "cooldown: the last hint is 300 s old"),
        ],
    )
    published = _event(APPLIED_PLAN, FIRST, "PUBLISHED", FIRST_SLOT.replace(second=40))
    write_rows(lake, PLAN_EVENTS, [published | {"sequence": 7}])
    gates = [("max_moves", True, "1", "1000"), ("cooldown", False, "300", "600")]
    write_rows(
        lake,
        GATE_RESULTS,
        [
            {
                "snapshot_id": SECOND,
                "plan_id": REJECTED_PLAN,
                "group_id": "payments",
                "gate": gate,
                "passed": passed,
                "observed": observed,
                "allowed": allowed,
                "message": "ok" if passed else "the last hint is 300 s old",
            }
            for gate, passed, observed, allowed in gates
        ],
    )
    move = {
        "snapshot_id": FIRST,
        "plan_id": APPLIED_PLAN,
        "group_id": "payments",
        "topic_id": TOPIC_ID,
        "topic": "orders",
        "lag_records": 600,
        "lag_status": "OK",
    }
    write_rows(
        lake,
        PLAN_ASSIGNMENTS,
        [
            move | {"partition": 1, "owner_before": "c0-x", "owner_after": "c1-y", "moved": True},
            move | {"partition": 0, "owner_before": "c0-x", "owner_after": "c0-x", "moved": False},
        ],
    )
    write_rows(
        lake,
        OUTCOMES,
        [
            {
                "snapshot_id": SECOND,
                "slot": SECOND_SLOT,
                "plan_id": APPLIED_PLAN,
                "group_id": "payments",
                "outcome": "APPLIED",
                "adherence": 1.0,
                "max_member_lag_actual_records": 810,
            }
        ],
    )
