"""Erase a group or a member from every table of a lake, for an erasure request, partition by partition.

Each partition of a table is one commit, by the table's own writer; only partitions with the name are changed.
So a run that was killed is continued by the next, and a second run finds nothing. Replaced files leave the
disk with VACUUM.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.tables import TABLES, Table
from evenlag.lake.tables.month_partitions import end_of_part
from evenlag.lake.upkeep.direct_tables import rewrite_days
from evenlag.lake.upkeep.erasure import ERASED, Erasure
from evenlag.logging_setup import named_logger
from evenlag.policy.loader import load_policy
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.entry_point import Job, JobWork, end_process, run_job
from spark_jobs.runtime.progress import ReportProgress, no_progress
from spark_jobs.runtime.sql_text import identifier, part_condition, text_literal

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession


_LOG = named_logger("spark_jobs.erase")
_TARGET_BYTES: Final = 256 * 1024**2
# Columns with lists of structures, their fields, and which of these name no member.
_LISTS: Final = {
    "members": ("member_id", "group_instance_id", "client_id", "client_host", "subscription", "assignment"),
    "returned": ("member_id", "next_member_id"),
}
_NO_NAMES: Final = ("subscription", "assignment")


def erase(
    lake: Lake,
    erasure: Erasure,
    *,
    clusters: Collection[str] | None = None,
    is_dry_run: bool = False,
    progress: ReportProgress = no_progress,
) -> dict[str, int]:
    """Erase a group or a member; returns how many rows of a table were changed, in a dry run would be."""
    reader, counts = LakeReader(lake.paths.root), dict[str, int]()
    tables = [table for table in TABLES.values() if erasure.applies_to(table)]
    for number, table in enumerate(tables):
        progress(f"erase: {table.name}", number, len(tables))
        files = read_table_files(reader, table)
        for cluster, start in files.by_part if files is not None else ():
            if clusters is not None and cluster not in clusters:
                continue
            num, days = _find(reader, table, erasure, (cluster, start))
            if days is None:
                continue
            counts[table.name] = counts.get(table.name, 0) + num
            if is_dry_run:
                continue
            if table.writer == "direct":
                change = partial(erasure.erase, table=table)
                rewrite_days(lake.paths, table, cluster, days, _TARGET_BYTES, change)
            else:
                _erase_by_spark(lake, table, erasure, (cluster, start))
            _LOG.info("erased %d rows of %s of %s from %s on", num, table.name, cluster, start)
    return counts


def _find(
    reader: LakeReader, table: Table, erasure: Erasure, part: tuple[str, date]
) -> tuple[int, tuple[date, date] | None]:
    """Return the number of rows of a partition that have the name, and their first and last day."""
    cluster, start = part
    filters = matching(cluster=cluster, since=start, until=end_of_part(table, start))
    num = 0
    days: list[date] = []
    for batch in reader.stream(table, filters):
        found = erasure.count(batch, table)
        if found:
            num += found
            days += pc.min_max(batch["day"]).as_py().values()
    return num, (min(days), max(days)) if days else None


def _erase_by_spark(lake: Lake, table: Table, erasure: Erasure, part: tuple[str, date]) -> None:
    where = part_condition(table, *part)
    if (column := erasure.row_column(table)) is not None:
        lake.delete(table, f"{where} AND {identifier(column)} = {text_literal(erasure.name)}")
    changes, conditions = {}, []
    for one in erasure.columns(table):
        if fields := _LISTS.get(one):
            values = (
                f"'{field}', {f'm.{field}' if field in _NO_NAMES else _replaced(f'm.{field}', erasure)}"
                for field in fields
            )
            changes[one] = f"transform({one}, m -> named_struct({', '.join(values)}))"
            named = " OR ".join(_has(f"m.{field}", erasure) for field in fields if field not in _NO_NAMES)
            conditions.append(f"coalesce(exists({one}, m -> {named}), false)")
        else:
            changes[one] = _replaced(identifier(one), erasure)
            conditions.append(_has(identifier(one), erasure))
    if changes:
        assigned = ", ".join(f"{identifier(one)} = {value}" for one, value in changes.items())
        lake.update(table, assigned, f"{where} AND ({' OR '.join(conditions)})")


def _has(column: str, erasure: Erasure) -> str:
    return f"coalesce({column} RLIKE {text_literal(erasure.pattern)}, false)"


def _replaced(column: str, erasure: Erasure) -> str:
    return f"regexp_replace({column}, {text_literal(erasure.pattern)}, {text_literal(ERASED)})"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    named = parser.add_mutually_exclusive_group(required=True)
    named.add_argument("--group", help="the group whose rows are deleted")
    named.add_argument("--member", help="a member id, instance id, client id or host")
    parser.add_argument("--cluster", action="append", help="only this one, may be given several times")
    parser.add_argument("--dry-run", action="store_true", help="count the rows, and change nothing")


def _prepare(arguments: argparse.Namespace) -> JobWork:
    loaded = load_policy(arguments.config)
    is_group = arguments.group is not None
    erasure = Erasure(arguments.group if is_group else arguments.member, is_group)

    def run(spark: SparkSession, progress: ReportProgress) -> dict[str, Any]:
        counts = erase(
            Lake(spark, loaded.policy.lake),
            erasure,
            clusters=arguments.cluster,
            is_dry_run=arguments.dry_run,
            progress=progress,
        )
        return {"rows": counts, "vacuum_days": loaded.policy.maintenance.vacuum_days}

    return JobWork("evenlag erasure", run, is_large=True, lake=loaded.policy.lake)


JOB: Final = Job("spark_jobs.erase", __doc__, _add_arguments, _prepare, lambda _: "erasure")


if __name__ == "__main__":
    end_process(run_job(JOB))
