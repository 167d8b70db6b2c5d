"""`evenlag audit`: partition ownership over time, with changes and their causes, from the audit's tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group
from rich.text import Text

from evenlag.audit.enums import Certainty, OwnerChange
from evenlag.cli.console import console, print_json, print_line
from evenlag.cli.export import ExportOption, export_and_report
from evenlag.cli.job_runner import job_result
from evenlag.cli.layout import (
    GROUP,
    PARTITION,
    SHORT_ID,
    TOPIC,
    Column,
    Table,
    key,
    left_out,
    numbers,
)
from evenlag.cli.option_types import MAX_GAP_S, argument, flag, option, real, whole
from evenlag.cli.option_types import moment as moment_type
from evenlag.cli.options import AnyGroupArgument, JsonOption, LakeScope, LimitOption, RemoteOption
from evenlag.errors import NotFoundError
from evenlag.formatting import did_you_mean, duration, moment, number, percent

if TYPE_CHECKING:
    from evenlag.audit.period import AuditedPeriod
    from evenlag.lake.reader import LakeReader


Rows = Sequence[dict[str, Any]]

app = typer.Typer(
    no_args_is_help=True,
    help="Show from past snapshots who owned which partition, what changed and why, and what was wrong.",
)

# Kafka numbers partitions in 32 bits.
_MAX_PARTITION = 2**31 - 1
_MOMENT_FORM = "ISO 8601; UTC if it has no offset"
_SINCE_HELP = f"Start of the period ({_MOMENT_FORM}); default: a day before its end."
_MAX_GAP_HELP = "Owners are unknown between snapshots further apart; default: 3 times the usual distance."
GroupArgument = Annotated[str, argument("GROUP", "The group.", show_default=False)]
SinceOption = Annotated[datetime | None, option("--from", "MOMENT", _SINCE_HELP, moment_type)]
UntilOption = Annotated[
    datetime | None, option("--to", "MOMENT", "End of the period; default: the newest snapshot.", moment_type)
]
MaxGapOption = Annotated[float | None, option("--max-gap", "SECONDS", _MAX_GAP_HELP, real(0, MAX_GAP_S))]


@dataclass(frozen=True, kw_only=True)
class _Answer(LakeScope):
    """What a command reads, and in which form it answers."""

    limit: LimitOption = 40
    export: ExportOption = None
    as_json: JsonOption = False

    def read(
        self,
        since: datetime | None,
        until: datetime | None,
        group: str | None,
        max_gap: float | None = None,
        *,
        needs_snapshots: bool = True,
    ) -> tuple[LakeReader, AuditedPeriod]:
        """Read a period of the lake and the cluster."""
        from evenlag.audit.period import read_period, require_snapshots

        reader, cluster = self.open()
        found = read_period(reader, cluster, since, until, group_id=group, max_gap_s=max_gap)
        if needs_snapshots:
            require_snapshots(found)
        return reader, found

    def is_complete(self, period: AuditedPeriod, rows: Sequence[dict[str, Any]], **details: Any) -> bool:
        """Export the rows and print JSON. Return False when the caller must print tables for a terminal."""
        if self.export is not None:
            export_and_report(rows, self.export)
        if self.as_json:
            print_json({"rests_on": period.rests_on(), "group_id": period.group_id} | details)
            return True
        if period.downsampled_days:
            note = (
                f"of {len(period.downsampled_days)} days only one snapshot's lag per hour remains; "
                "ownership comes from the audit, which had all snapshots"
            )
            print_line(sys.stderr, f"note: {note}")
        if period.num_unaudited:
            note = f"{period.num_unaudited} snapshots of the period are not audited yet: evenlag audit build"
            print_line(sys.stderr, f"note: {note}")
        return False


@app.command("owner")
def owner(
    group: GroupArgument,
    *,
    at: Annotated[
        datetime | None,
        option("--at", "MOMENT", f"The moment ({_MOMENT_FORM}); default: the newest snapshot.", moment_type),
    ] = None,
    topic: Annotated[str | None, option("--topic", "TOPIC", "Only this topic.")] = None,
    partition: Annotated[
        int | None, option("--partition", "N", "Only this partition.", whole(0, _MAX_PARTITION))
    ] = None,
    max_gap: MaxGapOption = None,
    answer: _Answer,
) -> None:
    """Show who owned a group's partitions at a moment, and how certain that is."""
    from evenlag.audit.owners import group_around, owners_at

    _, period = answer.read(at, at, group, max_gap, needs_snapshots=False)
    around = group_around(period, period.until)
    rows = _check_partitions(group, owners_at(period, period.until), topic, partition)
    if not answer.is_complete(period, rows, at=period.until, group=around, partitions=rows):
        console().print(owner_table(period, around, rows, answer.limit))


