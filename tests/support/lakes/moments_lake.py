"""A lake over midnight, as its writers write it, for the moments that a report shows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.tables import (
    LAG,
    MEMBERS,
    OFFSETS,
    OUTCOMES,
    PLAN_EVENTS,
    PLANS,
    REPLAYS,
    SNAPSHOTS,
    Table,
)
from evenlag.publishing.event_log import append_plan_events
from tests.support.lakes.snapshots import TOPIC_IDS, append_rows, marker, member, offset

if TYPE_CHECKING:
    from spark_jobs.runtime.delta_lake import Lake

GROUP, BARE = "g", "bare"


FIRST, SECOND, THIRD, FOURTH, FIFTH = SLOTS = tuple(
    datetime.fromisoformat(f"{text}+00:00")
    for text in (
        "2026-03-01T23:50:00", "2026-03-01T23:55:00", "2026-03-02T00:00:00", "2026-03-02T00:03:00",
        "2026-03-02T00:04:00",
    )
)  # fmt: skip


FOLLOWED, UNPUBLISHED, OPEN = "f0" * 32, "e1" * 32, "d2" * 32


# What m-1 owns, snapshot by snapshot; the rest is m-2's.
OWNED: Final = ((0, 1, 2), (0, 1, 2), (0, 1), (0, 1), (0,))


LAGS: Final = (
    (400, 300, 200, 100),
    (500, 400, 300, 100),
    (300, 200, 100, 50),
    (200, None, 100, 50),
    (9,) * 4,
)


def after(slot: datetime, seconds: int) -> datetime:
    return slot + timedelta(seconds=seconds)


def snapshot_id(slot: datetime) -> str:
    return f"{slot:%Y%m%dT%H%M%S}000Z-aaaaaaaa"


def head(slot: datetime) -> dict[str, Any]:
    return {"snapshot_id": snapshot_id(slot), "day": slot.date(), "slot": slot}


def write(lake: Lake, table: Table, rows: list[dict[str, Any]]) -> None:
    append_rows(lake.paths.root, table, rows)


def write_seen(lake: Lake) -> None:
    """The snapshots; nobody has committed anything in the second group."""
    seen, members, offsets, lag = [], [], [], []
    for slot, owned, lags in zip(SLOTS, OWNED, LAGS, strict=True):
        times = {"started_at": 9, "log_start_read_at": 10, "commits_read_at": 10, "end_read_at": 11}
        seen.append(
            marker()
            | head(slot)
            | {name: after(slot, seconds) for name, seconds in times.items()}
            | {"finished_at": after(slot, 13)}
        )
        held = {"m-1": list(owned), "m-2": [number for number in range(4) if number not in owned]}
        of_slot = {name: value for name, value in head(slot).items() if name != "slot"}
        members += [
            member(
                name, held={"t": held[name]}, client_id=f"pod-{name}", group=group, read_at=after(slot, 10)
            )
            | of_slot
            for name in held
            for group in (GROUP, BARE)
        ]
        offsets += [offset(number, 900) | of_slot for number in range(4)]
        for group in (GROUP, BARE):
            for number in range(4):
                value = None if group == BARE else lags[number]
                lag.append(
                    head(slot)
                    | {
                        "group_id": group,
                        "topic_id": TOPIC_IDS["t"],
                        "topic": "t",
                        "partition": number,
                        "owner_member_id": "m-1" if number in owned else "m-2",
                        "lag_records": value,
                        "status": "NO_COMMIT" if group == BARE else "UNKNOWN" if value is None else "OK",
                        "read_at": after(slot, 11),
                    }
                )
    for table, rows in ((SNAPSHOTS, seen), (MEMBERS, members), (OFFSETS, offsets), (LAG, lag)):
        write(lake, table, rows)


def write_planned(lake: Lake) -> None:
    """A plan that was followed, one that was never published, and one that is published after the end."""
    metrics = {"mean_member_lag_records": 1.0, "lag_skew": 1.0, "balance_score": 0}
    plans = {FOLLOWED: SECOND, UNPUBLISHED: FOURTH, OPEN: FIFTH}
    write(
        lake,
        PLANS,
        [
            head(slot)
            | {
                "plan_id": plan,
                "group_id": GROUP,
                "mode": "auto",
                "assignor": "lag-aware-sticky",
                "moves": 1,
                "metrics_before": metrics | {"max_member_lag_records": 1200},
                "metrics_after": metrics | {"max_member_lag_records": 900},
            }
            for plan, slot in plans.items()
        ],
    )
    shown = [
        head(slot) | {"plan_id": plan, "group_id": GROUP, "event": event, "actor": "policy", "at": slot}
        for plan, slot in plans.items()
        for event in ("PROPOSED", "APPROVED")
    ]
    outcome = head(THIRD) | {"plan_id": FOLLOWED, "group_id": GROUP}
    shown.append(
        outcome | {"event": "APPLIED", "actor": "observer", "at": after(THIRD, 13), "reason": "all of it"}
    )
    write(lake, PLAN_EVENTS, [{name: row[name] for name in row if name != "slot"} for row in shown])
    write(
        lake,
        OUTCOMES,
        [outcome | {"outcome": "APPLIED", "adherence": 1.0, "max_member_lag_actual_records": 500}],
    )
    published = (
        (FOLLOWED, SECOND, "PUBLISHED", after(SECOND, 40), 1),
        (UNPUBLISHED, FOURTH, "EXPIRED", after(FOURTH, 30), None),
        (OPEN, FIFTH, "PUBLISHED", after(FIFTH, 40), 2),
    )
    events = [
        {
            "cluster": "c",
            "day": slot.date(),
            "snapshot_id": snapshot_id(slot),
            "plan_id": plan,
            "group_id": GROUP,
            "event": event,
            "reason": None,
            "actor": "publisher",
            "at": at,
            "sequence": sequence,
        }
        for plan, slot, event, at, sequence in published
    ]
    append_plan_events(lake.paths.root, events)


def write_compared(lake: Lake) -> None:
    """What really ran, replayed on each of the two days, at the times at which lag was read."""
    days = (SLOTS[:2], SLOTS[2:])
    write(
        lake,
        REPLAYS,
        [
            {
                "group_id": GROUP,
                "day": slots[0].date(),
                "policy": policy,
                "period_start": after(slots[0], 11),
                "period_end": after(slots[-1], 11),
                "num_snapshots": len(slots),
                "at": [after(slot, 11) for slot in slots],
                "lag_records": [1000] * len(slots),
                "max_member_lag_records": [600] * len(slots),
                "mean_lag_records": 1000.0,
                "max_lag_records": 1000,
                "waiting_p99_ms": 5000,
                "max_time_lag_ms": 6000,
                "moves": 0,
                "takeover_moves": 0,
                "rebalances": 0,
                "num_observed_capacities": 2,
                "num_assumed_capacities": 0,
            }
            for slots in days
            for policy in ("observed", "range")
        ],
    )
