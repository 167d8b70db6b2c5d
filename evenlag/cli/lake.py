"""`evenlag lake`: the state of the lake's tables, their maintenance, and erasure requests."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from evenlag.cli.console import confirm, console, print_json, print_line, status_text
from evenlag.cli.job_runner import JobFailedError, job_result
from evenlag.cli.layout import Column, Table, numbers
from evenlag.cli.option_types import flag, option, path
from evenlag.cli.options import ClusterScope, ConfigOption, JsonOption, LakeOption, LakeScope, RemoteOption
from evenlag.context import find_cluster, find_lake, find_policy, require_policy
from evenlag.enums import MaintenanceStep
from evenlag.errors import UsageError
from evenlag.formatting import NOTHING, did_you_mean, number
from evenlag.lake.sql_views import SqlEngine, view_statements
from evenlag.lake.tables import TABLES

if TYPE_CHECKING:
    from evenlag.lake.reader import LakeReader
    from evenlag.monitoring.lake_health import Check

_KB = 1024
_MB = 1024 * 1024
_STEPS = tuple(step.value for step in MaintenanceStep)
_STEP_NAMES = f"{', '.join(_STEPS[:-1])} or {_STEPS[-1]}"


app = typer.Typer(no_args_is_help=True, help="The lake's tables: their state and their maintenance.")


@app.command("status")
def status(*, scope: LakeScope, as_json: JsonOption = False) -> None:
    """Show the tables' sizes and days, and check their health; nothing is written and no JVM starts."""
    from evenlag.monitoring.lake_health import check_lake, schedules_of
    from evenlag.policy.settings import MaintenanceSettings

    reader, name = scope.open()
    loaded = find_policy(scope.config)
    settings = loaded.policy.maintenance if loaded else MaintenanceSettings()
    schedule = schedules_of(loaded.policy).get(name) if loaded else None
    checks = check_lake(reader, settings, name, schedule, datetime.now(UTC))
    rows = list(_sizes(reader, name, checks))
    faults = [check for check in checks if not check.is_ok]
    if as_json:
        print_json({"cluster": name, "tables": rows, "checks": [asdict(check) for check in checks]})
        return
    out = console()
    out.print(Table(f"Tables of {name}", _COLUMNS, rows, optional=("commits", "files")))
    for check in faults:
        line = f"{check.table_name}: {check.check_name}: {check.observed} ({check.allowed}): {check.message}"
        out.print(line)


@app.command("views")
def views(
    *,
    engine: Annotated[SqlEngine, typer.Option("--for", metavar="ENGINE", help="duckdb, spark or trino.")],
    into: Annotated[
        Path | None,
        option("--into", "FILE", "Create the views in this DuckDB database; needs the package duckdb.", path),
    ] = None,
    lake: LakeOption = None,
    config: ConfigOption = None,
) -> None:
    """Print SQL views of the lake's tables in which every row counts; nothing is written."""
    statements = list(view_statements(find_lake(lake, config), engine))
    if into is None:
        for statement in statements:
            print_line(sys.stdout, f"{statement};")
        return
    if engine is not SqlEngine.DUCKDB:
        raise UsageError("--into goes with --for duckdb; pass the printed statements to other engines")
    try:
        import duckdb
    except ImportError as error:
        raise UsageError("--into needs the Python package duckdb: pip install duckdb") from error
    try:
        with duckdb.connect(into) as database:
            for statement in statements:
                database.execute(statement)
    except duckdb.Error as error:
        raise UsageError(f"--into {into}: {error}") from error


@app.command("maintain")
def maintain(
    *,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="STEP", help=f"{_STEP_NAMES}; repeatable.")
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Report what would be done, and do nothing.")] = False,
    remote: RemoteOption = None,
    scope: ClusterScope,
    as_json: JsonOption = False,
) -> None:
    """Maintain the lake as the DAG table_maintenance does daily; starts Spark."""
    for step in only or ():
        if step not in _STEPS:
            raise UsageError(f"there is no step {step!r}{did_you_mean(step, _STEPS)}: {_STEP_NAMES}")
    name = _checked_cluster(scope)
    options = {"only": only, "config": scope.config, "cluster": name, "dry_run": dry_run}
    try:
        done = job_result(remote, "maintain", **options)
    except JobFailedError as error:
        # Other steps succeeded: show them before the error.
        if error.result is not None:
            _print_maintained(error.result, is_dry_run=dry_run, as_json=as_json)
        raise
    _print_maintained(done, is_dry_run=dry_run, as_json=as_json)


