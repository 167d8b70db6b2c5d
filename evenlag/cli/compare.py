"""`evenlag compare`: which policy would have performed best; `compare run` simulates policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from evenlag.cli.console import console, print_json
from evenlag.cli.export import ExportOption, export_rows
from evenlag.cli.grammar import SHOW, ShowByDefault
from evenlag.cli.job_runner import job_result
from evenlag.cli.layout import GROUP, Column, Table, key, numbers
from evenlag.cli.option_types import day as day_type
from evenlag.cli.option_types import flag, option
from evenlag.cli.options import AnyGroupArgument, ClusterScope, JsonOption, LakeScope, RemoteOption
from evenlag.context import policy_cluster, require_policy
from evenlag.errors import NotFoundError, UsageError
from evenlag.formatting import (
    NOTHING,
    at_least,
    did_you_mean,
    duration,
    number,
    percent,
)
from evenlag.lake.tables import CONTINUOUS_REPLAYS, REPLAYS
from evenlag.queries.comparisons import (
    MEASURED_SHOWN,
    OBSERVED,
    OBSERVED_SHOWN,
    By,
    bounded_text,
    count_left_out,
    measured_texts,
    model_error_text,
    model_row,
    not_compared,
    read_optimality_gaps,
    read_replays,
    shown_policy,
    sum_up,
    waiting_text,
)

if TYPE_CHECKING:
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
        date | None, option("--from", "DAY", "First day; default: all compared days.", day_type)
    ] = None,
    until: Annotated[date | None, option("--to", "DAY", "Last day.", day_type)] = None,
    by: Annotated[By, typer.Option("--by", help="The metric to rank by; lower is better.")] = By.WAITING_P99,
    continuous: Annotated[
        bool, flag("--continuous", "Show periods that were simulated as a whole, by their first day.")
    ] = False,
    per_group: Annotated[bool, flag("--per-group", "One table per group.")] = False,
    scope: LakeScope,
    as_json: JsonOption = False,
    export: ExportOption = None,
) -> None:
    """Show policies side by side, the best first, and the error of the model."""
    if since is not None and until is not None and until < since:
        raise UsageError(f"--to {until} lies before --from {since}")
    reader, name = scope.open()
    replays = read_replays(reader, name, since=since, until=until, group=group, is_continuous=continuous)
    if not replays:
        raise NotFoundError(_nothing(reader, name, group, is_continuous=continuous))
    # A continuous period that begins by the last day continues after it.
    gaps_until = None if continuous else until
    answers = []
    for chosen in sorted({row["group_id"] for row in replays}) if per_group else [group]:
        own = [row for row in replays if chosen is None or row["group_id"] == chosen]
        gaps = read_optimality_gaps(reader, name, since=since, until=gaps_until, group=chosen)
        policies = sum_up(own, gaps, by.value, is_continuous=continuous)
        answers.append(
            {"group_id": chosen, "policies": policies}
            | count_left_out(own)
            | {"model": model_row(own), "not_compared": not_compared(own)}
        )
    if export is not None:
        rows = [{"group_id": answer["group_id"]} | row for answer in answers for row in answer["policies"]]
        export_rows(rows, export)
    days = sorted({row["day"] for row in replays})
    if as_json:
        print_json({"cluster": name, "by": by.value, "days": days, "groups": answers})
        return
    for answer in answers:
        _print(name, answer, by.value, len(days))


def _nothing(reader: LakeReader, cluster: str, group: str | None, *, is_continuous: bool) -> str:
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
        out.print(Table("Not compared", _NOT_COMPARED_COLUMNS, answer["not_compared"]))


@app.command("run")
def run(
    *,
    day: Annotated[
        date | None, option("--day", "DAY", "UTC day; default: yesterday.", day_type, show_default=False)
    ] = None,
    to: Annotated[date | None, option("--to", "DAY", "Last day of several.", day_type)] = None,
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
        bool, flag("--continuous", "Simulate the days as one period; written to continuous_replays.")
    ] = False,
    force: Annotated[bool, flag("--force", "Compare days again that were compared before.")] = False,
    remote: RemoteOption = None,
    scope: ClusterScope,
    as_json: JsonOption = False,
) -> None:
    """Simulate policies on past days with Spark; contacts no broker."""
    from evenlag.policy.candidates import parse_candidate

    name = policy_cluster(require_policy(scope.config), scope.cluster)
    for text in assignor or ():
        parse_candidate(text)
    first = day or (datetime.now(UTC) - timedelta(days=1)).date()
    if to is not None and to < first:
        raise UsageError(f"--to {to} lies before --day {first}")
    days = {"cluster": name, "day": first, "to": to or first, "config": scope.config, "assignor": assignor}
    done = job_result(remote, "compare", **days, continuous=continuous, force=force)
    if as_json:
        print_json({"cluster": name, "is_continuous": continuous} | done)
        return
    counts = ", ".join(f"{len(days)} {what}" for what, days in done.items() if days)
    unit = "periods" if continuous else "days"
    console().print(f"{name}: {unit}: {counts}. Look at them with: evenlag compare")


# The first ones are left out first on a narrow terminal.
_OPTIONAL: Final = (
    "rebalances", "above bound", "best in", "waiting 50 %", "above 5 s", "not drained", "to drain", "worst",
    "mean lag", "largest member lag", "above 5 min", "record-seconds", "moves",
)  # fmt: skip
_COLUMNS: Final = (
    key("policy", lambda row: shown_policy(row["policy"])),
    Column("rank", lambda row: "best" if row["is_best"] else ""),
    numbers("waiting 50 %", lambda row: waiting_text(row, "waiting_p50_ms")),
    numbers("95 %", lambda row: waiting_text(row, "waiting_p95_ms")),
    numbers("99 %", lambda row: waiting_text(row, "waiting_p99_ms")),
    numbers("above 5 s", lambda row: percent(row["above_5s"])),
    numbers("above 30 s", lambda row: percent(row["above_30s"])),
    numbers("above 5 min", lambda row: percent(row["above_300s"])),
    numbers("worst", lambda row: waiting_text(row, "max_time_lag_ms")),
    numbers("mean lag", lambda row: at_least(row["mean_lag_records"], row["unknown_partitions"])),
    numbers("largest member lag", lambda row: bounded_text(row, "peak_member_lag_records")),
    numbers("record-seconds", lambda row: bounded_text(row, "record_s")),
    numbers("to drain", lambda row: _drained(row["drain_time_ms"])),
    numbers("not drained", lambda row: f"{row['not_drained']} of {row['group_days']}"),
    numbers("moves", lambda row: number(row["moves"])),
    numbers("rebalances", lambda row: number(row["rebalances"])),
    numbers("above bound", lambda row: percent(row["optimality_gap"])),
    numbers("best in", lambda row: f"{row['best_in']} of {row['group_days']}"),
)
_NOT_COMPARED_COLUMNS: Final = (
    GROUP,
    key("policy", lambda row: row["policy"]),
    numbers("days", lambda row: number(row["days"])),
    Column("why", lambda row: row["reason"]),
)


def policies_table(title: str, rows: Sequence[dict[str, Any]], by: str) -> Table:
    """Build the table of policies, ranked by a metric, with what Kafka reported last, if it was measured."""
    caption = (
        f"Best by {by}; of equals by mean lag, then moves. {OBSERVED_SHOWN} is what really ran, by the "
        f"model; {MEASURED_SHOWN} is what Kafka reported, without the model. ≥ is a lower bound; what the "
        "snapshots leave open is in brackets."
    )
    shown = Table(title, _COLUMNS, optional=_OPTIONAL, caption=caption)
    for row in rows:
        style = "bold" if row["is_best"] else "dim" if row["policy"] == OBSERVED else None
        shown.add_row(*(column.cell(row) for column in _COLUMNS), style=style)
    measured = next((row for row in rows if row["policy"] == OBSERVED), None)
    if measured is not None and measured["measured_max_lag_records"] is not None:
        cells = (*[NOTHING] * 6, *measured_texts(measured), *[NOTHING] * 8)
        shown.add_row(MEASURED_SHOWN, "", *cells, style="dim")
    return shown


def _drained(milliseconds: float | None) -> str:
    return "not drained" if milliseconds is None else duration(milliseconds)


def notes(rows: Sequence[dict[str, Any]], left_out: Mapping[str, Any]) -> list[str]:
    """Return notes on data that the numbers do not include, and on lower bounds; empty if all is known."""
    first, sentences = rows[0], []
    if left_out["left_out"]:
        sentences.append(
            f"Counted: {first['group_days']:,} group-days. Left out: {left_out['left_out']:,}, of which not "
            "every policy has a replay."
        )
    if left_out["partly_known"]:
        sentences.append(
            f"Left out of the means: {left_out['partly_known']:,} group-days on which the lag of some "
            "partition was never known."
        )
    if first["unknown_partitions"]:
        sentences.append(
            f"The lag of {first['unknown_partitions']:,} partitions was never known: they are in no figure, "
            "and what their members process of the others is a lower bound."
        )
    if first["unknown_share"]:
        sentences.append(
            f"For {percent(first['unknown_share'])} of the partitions' time no snapshot had known their lag "
            "yet: that time is in no figure of a policy."
        )
    if first["unknown_waiting"]:
        sentences.append(
            f"Waiting is not known of {first['unknown_waiting']:,} group-days, which an older version "
            "compared: evenlag compare run adds it."
        )
    widest = max((row["wide_share"] for row in rows if row["wide_share"] is not None), default=0.0)
    if widest:
        sentences.append(
            f"Up to {percent(widest)} of the snapshots with lag leave a policy's largest member lag open by "
            "more than 25 %: they do not tell when the records between them came. Shorter intervals do."
        )
    if first["unknown_ages"]:
        sentences.append(
            f"The records that {first['unknown_ages']:,} partitions were behind at first have no known age: "
            "their time lag counts from the first snapshot on."
        )
    return sentences
