"""`evenlag lag`: lag of the groups of a running cluster, or in the last snapshot of a lake."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.cli import option_types
from evenlag.cli.cluster_target import BootstrapOption
from evenlag.cli.console import console, fit, print_json, print_line, status_text, table
from evenlag.cli.export import ExportOption, export_rows
from evenlag.cli.options import (
    ClusterOption,
    ConfigOption,
    JsonOption,
    LakeOption,
    LimitOption,
    interval,
)
from evenlag.context import find_cluster, find_lake
from evenlag.errors import NothingThereError, UsageError
from evenlag.formatting import bounded, bounded_duration, did_you_mean, duration, moment, number
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
    group: Annotated[
        str | None,
        typer.Argument(
            parser=option_types.name,
            metavar="GROUP",
            help="A group, to show its members and partitions.",
        ),
    ] = None,
    *,
    bootstrap_servers: BootstrapOption = None,
    live: Annotated[
        bool, typer.Option("--live", help="Read the cluster of the policy file now, not the last snapshot.")
    ] = False,
    reset_policy: Annotated[
        str | None,
        typer.Option(
            "--reset-policy",
            parser=option_types.reset_policy,
            metavar="POLICY",
            help="With --bootstrap-servers: auto.offset.reset of the groups. Unset, the lag of a partition "
            "without a commit is unknown.",
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Refresh continuously until Ctrl-C, with rates."),
    ] = False,
    every: Annotated[
        float | None,
        typer.Option(
            "--every",
            parser=interval,
            metavar="DURATION",
            help="With --watch: interval of the snapshots, in seconds or as 90s, 5min or 1h; default: 2.",
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
    from evenlag.cli.live_lag.command import DEFAULT_INTERVAL_S, Asked, find_cluster_to_read, show_live_lag

    target = find_cluster_to_read(bootstrap_servers, config, cluster, reset_policy)
    every_s = (every or DEFAULT_INTERVAL_S) if watch else None
    show_live_lag(Asked(target, group, limit, every_s, as_json, export))


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
        raise NothingThereError(f"there is no snapshot of {name} yet: run a cycle first (evenlag run)")
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
        raise NothingThereError(
            f"the snapshot read at {moment(head['read_at'])} has no group {group!r}"
            f"{did_you_mean(group, groups)}"
        )
    order = [("lag_records", "descending"), ("topic", "ascending"), ("partition", "ascending")]
    rows, members = _rows_of(rows, group).sort_by(order), _rows_of(members, group)
    _export(export, head | {"group_id": group}, rows.select(_PARTITION_COLUMNS).to_pylist())
    _show_group(head, rows, members, limit=limit, as_json=as_json)


def _export(path: Path | None, head: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    if path is None:
        return
    count = export_rows([head | row for row in rows], path)
    print_line(sys.stderr, f"{number(count)} rows written to {path}")


def _rows_of(rows: pa.Table, group: str) -> pa.Table:
    import pyarrow.compute as pc

    return rows.filter(pc.equal(rows["group_id"], group))


def _show_groups(head: dict[str, Any], groups: list[dict[str, Any]], *, limit: int, as_json: bool) -> None:
    if as_json:
        print_json(head | {"groups": groups})
        return
    unknown = ["unknown"] if any(row["num_unknown_partitions"] for row in groups) else []
    columns = ("group", "members", "partitions", *unknown, "lag", "most loaded member", "skew", "behind by")
    shown = table(
        f"Lag on {head['cluster']}, read at {moment(head['read_at'])}",
        (*columns, "statuses"),
        right=columns[1:],
        caption=". ".join(
            filter(
                None,
                (
                    _bounds(groups[:limit], _ABOUT_GROUPS),
                    unknown_facts_text(groups[:limit]),
                    left_topics_text(groups[:limit]),
                    _left_out(len(groups), limit, "groups"),
                ),
            )
        ),
    )
    for row in groups[:limit]:
        num_unknown = row["num_unknown_partitions"]
        shown.add_row(
            row["group_id"],
            number(row["num_members"]),
            number(row["num_partitions"]),
            *(number(num_unknown) for _ in unknown),
            unmeasured(row) or bounded(row["lag_records"], row["lag_bound"]),
            bounded(row["max_member_lag_records"], row["lag_bound"]),
            number(row["lag_skew"], digits=2),
            bounded_duration(row["time_lag_ms"], row["time_lag_at_least_ms"]),
            ", ".join(f"{count} {status}" for status, count in row["statuses"].items()),
        )
    out = console()
    out.print(
        fit(out, shown, ("statuses", "members", "skew", "partitions", "behind by", "most loaded member"))
    )


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
    out.print(fit(out, _member_table(head, total, by_member, clients), ("partitions", "client")))
    columns = (
        "topic",
        "partition",
        "member",
        "client",
        "status",
        "lag",
        "in/s",
        "out/s",
        "behind by",
        "drained in",
        "note",
    )
    shown = table(
        "",
        columns,
        right=("partition", "lag", "in/s", "out/s", "behind by", "drained in"),
        caption=_left_out(len(partitions), limit, "partitions"),
    )
    for row in partitions[:limit]:
        shown.add_row(
            row["topic"],
            number(row["partition"]),
            row["owner_member_id"] or owner_text(row),
            clients.get(row["owner_member_id"] or "", ""),
            status_text(row["status"]),
            bounded(row["lag_records"], row["lag_bound"]),
            number(row["arrival_rate_records_per_s"], digits=1),
            number(row["consume_rate_records_per_s"], digits=1),
            bounded_duration(row["time_lag_ms"], row["time_lag_at_least_ms"]),
            duration(row["drain_time_ms"]),
            "stalled" if row["stalled"] else "",
        )
    out.print(fit(out, shown, ("in/s", "out/s", "drained in", "note", "client", "behind by", "status")))


def _member_table(
    head: dict[str, Any], total: dict[str, Any], by_member: list[dict[str, Any]], clients: dict[str, str]
) -> Table:
    unknown = ["unknown"] if any(row["num_unknown_partitions"] for row in by_member) else []
    columns = ("member", "client", "partitions", *unknown, "lag")
    shown = table(
        f"{total['group_id']} on {head['cluster']}, read at {moment(head['read_at'])}",
        columns,
        right=columns[2:],
        caption=". ".join(
            filter(
                None,
                (_bounds([total], _ABOUT_MEMBERS), unknown_facts_text([total]), left_topics_text([total])),
            )
        ),
    )
    for row in by_member:
        num_unknown = row["num_unknown_partitions"]
        shown.add_row(
            row["member_id"] or ("nobody" if total["owner_problem"] is None else "nobody, or not known"),
            clients.get(row["member_id"] or "", ""),
            number(row["num_partitions"]),
            *(number(num_unknown) for _ in unknown),
            bounded(row["lag_records"], row["lag_bound"]),
        )
    return shown


def _bounds(rows: list[dict[str, Any]], about: str) -> str:
    num_unknown = sum(row["num_unknown_partitions"] for row in rows)
    if not num_unknown:
        return ""
    num_partitions = sum(row["num_partitions"] for row in rows)
    return f"The lag of {num_unknown:,} of {num_partitions:,} partitions is not known: {about}"


def _left_out(count: int, limit: int, what: str) -> str:
    return f"{count - limit} more {what}: --limit {count}" if count > limit else ""