@app.command("erase")
def erase(
    *,
    group: Annotated[
        str | None, option("--group -g", "GROUP", "Delete the rows of this group, and its name elsewhere.")
    ] = None,
    member: Annotated[
        str | None, option("--member", "MEMBER", "Remove this member id, instance id, client id or host.")
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Count the rows, and change nothing.")] = False,
    yes: Annotated[bool, flag("--yes", "Do not ask.")] = False,
    remote: RemoteOption = None,
    scope: ClusterScope,
    as_json: JsonOption = False,
) -> None:
    """Erase a group or a member from every table, for an erasure request; starts Spark."""
    if (group is None) == (member is None):
        raise UsageError("name one of --group and --member")
    name = _checked_cluster(scope)
    what = f"the group {group!r}" if group is not None else f"the member {member!r}"
    if not (dry_run or yes):
        confirm(f"Erase {what} from all tables? It cannot be undone.")
    options = {"group": group, "member": member, "config": scope.config, "cluster": name, "dry_run": dry_run}
    done = job_result(remote, "erase", **options)
    if as_json:
        print_json({"is_dry_run": dry_run} | done)
        return
    out = console()
    for table, num in sorted(done["rows"].items()):
        out.print(f"{table}: {number(num)} rows {'to erase' if dry_run else 'erased'}")
    if not done["rows"]:
        out.print(f"No table has {what}")
    elif not dry_run:
        days = done["vacuum_days"]
        end = "never, as vacuum_days is null" if days is None else f"with the first vacuum after {days} days"
        out.print(f"The replaced files leave the disk {end}")


_COLUMNS: Final = (
    Column("table", lambda row: row["table"]),
    numbers("rows", lambda row: number(row["num_rows"])),
    numbers("files", lambda row: number(row["num_files"])),
    numbers("size", lambda row: _size(row["size_bytes"])),
    Column("days", lambda row: f"{row['first_day']}..{row['last_day']}" if row["first_day"] else NOTHING),
    numbers("commits", lambda row: number(row["commits_since_checkpoint"])),
    Column("health", lambda row: status_text("OK") if row["is_healthy"] else "see below"),
)


def _print_maintained(result: dict[str, Any], *, is_dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"is_dry_run": is_dry_run} | result)
        return
    out = console()
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(result["done"].items()))
    out.print(f"{'Would do' if is_dry_run else 'Done'}: {counts or 'nothing'}")
    for line in (*result["left"], *result["unhealthy"]):
        out.print(line)


def _checked_cluster(scope: ClusterScope) -> str | None:
    """Return the cluster that is named, if the lake has it; None: all. The work needs a policy."""
    require_policy(scope.config)
    return None if scope.cluster is None else find_cluster(find_lake(None, scope.config), scope.cluster)


def _sizes(reader: LakeReader, cluster: str, checks: Sequence[Check]) -> Iterator[dict[str, Any]]:
    """Yield the size of each table that exists, of the cluster's rows only."""
    from evenlag.lake.table_metadata import read_table_files

    unhealthy = {check.table_name for check in checks if not check.is_ok}
    for contract in TABLES.values():
        found = read_table_files(reader, contract)
        if found is None:
            continue
        files = [file for (name, _), parts in found.by_part.items() if name == cluster for file in parts]
        yield {
            "table": contract.name,
            "num_rows": sum(max(file.num_rows, 0) for file in files),
            "num_files": len(files),
            "size_bytes": sum(file.size_bytes for file in files),
            "first_day": min((file.first_day for file in files), default=None),
            "last_day": max((file.last_day for file in files), default=None),
            "commits_since_checkpoint": found.commits_since_checkpoint,
            "is_healthy": contract.name not in unhealthy,
        }


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _MB:,.1f} MB" if size_bytes >= _MB else f"{size_bytes / _KB:,.1f} kB"
