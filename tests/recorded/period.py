"""Read the recorded period: its tables as a lake, and the consumers' own journals.

`tests.recorded.record` made it. Tables are as the pipeline wrote them; `journal` is what consumer processes
wrote when their listener received partitions, with ``wall_ms`` on the clock of the snapshots' ``read_at``,
and a member's ``client_id`` is the process's ``name``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import TABLES
from sandbox.workload.journal import read_journal
from tests.support.spark_tables import together, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.lake.tables import Table

FOLDER: Final = Path(__file__).resolve().parent / "data"
CLUSTER: Final = "sandbox"
BILLING: Final = "billing"
ORDERS: Final = "orders"
SHIPPING: Final = "shipping"
PARCELS: Final = "parcels"
# Of a journal, what tells partition ownership; the work itself, line by line, is most of it and not kept.
JOURNAL_EVENTS: Final = frozenset(
    {"started", "assigned", "revoked", "lost", "closed", "killed", "paused", "resumed", "hint", "done"}
)


def read_table(table: Table) -> pa.Table:
    """Rows of a table as recorded, by today's contract: what a column did not have then is null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(table)
    path = FOLDER / f"{table.name}.parquet"
    if not path.exists():
        return schema.empty_table()
    found = pq.read_table(path)
    for column in schema:
        if column.name not in found.column_names:
            found = found.append_column(column, pa.nulls(found.num_rows, column.type))
    return found.select(schema.names).cast(schema)


def journal(group_id: str) -> list[dict[str, Any]]:
    """Return the events of all of a group's processes, oldest first."""
    return read_journal(journal_file(group_id))[0]


def journal_file(group_id: str) -> Path:
    """Return the file that `sandbox.workload.evidence.gather` takes."""
    return FOLDER / f"{group_id}.jsonl"


def write_lake(root: Path, *, only: frozenset[str] | None = None) -> Path:
    """Write the recorded tables as a lake and return its root; `only` names the tables wanted."""
    with together():
        for table in TABLES.values():
            if (FOLDER / f"{table.name}.parquet").exists() and (only is None or table.name in only):
                write_rows(root, table, read_table(table))
    return root
