"""`evenlag lag`: how far the groups are behind, as the last snapshot saw it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.cli import option_types
from evenlag.cli.console import console, fit, print_json, status_text, table
from evenlag.cli.options import ClusterOption, ConfigOption, JsonOption, LakeOption, LimitOption
from evenlag.context import find_cluster, find_lake
from evenlag.enums import LagStatus
from evenlag.errors import NothingThereError
from evenlag.formatting import at_least, at_least_duration, did_you_mean, duration, moment, number
from evenlag.queries.lag import group_rows, member_rows, sum_up

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

    from evenlag.lake.file_pruning import Filter

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
_ABOUT_GROUPS = "≥ is a lower bound, no skew is given, and another member may be the most loaded"
_ABOUT_MEMBERS = "≥ is a lower bound, and another member may be the most loaded"


def lag(
    group: Annotated[
        str | None,
        typer.Argument(
            parser=option_types.name,
            metavar="GROUP",
            help="A group, to see its members and partitions.",
        ),
    ] = None,
    *,
    limit: LimitOption = 40,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far groups are behind, as the last snapshot saw it; the most loaded first."""
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
    members = reader.read(MEMBERS, columns=["group_id", "member_id"], filters=of_snapshot)
    head = {key: snapshot[key] for key in ("cluster", "snapshot_id", "slot")}
    # The slot is when the snapshot was due; its end offsets were read some seconds later.
    head["read_at"] = snapshot["end_read_at"]
    if group is None:
        _show_groups(head, group_rows(rows, members), limit=limit, as_json=as_json)
        return
    groups = sorted(set(rows["group_id"].to_pylist()))
    if group not in groups:
        raise NothingThereError(
            f"the snapshot read at {moment(head['read_at'])} has no group {group!r}"
            f"{did_you_mean(group, groups)}"
        )
    order = [("lag_records", "descending"), ("topic", "ascending"), ("partition", "ascending")]
    rows, members = _rows_of(rows, group).sort_by(order), _rows_of(members, group)
    _show_group(head, group, rows, members, limit=limit, as_json=as_json)


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
            filter(None, (_bounds(groups[:limit], _ABOUT_GROUPS), _left_out(len(groups), limit, "groups")))
        ),
    )
    for row in groups[:limit]:
        num_unknown = row["num_unknown_partitions"]
        shown.add_row(
            row["group_id"],
            number(row["num_members"]),
            number(row["num_partitions"]),
            *(number(num_unknown) for _ in unknown),
            at_least(row["lag_records"], num_unknown),
            at_least(row["max_member_lag_records"], num_unknown),
            number(row["lag_skew"], digits=2),
            at_least_duration(row["time_lag_ms"], row["num_unknown_time_lags"]),
            ", ".join(f"{count} {status}" for status, count in row["statuses"].items()),
        )
    out = console()
    out.print(fit(out, shown, ("statuses", "members", "skew")))


def _show_group(
    head: dict[str, Any], group: str, rows: pa.Table, members: pa.Table, *, limit: int, as_json: bool
) -> None:
    partitions = rows.select(_PARTITION_COLUMNS).to_pylist()
    by_member = member_rows(rows, members)
    if as_json:
        owners = [row for row in by_member if row["member_id"] is not None]
        told = {"group_id": group, **sum_up(by_member), "members": owners, "partitions": partitions}
        print_json(head | told)
        return
    out = console()
    out.print(fit(out, _member_table(head, group, by_member), ()))
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
            row["owner_member_id"] or ("not known" if row["status"] == LagStatus.UNKNOWN else "nobody"),
            status_text(row["status"]),
            number(row["lag_records"]),
            number(row["arrival_rate_records_per_s"], digits=1),
            number(row["consume_rate_records_per_s"], digits=1),
            duration(row["time_lag_ms"]),
            duration(row["drain_time_ms"]),
            "stalled" if row["stalled"] else "",
        )
    out.print(fit(out, shown, ("in/s", "out/s", "drained in")))


def _member_table(head: dict[str, Any], group: str, by_member: list[dict[str, Any]]) -> Table:
    unknown = ["unknown"] if any(row["num_unknown_partitions"] for row in by_member) else []
    columns = ("member", "partitions", *unknown, "lag")
    shown = table(
        f"{group} on {head['cluster']}, read at {moment(head['read_at'])}",
        columns,
        right=columns[1:],
        caption=_bounds(by_member, _ABOUT_MEMBERS),
    )
    for row in by_member:
        num_unknown = row["num_unknown_partitions"]
        shown.add_row(
            row["member_id"] or ("nobody, or not known" if num_unknown else "nobody"),
            number(row["num_partitions"]),
            *(number(num_unknown) for _ in unknown),
            at_least(row["lag_records"], num_unknown),
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
