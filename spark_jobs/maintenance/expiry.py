"""Deletes rows that are older than their retention, and clients' names in what the audit keeps.

Of complete partitions only the log changes; in the partition at the limit its older days are deleted. What a
partition still has to lose is known from its files' statistics, so a repeat finds nothing to do, and a killed
run is continued by the next.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from evenlag.audit.rebalances import find_returned
from evenlag.lake.tables import (
    AUDITED_SNAPSHOTS,
    DOWNSAMPLED_DAYS,
    LAG,
    MEMBERSHIPS,
    OWNERSHIP,
    SNAPSHOTS,
    TABLES,
)
from evenlag.lake.tables.month_partitions import end_of_part, month_of
from evenlag.lake.upkeep.direct_tables import DirectUpkeep
from spark_jobs.maintenance.orphans import delete_rows
from spark_jobs.runtime.sql_text import date_literal, days_condition, part_condition

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import date

    from evenlag.lake.tables import Table
    from spark_jobs.maintenance.maintenance_run import MaintenanceRun

# Members' values, written as they were in the contract, with null for the client's names.
_NAMELESS_MEMBERS: Final = (
    "transform(members, m -> named_struct('member_id', m.member_id, "
    "'group_instance_id', m.group_instance_id, 'client_id', CAST(NULL AS STRING), "
    "'client_host', CAST(NULL AS STRING), 'subscription', m.subscription, 'assignment', m.assignment))"
)
_NAMED: Final = {
    OWNERSHIP.name: "client_id IS NOT NULL OR client_host IS NOT NULL",
    MEMBERSHIPS.name: "exists(members, m -> m.client_id IS NOT NULL OR m.client_host IS NOT NULL)",
}
_NAMELESS: Final = {
    OWNERSHIP.name: "client_id = NULL, client_host = NULL",
    # Who returned is a result of the audit, which stays the same without the names.
    MEMBERSHIPS.name: f"members = {_NAMELESS_MEMBERS}, returned = coalesce(returned, array())",
}
_RETURNED: Final = (
    "group_id STRING, first_snapshot_id STRING, "
    "returned ARRAY<STRUCT<member_id: STRING, next_member_id: STRING>>"
)


def expire_rows(work: MaintenanceRun) -> None:
    """Delete what is older than its retention."""
    settings = work.settings
    if settings.raw_days is not None and settings.hourly_days is not None:
        _expire_hourly(work, work.today - timedelta(days=settings.hourly_days))
    for name, days in settings.retention_days.items():
        if days is not None:
            _expire_table(work, TABLES[name], work.today - timedelta(days=days))


def _expire_table(work: MaintenanceRun, table: Table, before: date) -> None:
    files = work.files(table)
    for (cluster, start), parts in files.by_part.items() if files is not None else ():
        if work.includes(cluster) and any(file.first_day < before for file in parts):
            limit = None if end_of_part(table, start) < before else before
            what = f"delete rows of {table.name} of {cluster} from {start} on" + (
                "" if limit is None else f", older than {limit}"
            )
            work.run(what, "expired", partial(_delete_part, work, table, (cluster, start), limit))


def _delete_part(work: MaintenanceRun, table: Table, part: tuple[str, date], before: date | None) -> None:
    """Delete the rows of a partition, or those of its days before one."""
    condition = None if before is None else f"day < {date_literal(before)}"
    if table.writer == "direct":
        DirectUpkeep(work.lake.paths.root, table).delete(*part, condition)
        return
    where = part_condition(table, *part) + ("" if condition is None else f" AND {condition}")
    # All names and values in it are quoted by `sql_text`.
    statement = f"DELETE FROM {work.lake.sql_name(table)} WHERE {where}"  # noqa: S608  # as said above
    work.lake.write(table, lambda: work.lake.spark.sql(statement).collect())


def _expire_hourly(work: MaintenanceRun, before: date) -> None:
    """Delete the hourly snapshots of old days: their markers first, which hides them, then their lag."""
    markers, lag = work.files(SNAPSHOTS), work.files(LAG)
    clusters = {cluster for files in (markers, lag) if files is not None for cluster in files.clusters}
    for cluster in sorted(filter(work.includes, clusters)):
        filters = [("cluster", "=", cluster), ("day", "<", before)]
        rows = work.reader.read(DOWNSAMPLED_DAYS, columns=["day", "downsampled_at"], filters=filters)
        # Days that are not downsampled are not audited either: they wait.
        days = {row["day"] for row in rows.to_pylist() if row["downsampled_at"] is not None}
        left = set(work.reader.read(SNAPSHOTS, columns=["day"], filters=filters)["day"].to_pylist()) & days
        for month in sorted({month_of(day) for day in left}):
            chosen = sorted(day for day in left if month_of(day) == month)
            what = f"delete the hourly snapshots of {len(chosen)} days of {cluster} of {month:%Y-%m}"
            work.run(what, "expired", partial(_delete_markers, work, cluster, month, chosen), len(chosen))
        for name, day in lag.by_part if lag is not None else ():
            if name == cluster and day in days:
                what = f"delete the hourly lag of {cluster} on {day}"
                work.run(what, "expired", partial(delete_rows, work, LAG, (cluster, day)))


def _delete_markers(work: MaintenanceRun, cluster: str, month: date, days: Collection[date]) -> None:
    listed = ", ".join(map(date_literal, days))
    DirectUpkeep(work.lake.paths.root, SNAPSHOTS).delete(cluster, month, f"day IN ({listed})")


def remove_clients(work: MaintenanceRun, cluster: str, days: Collection[date]) -> None:
    """Set the clients' ids and hosts to null in a cluster's ``memberships`` and ``ownership`` of some days.

    Idempotent: it changes no file whose rows have none. Which clients returned under another member id is
    written down before.

    days: UTC days on which snapshots started.
    """
    for table in (MEMBERSHIPS, OWNERSHIP):
        if not days or not work.lake.exists(table):
            continue
        if table is MEMBERSHIPS:
            _keep_returned(work, cluster, days)
        condition = f"{days_condition(table, cluster, days)} AND ({_NAMED[table.name]})"
        # All names and values in it are quoted by `sql_text`.
        statement = f"UPDATE {work.lake.sql_name(table)} SET {_NAMELESS[table.name]} WHERE {condition}"  # noqa: S608
        work.lake.write(table, lambda sql=statement: work.lake.spark.sql(sql).collect())  # type: ignore[misc]


def _keep_returned(work: MaintenanceRun, cluster: str, days: Collection[date]) -> None:
    """Write down which clients of some days' intervals returned, up to the first audited day after them."""
    later = [("cluster", "=", cluster), ("day", ">", max(days))]
    after = work.reader.read_newest(AUDITED_SNAPSHOTS, "day", columns=["day"], filters=later, is_oldest=True)
    last = max([*days, *after["day"].to_pylist()])
    filters = [("cluster", "=", cluster), ("day", ">=", min(days)), ("day", "<=", last)]
    found = find_returned(work.reader.read(MEMBERSHIPS, filters=filters))
    if not found:
        return
    view = "returned_clients"
    work.lake.spark.createDataFrame(found, _RETURNED).createOrReplaceTempView(view)
    # All names and values in it are quoted by `sql_text`.
    statement = (
        f"MERGE INTO {work.lake.sql_name(MEMBERSHIPS)} AS t USING {view} AS s "  # as said above
        f"ON {days_condition(MEMBERSHIPS, cluster, days)} AND t.group_id = s.group_id "
        "AND t.first_snapshot_id = s.first_snapshot_id WHEN MATCHED THEN UPDATE SET t.returned = s.returned"
    )
    work.lake.write(MEMBERSHIPS, lambda: work.lake.spark.sql(statement).collect())
