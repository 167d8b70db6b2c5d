"""`evenlag audit`: partition ownership over time, with changes and their causes, from the audit's tables."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.cli import option_types
from evenlag.cli.console import console, print_json, print_line
from evenlag.cli.export import ExportOption, export_and_report
from evenlag.cli.option_types import argument, option
from evenlag.cli.options import (
    AnyGroupArgument,
    ClusterOption,
    ConfigOption,
    JsonOption,
    LakeOption,
    LimitOption,
    RemoteOption,
)
from evenlag.context import find_cluster, find_lake
from evenlag.errors import NotFoundError
from evenlag.formatting import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from evenlag.audit.period import AuditedPeriod
    from evenlag.lake.reader import LakeReader

app = typer.Typer(
    no_args_is_help=True,
    help="Show from past snapshots who owned which partition, what changed and why, and what was wrong.",
)


# Kafka numbers partitions in 32 bits.
_MAX_PARTITION = 2**31 - 1
_MOMENT_FORM = "ISO 8601; UTC if it has no offset"
GroupArgument = Annotated[str, argument("GROUP", "The group.", show_default=False)]
SinceOption = Annotated[
    datetime | None,
    option(
        "--from",
        "MOMENT",
        f"Start of the period ({_MOMENT_FORM}); default: a day before its end.",
        option_types.moment,
    ),
]
UntilOption = Annotated[
    datetime | None,
    option("--to", "MOMENT", "End of the period; default: the newest snapshot.", option_types.moment),
]
MaxGapOption = Annotated[
    float | None,
    option(
        "--max-gap",
        "SECONDS",
        "Owners are unknown between snapshots further apart; default: 3 times the usual distance.",
        option_types.real(0, option_types.MAX_GAP_S),
    ),
]


def _read(
    target: tuple[str | None, Path | None, str | None],
    period: tuple[datetime | None, datetime | None],
    group: str | None,
    max_gap: float | None = None,
    *,
    needs_snapshots: bool = True,
) -> tuple[LakeReader, AuditedPeriod]:
    """Read a period of the lake, policy file and cluster that the options name."""
    from evenlag.audit.period import read_period, require_snapshots

    lake, config, cluster = target
    reader = find_lake(lake, config)
    found = read_period(reader, find_cluster(reader, cluster), *period, group_id=group, max_gap_s=max_gap)
    if needs_snapshots:
        require_snapshots(found)
    return reader, found


def _answer(
    period: AuditedPeriod,
    rows: Sequence[dict[str, Any]],
    export: Path | None,
    *,
    as_json: bool,
    **details: Any,
) -> bool:
    """Export the rows and print JSON. Return False when the caller must print tables for a terminal."""
    if export is not None:
        export_and_report(rows, export)
    if as_json:
        print_json({"rests_on": period.rests_on(), "group_id": period.group_id} | details)
        return True
    if period.downsampled_days:
        print_line(
            sys.stderr,
            f"note: of {len(period.downsampled_days)} days only one snapshot's lag per hour remains; "
            "ownership comes from the audit, which had all snapshots",
        )
    if period.num_unaudited:
        print_line(
            sys.stderr,
            f"note: {period.num_unaudited} snapshots of the period are not audited yet: evenlag audit build",
        )
    return False


@app.command("owner")
def owner(
    group: GroupArgument,
    *,
    at: Annotated[
        datetime | None,
        option(
            "--at",
            "MOMENT",
            f"The moment ({_MOMENT_FORM}); default: the newest snapshot.",
            option_types.moment,
        ),
    ] = None,
    topic: Annotated[str | None, option("--topic", "TOPIC", "Only this topic.")] = None,
    partition: Annotated[
        int | None, option("--partition", "N", "Only this partition.", option_types.whole(0, _MAX_PARTITION))
    ] = None,
    max_gap: MaxGapOption = None,
    limit: LimitOption = 40,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    export: ExportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who owned a group's partitions at a moment, and how certain that is."""
    from evenlag.audit.owners import group_around, owners_at
    from evenlag.cli.tables.audit import owner_table

    _, period = _read((lake, config, cluster), (at, at), group, max_gap, needs_snapshots=False)
    around = group_around(period, period.until)
    rows = _check_partitions(group, owners_at(period, period.until), topic, partition)
    if _answer(period, rows, export, as_json=as_json, at=period.until, group=around, partitions=rows):
        return
    console().print(owner_table(period, around, rows, limit))


