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
    """What a report is about: filters by cluster, day and group prune files.

    Attributes
    ----------
    since, until
        Slots of the first and the last snapshot.
    started_at, finished_at
        When the first one began and the last one ended.
    snapshot_ids
        Finished snapshots of the period, oldest first.
    read_at
        When each of them had read the ends of the partitions: the moment that its lag is of.
    end
        The moment that was asked for as the end: what is known of later is left out. None: all is told.
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
        """Rows of the group on the days of the period, and so many days after it."""
        return [
            ("cluster", "=", self.cluster),
            ("day", ">=", self.since.date()),
            ("day", "<=", self.until.date() + timedelta(days=days_after)),
            ("group_id", "=", self.group_id),
        ]
