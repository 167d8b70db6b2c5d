"""`evenlag advise`: how many members a group needs, the numbers behind it, and manifests of autoscalers."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from evenlag.cli.console import console, print_json
from evenlag.cli.layout import NUM_PARTITIONS, Column, Table, key, numbers
from evenlag.cli.option_types import argument, option
from evenlag.cli.options import JsonOption, LakeScope
from evenlag.context import newest_snapshot
from evenlag.errors import NotFoundError
from evenlag.formatting import did_you_mean, moment, number, percent, speed_text
from evenlag.lag.group_lag import counted_rows
from evenlag.lake.snapshot_reader import SnapshotReader, snapshot_filters
from evenlag.lake.tables import LAG
from evenlag.queries.advice import (
    SHOWN_COLUMNS,
    Peak,
    needed_text,
    read_advice,
    read_peak,
    reason_text,
    target_text,
    wait_text,
)
from evenlag.queries.lag import client_names, read_group_members
from evenlag.safe_text import printable_lines

if TYPE_CHECKING:
    from evenlag.lake.reader import LakeReader

_PROMETHEUS: Final = "http://prometheus:9090"


def advise(
    group: Annotated[str, argument("GROUP", "The group.")],
    *,
    scope: LakeScope,
    manifest: Annotated[
        Literal["keda", "hpa"] | None,
        typer.Option(
            "--manifest",
            metavar="KIND",
            show_default=False,
            help="Print a manifest that scales by the advice: keda (a ScaledObject) or hpa.",
        ),
    ] = None,
    deployment: Annotated[
        str | None,
        option("--deployment", "NAME", "The Deployment that a manifest scales; else by the group."),
    ] = None,
    prometheus: Annotated[
        str, option("--prometheus", "URL", "Where KEDA finds evenlag's metrics.")
    ] = _PROMETHEUS,
    as_json: JsonOption = False,
) -> None:
    """Say how many members a group needs so that records wait no longer than its target, and why.

    By the last snapshot, the forecast and the measured speeds. Nothing is changed.
    """
    reader, cluster = scope.open()
    snapshot, row = _find(reader, cluster, group)
    if manifest is not None:
        from evenlag.cli.manifests import manifest_text

        most = _most(reader, snapshot, group)
        text = manifest_text(manifest, cluster, group, deployment, prometheus, most)
        typer.echo(printable_lines(text), nl=False)
        return
    members = _member_rows(reader, snapshot, group, row)
    peak = read_peak(reader, snapshot, group)
    if as_json:
        head = {"cluster": cluster, "group_id": group, "read_at": row["end_read_at"]}
        head |= {"peak_hour": peak and peak.hour, "peak_records_per_s": peak and peak.records_per_s}
        print_json(head | {name: row[name] for name in SHOWN_COLUMNS} | {"members": members})
        return
    out = console()
    out.print(_headline(group, row), soft_wrap=True)
    out.print(_numbers_table(row, peak))
    out.print(_members_table(members))


def _find(reader: LakeReader, cluster: str, group: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the newest snapshot that has advice about the group, and the advice."""
    newest = newest_snapshot(reader, cluster)
    known = read_advice(reader, cluster, newest["day"])
    if group not in known:
        meant = did_you_mean(group, sorted(known))
        raise NotFoundError(f"the last snapshot of {cluster} has no advice about {group!r}{meant}")
    return newest, known[group]


def _most(reader: LakeReader, snapshot: Mapping[str, Any], group: str) -> int:
    """The number of partitions: more members would have none."""
    filters = [*snapshot_filters(snapshot), ("group_id", "=", group)]
    rows = counted_rows(reader.read(LAG, columns=["status"], filters=filters))
    return max(int(rows.num_rows), 1)


def _member_rows(
    reader: LakeReader, snapshot: Mapping[str, Any], group: str, row: Mapping[str, Any]
) -> list[dict[str, Any]]:
    from evenlag.planning.advice_rows import member_rows
    from evenlag.planning.advice_snapshot import read_groups

    found = member_rows(read_groups(SnapshotReader(reader, snapshot), [group]), row["members_needed"])
    people = read_group_members(reader, snapshot["cluster"], snapshot["snapshot_id"], group)
    clients = client_names(people)
    return [each | {"client": clients.get(each["member_id"], "")} for each in found]


def _headline(group: str, row: Mapping[str, Any]) -> str:
    if row["members_needed"] is None:
        return (
            f"{group}: not known, because no speed of its members is measured yet, or its lag is not known."
        )
    has = number(row["num_members"])
    needed = (
        f"at most {number(row['members_needed'])}" if row["is_at_most"] else number(row["members_needed"])
    )
    bound = " Speeds are known as lower bounds only: no member was busy." if row["is_at_most"] else ""
    return f"{group} needs {needed} members and has {has}. {reason_text(row)}{bound}"


def _numbers_table(row: Mapping[str, Any], peak: Peak | None) -> Table:
    facts = (
        ("members needed", needed_text(row) or "not known"),
        ("by this snapshot alone", number(row["members_now"])),
        ("most in the last 24 hours", number(row["most_members"])),
        ("if partitions could be divided", number(row["members_by_rate"])),
        ("arrivals, in records of cost 1 per second", number(row["work_per_s"], digits=1)),
        ("records per second in the busiest hour of 7 days", _peak_text(row, peak)),
        ("speed of a member, in the same", number(row["speed_records_per_s"], digits=1)),
        ("confidence in speeds", percent(row["confidence"])),
        ("moves to get there", number(row["moves"])),
        ("their work, in members (R-score)", number(row["r_score"], digits=2)),
        ("the oldest record waits", wait_text(row)),
        ("target", target_text(row) or "none: target_wait_s of the rule"),
    )
    columns = (key("what", lambda fact: fact[0]), numbers("value", lambda fact: fact[1]))
    return Table("", columns, facts)


def _peak_text(row: Mapping[str, Any], peak: Peak | None) -> str:
    """The busiest hour, and how many members its rate needs at the measured speed."""
    if peak is None:
        return "not known"
    speed = row["speed_records_per_s"]
    needed = f", {number(ceil(peak.records_per_s / speed))} members' work" if speed else ""
    return f"{number(peak.records_per_s, digits=1)} from {moment(peak.hour)}{needed}"


def _members_table(members: list[dict[str, Any]]) -> Table:
    columns = (
        Column("member", lambda row: row["member_id"]),
        Column("client", lambda row: row["client"]),
        NUM_PARTITIONS,
        numbers("speed/s", lambda row: speed_text(row["speed_records_per_s"], row["is_bound"])),
        numbers("confidence", lambda row: percent(row["confidence"])),
        numbers("work/s", lambda row: number(row["work_per_s"], digits=1)),
        Column("note", lambda row: "may go" if row["may_go"] else ""),
    )
    return Table("", columns, members, optional=("client", "confidence", "partitions"))
