"""`evenlag lag`: lag of the groups of a running cluster, or in the last snapshot of a lake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.cli import option_types
from evenlag.cli.cluster_target import BootstrapOption
from evenlag.cli.console import console, print_json, status_text
from evenlag.cli.export import ExportOption, export_and_report
from evenlag.cli.option_types import argument, option
from evenlag.cli.options import (
    ClusterOption,
    ConfigOption,
    JsonOption,
    LakeOption,
    LimitOption,
    interval,
)
from evenlag.cli.tables.lag import (
    BEHIND_BY,
    DRAINED,
    LAG,
    RATES,
    left_out_groups_text,
    left_out_text,
    lower_bound_text,
    no_owner_text,
    sentences,
    unknown_column,
)
from evenlag.cli.tables.layout import Column, filled_table, numbers
from evenlag.context import find_cluster, find_lake
from evenlag.errors import NotFoundError, UsageError
from evenlag.formatting import bounded, did_you_mean, moment, number
from evenlag.queries.lag import (
    CLIENT_COLUMNS,
    MEMBER_COLUMNS,
    client_names,
    group_rows,
    left_topics_text,
    member_rows,
    owner_text,
    unknown_facts_text,
    unmeasured,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.cli.tables.layout import Table
    from evenlag.lake.file_pruning import Filter

_PARTITION_COLUMNS = (
    "topic",
    "partition",
    "owner_member_id",
    "status",
    "lag_records",
    "lag_bound",
    "committed_offset",
    "end_offset",
    "arrival_rate_records_per_s",
    "consume_rate_records_per_s",
    "time_lag_ms",
    "time_lag_at_least_ms",
    "drain_time_ms",
    "stalled",
    "commit_problem",
    "subscription_problem",
    "owner_problem",
)
_ABOUT_GROUPS = "≥ is a lower bound, no skew is given, and another member may be the most loaded"
_ABOUT_MEMBERS = "≥ is a lower bound, and another member may be the most loaded"


def lag(
    group: Annotated[str | None, argument("GROUP", "A group, to show its members and partitions.")] = None,
    *,
    bootstrap_servers: BootstrapOption = None,
    live: Annotated[
        bool, typer.Option("--live", help="Read the cluster of the policy file now, not the last snapshot.")
    ] = False,
    reset_policy: Annotated[
        str | None,
        option(
            "--reset-policy",
            "POLICY",
            "With --bootstrap-servers: auto.offset.reset of the groups. Unset, the lag of a partition "
            "without a commit is unknown.",
            option_types.reset_policy,
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Refresh continuously until Ctrl-C, with rates."),
    ] = False,
    every: Annotated[
        float | None,
        option(
            "--every",
            "DURATION",
            "With --watch: interval of the snapshots, in seconds or as 90s, 5min or 1h; default: 2.",
            interval,
        ),
    ] = None,
    limit: LimitOption = 40,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    export: ExportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the lag of the groups, largest first; or of one group by member and partition.

    With --bootstrap-servers or --live, evenlag reads the cluster itself and shows what a plan would bring.
    That needs neither a lake nor Java, writes nothing and publishes nothing. Without them, it shows the last
    snapshot of the lake.
    """
    if bootstrap_servers is None and not live:
        _refuse_live_options(reset_policy=reset_policy, watch=watch, every=every)
        _show_snapshot(group, limit, config, cluster, lake, export, as_json=as_json)
        return
    if lake is not None:
        raise UsageError("--lake is for the last snapshot: leave it out to read the cluster itself")
    if every is not None and not watch:
        raise UsageError("--every goes with --watch: one snapshot has no interval")
    if watch and export is not None:
        raise UsageError("--export writes one snapshot: leave --watch out")
    from evenlag.cli.live_lag import DEFAULT_INTERVAL_S, LagRequest, find_cluster_to_read, show_live_lag

    target = find_cluster_to_read(bootstrap_servers, config, cluster, reset_policy)
    every_s = (every or DEFAULT_INTERVAL_S) if watch else None
    show_live_lag(LagRequest(target, group, limit, every_s, as_json, export))


def _refuse_live_options(*, reset_policy: str | None, watch: bool, every: float | None) -> None:
    given = {"--reset-policy": reset_policy, "--watch": watch, "--every": every}
    for name, value in given.items():
        if value:
            raise UsageError(
                f"{name} is for a running cluster: name it with --bootstrap-servers HOST:PORT, or give "
                "--live for the cluster of the policy file"
            )


