"""Rows of one snapshot: in the driver's memory where they are few, else in the tables.

Each query of a Delta table by Spark has a fixed cost, whatever the number of rows. The rows of a small
snapshot are read once, without Spark, and pass from step to step as Arrow tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.filters import Filter, matching
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.lake.tables import LAG, SNAPSHOTS, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.lake.reader import LakeReader

# Rows of one table that the driver keeps: a few megabytes.
MAX_DRIVER_ROWS: Final = 50_000
# Rows of a batch of groups that the driver reads at once from a large snapshot.
_ROWS_PER_BATCH: Final = 100_000


class SnapshotReader:
    """Rows of one snapshot: kept in memory, or read from the tables."""

    def __init__(self, reader: LakeReader, marker: Mapping[str, Any]) -> None:
        self.reader = reader
        self.marker = marker
        self._kept: dict[str, pa.Table] = {}

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return str(self.marker["cluster"])

    @property
    def snapshot_id(self) -> str:
        """Id of the snapshot."""
        return str(self.marker["snapshot_id"])

    @property
    def filters(self) -> list[Filter]:
        """Filters that select the snapshot's rows in any of its tables."""
        return snapshot_filters(self.marker)

    def markers_since(self, since: datetime) -> list[dict[str, Any]]:
        """Return the markers of the cluster's finished snapshots from a moment on, up to this one."""
        filters = [
            # A snapshot is stored under the day of its slot, which is before its reads.
            *matching(cluster=self.cluster, since=(since - timedelta(days=1)).date()),
            ("end_read_at", ">=", since),
            ("end_read_at", "<=", self.marker["end_read_at"]),
        ]
        columns = ["cluster", "day", "snapshot_id", "end_read_at"]
        return list(self.reader.read(SNAPSHOTS, columns=columns, filters=filters).to_pylist())

    def keep(self, table: Table, rows: pa.Table) -> None:
        """Keep all rows of the snapshot in a table, at most :data:`MAX_DRIVER_ROWS`."""
        self._kept[table.name] = rows

    def is_kept(self, *tables: Table) -> bool:
        """Return whether the rows of all these tables are in memory."""
        return all(table.name in self._kept for table in tables)

    @cached_property
    def num_lag_rows(self) -> int:
        """Number of rows of ``lag``; they must be written."""
        if LAG.name in self._kept:
            return int(self._kept[LAG.name].num_rows)
        return self.reader.count(LAG, filters=self.filters)

    @property
    def is_small(self) -> bool:
        """Whether the driver can keep the snapshot's rows; they must be written."""
        return self.num_lag_rows <= MAX_DRIVER_ROWS

    def rows(self, table: Table, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a small snapshot."""
        if table.name not in self._kept:
            if columns is not None:
                return self.reader.read(table, columns=columns, filters=self.filters)
            self._kept[table.name] = self.reader.read(table, filters=self.filters)
        kept = self._kept[table.name]
        return kept if columns is None else kept.select(list(columns))

    def rows_of_groups(self, table: Table, columns: Sequence[str], group_ids: Collection[str]) -> pa.Table:
        """Return the rows of some groups, without reading all rows of a large snapshot."""
        if table.name in self._kept:
            import pyarrow as pa
            import pyarrow.compute as pc

            kept = self._kept[table.name].select(list(columns))
            return kept.filter(pc.is_in(kept["group_id"], value_set=pa.array(sorted(group_ids), pa.string())))
        filters = [*self.filters, *matching(group_id=sorted(group_ids))]
        return self.reader.read(table, columns=columns, filters=filters)

    def group_batches(self, group_ids: Collection[str]) -> Iterator[list[str]]:
        """Divide groups into batches whose rows of ``lag`` fit into the driver's memory, or of one group."""
        wanted = sorted(set(group_ids))
        if not wanted:
            return
        if self.is_small:
            yield wanted
            return
        counts = self.reader.read(LAG, columns=["group_id"], filters=self.filters)["group_id"].value_counts()
        sizes = {entry["values"]: entry["counts"] for entry in counts.to_pylist()}
        batch: list[str] = []
        num_rows = 0
        for group_id in wanted:
            if batch and num_rows + sizes.get(group_id, 0) > _ROWS_PER_BATCH:
                yield batch
                batch, num_rows = [], 0
            batch.append(group_id)
            num_rows += sizes.get(group_id, 0)
        yield batch


def find_marker(reader: LakeReader, cluster: str, slot: datetime) -> dict[str, Any] | None:
    """Return the row of ``snapshots`` of a slot's finished snapshot; None if there is none."""
    slot = floor_to_ms(slot)
    filters = matching(cluster=cluster, day=slot.date(), slot=slot)
    found: list[dict[str, Any]] = reader.read(SNAPSHOTS, filters=filters).to_pylist()
    # Lakes of development versions may have two: all readers take the same one.
    return min(found, key=lambda marker: (marker["finished_at"], marker["snapshot_id"]), default=None)


def snapshot_filters(snapshot: Mapping[str, Any]) -> list[Filter]:
    """Return filters that select a snapshot's rows in any of its tables, by its marker."""
    return matching(**{name: snapshot[name] for name in ("cluster", "day", "snapshot_id")})