@app.command("diff")
def diff(
    group: GroupArgument,
    since: Annotated[datetime, argument("FROM", _MOMENT_FORM, moment_type)],
    until: Annotated[datetime, argument("TO", _MOMENT_FORM, moment_type)],
    *,
    everything: Annotated[bool, flag("--all", "Also show partitions that did not change.")] = False,
    answer: _Answer,
) -> None:
    """Show how a group's assignment differs between two moments."""
    from evenlag.audit import differences
    from evenlag.audit.owners import group_around

    _, period = answer.read(since, until, group, needs_snapshots=False)
    found = differences.diff(period, since, until)
    ends = [group_around(period, at) for at in (since, until)]
    rows = [row for row in found if everything or row["change"] != OwnerChange.SAME]
    details = {"num_compared": len(found), "before": ends[0], "after": ends[1], "partitions": rows}
    if not answer.is_complete(period, rows, **details):
        console().print(diff_table(period, ends, rows, len(found), answer.limit))


@app.command("churn")
def churn(
    group: AnyGroupArgument = None,
    *,
    since: SinceOption = None,
    until: UntilOption = None,
    max_gap: MaxGapOption = None,
    show_moves: Annotated[bool, flag("--moves", "Show each partition that moved.")] = False,
    answer: _Answer,
) -> None:
    """Show rebalances with their causes and what they moved; --export writes the moves."""
    from evenlag.audit.published_hints import hint_finder, read_hints
    from evenlag.audit.rebalances import find_rebalances, sum_up

    reader, period = answer.read(since, until, group, max_gap)
    finder = hint_finder(read_hints(reader, period))
    rebalances, moves = find_rebalances(period, find_hint=finder)
    groups = sum_up(rebalances)
    details = {"groups": groups, "rebalances": rebalances, "moves": moves}
    if answer.is_complete(period, moves, **details):
        return
    out = console()
    out.print(_churn_table(period, groups, answer.limit))
    if group is not None:
        out.print(_rebalances_table(rebalances, answer.limit))
    if show_moves:
        out.print(_moves_table(moves, period.client_names(), answer.limit))


@app.command("adherence")
def adherence(
    group: AnyGroupArgument = None,
    *,
    since: SinceOption = None,
    until: UntilOption = None,
    answer: _Answer,
) -> None:
    """Show whether and when groups owned the partitions that their hints assigned."""
    from evenlag.audit.published_hints import hint_finder, hint_verdicts, read_hints
    from evenlag.audit.rebalances import find_rebalances

    reader, period = answer.read(since, until, group)
    hints = read_hints(reader, period)
    rebalances, _ = find_rebalances(period, find_hint=hint_finder(hints))
    rows = hint_verdicts(period, hints, rebalances)
    if not rows:
        raise NotFoundError(
            f"no hint was published on {period.cluster} in that period: evenlag plans shows why"
        )
    if not answer.is_complete(period, rows, hints=rows):
        console().print(_adherence_table(period, rows, answer.limit))


@app.command("anomalies")
def anomalies(
    group: AnyGroupArgument = None,
    *,
    since: SinceOption = None,
    until: UntilOption = None,
    answer: _Answer,
) -> None:
    """Show anomalies: partitions with no owner or with two, idle members, constant lag."""
    from evenlag.audit.anomalies import find_anomalies

    reader, period = answer.read(since, until, group)
    rows = find_anomalies(reader, period)
    if not answer.is_complete(period, rows, anomalies=rows):
        console().print(_anomalies_table(period, rows, answer.limit))


@app.command("build")
def build(
    *,
    rebuild: Annotated[bool, flag("--rebuild", "Audit every day again.")] = False,
    remote: RemoteOption = None,
    scope: LakeScope,
    as_json: JsonOption = False,
) -> None:
    """Audit the newest snapshots, as the DAG assignment_audit does hourly; starts Spark."""
    _, name = scope.open()
    options = {"cluster": name, "lake": scope.lake, "config": scope.config, "rebuild": rebuild}
    audited = job_result(remote, "audit", **options)
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


