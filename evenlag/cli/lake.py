"""`evenlag tables` and `evenlag maintain`: how the lake's tables are, and looking after them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.cli.console import NOTHING, console, number, print_json, status_text, table
from evenlag.cli.options import (
    ClusterOption,
    ConfigOption,
    JsonOption,
    LakeOption,
    UsageError,
    did_you_mean,
    find_cluster,
    find_lake,
    find_policy,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from evenlag.lake.reader import LakeReader
    from evenlag.monitoring.table_health import Check
    from evenlag.policy.settings import Policy

_KB = 1024
_MB = 1024 * 1024


def tables(
    *,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the tables' sizes and days, and check their health; nothing is written and no JVM starts."""
    from evenlag.monitoring.table_health import check_lake, schedules_of
    from evenlag.policy.settings import MaintenanceSettings

    reader = find_lake(lake, config)
    name = find_cluster(reader, cluster)
    policy = _policy(config)
    settings = policy.maintenance if policy else MaintenanceSettings()
    schedule = schedules_of(policy).get(name) if policy else None
    checks = check_lake(reader, settings, name, schedule, datetime.now(UTC))
    rows = list(_sizes(reader, name, checks))
    faults = [check for check in checks if not check.is_ok]
    if as_json:
        told = ("table_name", "check_name", "is_ok", "observed", "allowed", "message")
        answers = [{key: getattr(check, key) for key in told} for check in checks]
        print_json({"cluster": name, "tables": rows, "checks": answers})
        return
    numbers = ("rows", "files", "size", "commits")
    shown = table(f"Tables of {name}", ("table", *numbers[:3], "days", numbers[3], "health"), right=numbers)
    for row in rows:
        shown.add_row(
            row["table"],
            number(row["num_rows"]),
            number(row["num_files"]),
            _size(row["size_bytes"]),
            f"{row['first_day']}..{row['last_day']}" if row["first_day"] else NOTHING,
            number(row["commits_since_checkpoint"]),
            status_text("OK") if row["is_healthy"] else "see below",
        )
    out = console()
    out.print(shown)
    for check in faults:
        line = f"{check.table_name}: {check.check_name}: {check.observed} ({check.allowed}): {check.message}"
        out.print(line, markup=False)


def maintain(
    *,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="thin, orphans, compact, vacuum or check; may be given several times."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look after the lake as the DAG table_maintenance does daily; starts Spark."""
    from spark_jobs.maintain import STEPS, check_done, maintain_lake
    from spark_jobs.runtime.delta_lake import Lake
    from spark_jobs.runtime.quiet_session import quiet_session

    for step in only or ():
        if step not in STEPS:
            raise UsageError(f"there is no step {step!r}{did_you_mean(step, STEPS)}: {', '.join(STEPS)}")
    policy = _policy(config)
    if policy is None:
        raise UsageError("maintenance goes by the policy: name the file with --config")
    reader = find_lake(None, config)
    clusters = None if cluster is None else [find_cluster(reader, cluster)]
    out = console(stderr=True)

    def tell(step: str, done: int, total: int) -> None:
        if done < total:
            out.print(f"{done + 1} of {total}: {step}")

    with quiet_session("evenlag-maintenance", is_large=True) as spark:
        maintained = maintain_lake(
            Lake(spark, reader.paths.root),
            policy,
            datetime.now(UTC),
            clusters=clusters,
            steps=only or STEPS,
            is_dry_run=dry_run,
            progress=tell,
        )
    if as_json:
        print_json({"is_dry_run": dry_run} | maintained.summary())
    else:
        counts = ", ".join(f"{kind} {count}" for kind, count in sorted(maintained.done.items()))
        console().print(f"{'Would do' if dry_run else 'Done'}: {counts or 'nothing'}", markup=False)
        for line in (*maintained.left, *maintained.unhealthy):
            console().print(line, markup=False)
    check_done(maintained)


def _policy(config: Path | None) -> Policy | None:
    loaded = find_policy(config)
    return loaded.policy if loaded else None


def _sizes(reader: LakeReader, cluster: str, checks: Sequence[Check]) -> Iterator[dict[str, Any]]:
    """How large each table is that has been written, as far as it is the cluster's."""
    from evenlag.lake.table_metadata import read_table_files
    from evenlag.lake.tables import TABLES

    unhealthy = {check.table_name for check in checks if not check.is_ok}
    for contract in TABLES.values():
        found = read_table_files(reader, contract)
        if found is None:
            continue
        days = [day for name, day in found.by_day if name == cluster]
        files = [file for (name, _), parts in found.by_day.items() if name == cluster for file in parts]
        yield {
            "table": contract.name,
            "num_rows": sum(max(file.num_rows, 0) for file in files),
            "num_files": len(files),
            "size_bytes": sum(file.size_bytes for file in files),
            "first_day": min(days, default=None),
            "last_day": max(days, default=None),
            "commits_since_checkpoint": found.commits_since_checkpoint,
            "is_healthy": contract.name not in unhealthy,
        }


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _MB:,.1f} MB" if size_bytes >= _MB else f"{size_bytes / _KB:,.1f} kB"
