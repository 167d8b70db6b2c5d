"""`evenlag lag`: every number from the rows of ``lag`` of the newest snapshot."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tests.truth.oracle.forms import as_printed, duration, moment, number
from tests.truth.oracle.lake_rows import by, counted, known_sum, largest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.truth.oracle.lake_rows import LakeRows, Row
    from tests.truth.oracle.session import Session

COMMAND: Final = "lag"
_PARTITION: Final = (
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


_ADVISED = (
    "members_needed", "is_at_most", "reason", "target_wait_s", "is_target_met", "missed_since", "met_share",
)  # fmt: skip


def check_lag(session: Session) -> None:
    """Compare the list of groups and each group."""
    rows = session.rows
    snapshot = rows.newest
    head = {name: snapshot[name] for name in ("cluster", "snapshot_id", "slot")}
    head["read_at"] = snapshot["end_read_at"]
    groups = group_rows(rows, snapshot["snapshot_id"])
    advice = {row["group_id"]: row for row in rows.where("advice", snapshot_id=snapshot["snapshot_id"])}
    advised = [row | {name: advice.get(row["group_id"], {}).get(name) for name in _ADVISED} for row in groups]
    session.same(COMMAND, "groups", session.ask(COMMAND), head | {"groups": advised})
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
    """Return the lag of each group in a snapshot, the largest first, unknown lag last."""
    listed = by(rows.where("members", snapshot_id=snapshot_id), "group_id")
    lags = by(rows.lag_of(snapshot_id), "group_id")
    found = [
        _group_row(rows, snapshot_id, group_id, lags.get(group_id, []), listed.get(group_id, []))
        for group_id in listed.keys() | lags.keys()
    ]
    return sorted(found, key=lambda row: (*_known_first(row), row["group_id"]))


def _group_row(
    rows: LakeRows, snapshot_id: str, group_id: str, lag: Sequence[Row], people: Sequence[Row]
) -> Row:
    parts, left = counted(lag), [row for row in lag if row["status"] == "NOT_SUBSCRIBED"]
    return {
        "group_id": group_id,
        **totals(member_rows(rows, snapshot_id, group_id, counted)),
        "lag_bound": _bound(parts),
        "unevenness": _unevenness(
            parts, {row["member_id"] for row in people if row["member_id"] is not None}
        ),
        **times(parts),
        "num_not_subscribed_partitions": len(left),
        "not_subscribed_lag_records": known_sum(left) or 0,
        **_problems(parts, people),
        "statuses": dict(sorted(Counter(row["status"] for row in lag).items())),
    }


def times(parts: Sequence[Row]) -> Row:
    """Return the time behind of a group; where one of a partition is unknown, a lower bound."""
    known = [row["time_lag_ms"] for row in parts]
    bounds = [row["time_lag_ms"] or row.get("time_lag_at_least_ms") for row in parts]
    return {
        "time_lag_ms": None if None in known else largest(known),
        # A time of 0 beside unknown times is no bound of them.
        "time_lag_at_least_ms": (largest(bounds) or None) if None in known else None,
        "num_unknown_time_lags": known.count(None),
    }


def _bound(parts: Sequence[Row]) -> str | None:
    """An unknown part makes a sum a lower bound; lags that are at most so large make it an upper bound."""
    bounds = {"LOWER" if row["lag_records"] is None else row.get("lag_bound") for row in parts}
    return next((bound for bound in ("LOWER", "UPPER") if bound in bounds), None)


def _unevenness(parts: Sequence[Row], live: set[str]) -> float | None:
    """What the most loaded member has above the least possible, as a share of the most that it could have."""
    if any(row["lag_records"] is None or row.get("lag_bound") or row.get("owner_problem") for row in parts):
        return None
    lags = dict.fromkeys(live, 0)
    owned = [row for row in parts if row["owner_member_id"] in live]
    for row in owned:
        lags[row["owner_member_id"]] += row["lag_records"]
    total = sum(lags.values())
    if not total:
        return None
    # Nobody can have less than the mean, nor less than the partition with the largest lag.
    least = max(total / len(lags), *(row["lag_records"] for row in owned))
    return (max(lags.values()) - least) / (total - least) if total > least else 0.0


def _problems(parts: Sequence[Row], people: Sequence[Row]) -> Row:
    """Why facts of a group are unknown: of its partitions, else of its members."""
    errors = {
        "commit": [],
        "subscription": ["error", "subscription_error"],
        "owner": ["error", "assignment_error"],
    }
    found: Row = {}
    for fact, names in errors.items():
        name = f"{fact}_problem"
        shown = sorted({row[name] for row in parts if row.get(name)})
        first = ([row[each] for each in names if row.get(each)][:1] for row in people)
        shown += sorted({error for some in first for error in some})
        found[name] = shown[0] if shown else None
    return found


def member_rows(
    rows: LakeRows, snapshot_id: str, group_id: str, only: Callable[[list[Row]], list[Row]] = list
) -> list[Row]:
    """Return the lag of each live member, and of partitions without a known owner (member None)."""
    owned = by(only(rows.lag_of(snapshot_id, group_id)), "owner_member_id")
    live = rows.where("members", snapshot_id=snapshot_id, group_id=group_id)
    names = {row["member_id"] for row in live if row["member_id"] is not None} | set(owned)
    idle = (
        None
        if any(row["lag_records"] is None or row.get("owner_problem") for row in owned.get(None, ()))
        else 0
    )
    found = [
        {
            "member_id": name,
            "num_partitions": len(owned.get(name, ())),
            "num_unknown_partitions": count_unknown(owned.get(name, ())),
            # A member without partitions has a lag of 0, unless it may own some whose owner is unknown.
            "lag_records": known_sum(owned[name]) if name in owned else idle,
            "lag_bound": _bound(owned.get(name, ())),
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


def at_least(message: str, num_unknown: float | None) -> str:
    """Return a number, marked as a lower bound if something is unknown."""
    return f"≥ {message}" if num_unknown and message != "-" else message


def bounded(message: str, bound: str | None) -> str:
    """Return a lag, marked if it is a bound."""
    return f"{'≤' if bound == 'UPPER' else '≥'} {message}" if bound and message != "-" else message


def bounded_time(row: Row) -> str:
    """Return a time behind, else its lower bound."""
    at_least_ms = row.get("time_lag_at_least_ms")
    return duration(row["time_lag_ms"]) if at_least_ms is None else f"≥ {duration(at_least_ms)}"


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
        bounded(number(row["lag_records"]), row["lag_bound"]),
        bounded(number(row["max_member_lag_records"]), row["lag_bound"]),
        number(row["lag_skew"], digits=2),
        bounded_time(row),
        ", ".join(f"{count} {status}" for status, count in row["statuses"].items()),
    ]


def _check_group(session: Session, head: Row, group: Row) -> None:
    group_id, snapshot_id = group["group_id"], head["snapshot_id"]
    in_order = sorted(session.rows.lag_of(snapshot_id, group_id), key=heaviest_first)
    partitions = [{name: row.get(name) for name in _PARTITION} for row in in_order]
    members = member_rows(session.rows, snapshot_id, group_id, counted)
    kept = session.rows.where("members", snapshot_id=snapshot_id, group_id=group_id)
    shown = {row["member_id"]: [row["group_instance_id"], row["client_id"]] for row in kept}
    names = ("group_instance_id", "client_id")
    speeds = {
        row["member_id"]: row
        for group_speeds in session.rows.where("speeds", snapshot_id=snapshot_id, group_id=group_id)
        for row in group_speeds["members"]
    }
    live = [
        row
        | dict(zip(names, shown.get(row["member_id"], (None, None)), strict=True))
        | {
            shown_as: speeds.get(row["member_id"], {}).get(name)
            for shown_as, name in {
                "speed_records_per_s": "speed_records_per_s",
                "speed_is_bound": "is_bound",
                "speed_confidence": "confidence",
            }.items()
        }
        for row in members
        if row["member_id"] is not None
    ]
    clients = {name: instance or client or "" for name, (instance, client) in shown.items()}
    expected = head | group | {"members": live, "partitions": partitions}
    session.same(COMMAND, group_id, session.ask(COMMAND, group_id), expected)
    tables, _ = session.printed(COMMAND, group_id)
    session.same(COMMAND, f"{group_id}: tables", len(tables), 2)
    if len(tables) < 2:
        return
    with_unknown = group["num_unknown_partitions"] > 0
    cells = [_member_cells(row, group, clients, with_unknown=with_unknown) for row in members]
    session.same(COMMAND, f"{group_id}: printed members", tables[0].rows, cells)
    title = as_printed(f"{group_id} on {session.rows.cluster}, read at {moment(head['read_at'])}")
    # A title wraps at the width of its table: the parser returns the last line of a longer one.
    session.same(COMMAND, f"{group_id}: title", tables[0].title, title[-len(tables[0].title) :])
    cells = [_partition_cells(row, clients) for row in in_order]
    session.same(COMMAND, f"{group_id}: printed partitions", tables[1].rows, cells)


def _member_cells(row: Row, group: Row, clients: Mapping[str, str], *, with_unknown: bool) -> list[str]:
    unknown = row["num_unknown_partitions"]
    return [
        row["member_id"] or ("nobody, or not known" if group["owner_problem"] else "nobody"),
        clients.get(row["member_id"], "") if row["member_id"] else "",
        number(row["num_partitions"]),
        *([number(unknown)] if with_unknown else []),
        bounded(number(row["lag_records"]), row["lag_bound"]),
    ]


def heaviest_first(row: Row) -> tuple[Any, ...]:
    lag = row["lag_records"]
    return (lag is None, -(lag or 0), row["topic"], row["partition"])


def _partition_cells(row: Row, clients: Mapping[str, str]) -> list[str]:
    return [
        row["topic"],
        number(row["partition"]),
        row["owner_member_id"] or ("not known" if row.get("owner_problem") else "nobody"),
        clients.get(row["owner_member_id"], "") if row["owner_member_id"] else "",
        row["status"] or "-",
        number(row["committed_offset"]),
        number(row["end_offset"]),
        bounded(number(row["lag_records"]), row.get("lag_bound")),
        number(row["arrival_rate_records_per_s"], digits=1),
        number(row["consume_rate_records_per_s"], digits=1),
        bounded_time(row),
        duration(row["drain_time_ms"]),
        "stalled" if row["stalled"] else "",
    ]