_CERTAINTY: Final = {
    Certainty.SEEN: "seen before and after",
    Certainty.CHANGING: "changed around then",
    Certainty.GAP: "the snapshots are too far apart",
    Certainty.LAST_SEEN: "last seen; no later snapshot in the audit",
    Certainty.FIRST_SEEN: "first seen later",
}
_CAUSES: Final = Column("causes", lambda row: ", ".join(row["causes"]))


def _count(name: str) -> Column:
    """Return a column of how many partitions of a rebalance were moved, returned, placed or freed."""
    return numbers(name, lambda row: number(row[f"num_{name}"]))


_COUNTS: Final = tuple(map(_count, ("moved", "returned", "placed", "freed")))


def owner_table(period: AuditedPeriod, around: dict[str, Any], rows: Rows, limit: int) -> Table:
    """Build the table of the owners at a moment."""
    columns = (
        TOPIC,
        PARTITION,
        key("owner", lambda row: row["member_id"] or f"{row['state'].lower()}: {row['reason']}"),
        Column("client", lambda row: row["group_instance_id"] or row["client_id"] or ""),
        Column("owned since", lambda row: between(row["previous_seen_at"], row["first_seen_at"])),
        Column("until", lambda row: between(row["last_seen_at"], row["next_seen_at"])),
        Column("certainty", _certainty),
    )
    caption = f"snapshots around: {_snapshots(around)}"
    if not rows:
        caption += f"; the group was {around['group_state'] or 'not listed'}"
    return Table(
        f"{period.group_id} on {period.cluster} at {moment(period.until)}",
        columns,
        rows,
        optional=("until", "owned since", "client"),
        caption=caption,
        limit=limit,
    )


def diff_table(period: AuditedPeriod, ends: Rows, rows: Rows, compared: int, limit: int) -> Group:
    """Build the table of the differences between two moments, followed by the snapshots used."""
    found = f"{len(rows)} of {compared} partitions" if rows else f"all {compared} the same"
    lines = [left_out(found, len(rows), limit)]
    lines += [
        f"{moment(at)} is based on {_snapshots(around)}"
        for at, around in zip((period.since, period.until), ends, strict=True)
    ]
    if any(row["change"] == OwnerChange.CHANGING for row in rows):
        lines.append(
            "CHANGING: the snapshots around the moment show different owners; each of them is possible"
        )
    columns = (
        TOPIC,
        PARTITION,
        Column("change", lambda row: row["change"]),
        key("before", lambda row: _holders(row, "before")),
        key("after", lambda row: _holders(row, "after")),
    )
    title = f"{period.group_id} on {period.cluster}: {moment(period.since)} and {moment(period.until)}"
    shown = Table(title, columns, rows[:limit])
    return Group(shown, Text("\n".join(lines)))


def _churn_table(period: AuditedPeriod, groups: Rows, limit: int) -> Table:
    columns = (
        GROUP,
        _count("rebalances"),
        *_COUNTS,
        Column(
            "causes", lambda row: ", ".join(f"{n} {cause}" for cause, n in sorted(row["by_cause"].items()))
        ),
    )
    return Table(
        f"Churn on {_title(period)}",
        columns,
        groups,
        optional=("freed", "placed", "returned", "causes"),
        caption="" if groups else "no snapshot shows a rebalance",
        limit=limit,
    )


def _rebalances_table(rebalances: Rows, limit: int) -> Table:
    columns = (
        key("between", _rebalance_time),
        Column("causes", _causes_with_plan),
        key("joined", lambda row: ", ".join(row["joined"])),
        key("left", lambda row: ", ".join(row["left"])),
        key("came back", lambda row: ", ".join(row["bounced"].values())),
        *_COUNTS,
    )
    return Table("Rebalances", columns, rebalances, optional=("freed", "placed", "returned"), limit=limit)


def _moves_table(moves: Rows, clients: Mapping[str, str], limit: int) -> Table:
    """Build the table of the partitions that changed owner; `clients` by member id."""
    columns = (
        GROUP,
        TOPIC,
        PARTITION,
        Column("kind", lambda row: row["kind"]),
        key("from", lambda row: row["from_member_id"]),
        Column("client", lambda row: clients.get(row["from_member_id"], "")),
        key("to", lambda row: row["to_member_id"]),
        Column("its client", lambda row: clients.get(row["to_member_id"], "")),
        Column("between", lambda row: between(row["last_seen_at"], row["first_seen_at"])),
        _CAUSES,
    )
    return Table(
        "Moves",
        columns,
        moves,
        optional=("causes", "kind", "its client", "client", "between"),
        limit=limit,
    )


