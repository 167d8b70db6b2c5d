"""What a report is about: a group of a cluster and a period; its members' names and its plans' events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from evenlag.enums import PlanEvent
from evenlag.lake.run_records import OPEN_PLANS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader


NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Scope:
    """Cluster, group and period of a report.

    since, until: Slots of the first and the last snapshot.
    started_at, finished_at: Start of the first and end of the last snapshot.
    snapshot_ids: Finished snapshots of the period, oldest first.
    read_at: Time of the lag of each snapshot: when the end offsets had been read.
    end: Requested end of the period; later data is left out. None: no end was requested.
    """

    reader: LakeReader
    cluster: str
    group_id: str
    since: datetime
    until: datetime
    started_at: datetime
    finished_at: datetime
    snapshot_ids: tuple[str, ...]
    read_at: Mapping[str, datetime]
    end: datetime | None = None

    def filters(self, *, days_after: int = 0) -> list[Filter]:
        """Return filters on the cluster, the days of the period and the group; they prune files."""
        return [
            ("cluster", "=", self.cluster),
            ("day", ">=", self.since.date()),
            ("day", "<=", self.until.date() + timedelta(days=days_after)),
            ("group_id", "=", self.group_id),
        ]


class Names:
    """Display names: instance id, else client id, else member id.

    If several members of the period share a client id, the end of the member id is appended.
    """

    def __init__(self, known: Mapping[str, tuple[str | None, str | None]]) -> None:
        shared: dict[str, set[str]] = {}
        for member_id, (instance, client) in known.items():
            plain = instance or client
            if plain:
                shared.setdefault(plain, set()).add(f"i:{instance}" if instance else member_id)
        self._names = {
            member_id: _name(member_id, instance, client, shared)
            for member_id, (instance, client) in known.items()
        }

    def of(self, member_id: str | None) -> str:
        """Return the display name of a member."""
        if member_id is None:
            return NOBODY
        return self._names.get(member_id, member_id)


def _name(member_id: str, instance: str | None, client: str | None, shared: Mapping[str, set[str]]) -> str:
    if instance:
        return instance
    if not client:
        return member_id
    return client if len(shared[client]) == 1 else f"{client} …{member_id[-4:]}"


def read_names(scope: Scope) -> Names:
    """Read the display names of all members of a period."""
    import pyarrow.compute as pc

    from evenlag.lake.tables import MEMBERS

    columns = ["member_id", "group_instance_id", "client_id"]
    rows = scope.reader.read(MEMBERS, columns=columns, filters=scope.filters())
    rows = rows.filter(pc.is_valid(rows["member_id"])).group_by(columns).aggregate([])
    return Names({row["member_id"]: (row["group_instance_id"], row["client_id"]) for row in rows.to_pylist()})


def read_group_events(
    reader: LakeReader, cluster: str, group_id: str, *, since: datetime, until: datetime | None
) -> list[dict[str, Any]]:
    """Read the events of a group's plans, oldest first.

    since: Start of the period. Events of the 31 days before it are read too: the publishing of the hints
        that end in the period.
    until: Later events are left out; none are when not given.
    """
    filters: list[Filter] = [
        ("cluster", "=", cluster),
        ("group_id", "=", group_id),
        ("at", ">=", since - OPEN_PLANS),
    ]
    rows = reader.read_events(filters=filters).to_pylist()
    known = [row for row in rows if row["at"] is not None and (until is None or row["at"] <= until)]
    return sorted(known, key=lambda event: (event["at"], event["plan_id"], event["event"]))


def published_plans(events: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the ids of the plans whose hint was on the hint topic.

    Returns plan ids. Plans that expired or were withdrawn before publishing are not among them.
    """
    # A publisher that was killed writes no PUBLISHED event, but the withdrawal contains the sequence number.
    return {
        str(event["plan_id"])
        for event in events
        if event["event"] == PlanEvent.PUBLISHED or event["sequence"] is not None
    }


def count_events(events: Iterable[Mapping[str, Any]], since: datetime) -> dict[str, int]:
    """Count events from a moment on."""
    counts: dict[str, int] = {}
    for event in events:
        if event["at"] >= since:
            counts[event["event"]] = counts.get(event["event"], 0) + 1
    return counts
