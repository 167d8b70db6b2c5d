"""`evenlag lag`: how far the groups are behind, as the last snapshot saw it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.options import (
    ClusterOption,
    ConfigOption,
    JsonOption,
    LakeOption,
    NothingThereError,
    did_you_mean,
    find_cluster,
    find_lake,
)
from evenlag.output import console, duration, moment, number, print_json, status_text, table

if TYPE_CHECKING:
    import pyarrow as pa

_PARTITION_COLUMNS = (
    "topic",
    "partition",
    "owner_member_id",
    "status",
    "lag_records",
    "committed_offset",
    "end_offset",
    "arrival_rate_records_per_s",
    "consume_rate_records_per_s",
    "time_lag_ms",
    "drain_time_ms",
    "stalled",
)


def lag(
    group: Annotated[str | None, typer.Argument(help="A group, to see its members and partitions.")] = None,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many rows to show.")] = 40,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far groups are behind, as the last snapshot saw it; the most loaded first."""
    from spark_jobs.tables import LAG

    reader = find_lake(lake, config)
    name = find_cluster(reader, cluster)
    snapshot = reader.latest_snapshot(name)
    if snapshot is None:
        raise NothingThereError(f"there is no snapshot of {name} yet: run a cycle first (evenlag run)")
    rows = reader.read(
        LAG,
        filters=[
            ("cluster", "=", name),
            ("day", "=", snapshot["day"]),
            ("snapshot_id", "=", snapshot["snapshot_id"]),
        ],
    )
    head = {key: snapshot[key] for key in ("cluster", "snapshot_id", "slot")}
    if group is None:
        _show_groups(head, _group_rows(rows), limit=limit, as_json=as_json)
        return
    groups = sorted(set(rows["group_id"].to_pylist()))
    if group not in groups:
        raise NothingThereError(
            f"the snapshot of {moment(snapshot['slot'])} has no group {group!r}{did_you_mean(group, groups)}"
        )
    _show_group(head, group, _rows_of(rows, group), limit=limit, as_json=as_json)


def _rows_of(rows: pa.Table, group: str) -> pa.Table:
    import pyarrow.compute as pc

    return rows.filter(pc.equal(rows["group_id"], group)).sort_by(
        [("lag_records", "descending"), ("topic", "ascending"), ("partition", "ascending")]
    )


def _group_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Sum up each group; the most loaded member is found among the live ones."""
    by_member = rows.group_by(["group_id", "owner_member_id"]).aggregate([("lag_records", "sum")]).to_pylist()
    member_lags: dict[str, list[int]] = {}
    for row in by_member:
        if row["owner_member_id"] is not None:
            member_lags.setdefault(row["group_id"], []).append(row["lag_records_sum"] or 0)
    statuses: dict[str, dict[str, int]] = {}
    for row in rows.group_by(["group_id", "status"]).aggregate([([], "count_all")]).to_pylist():
        statuses.setdefault(row["group_id"], {})[row["status"]] = row["count_all"]
    totals = rows.group_by("group_id").aggregate(
        [("lag_records", "sum"), ("time_lag_ms", "max"), ([], "count_all")]
    )
    answer = []
    for row in totals.to_pylist():
        lags = member_lags.get(row["group_id"], [])
        mean = sum(lags) / len(lags) if lags else None
        answer.append(
            {
                "group_id": row["group_id"],
                "num_members": len(lags),
                "num_partitions": row["count_all"],
                "lag_records": row["lag_records_sum"],
                "max_member_lag_records": max(lags, default=None),
                "lag_skew": max(lags) / mean if mean else None,
                "time_lag_ms": row["time_lag_ms_max"],
                "statuses": dict(sorted(statuses[row["group_id"]].items())),
            }
        )
    return sorted(answer, key=lambda row: (-(row["lag_records"] or 0), row["group_id"]))


def _show_groups(head: dict[str, Any], groups: list[dict[str, Any]], *, limit: int, as_json: bool) -> None:
    if as_json:
        print_json(head | {"groups": groups})
        return
    columns = ("group", "members", "partitions", "lag", "most loaded member", "skew", "behind by", "statuses")
    shown = table(
        f"Lag on {head['cluster']} at {moment(head['slot'])}",
        columns,
        right=columns[1:7],
        caption=_left_out(len(groups), limit, "groups"),
    )
    for row in groups[:limit]:
        shown.add_row(
            row["group_id"],
            number(row["num_members"]),
            number(row["num_partitions"]),
            number(row["lag_records"]),
            number(row["max_member_lag_records"]),
            number(row["lag_skew"], digits=2),
            duration(row["time_lag_ms"]),
            ", ".join(f"{count} {status}" for status, count in row["statuses"].items()),
        )
    console().print(shown)


def _show_group(head: dict[str, Any], group: str, rows: pa.Table, *, limit: int, as_json: bool) -> None:
    partitions = rows.select(_PARTITION_COLUMNS).to_pylist()
    if as_json:
        print_json(head | {"group_id": group, "partitions": partitions})
        return
    out = console()
    by_owner = rows.group_by("owner_member_id").aggregate([("lag_records", "sum"), ([], "count_all")])
    members = table(
        f"{group} on {head['cluster']} at {moment(head['slot'])}",
        ("member", "partitions", "lag"),
        right=("partitions", "lag"),
    )
    for row in by_owner.sort_by([("lag_records_sum", "descending")]).to_pylist():
        members.add_row(
            row["owner_member_id"] or "nobody", number(row["count_all"]), number(row["lag_records_sum"])
        )
    out.print(members)
    columns = (
        "topic",
        "partition",
        "member",
        "status",
        "lag",
        "in/s",
        "out/s",
        "behind by",
        "drained in",
        "",
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
            row["owner_member_id"] or "nobody",
            status_text(row["status"]),
            number(row["lag_records"]),
            number(row["arrival_rate_records_per_s"], digits=1),
            number(row["consume_rate_records_per_s"], digits=1),
            duration(row["time_lag_ms"]),
            duration(row["drain_time_ms"]),
            "stalled" if row["stalled"] else "",
        )
    out.print(shown)


def _left_out(count: int, limit: int, what: str) -> str:
    return f"{count - limit} more {what}: --limit {count}" if count > limit else ""
