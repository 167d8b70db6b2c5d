"""A lake of months or years in minutes, as the writers and daily maintenance leave it.

``deltalake`` writes its tables: a commit of its own for each closed month, for the closed days of the open
month, and for each of today's cycles. Spark's tables are Parquet files with a hand-written log: a file for
each closed partition and one for each of today's cycles, then a checkpoint. Tests read them by Spark, by
``deltalake`` and by an independent reader. Retentions are the default ones: old days have a snapshot an hour.
Left out are the tables of comparisons, and log entries of the days before today: their number depends on
their retention, not on the lake's age.
"""

from __future__ import annotations

import json
import secrets
import time
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.audit.pending_days import AuditProgress, record_progress
from evenlag.lake.arrow_schema import stored_schema
from evenlag.lake.table_properties import wanted_properties
from evenlag.lake.tables import (
    ALERTS,
    APPROVAL_REQUESTS,
    AUDITED_SNAPSHOTS,
    COMMITS,
    CONTROL_ACTIONS,
    DECISIONS,
    DOWNSAMPLED_DAYS,
    GATE_RESULTS,
    LAG,
    MEMBERS,
    MEMBERSHIPS,
    OFFSETS,
    OUTCOMES,
    OWNERSHIP,
    PLAN_ASSIGNMENTS,
    PLAN_EVALUATIONS,
    PLAN_EVENTS,
    PLANS,
    POLICIES,
    RUNS,
    SNAPSHOTS,
    TABLE_HEALTH,
)
from evenlag.lake.tables.month_partitions import partition_of, with_month
from evenlag.policy.settings import RETENTION_DAYS, MaintenanceSettings
from spark_jobs.steps.audit_ownership import AUDIT_VERSION
from tests.support.lakes.arrow_columns import concat
from tests.support.lakes.old_days import OldDays, hourly
from tests.support.lakes.old_rows import OldRows
from tests.support.lakes.old_shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from evenlag.lake.tables import Table

# Written by each cycle; the first three only for the days that are not downsampled.
_RAW: Final = (OFFSETS, COMMITS, MEMBERS)
_BY_CYCLE: Final = (
    *_RAW, LAG, SNAPSHOTS, DECISIONS, PLANS, PLAN_ASSIGNMENTS, GATE_RESULTS, PLAN_EVENTS, OUTCOMES,
    PLAN_EVALUATIONS, RUNS,
)  # fmt: skip
_BY_DAY: Final = (
    AUDITED_SNAPSHOTS, MEMBERSHIPS, OWNERSHIP, TABLE_HEALTH, ALERTS, POLICIES, CONTROL_ACTIONS,
    APPROVAL_REQUESTS, DOWNSAMPLED_DAYS,
)  # fmt: skip
# Ids of the writes of two days before today; the log keeps them for three days.
_ID_DAYS: Final = 2
_DOWNSAMPLED: Final = (*_RAW, LAG, SNAPSHOTS)
_DAY: Final = np.timedelta64(1, "D")


