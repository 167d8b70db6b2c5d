"""Freshness of a cluster: the age of its newest finished snapshot, and the allowed age."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.policy.cron import last_due

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from evenlag.lake.reader import LakeReader

# The newest run may still be active; the run before it must have left its snapshot.
_DUE_RUNS: Final = 2
# With a schedule of a minute, a repeated task is no fault yet: it takes its delay and its time.
_SHORTEST_LIMIT: Final = timedelta(minutes=3)


@dataclass(frozen=True, slots=True)
class Freshness:
    """Freshness of a cluster's newest snapshot.

    snapshot_id, slot, finished_at: Of the newest finished snapshot; None if there is none.
    age_s: Seconds since it was finished.
    limit_s: Allowed age in seconds: since its end or, by a schedule, since its slot; None: any age.
    is_fresh: Whether it is within its limit.
    """

    cluster: str
    snapshot_id: str | None
    slot: datetime | None
    finished_at: datetime | None
    age_s: float | None
    limit_s: float | None
    is_fresh: bool
    reason: str


def read_freshness(
    reader: LakeReader,
    schedules: Mapping[str, str | None],
    now: datetime,
    *,
    max_age_s: float | None = None,
) -> list[Freshness]:
    """Check the age of the newest snapshot of clusters.

    Without `max_age_s` the schedule decides: the last run may still be active, the run before it must have
    left a snapshot. A snapshot of the last three minutes is always fresh. A cluster without a schedule is run
    manually, and any snapshot is fresh.

    Returns one per cluster, sorted by name.
    schedules: Cron expression by cluster; None: manual runs.
    """
    return [
        _freshness(name, reader.latest_snapshot(name), schedule, now, max_age_s)
        for name, schedule in sorted(schedules.items())
    ]


def _freshness(
    cluster: str,
    row: Mapping[str, Any] | None,
    schedule: str | None,
    now: datetime,
    max_age_s: float | None,
) -> Freshness:
    slot, finished_at = (row["slot"], row["finished_at"]) if row else (None, None)
    age_s = (now - finished_at).total_seconds() if finished_at else None
    limit_s = max_age_s
    age = "" if age_s is None else f"the newest snapshot is {age_s:,.0f} s old"
    if max_age_s is not None:
        is_fresh = age_s is not None and age_s <= max_age_s
        reason = f"{age}, at most {max_age_s:,.0f} s are allowed"
    elif schedule is None:
        is_fresh, reason = True, f"{age}; there is no schedule, runs are by hand"
    else:
        due = min(last_due(schedule, now, _DUE_RUNS)[-1], now - _SHORTEST_LIMIT)
        limit_s = (now - due).total_seconds()
        is_fresh = slot is not None and slot >= due
        reason = f"{age}; by the schedule {schedule} there has to be one for {due:%Y-%m-%d %H:%M}Z or later"
    if row is None:
        is_fresh, reason = False, "there is no finished snapshot yet"
    return Freshness(
        cluster=cluster,
        snapshot_id=row["snapshot_id"] if row else None,
        slot=slot,
        finished_at=finished_at,
        age_s=age_s,
        limit_s=limit_s,
        is_fresh=is_fresh,
        reason=reason,
    )
