"""`evenlag lag`: every number from the rows of ``lag`` of the newest snapshot."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from sandbox.truth.forms import as_printed, duration, moment, number
from sandbox.truth.lake_rows import by, known_sum, largest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sandbox.truth.lake_rows import LakeRows, Row
    from sandbox.truth.session import Session

COMMAND: Final = "lag"
_PARTITION: Final = (
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


def check_lag(session: Session) -> None:
    """Compare the list of groups and each group."""
    rows = session.rows
    snapshot = rows.newest
    head = {name: snapshot[name] for name in ("cluster", "snapshot_id", "slot")}
    head["read_at"] = snapshot["end_read_at"]
    groups = group_rows(rows, snapshot["snapshot_id"])
    session.same(COMMAND, "groups", session.ask(COMMAND), head | {"groups": groups})
    tables, _ = session.printed(COMMAND)
    if session.checks.has(COMMAND, "a table", tables):
        is_partly_known = any(row["num_unknown_partitions"] for row in groups)
        cells = [_group_cells(row, with_unknown=is_partly_known) for row in groups]
        title = f"Lag on {rows.cluster}, read at {moment(snapshot['end_read_at'])}"
        session.same(COMMAND, "title", tables[0].title, title)
        session.same(COMMAND, "printed groups", tables[0].rows, cells)
        session.same(COMMAND, "caption", *_captions(groups, tables[0].caption))
    for group in groups:
        _check_group(session, head, group)


def group_rows(rows: LakeRows, snapshot_id: str) -> list[Row]:
    """Return the lag of each group in a snapshot, the largest first, unknown lag last.

    Parameters
    ----------
    rows
        The cluster.
    snapshot_id
        The snapshot.
    """
    found = []
    for group_id, lag in by(rows.lag_of(snapshot_id), "group_id").items():
        times = [row["time_lag_ms"] for row in lag]
        found.append(
            {
                "group_id": group_id,
                **totals(member_rows(rows, snapshot_id, group_id)),
                "time_lag_ms": largest(times),
                "num_unknown_time_lags": times.count(None),
                "statuses": dict(sorted(Counter(row["status"] for row in lag).items())),
            }
        )
    return sorted(found, key=lambda row: (*_known_first(row), row["group_id"]))


def member_rows(
    rows: LakeRows, snapshot_id: str, group_id: str, only: Callable[[list[Row]], list[Row]] = list
) -> list[Row]:
    """Return the lag of each live member, and of partitions without a known owner (member None).

    Parameters
    ----------
    rows
        The cluster.
    snapshot_id
        The snapshot.
    group_id
        The group.
    only
        Chooses the rows of ``lag`` that count.
    """
    owned = by(only(rows.lag_of(snapshot_id, group_id)), "owner_member_id")
    live = rows.where("members", snapshot_id=snapshot_id, group_id=group_id)
    names = {row["member_id"] for row in live if row["member_id"] is not None} | set(owned)
    found = [
        {
            "member_id": name,
            "num_partitions": len(owned.get(name, ())),
            "num_unknown_partitions": count_unknown(owned.get(name, ())),
            # A member without partitions has a lag of 0.
            "lag_records": known_sum(owned[name]) if name in owned else 0,
        }
        for name in names
    ]
    return sorted(found, key=lambda row: (*_known_first(row), row["member_id"] or ""))


def totals(members: Sequence[Row]) -> Row:
    """Return a group's totals from the rows of its members."""
    live = [row for row in members if row["member_id"] is not None]
    known = [row["lag_records"] for row in live if row["lag_records"] is not None]
    parts = [
        row["lag_records"] for row in members if row["num_partitions"] and row["lag_records"] is not None
    ]
    num_unknown = sum(row["num_unknown_partitions"] for row in members)
    most = max(known, default=None) if parts else None
    is_exact = most is not None and sum(known) > 0 and not num_unknown
    return {
        "num_members": len(live),
        "num_partitions": sum(row["num_partitions"] for row in members),
        "num_unknown_partitions": num_unknown,
        "lag_records": sum(parts) if parts else None,
        "max_member_lag_records": most,
        "lag_skew": most * len(known) / sum(known) if is_exact and most is not None else None,
    }


def count_unknown(lag: Iterable[Row]) -> int:
    """Return the number of partitions with unknown lag."""
    return sum(row["lag_records"] is None for row in lag)


def at_least(told: str, num_unknown: float | None) -> str:
    """Return a number, marked as a lower bound if something is unknown.

    Parameters
    ----------
    told
        The formatted number.
    num_unknown
        Number of unknown values.
    """
    return f"≥ {told}" if num_unknown and told != "-" else told


