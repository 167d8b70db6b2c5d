"""Files that no version within the retention needs are deleted; log and deleted files are kept equally long.

The retention is the table's own property, never a shorter one given to the statement, and Delta's check of it
stays on. A reader that began longer ago than that, and time travel beyond it, find their files gone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from evenlag.lake.table_properties import DEFAULT_VACUUM_DAYS, retention
from evenlag.lake.tables import TABLES
from spark_jobs.maintenance.compaction import conf_set

if TYPE_CHECKING:
    from evenlag.lake.tables import Table
    from spark_jobs.maintenance.maintenance_run import Upkeep


def vacuum_tables(work: Upkeep) -> None:
    """Bring every table's retention to the policy's, and delete what is older.

    Raises
    ------
    LakeError
        When a table's log cannot be read; what cannot be written is set aside.
    """
    days = work.settings.vacuum_days
    wanted = retention(days or DEFAULT_VACUUM_DAYS)
    for table in TABLES.values():
        files = work.files(table)
        if files is None:
            continue
        if any(files.properties.get(name) != value for name, value in wanted.items()):
            work.do(f"set the retention of {table.name}", "retention", partial(_set, work, table, wanted))
        if days is not None:
            work.do(f"vacuum {table.name}", "vacuumed", partial(_vacuum, work, table, days))


def _set(work: Upkeep, table: Table, wanted: dict[str, str]) -> None:
    if table.writer == "direct":
        from evenlag.lake.writer import direct_writer

        with direct_writer(work.lake.paths.root, table) as writer:
            writer.set_properties(wanted)
        return
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in wanted.items())
    statement = f"ALTER TABLE {work.lake.sql_name(table)} SET TBLPROPERTIES ({listed})"
    work.lake.write(table, lambda: work.lake.spark.sql(statement))


def _vacuum(work: Upkeep, table: Table, days: int) -> None:
    if table.writer == "direct":
        from evenlag.lake.writer import direct_writer

        with direct_writer(work.lake.paths.root, table) as writer:
            writer.vacuum(days)
        return
    spark = work.lake.spark
    # Folders are listed by that many tasks, 10,000 unless told otherwise: two minutes for an empty table.
    tasks = str(4 * spark.sparkContext.defaultParallelism)
    with conf_set(spark, {"spark.sql.sources.parallelPartitionDiscovery.parallelism": tasks}):
        statement = f"VACUUM {work.lake.sql_name(table)}"
        work.lake.write(table, lambda: spark.sql(statement).collect())