def _adherence_table(period: AuditedPeriod, rows: Rows, limit: int) -> Table:
    columns = (
        GROUP,
        Column("plan", lambda row: row["plan_id"][:SHORT_ID]),
        Column("published", lambda row: moment(row["published_at"])),
        key("verdict", lambda row: row["verdict"]),
        numbers("before", lambda row: percent(row["share_before"])),
        numbers("best", lambda row: percent(row["share_best"])),
        Column("held from", lambda row: between(row["not_yet_at"], row["followed_from"])),
        Column("held until", lambda row: between(row["followed_until"], row["no_longer_at"])),
        Column("why no longer", lambda row: row["left_because"] or ""),
    )
    return Table(
        f"Adherence on {_title(period)}",
        columns,
        rows,
        optional=("held until", "held from", "published", "before", "why no longer"),
        limit=limit,
    )


def _anomalies_table(period: AuditedPeriod, rows: Rows, limit: int) -> Table:
    clients = period.client_names()
    columns = (
        key("what", lambda row: row["kind"]),
        GROUP,
        Column("partition", lambda row: "" if row["topic"] is None else f"{row['topic']}-{row['partition']}"),
        Column("member", lambda row: row["member_id"] or ""),
        Column("client", lambda row: clients.get(row["member_id"] or "", "")),
        numbers("lag", lambda row: number(row["lag_records"])),
        numbers("snapshots", lambda row: number(row["num_snapshots"])),
        Column("from", lambda row: moment(row["first_seen_at"])),
        Column("until", lambda row: moment(row["last_seen_at"])),
        Column("detail", _detail),
    )
    return Table(
        f"Anomalies on {_title(period)}",
        columns,
        rows,
        optional=("snapshots", "until", "from", "client", "lag"),
        caption="" if rows else "nothing found",
        limit=limit,
    )


def between(early: Any, late: Any) -> str:
    """Format a moment between the times of two snapshots; None: no snapshot on that side."""
    if early is None or late is None:
        known, side = (late, "before") if early is None else (early, "later")
        return f"{moment(known)} or {side}" if known else "-"
    begin, end = moment(early), moment(late)
    day = len("2026-11-21 ")
    return f"{begin[:-1]}..{end[day:]}" if begin[:day] == end[:day] else f"{begin}..{end}"


def _rebalance_time(row: dict[str, Any]) -> str:
    gap = " (snapshots are missing: at least one)" if row["across_gap"] else ""
    return between(row["after_seen_at"], row["seen_at"]) + gap


def _causes_with_plan(row: dict[str, Any]) -> str:
    plan = f" ({row['plan_id'][:SHORT_ID]})" if row["plan_id"] else ""
    return ", ".join(row["causes"]) + plan


def _detail(row: dict[str, Any]) -> str:
    # The member has a column of its own.
    detail = str(row["detail"])
    return detail.replace(f" {row['member_id']}", "") if row["member_id"] else detail


def _title(period: AuditedPeriod) -> str:
    return f"{period.cluster}, {moment(period.since)} to {moment(period.until)}"


def _snapshots(around: dict[str, Any]) -> str:
    parts = [_snapshot(around["before"]) if around["before"] else "none before"]
    parts += [f"{_snapshot(each)}, which was being taken" for each in around["during"]]
    after = around["after"]
    if after is None:
        parts.append("none after")
    elif around["before"] is None or after["snapshot_id"] != around["before"]["snapshot_id"]:
        parts.append(_snapshot(after))
    distance = ""
    if around["before"] is not None and after is not None:
        gap_ms = (after["started_at"] - around["before"]["started_at"]).total_seconds() * 1000
        distance = f"; {duration(gap_ms)} apart"
    return " and ".join(parts) + distance


def _snapshot(each: dict[str, Any]) -> str:
    return f"{each['snapshot_id']} ({between(each['started_at'], each['finished_at'])})"


def _certainty(row: dict[str, Any]) -> str:
    side = {"before": ", so before", "during": ", so in between", "after": ", so after"}.get(row["side"], "")
    return _CERTAINTY[row["certainty"]] + (side if row["certainty"] == Certainty.CHANGING else "")


def _holders(row: dict[str, Any], end: str) -> str:
    names, state, certainty = (row[f"{name}_{end}"] for name in ("holder", "state", "certainty"))
    together = " or " if certainty == Certainty.CHANGING else ", "
    return together.join(names) or (state or "not taken").lower()
