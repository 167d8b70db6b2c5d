"""What an attacker does who can write the lake: any rows in any table, by another program than evenlag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from evenlag.lake.tables import Table


def edit(root: Path, table: Table, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Replace a table's rows, as whoever can write the lake does."""
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    path = str(root / table.name)
    found = DeltaTable(path)
    content = found.to_pyarrow_table()
    rows = change(content.to_pylist())
    write_deltalake(
        path,
        pa.Table.from_pylist(rows, schema=content.schema),
        mode="overwrite",
        partition_by=found.metadata().partition_columns,
    )
