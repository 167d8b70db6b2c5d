"""State of a maintenance run: the lake, its limits, and finished, deferred and failed work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from evenlag.errors import LakeConflictError, LakeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import DataFile, TableFiles, read_table_files
from evenlag.lake.tables import Table
from evenlag.logging_setup import named_logger

if TYPE_CHECKING:
    from evenlag.policy.settings import MaintenanceSettings
    from spark_jobs.runtime.delta_lake import Lake

_LOG = named_logger(__name__)


@dataclass(slots=True)
class MaintenanceRun:
    """One run of maintenance.

    now: Time of the run: days before its UTC day are closed.
    clusters: Clusters to maintain; None for all clusters of the lake.
    done: Number of finished units of work, by kind.
    left, failures, unhealthy: Messages of work that was deferred to the next run, because another writer was
        active or a snapshot is unfinished; of work that has failed; of checks that failed.
    """

    lake: Lake
    settings: MaintenanceSettings
    now: datetime
    clusters: frozenset[str] | None = None
    is_dry_run: bool = False
    done: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    unhealthy: list[str] = field(default_factory=list)
    reader: LakeReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = LakeReader(self.lake.paths.root)

    def summary(self) -> dict[str, Any]:
        """Return what was done as JSON values, for the job's result."""
        messages = {"left": self.left, "failures": self.failures, "unhealthy": self.unhealthy}
        return {"done": dict(self.done), **messages}

    @property
    def today(self) -> date:
        """The open day."""
        return self.now.astimezone(UTC).date()

    def age_limit(self, days: int) -> datetime:
        """Return the time a number of days before `now`."""
        return self.now - timedelta(days=days)

    def files(self, table: Table) -> TableFiles | None:
        """Read the log of a table; None if the table does not exist yet."""
        return read_table_files(self.reader, table)

    def includes(self, cluster: str) -> bool:
        """Return whether the run includes a cluster."""
        return self.clusters is None or cluster in self.clusters

    def closed_parts(self, tables: Collection[Table]) -> Iterator[tuple[Table, TableFiles, str, date]]:
        """Iterate over the partitions of tables that have files of closed days, each table oldest first."""
        for table in tables:
            files = self.files(table)
            if files is None:
                continue
            for cluster, start in sorted(files.by_part, key=lambda key: (key[1], key[0])):
                if self.includes(cluster) and self.closed_files(files, cluster, start):
                    yield table, files, cluster, start

    def closed_files(self, files: TableFiles, cluster: str, start: date) -> list[DataFile]:
        """Return the files of a partition that have rows of closed days only."""
        return [file for file in files.by_part.get((cluster, start), ()) if file.last_day < self.today]

    def run(self, what: str, kind: str, work: Callable[[], Any], num: int = 1) -> bool:
        """Run one unit of work, whose conflict or failure does not stop the run; False if it was not done."""
        if self.is_dry_run:
            _LOG.info("would %s", what)
            self.done[kind] += num
            return False
        try:
            work()
        except LakeConflictError as error:
            _LOG.warning("deferred to the next run: %s: %s", what, error)
            self.left.append(what)
            return False
        except LakeError as error:
            _LOG.error("could not %s: %s", what, error)
            self.failures.append(f"{what}: {error}")
            return False
        _LOG.info("done: %s", what)
        self.done[kind] += num
        return True

    def defer(self, what: str) -> None:
        """Defer a unit of work to the next run."""
        _LOG.info("deferred to the next run: %s", what)
        self.left.append(what)
