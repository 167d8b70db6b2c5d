"""A group's period in a report: what was known at its end, and nothing later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tests.truth.oracle.expected.plans import plan_row, rank

if TYPE_CHECKING:
    from datetime import datetime

    from tests.truth.oracle.lake_rows import LakeRows, Row

_OUTCOMES: Final = frozenset({"APPLIED", "IGNORED", "EXPIRED"})
# The actor that reports outcomes: they are known only after the snapshot that shows them has ended.
_OBSERVER: Final = "observer"


@dataclass(frozen=True, slots=True)
class Period:
    """A group's period.

    end: The requested end; None: the newest slot.
    snapshots: Its finished snapshots by slot.
    events: Events of the group's plans up to its end, oldest first, each at the time when it was seen.
    plans: The plans made from its snapshots, as they were at its end, newest first.
    """

    rows: LakeRows
    group_id: str
    end: datetime | None
    snapshots: list[Row]
    events: list[Row]
    plans: list[Row]

    @property
    def ids(self) -> set[str]:
        """Ids of the snapshots."""
        return {row["snapshot_id"] for row in self.snapshots}

    @property
    def newest(self) -> Row:
        """The last snapshot."""
        return self.snapshots[-1]

    @property
    def finished_at(self) -> datetime:
        """When the last snapshot ended."""
        ends: list[datetime] = [row["finished_at"] for row in self.snapshots]
        return max(ends)

    def of_group(self, table: str) -> list[Row]:
        """Return the rows of a table for the group and the period's snapshots."""
        rows = self.rows.where(table, group_id=self.group_id)
        return [row for row in rows if row["snapshot_id"] in self.ids]

    def in_days(self, table: str) -> list[Row]:
        """Return the rows of a table for the group and the days of the period."""
        first, last = self.snapshots[0]["slot"].date(), self.newest["slot"].date()
        return [row for row in self.rows.where(table, group_id=self.group_id) if first <= row["day"] <= last]

    def snapshot(self, snapshot_id: str) -> Row:
        """Return a snapshot by id."""
        return next(row for row in self.snapshots if row["snapshot_id"] == snapshot_id)


def read_period(rows: LakeRows, group_id: str, hours: float, end: datetime | None = None) -> Period | None:
    """Return the snapshots of a number of hours up to a time or the newest slot; None if there are none."""
    last = rows.snapshots[-1]["slot"] if end is None else end
    known = [row for row in rows.snapshots if end is None or row["finished_at"] <= end]
    snapshots = [row for row in known if last - timedelta(hours=hours) <= row["slot"] <= last]
    if not snapshots:
        return None
    ids = {row["snapshot_id"] for row in snapshots}
    events = _events(rows, group_id, end)
    settled = {event["plan_id"] for event in events if event["event"] in _OUTCOMES}
    plans = [
        plan_row(
            rows,
            plan,
            events=[event for event in events if event["plan_id"] == plan["plan_id"]],
            is_settled=end is None or plan["plan_id"] in settled,
            until=end,
        )
        for plan in rows.where("plans", group_id=group_id)
        if plan["snapshot_id"] in ids
    ]
    plans.sort(key=lambda plan: plan["slot"], reverse=True)
    return Period(rows, group_id, end, snapshots, events, plans)


def _events(rows: LakeRows, group_id: str, end: datetime | None) -> list[Row]:
    finished = {row["snapshot_id"]: row["finished_at"] for row in rows.snapshots}
    seen = []
    for event in rows.events:
        if event["group_id"] != group_id or event["at"] is None:
            continue
        at = event["at"]
        if event["actor"] == _OBSERVER:
            at = max(at, finished.get(event["snapshot_id"], at))
        if end is None or at <= end:
            seen.append(event | {"at": at})
    return sorted(seen, key=lambda event: (event["at"], rank(event)))


def member_names(period: Period) -> dict[str, str]:
    """Return display names of members: instance id, else client id, else member id; all unique."""
    members = [row for row in period.in_days("members") if row["member_id"] is not None]
    sharing: dict[str, set[str]] = {}
    for row in members:
        instance, client = row["group_instance_id"], row["client_id"]
        if instance or client:
            sharing.setdefault(instance or client, set()).add(
                f"i:{instance}" if instance else row["member_id"]
            )
    names = {}
    for row in members:
        instance, client = row["group_instance_id"], row["client_id"]
        names[row["member_id"]] = instance or client or row["member_id"]
        if not instance and client and len(sharing[client]) > 1:
            names[row["member_id"]] = f"{client} …{row['member_id'][-4:]}"
    return names
