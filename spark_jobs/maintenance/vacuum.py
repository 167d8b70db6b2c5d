"""VACUUM: deletes files that no table version within the retention needs; the log has the same retention.

The retention is the table's property, never a shorter one in the statement, and Delta's retention check stays
enabled. Queries that run longer than the retention, and time travel beyond it, fail.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from evenlag.lake.table_properties import DEFAULT_VACUUM_DAYS, wanted_properties
from evenlag.lake.tables import TABLES
from evenlag.lake.writer import delta_rs_writer
from spark_jobs.runtime.session import num_task_slots, temporary_conf
from spark_jobs.runtime.sql_text import text_literal

if TYPE_CHECKING:
    from evenlag.lake.tables import Table
    from spark_jobs.maintenance.maintenance_run import MaintenanceRun


def vacuum_tables(work: MaintenanceRun) -> None:
    """Set every table's retention to the policy's, and delete older files.

    Parameters
    ----------
    work
        The maintenance run.

    Raises
    ------
    LakeError
        If a table's log cannot be read. A failed write is recorded as a failure of the run.
    """
    days = work.settings.vacuum_days
    for table in TABLES.values():
        files = work.files(table)
        if files is None:
            continue
        wanted = wanted_properties(table, days or DEFAULT_VACUUM_DAYS)
        if any(files.properties.get(name) != value for name, value in wanted.items()):
            work.run(f"set the retention of {table.name}", "retention", partial(_set, work, table, wanted))
        if days is not None:
            work.run(f"vacuum {table.name}", "vacuumed", partial(_vacuum, work, table, days))


def _set(work: MaintenanceRun, table: Table, wanted: dict[str, str]) -> None:
    if table.writer == "direct":
        with delta_rs_writer(work.lake.paths.root, table) as writer:
            writer.set_properties(wanted)
        return
    listed = ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in wanted.items())
    statement = f"ALTER TABLE {work.lake.sql_name(table)} SET TBLPROPERTIES ({listed})"
    work.lake.write(table, lambda: work.lake.spark.sql(statement).collect())


def _vacuum(work: MaintenanceRun, table: Table, days: int) -> None:
    if table.writer == "direct":
        with delta_rs_writer(work.lake.paths.root, table) as writer:
            writer.vacuum(days)
        return
    spark = work.lake.spark
    # Number of tasks that list folders. With the default of 10,000 an empty table takes two minutes.
    tasks = str(4 * num_task_slots(spark))
    with temporary_conf(spark, {"spark.sql.sources.parallelPartitionDiscovery.parallelism": tasks}):
        statement = f"VACUUM {work.lake.sql_name(table)}"
        work.lake.write(table, lambda: spark.sql(statement).collect())
