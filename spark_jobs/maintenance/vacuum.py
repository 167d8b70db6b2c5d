"""VACUUM: deletes files that no table version within the retention needs, and sets the tables' properties.

The retention is the table's property, never a shorter one in the statement, and Delta's retention check stays
enabled. Queries that run longer than the retention, and time travel beyond it, fail.

Delta deletes expired log entries and transaction ids when it writes a checkpoint: Spark every few commits,
deltalake here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from evenlag.lake.table_properties import DEFAULT_VACUUM_DAYS, wanted_properties
from evenlag.lake.tables import TABLES
from evenlag.lake.upkeep.direct_tables import DirectUpkeep
from spark_jobs.runtime.delta_errors import as_lake_error
from spark_jobs.runtime.delta_lake import allow_short_logs
from spark_jobs.runtime.session import num_task_slots, temporary_conf
from spark_jobs.runtime.sql_text import text_literal

if TYPE_CHECKING:
    from evenlag.lake.tables import Table
    from spark_jobs.maintenance.maintenance_run import MaintenanceRun


def vacuum_tables(work: MaintenanceRun) -> None:
    """Set every table's retention to the policy's, and delete older files."""
    days = work.settings.vacuum_days
    for table in TABLES.values():
        files = work.files(table)
        if files is None:
            continue
        wanted = wanted_properties(days or DEFAULT_VACUUM_DAYS)
        if any(files.properties.get(name) != value for name, value in wanted.items()):
            work.run(f"set the retention of {table.name}", "retention", partial(_set, work, table, wanted))
        if days is not None:
            work.run(f"vacuum {table.name}", "vacuumed", partial(_vacuum, work, table, days))


def _set(work: MaintenanceRun, table: Table, wanted: dict[str, str]) -> None:
    if table.writer == "direct":
        DirectUpkeep(work.lake.paths.root, table).set_properties(wanted)
        return
    allow_short_logs(work.lake.spark)
    listed = ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in wanted.items())
    statement = f"ALTER TABLE {work.lake.sql_name(table)} SET TBLPROPERTIES ({listed})"
    work.lake.write(table, lambda: work.lake.spark.sql(statement).collect())


def _vacuum(work: MaintenanceRun, table: Table, days: int) -> None:
    """Vacuum one table, without its lock: it deletes only files that no writer touches, and takes long."""
    if table.writer == "direct":
        DirectUpkeep(work.lake.paths.root, table).vacuum(days)
        return
    spark = work.lake.spark
    # Number of tasks that list folders. With the default of 10,000 an empty table takes two minutes.
    tasks = str(4 * num_task_slots(spark))
    conf = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": tasks}
    message = f"table {table.name} of {work.lake.paths.root} cannot be vacuumed"
    with temporary_conf(spark, conf), as_lake_error(message):
        spark.sql(f"VACUUM {work.lake.sql_name(table)}").collect()
