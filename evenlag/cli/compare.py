"""`evenlag compare`: which policy would have performed best; `compare run` simulates policies."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.cli import option_types
from evenlag.cli.console import console, print_json
from evenlag.cli.export import ExportOption, export_rows
from evenlag.cli.grammar import SHOW, ShowByDefault
from evenlag.cli.option_types import option
from evenlag.cli.options import (
    AnyGroupArgument,
    ClusterOption,
    ConfigOption,
    JsonOption,
    LakeOption,
    RemoteOption,
)
from evenlag.cli.tables.comparison import notes, policies_table
from evenlag.cli.tables.layout import Table
from evenlag.context import find_cluster, find_lake, find_policy, only_cluster
from evenlag.errors import NotFoundError, UsageError
from evenlag.formatting import did_you_mean, number
from evenlag.queries.comparisons import (
    By,
    count_left_out,
    model_error_text,
    model_row,
    not_compared,
    read_optimality_gaps,
    read_replays,
    sum_up,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lake.reader import LakeReader

app = typer.Typer(
    cls=ShowByDefault,
    help="Show which policy would have been best on past days; run simulates them and publishes nothing. "
    "Without a subcommand: show [GROUP].",
)


@app.command(SHOW)
def show(
    group: AnyGroupArgument = None,
    *,
    since: Annotated[
        date | None, option("--from", "DAY", "First day; default: all compared days.", option_types.day)
    ] = None,
    until: Annotated[date | None, option("--to", "DAY", "Last day.", option_types.day)] = None,
    by: Annotated[By, typer.Option("--by", help="The metric to rank by; lower is better.")] = By.P95_TIME_LAG,
    continuous: Annotated[
        bool,
        typer.Option("--continuous", help="Show periods that were simulated as a whole, by their first day."),
    ] = False,
    per_group: Annotated[bool, typer.Option("--per-group", help="One table per group.")] = False,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
    export: ExportOption = None,
) -> None:
    """Show policies side by side, the best first, and the error of the model."""
    if since is not None and until is not None and until < since:
        raise UsageError(f"--to {until} lies before --from {since}")
    reader = find_lake(lake, config)
    name = find_cluster(reader, cluster)
    replays = read_replays(reader, name, since=since, until=until, group=group, is_continuous=continuous)
    if not replays:
        raise NotFoundError(_nothing(reader, name, group, is_continuous=continuous))
    answers = [
        _answer(reader, name, replays, (since, until, chosen), by.value, is_continuous=continuous)
        for chosen in (sorted({row["group_id"] for row in replays}) if per_group else [group])
    ]
    if export is not None:
        rows = [{"group_id": answer["group_id"]} | row for answer in answers for row in answer["policies"]]
        export_rows(rows, export)
    if as_json:
        days = sorted({row["day"] for row in replays})
        print_json({"cluster": name, "by": by.value, "days": days, "groups": answers})
        return
    for answer in answers:
        _print(name, answer, by.value, len({row["day"] for row in replays}))


def _answer(
    reader: LakeReader,
    cluster: str,
    replays: Sequence[dict[str, Any]],
    scope: tuple[date | None, date | None, str | None],
    by: str,
    *,
    is_continuous: bool,
) -> dict[str, Any]:
    since, until, group = scope
    own = [row for row in replays if group is None or row["group_id"] == group]
    # A continuous period that begins by the last day continues after it.
    until = None if is_continuous else until
    distances = read_optimality_gaps(reader, cluster, since=since, until=until, group=group)
    return {
        "group_id": group,
        "policies": sum_up(own, distances, by, is_continuous=is_continuous),
        **count_left_out(own),
        "model": model_row(own),
        "not_compared": not_compared(own),
    }


def _nothing(reader: LakeReader, cluster: str, group: str | None, *, is_continuous: bool) -> str:
    from evenlag.lake.tables import CONTINUOUS_REPLAYS, REPLAYS

    if group is not None:
        replays = CONTINUOUS_REPLAYS if is_continuous else REPLAYS
        rows = reader.read_newest(replays, "day", columns=["group_id"], filters=[("cluster", "=", cluster)])
        known = set(rows["group_id"].to_pylist())
        if known:
            meant = "" if group in known else did_you_mean(group, known)
            return f"the group {group!r} was not compared on those days{meant}"
    return f"nothing of {cluster} was compared on those days: evenlag compare run --day DAY does it"


def _print(cluster: str, answer: dict[str, Any], by: str, num_days: int) -> None:
    out = console()
    what = answer["group_id"] or "all groups"
    if answer["policies"]:
        title = f"Policies for {what} of {cluster}, {num_days} days"
        out.print(policies_table(title, answer["policies"], by))
        for line in notes(answer["policies"], answer):
            out.print(line, soft_wrap=not out.is_terminal)
    model = answer["model"]
    if model is not None:
        out.print(
            f"The model: the replay of what really ran {model_error_text(model)}, medians of "
            f"{number(model['group_days'])} group-days. Of "
            f"{number(model['observed_capacities'] + model['assumed_capacities'])} members' capacities "
            f"{number(model['observed_capacities'])} were measured, the others assumed.",
            soft_wrap=not out.is_terminal,
        )
    if answer["not_compared"]:
        left = Table("Not compared", ("group", "policy", "days", "why"), right=("days",), keys=("policy",))
        for row in answer["not_compared"]:
            left.add_row(row["group_id"], row["policy"], number(row["days"]), row["reason"])
        out.print(left)


@app.command("run")
def run(
    context: typer.Context,
    *,
    day: Annotated[
        date | None,
        option("--day", "DAY", "UTC day; default: yesterday.", option_types.day, show_default=False),
    ] = None,
    to: Annotated[date | None, option("--to", "DAY", "Last day of several.", option_types.day)] = None,
    assignor: Annotated[
        list[str] | None,
        typer.Option(
            "--assignor",
            "-a",
            metavar="NAME[:key=value,...]",
            help="What to compare; may be repeated. Default: comparison.policies of the policy file.",
        ),
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option("--continuous", help="Simulate the days as one period; written to continuous_replays."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Compare days again that were compared before.")
    ] = False,
    remote: RemoteOption = None,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate policies on past days with Spark; contacts no broker."""
    from evenlag.cli.job_runner import job_arguments, job_result
    from evenlag.policy.candidates import parse_candidate

    loaded = find_policy(config)
    if loaded is None:
        raise UsageError("there is no policy file: name one with --config or EVENLAG_CONFIG")
    name = cluster or only_cluster(loaded.policy.clusters)
    loaded.cluster_settings(name)
    for text in assignor or ():
        parse_candidate(text)
    first = day or _yesterday()
    if to is not None and to < first:
        raise UsageError(f"--to {to} lies before --day {first}")
    arguments = job_arguments(cluster=name, day=first, to=to or first, config=config, assignor=assignor)
    arguments += job_arguments(continuous=continuous, force=force)
    done = job_result(context, remote, "compare", arguments)
    if as_json:
        print_json({"cluster": name, "is_continuous": continuous} | done)
        return
    counts = ", ".join(f"{len(days)} {what}" for what, days in done.items() if days)
    unit = "periods" if continuous else "days"
    console().print(f"{name}: {unit}: {counts}. Look at them with: evenlag compare")


def _yesterday() -> date:
    return (datetime.now(UTC) - timedelta(days=1)).date()