def _show_snapshot(
    group: str | None,
    limit: int,
    config: Path | None,
    cluster: str | None,
    lake: str | None,
    export: Path | None,
    *,
    as_json: bool,
) -> None:
    from evenlag.lake.tables import LAG, MEMBERS

    reader = find_lake(lake, config)
    name = find_cluster(reader, cluster)
    snapshot = reader.latest_snapshot(name)
    if snapshot is None:
        raise NotFoundError(f"there is no snapshot of {name} yet: run a cycle first (evenlag run)")
    of_snapshot: list[Filter] = [
        ("cluster", "=", name),
        ("day", "=", snapshot["day"]),
        ("snapshot_id", "=", snapshot["snapshot_id"]),
    ]
    rows = reader.read(LAG, filters=of_snapshot)
    columns = [*MEMBER_COLUMNS, *CLIENT_COLUMNS[1:]]
    members = reader.read(MEMBERS, columns=columns, filters=of_snapshot)
    head = {key: snapshot[key] for key in ("cluster", "snapshot_id", "slot")}
    # The slot is the scheduled time; the end offsets were read some seconds later.
    head["read_at"] = snapshot["end_read_at"]
    if group is None:
        found = group_rows(rows, members)
        _export(export, head, found)
        _show_groups(head, found, limit=limit, as_json=as_json)
        return
    groups = sorted({*rows["group_id"].to_pylist(), *members["group_id"].to_pylist()})
    if group not in groups:
        raise NotFoundError(
            f"the snapshot read at {moment(head['read_at'])} has no group {group!r}"
            f"{did_you_mean(group, groups)}"
        )
    order = [("lag_records", "descending"), ("topic", "ascending"), ("partition", "ascending")]
    rows, members = _rows_of_group(rows, group).sort_by(order), _rows_of_group(members, group)
    _export(export, head | {"group_id": group}, rows.select(_PARTITION_COLUMNS).to_pylist())
    _show_group(head, rows, members, limit=limit, as_json=as_json)


def _export(path: Path | None, head: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    if path is not None:
        export_and_report([head | row for row in rows], path)


def _rows_of_group(rows: pa.Table, group: str) -> pa.Table:
    import pyarrow.compute as pc

    return rows.filter(pc.equal(rows["group_id"], group))


def _show_groups(head: dict[str, Any], groups: list[dict[str, Any]], *, limit: int, as_json: bool) -> None:
    if as_json:
        print_json(head | {"groups": groups})
        return
    columns = (
        Column("group", lambda row: row["group_id"]),
        numbers("members", lambda row: number(row["num_members"])),
        numbers("partitions", lambda row: number(row["num_partitions"])),
        *unknown_column(groups),
        numbers("lag", lambda row: unmeasured(row) or bounded(row["lag_records"], row["lag_bound"])),
        numbers("most loaded member", lambda row: bounded(row["max_member_lag_records"], row["lag_bound"])),
        numbers("skew", lambda row: number(row["lag_skew"], digits=2)),
        BEHIND_BY,
        Column("statuses", lambda row: ", ".join(f"{n} {status}" for status, n in row["statuses"].items())),
    )
    shown = filled_table(
        f"Lag on {head['cluster']}, read at {moment(head['read_at'])}",
        columns,
        groups[:limit],
        optional=("statuses", "members", "skew", "partitions", "behind by", "most loaded member"),
        caption=sentences(
            lower_bound_text(groups[:limit], _ABOUT_GROUPS),
            unknown_facts_text(groups[:limit]),
            left_topics_text(groups[:limit]),
            left_out_groups_text(groups, limit),
        ),
    )
    console().print(shown)


def _show_group(
    head: dict[str, Any], rows: pa.Table, members: pa.Table, *, limit: int, as_json: bool
) -> None:
    partitions = rows.select(_PARTITION_COLUMNS).to_pylist()
    by_member = member_rows(rows, members)
    (total,) = group_rows(rows, members)
    if as_json:
        known = {row["member_id"]: row for row in members.to_pylist()}
        owners = [
            row | {name: known.get(row["member_id"], {}).get(name) for name in CLIENT_COLUMNS[1:]}
            for row in by_member
            if row["member_id"] is not None
        ]
        print_json(head | total | {"members": owners, "partitions": partitions})
        return
    out = console()
    clients = client_names(members.to_pylist())
    out.print(_member_table(head, total, by_member, clients))
    columns = (
        Column("topic", lambda row: row["topic"]),
        numbers("partition", lambda row: number(row["partition"])),
        Column("member", lambda row: row["owner_member_id"] or owner_text(row)),
        Column("client", lambda row: clients.get(row["owner_member_id"] or "", "")),
        Column("status", lambda row: status_text(row["status"])),
        LAG,
        *RATES,
        BEHIND_BY,
        *DRAINED,
    )
    shown = filled_table(
        "",
        columns,
        partitions[:limit],
        optional=("in/s", "out/s", "drained in", "note", "client", "behind by", "status"),
        caption=left_out_text(len(partitions), limit, "partitions"),
    )
    out.print(shown)


def _member_table(
    head: dict[str, Any], total: dict[str, Any], by_member: list[dict[str, Any]], clients: dict[str, str]
) -> Table:
    columns = (
        Column("member", lambda row: row["member_id"] or no_owner_text(total)),
        Column("client", lambda row: clients.get(row["member_id"] or "", "")),
        numbers("partitions", lambda row: number(row["num_partitions"])),
        *unknown_column(by_member),
        LAG,
    )
    return filled_table(
        f"{total['group_id']} on {head['cluster']}, read at {moment(head['read_at'])}",
        columns,
        by_member,
        optional=("partitions", "client"),
        caption=sentences(
            lower_bound_text([total], _ABOUT_MEMBERS), unknown_facts_text([total]), left_topics_text([total])
        ),
    )
