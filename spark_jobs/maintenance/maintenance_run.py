"""What the steps of upkeep share: the lake, the limits, and what was done, left and failed."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from evenlag.errors import LakeConflictError, LakeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import TableFiles, read_table_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from datetime import date, datetime

    from evenlag.lake.tables import Table
    from evenlag.policy.settings import MaintenanceSettings
    from spark_jobs.runtime.delta_lake import Lake

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Upkeep:
    """One run of upkeep.

    Attributes
    ----------
    lake, settings
        The tables, and what the policy says.
    now
        The moment: days before its UTC day are closed.
    clusters
        Only these; None: whatever the lake has.
    is_dry_run
        Say what would be done, and do nothing.
    done
        What was done, by kind.
    left
        What was left for the next run because others wrote at the same time, or it is too young.
    failures
        What failed, in plain words; the rest was done all the same.
    """

    lake: Lake
    settings: MaintenanceSettings
    now: datetime
    clusters: frozenset[str] | None = None
    is_dry_run: bool = False
    done: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    reader: LakeReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = LakeReader(self.lake.paths.root)

    @property
    def today(self) -> date:
        """The open day."""
        return self.now.astimezone(UTC).date()

    def age_limit(self, days: int) -> datetime:
        """The moment so many days ago."""
        return self.now - timedelta(days=days)

    def files(self, table: Table) -> TableFiles | None:
        """The log of a table; None when it is not there yet."""
        return read_table_files(self.reader, table)

    def wants(self, cluster: str) -> bool:
        """Whether a cluster is to be looked after."""
        return self.clusters is None or cluster in self.clusters

    def closed_days(
        self, tables: Collection[Table]
    ) -> Iterator[tuple[Table, TableFiles, str, date]]:  # a generator: one log in memory at a time
        """The closed (cluster, day) partitions of tables, oldest first within a table."""
        for table in tables:
            files = self.files(table)
            if files is None:
                continue
            for cluster, day in sorted(files.by_day, key=lambda key: (key[1], key[0])):
                if day < self.today and self.wants(cluster):
                    yield table, files, cluster, day

    def do(self, what: str, kind: str, work: Callable[[], Any], num: int = 1) -> bool:
        """Do one piece, which fails or waits alone.

        Parameters
        ----------
        what
            The piece in plain words.
        kind
            What it is counted under.
        work
            The piece.
        num
            How many it counts for.

        Returns
        -------
        bool
            Whether it was done; in a dry run nothing is.
        """
        if self.is_dry_run:
            _LOG.info("would %s", what)
            self.done[kind] += num
            return False
        try:
            work()
        except LakeConflictError as error:
            _LOG.warning("left for the next run: %s: %s", what, error)
            self.left.append(what)
            return False
        except LakeError as error:
            _LOG.error("could not %s: %s", what, error)
            self.failures.append(f"{what}: {error}")
            return False
        _LOG.info("done: %s", what)
        self.done[kind] += num
        return True

    def leave(self, what: str) -> None:
        """Leave a piece for the next run."""
        _LOG.info("left for the next run: %s", what)
        self.left.append(what)