@app.command("diff")
def diff(
    group: GroupArgument,
    since: Annotated[datetime, argument("FROM", _MOMENT_FORM, option_types.moment)],
    until: Annotated[datetime, argument("TO", _MOMENT_FORM, option_types.moment)],
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show partitions that did not change.")
    ] = False,
    limit: LimitOption = 40,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    export: ExportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how a group's assignment differs between two moments."""
    from evenlag.audit import differences
    from evenlag.audit.enums import OwnerChange
    from evenlag.audit.owners import group_around
    from evenlag.cli.tables.audit import diff_table

    _, period = _read((lake, config, cluster), (since, until), group, needs_snapshots=False)
    found = differences.diff(period, since, until)
    ends = [group_around(period, at) for at in (since, until)]
    rows = [row for row in found if everything or row["change"] != OwnerChange.SAME]
    details = {"num_compared": len(found), "before": ends[0], "after": ends[1], "partitions": rows}
    if _answer(period, rows, export, as_json=as_json, **details):
        return
    console().print(diff_table(period, ends, rows, len(found), limit))


@app.command("churn")
def churn(
    group: AnyGroupArgument = None,
    *,
    since: SinceOption = None,
    until: UntilOption = None,
    max_gap: MaxGapOption = None,
    show_moves: Annotated[bool, typer.Option("--moves", help="Show each partition that moved.")] = False,
    limit: LimitOption = 40,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    export: ExportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show rebalances with their causes and what they moved; --export writes the moves."""
    from evenlag.audit.published_hints import hint_finder, read_hints
    from evenlag.audit.rebalances import find_rebalances, sum_up
    from evenlag.cli.tables.audit import churn_table, moves_table, rebalances_table

    reader, period = _read((lake, config, cluster), (since, until), group, max_gap)
    finder = hint_finder(read_hints(reader, period))
    rebalances, moves = find_rebalances(period, find_hint=finder)
    groups = sum_up(rebalances)
    details = {"groups": groups, "rebalances": rebalances, "moves": moves}
    if _answer(period, moves, export, as_json=as_json, **details):
        return
    out = console()
    out.print(churn_table(period, groups, limit))
    if group is not None:
        out.print(rebalances_table(rebalances, limit))
    if show_moves:
        out.print(moves_table(moves, period.client_names(), limit))


@app.command("adherence")
def adherence(
    group: AnyGroupArgument = None,
    *,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 40,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    export: ExportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show whether and when groups owned the partitions that their hints assigned."""
    from evenlag.audit.published_hints import hint_finder, hint_verdicts, read_hints
    from evenlag.audit.rebalances import find_rebalances
    from evenlag.cli.tables.audit import adherence_table

    reader, period = _read((lake, config, cluster), (since, until), group)
    hints = read_hints(reader, period)
    rebalances, _ = find_rebalances(period, find_hint=hint_finder(hints))
    rows = hint_verdicts(period, hints, rebalances)
    if not rows:
        raise NotFoundError(
            f"no hint was published on {period.cluster} in that period: evenlag plans shows why"
        )
    if _answer(period, rows, export, as_json=as_json, hints=rows):
        return
    console().print(adherence_table(period, rows, limit))


@app.command("anomalies")
def anomalies(
    group: AnyGroupArgument = None,
    *,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = 40,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    export: ExportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show anomalies: partitions with no owner or with two, idle members, constant lag."""
    from evenlag.audit.anomalies import find_anomalies
    from evenlag.cli.tables.audit import anomalies_table

    reader, period = _read((lake, config, cluster), (since, until), group)
    rows = find_anomalies(reader, period)
    if _answer(period, rows, export, as_json=as_json, anomalies=rows):
        return
    console().print(anomalies_table(period, rows, limit))


@app.command("build")
def build(
    context: typer.Context,
    *,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Audit every day again.")] = False,
    remote: RemoteOption = None,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Audit the newest snapshots, as the DAG assignment_audit does hourly; starts Spark."""
    from evenlag.cli.job_runner import job_arguments, job_result

    name = find_cluster(find_lake(lake, config), cluster)
    arguments = job_arguments(cluster=name, lake=lake, config=config, rebuild=rebuild)
    audited = job_result(context, remote, "audit", arguments)
    if as_json:
        print_json({"cluster": name} | audited)
        return
    days = ", ".join(audited["days"])
    console().print(f"Audited {name}: {days}" if days else f"The audit of {name} is up to date")
    if audited["left_from"]:
        console().print(f"The days from {audited['left_from']} on are left: the next run continues")


def _check_partitions(
    group: str, rows: Sequence[dict[str, Any]], topic: str | None, partition: int | None
) -> list[dict[str, Any]]:
    """Filter the partitions of a group by topic and number."""
    topics = {row["topic"] for row in rows}
    if topic is not None and topic not in topics:
        raise NotFoundError(
            f"the group {group!r} has no topic {topic!r} at that moment{did_you_mean(topic, topics)}"
        )
    of_topic = [row for row in rows if topic in {None, row["topic"]}]
    found = [row for row in of_topic if partition in {None, row["partition"]}]
    if partition is not None and not found:
        highest = max((row["partition"] for row in of_topic), default=None)
        what = f"the group {group!r} has no partition {partition:,}"
        where = "" if topic is None else f" of {topic!r}"
        known = "no partition at all" if highest is None else f"the highest is {highest:,}"
        raise NotFoundError(f"{what}{where} at that moment; {known}")
    return found
