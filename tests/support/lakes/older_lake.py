"""A lake as an evenlag before the first release made it: from recorded contracts, each with a column less."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.tables import TABLES, Column, Table
from evenlag.lake.writer import append_once
from tests.support.lakes.snapshots import frame

if TYPE_CHECKING:
    from spark_jobs.runtime.delta_lake import Lake

RECORD: Final = Path(__file__).parents[2] / "evenlag" / "lake" / "data" / "contracts_first_landed.json"
CLUSTER: Final = "retired"
_HEAD: Final = {"cluster": CLUSTER, "day": date(2026, 1, 1), "snapshot_id": "20260101T000000000Z-00000001"}
_VALUES: Final[dict[str, Any]] = {
    "STRING": "kept",
    "INT": 1,
    "BIGINT": 2,
    "DOUBLE": 0.5,
    "BOOLEAN": True,
    "DATE": date(2026, 1, 1),
    "TIMESTAMP": datetime(2026, 1, 1, tzinfo=UTC),
}


def recorded_contracts() -> dict[str, Table]:
    """Return the contracts as they were first landed, by name."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    return {
        name: Table(
            name,
            "",
            tuple(table["key"]),
            tuple(Column(column, kind, "", is_nullable) for column, kind, is_nullable in table["columns"]),
            table["writer"],
            TABLES[name].partition_by,
        )
        for name, table in found.items()
    }


def older(table: Table) -> Table:
    """Return a contract without its last column that may be null: what a version before it knew."""
    dropped = next((column for column in reversed(table.columns) if column.nullable), None)
    columns = tuple(column for column in table.columns if column is not dropped)
    return replace(table, columns=columns)


def write_older_lake(lake: Lake) -> None:
    """Make every table with one row of a cluster that is no longer read."""
    for recorded in recorded_contracts().values():
        table = older(recorded)
        row = {c.name: _HEAD.get(c.name, _VALUES.get(c.type)) for c in table.columns}
        if table.writer == "spark":
            lake.append(table, frame(lake.spark, table, [row]))
        else:
            append_once(lake.paths.root, table, [row], None)


def check_nothing_is_lost(root: str, *written: Table) -> None:
    """See that every old row is there as it was, and that tables written since have all columns of today."""
    reader = LakeReader(root)
    for name, recorded in recorded_contracts().items():
        table = older(recorded)
        (row,) = reader.read(table, filters=[("cluster", "=", CLUSTER)]).to_pylist()
        assert row == {c.name: _HEAD.get(c.name, _VALUES.get(c.type)) for c in table.columns}, name
    for table in written:
        files = read_table_files(reader, table)
        assert files is not None
        assert set(files.types) == {column.name for column in TABLES[table.name].stored_columns}
        assert files.protocol == (1, 2)