def _known_first(row: Row) -> tuple[bool, int]:
    return (row["lag_records"] is None, -(row["lag_records"] or 0))


def _captions(rows: Sequence[Row], caption: str) -> tuple[str, str]:
    """The beginning of the caption, as shown and as expected."""
    unknown, everything = (sum(row[f"num_{kind}partitions"] for row in rows) for kind in ("unknown_", ""))
    expected = f"The lag of {unknown:,} of {everything:,} partitions is not known" if unknown else ""
    return caption[: len(expected)] if unknown else caption, expected


def _group_cells(row: Row, *, with_unknown: bool) -> list[str]:
    unknown = row["num_unknown_partitions"]
    return [
        row["group_id"],
        number(row["num_members"]),
        number(row["num_partitions"]),
        *([number(unknown)] if with_unknown else []),
        at_least(number(row["lag_records"]), unknown),
        at_least(number(row["max_member_lag_records"]), unknown),
        number(row["lag_skew"], digits=2),
        at_least(duration(row["time_lag_ms"]), row["num_unknown_time_lags"]),
        ", ".join(f"{count} {status}" for status, count in row["statuses"].items()),
    ]


def _check_group(session: Session, head: Row, group: Row) -> None:
    group_id, snapshot_id = group["group_id"], head["snapshot_id"]
    in_order = sorted(session.rows.lag_of(snapshot_id, group_id), key=_heaviest_first)
    partitions = [{name: row[name] for name in _PARTITION} for row in in_order]
    members = member_rows(session.rows, snapshot_id, group_id)
    kept = session.rows.where("members", snapshot_id=snapshot_id, group_id=group_id)
    shown = {row["member_id"]: [row["group_instance_id"], row["client_id"]] for row in kept}
    names = ("group_instance_id", "client_id")
    live = [
        row | dict(zip(names, shown.get(row["member_id"], (None, None)), strict=True))
        for row in members
        if row["member_id"] is not None
    ]
    clients = {name: instance or client or "" for name, (instance, client) in shown.items()}
    expected = head | {"group_id": group_id} | totals(members) | {"members": live, "partitions": partitions}
    session.same(COMMAND, group_id, session.ask(COMMAND, group_id), expected)
    tables, _ = session.printed(COMMAND, group_id)
    session.same(COMMAND, f"{group_id}: tables", len(tables), 2)
    if len(tables) < 2:  # noqa: PLR2004
        return
    with_unknown = group["num_unknown_partitions"] > 0
    cells = [_member_cells(row, clients, with_unknown=with_unknown) for row in members]
    session.same(COMMAND, f"{group_id}: printed members", tables[0].rows, cells)
    title = as_printed(f"{group_id} on {session.rows.cluster}, read at {moment(head['read_at'])}")
    # A title wraps at the width of its table: the parser returns the last line of a longer one.
    session.same(COMMAND, f"{group_id}: title", tables[0].title, title[-len(tables[0].title) :])
    cells = [_partition_cells(row, clients) for row in in_order]
    session.same(COMMAND, f"{group_id}: printed partitions", tables[1].rows, cells)


def _member_cells(row: Row, clients: Mapping[str, str], *, with_unknown: bool) -> list[str]:
    unknown = row["num_unknown_partitions"]
    return [
        row["member_id"] or ("nobody, or not known" if unknown else "nobody"),
        clients.get(row["member_id"], "") if row["member_id"] else "",
        number(row["num_partitions"]),
        *([number(unknown)] if with_unknown else []),
        at_least(number(row["lag_records"]), unknown),
    ]


def _heaviest_first(row: Row) -> tuple[Any, ...]:
    lag = row["lag_records"]
    return (lag is None, -(lag or 0), row["topic"], row["partition"])


def _partition_cells(row: Row, clients: Mapping[str, str]) -> list[str]:
    return [
        row["topic"],
        number(row["partition"]),
        row["owner_member_id"] or ("not known" if row["status"] == "UNKNOWN" else "nobody"),
        clients.get(row["owner_member_id"], "") if row["owner_member_id"] else "",
        row["status"] or "-",
        number(row["lag_records"]),
        number(row["arrival_rate_records_per_s"], digits=1),
        number(row["consume_rate_records_per_s"], digits=1),
        duration(row["time_lag_ms"]),
        duration(row["drain_time_ms"]),
        "stalled" if row["stalled"] else "",
    ]
