"""What a report is about: a group of a cluster, and a period."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader


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