class OldLake:
    """Writes the lake.

    root: An empty folder.
    days: Days from the first snapshot to the last one.
    now: When the last cycle ended.
    cluster, kafka_cluster_id: The cluster's name, and the brokers' id.
    """

    def __init__(
        self,
        root: Path,
        days: int,
        now: datetime,
        *,
        cluster: str,
        kafka_cluster_id: str,
        shape: Shape | None = None,
    ) -> None:
        self.root, self.cluster = root, cluster
        kept = MaintenanceSettings()
        self.raw_days, self.hourly_days = kept.raw_days or days, kept.hourly_days
        self.shape = shape or Shape()
        self._today = now.astimezone(UTC).date()
        self._first = self._today - timedelta(days=days)
        self._now = np.datetime64(now.astimezone(UTC).replace(tzinfo=None), "s")
        self._rows = OldRows(cluster, kafka_cluster_id, self.shape)
        self._days = OldDays(cluster, self.shape)

    def write(self) -> None:
        """Write all tables."""
        for table in (*_BY_CYCLE, *_BY_DAY):
            if table.writer == "direct":
                self._write_directly(table)
            else:
                self._write_like_spark(table)
        # No run of the audit has to compare days that it has audited.
        now = datetime.now(UTC)
        record_progress(str(self.root), self.cluster, AuditProgress(AUDIT_VERSION, now), now)

    # Rows. -----------------------------------------------------------------------------------------------

    def slots_of(self, day: date) -> NDArray[np.datetime64]:
        """Return the slots of a day until now."""
        start = np.datetime64(day, "s")
        slots = np.arange(start, start + _DAY, np.timedelta64(self.shape.step_s, "s"))
        return slots[slots + 20 * np.timedelta64(1, "s") <= self._now]

    def rows_of(self, table: Table, days: Sequence[date]) -> pa.Table:
        """Return the rows of days of a table, as they are left after maintenance."""
        slots = [self.slots_of(day) for day in days]
        if table in _BY_DAY:
            return concat([self._days.rows(table, of_day) for of_day in slots])
        if table in _DOWNSAMPLED:
            slots = [
                hourly(of_day) if self._is_downsampled(day) else of_day
                for day, of_day in zip(days, slots, strict=True)
            ]
        rows = self._rows.rows(table, np.concatenate(slots))
        is_sorted = table.writer == "spark" and "group_id" in rows.column_names
        # As OPTIMIZE leaves a closed day.
        return rows.sort_by("group_id") if is_sorted else rows

    def _is_downsampled(self, day: date) -> bool:
        return day < self._today - timedelta(days=self.raw_days)

    def _is_kept(self, table: Table, day: date) -> bool:
        """Whether maintenance by the default settings has left rows of a closed day."""
        age = (self._today - day).days
        if table in _RAW:
            return not self._is_downsampled(day)
        if table in {SNAPSHOTS, LAG}:
            return self.hourly_days is None or age <= self.hourly_days
        if table is DOWNSAMPLED_DAYS:
            return self._is_downsampled(day)
        retention = RETENTION_DAYS.get(table.name)
        return retention is None or age <= retention

    def _closed_parts(self, table: Table) -> Iterator[tuple[date, list[date]]]:
        """Partitions with their closed days."""
        parts: dict[date, list[date]] = {}
        for number in range((self._today - self._first).days):
            day = self._first + timedelta(days=number)
            if self._is_kept(table, day):
                parts.setdefault(partition_of(table, day), []).append(day)
        yield from sorted(parts.items())

    def _todays(self, table: Table) -> Iterator[pa.Table]:
        """Today's rows: by cycle, or once."""
        slots = self.slots_of(self._today)
        if table is DOWNSAMPLED_DAYS or not len(slots):
            return
        if table in _BY_DAY:
            yield self._days.rows(table, slots)
            return
        for place in range(len(slots)):
            yield self._rows.rows(table, slots[place : place + 1])

    # Tables of deltalake. --------------------------------------------------------------------------------

    def _write_directly(self, table: Table) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        path, done = str(self.root / table.name), 0
        now_ms = round(1000 * time.time())
        num_ids = _ID_DAYS * 86_400 // self.shape.step_s if table in _BY_CYCLE else 0
        ids = [Transaction(f"step/{secrets.token_hex(8)}", 1, last_updated=now_ms) for _ in range(num_ids)]

        def append(rows: pa.Table, transactions: list[Any]) -> None:
            nonlocal done
            if rows.num_rows:
                write_deltalake(
                    path,
                    with_month(rows, table),
                    mode="append",
                    partition_by=list(table.partition_by),
                    configuration=wanted_properties(table.writer) if not done else None,
                    commit_properties=CommitProperties(app_transactions=transactions),
                )
                done += 1

        for _, days in self._closed_parts(table):
            append(self.rows_of(table, days), ids)
            ids = []
        for rows in self._todays(table):
            append(rows, [Transaction(f"step/{secrets.token_hex(8)}", 1, last_updated=now_ms)])

    # Tables of Spark. ------------------------------------------------------------------------------------

    def _write_like_spark(self, table: Table) -> None:
        from deltalake import DeltaTable

        folder = self.root / table.name
        log = folder / "_delta_log"
        log.mkdir(parents=True)
        adds = [
            self._write_file(table, folder, start, self.rows_of(table, days))
            for start, days in self._closed_parts(table)
        ]
        _write_commit(log, 0, [*_metadata(table), *adds])
        for version, rows in enumerate(self._todays(table), 1):
            add = self._write_file(table, folder, partition_of(table, self._today), rows)
            _write_commit(log, version, [add])
        DeltaTable(str(folder)).create_checkpoint()

    def _write_file(self, table: Table, folder: Path, start: date, rows: pa.Table) -> dict[str, Any]:
        """Write a data file of a partition, and return its entry of the log."""
        import pyarrow.parquet as pq

        name, second = f"part-00000-{secrets.token_hex(16)}.snappy.parquet", table.partition_by[1]
        path = f"cluster={self.cluster}/{second}={start.isoformat()}/{name}"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        data = with_month(rows, table)
        # Spark's files have no partition columns, and nothing of Arrow's own schema.
        data = data.drop_columns(list(table.partition_by))
        pq.write_table(data, folder / path, store_schema=False, coerce_timestamps="us")
        file = folder / path
        return {
            "add": {
                "path": path,
                "partitionValues": {"cluster": self.cluster, second: start.isoformat()},
                "size": file.stat().st_size,
                "modificationTime": round(1000 * file.stat().st_mtime),
                "dataChange": True,
                "stats": json.dumps(_statistics(file)),
            }
        }


def _metadata(table: Table) -> list[dict[str, Any]]:
    """First entries of a table's log, as Spark writes them."""
    from deltalake import Schema

    now_ms = round(1000 * time.time())
    return [
        {
            "commitInfo": {
                "timestamp": now_ms,
                "operation": "WRITE",
                "operationParameters": {"mode": "Append"},
            }
        },
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": f"{secrets.token_hex(4)}-0000-4000-8000-{secrets.token_hex(6)}",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": Schema.from_arrow(stored_schema(table)).to_json(),
                "partitionColumns": list(table.partition_by),
                "configuration": wanted_properties(table.writer),
                "createdTime": now_ms,
            }
        },
    ]


def _write_commit(log: Path, version: int, actions: list[dict[str, Any]]) -> None:
    text = "\n".join(json.dumps(action) for action in actions)
    (log / f"{version:020d}.json").write_text(text + "\n", encoding="utf-8")


def _statistics(path: Path) -> dict[str, Any]:
    """Statistics of a file by its own footer, as Spark writes them: none of booleans."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            found = column.statistics
            if "." in column.path_in_schema or found is None:
                continue
            name = column.path_in_schema
            nulls[name] = nulls.get(name, 0) + (found.null_count or 0)
            if found.has_min_max and column.physical_type != "BOOLEAN":
                least[name] = min(least.get(name, found.min), found.min)
                greatest[name] = max(greatest.get(name, found.max), found.max)
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: _plain(value) for name, value in least.items()},
        "maxValues": {name: _plain(value) for name, value in greatest.items()},
        "nullCount": nulls,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return value.isoformat() if isinstance(value, date) else value
