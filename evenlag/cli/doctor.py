"""`evenlag doctor`: check that everything works, with a remedy for each fault; needs no JVM or Airflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from evenlag.cli.console import console, print_json
from evenlag.cli.layout import Column, Table, key, numbers
from evenlag.cli.option_types import flag, option, real, url, whole
from evenlag.cli.options import JsonOption, LakeScope
from evenlag.context import find_lake, find_policy
from evenlag.doctor.model import Result, Verdict
from evenlag.errors import UsageError
from evenlag.formatting import did_you_mean, duration, moment
from evenlag.lake.tables import SNAPSHOTS

if TYPE_CHECKING:
    from evenlag.lake.reader import LakeReader

NOT_WELL = 1
_STYLES: Final = {
    Verdict.OK: "green",
    Verdict.SKIPPED: "dim",
    Verdict.WARNING: "yellow",
    Verdict.FAILED: "bold red",
}
_AIRFLOW_HELP: Final = "Also check this Airflow, with the token in EVENLAG_AIRFLOW_TOKEN."
_TIMEOUT_HELP: Final = "Time limit of all checks in s; one check may take a third."
_MAX_AGE_HELP: Final = "Maximum age of a snapshot in s; default: by the schedule."
_MAX_TIMEOUT_S = 3_600
_MAX_AGE_S = 316_224_000


def doctor(
    *,
    freshness_only: Annotated[
        bool, flag("--freshness-only", "Only check that every cluster has a fresh snapshot, for probes.")
    ] = False,
    only: Annotated[
        list[str] | None,
        option("--only", "NAME", "An area (brokers) or a check (brokers.clock); repeatable.", str),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="NAME", help="An area or a check to leave out; repeatable."),
    ] = None,
    strict: Annotated[bool, flag("--strict", "A warning is a failure too.")] = False,
    probe_writes: Annotated[
        bool, flag("--probe-writes", "Also write to the hint topic and the lake, and undo it.")
    ] = False,
    airflow_url: Annotated[str | None, option("--airflow-url", "URL", _AIRFLOW_HELP, url)] = None,
    dag_prefix: Annotated[
        str, typer.Option("--dag-prefix", metavar="PREFIX", help="Prefix of the policy's DAG ids.")
    ] = "",
    timeout_s: Annotated[
        float, option("--timeout", "SECONDS", _TIMEOUT_HELP, real(1, _MAX_TIMEOUT_S))
    ] = 60.0,
    max_age_s: Annotated[
        int | None, option("--max-age", "SECONDS", _MAX_AGE_HELP, whole(1, _MAX_AGE_S))
    ] = None,
    scope: LakeScope,
    as_json: JsonOption = False,
) -> None:
    """Check policy, brokers, permissions, topics, groups, lake, Spark, Airflow and freshness; say what to do.

    Ends with 1 if a check failed. Nothing is written without --probe-writes.

    Freshness: the run before the newest due one must have left its snapshot. A cluster without a schedule
    needs any snapshot, or one within --max-age.
    """
    if freshness_only:
        if only or skip or probe_writes or airflow_url:
            raise UsageError(
                "--freshness-only cannot be combined with --only, --skip, --probe-writes and --airflow-url"
            )
        is_well = _check_freshness(scope, max_age_s, as_json=as_json)
    else:
        from evenlag.doctor.runner import Request, gather_lanes, run_lanes, select_lanes

        per_check_s = timeout_s / 3
        where = scope.config, scope.lake, scope.cluster
        request = Request(*where, airflow_url, max_age_s, probe_writes, per_check_s, dag_prefix)
        lanes = select_lanes(gather_lanes(request), only or (), skip or ())
        results = run_lanes(lanes, check_timeout_s=per_check_s, timeout_s=timeout_s)
        worst = max((result.verdict.rank for result in results), default=0)
        is_well = worst < (Verdict.WARNING.rank if strict else Verdict.FAILED.rank)
        if as_json:
            print_json({"well": is_well, "checks": _as_json(results)})
        else:
            _show_checks(results)
    if not is_well:
        raise typer.Exit(NOT_WELL)


def _check_freshness(scope: LakeScope, max_age_s: int | None, *, as_json: bool) -> bool:
    from evenlag.monitoring.lake_health import read_freshness

    reader, schedules = _lake_and_schedules(scope, max_age_s)
    now = datetime.now(UTC)
    found = [
        read_freshness(reader, cluster, schedule, now, max_age_s=max_age_s)
        for cluster, schedule in sorted(schedules.items())
    ]
    is_well = all(one.is_fresh for one in found)
    if as_json:
        print_json({"well": is_well, "freshness": [asdict(one) for one in found]})
    else:
        console().print(Table("Freshness", _FRESHNESS_COLUMNS, found))
    return is_well


def _lake_and_schedules(scope: LakeScope, max_age_s: int | None) -> tuple[LakeReader, dict[str, str | None]]:
    """Return the clusters to check with schedules: the policy's, even with an empty lake; else the lake's."""
    from evenlag.lake.reader import LakeReader
    from evenlag.monitoring.lake_health import schedules_of

    loaded, cluster = find_policy(scope.config), scope.cluster
    schedules: dict[str, str | None]
    if loaded is not None:
        reader = LakeReader(scope.lake or loaded.policy.lake)
        schedules = schedules_of(loaded.policy)
    elif max_age_s is None:
        raise UsageError(
            "without a policy file no schedule is known: say with --max-age how old a snapshot may be"
        )
    else:
        reader = find_lake(scope.lake, scope.config)
        schedules = dict.fromkeys(reader.clusters(SNAPSHOTS))
    if cluster is None:
        return reader, schedules
    if cluster not in schedules:
        raise UsageError(f"there is no cluster {cluster!r}{did_you_mean(cluster, schedules)}")
    return reader, {cluster: schedules[cluster]}


_CHECK_COLUMNS: Final = (key("check"), key("result"), Column("finding"))
_FRESHNESS_COLUMNS: Final = (
    Column("cluster", lambda one: one.cluster),
    Column("well", lambda one: Text("yes", style="green") if one.is_fresh else Text("NO", style="red")),
    Column("newest slot", lambda one: moment(one.slot)),
    numbers("age", lambda one: duration(None if one.age_s is None else 1000 * one.age_s)),
    Column("why", lambda one: one.reason),
)


def _as_json(results: Iterable[Result]) -> list[dict[str, Any]]:
    return [
        {
            "check": result.check,
            "cluster": result.cluster,
            "result": result.verdict.value,
            "findings": [
                {"result": one.verdict.value, "finding": one.message, "todo": one.remedy or None}
                for one in result.findings
            ],
        }
        for result in results
    ]


def _show_checks(results: Sequence[Result]) -> None:
    out = console()
    tables: dict[tuple[str | None, str], Table] = {}
    for result in results:
        area, _, name = result.check.partition(".")
        title = f"{area} of {result.cluster}" if result.cluster else area
        shown = tables.setdefault((result.cluster, area), Table(title, _CHECK_COLUMNS))
        for number, one in enumerate(result.findings):
            verdict = Text(one.verdict.value, style=_STYLES[one.verdict])
            shown.add_row("" if number else name, verdict, Text(one.message))
    out.print(*tables.values())
    _show_todos(results, out)
    counts = Counter(result.verdict for result in results)
    out.print(", ".join(f"{counts[verdict]} {verdict.value}" for verdict in reversed(Verdict)))


def _show_todos(results: Sequence[Result], out: Console) -> None:
    todos = [
        (result, one)
        for result in results
        for one in result.findings
        if one.remedy and one.verdict.rank >= Verdict.WARNING.rank
    ]
    if todos:
        out.print(Text("What to do", style="bold"))
    for result, one in sorted(todos, key=lambda todo: -todo[1].verdict.rank):
        about = f"{result.check} ({result.cluster})" if result.cluster else result.check
        # Not in a table: a command that is wrapped cannot be copied.
        line = Text.assemble((one.verdict.value, _STYLES[one.verdict]), f" {about}: {one.message}")
        out.print(line, soft_wrap=True)
        out.print(Text(f"    {one.remedy}"), soft_wrap=True)
