"""Terminal tables of the audit: owners, differences, rebalances, moves, adherence and anomalies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from evenlag.audit.enums import Certainty, OwnerChange
from evenlag.cli.tables.layout import Column, Table, filled_table, numbers
from evenlag.cli.tables.plan_tables import SHORT_ID
from evenlag.formatting import duration, moment, number, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Group

    from evenlag.audit.period import AuditedPeriod

    Rows = Sequence[dict[str, Any]]

_CERTAINTY: Final = {
    Certainty.SEEN: "seen before and after",
    Certainty.CHANGING: "changed around then",
    Certainty.GAP: "the snapshots are too far apart",
    Certainty.LAST_SEEN: "last seen; no later snapshot in the audit",
    Certainty.FIRST_SEEN: "first seen later",
}
_GROUP: Final = Column("group", lambda row: row["group_id"])
_TOPIC: Final = Column("topic", lambda row: row["topic"])
_PARTITION: Final = numbers("partition", lambda row: number(row["partition"]))
_CAUSES: Final = Column("causes", lambda row: ", ".join(row["causes"]))


def _count(name: str) -> Column:
    """Return a column of how many partitions of a rebalance were moved, returned, placed or freed."""
    return numbers(name, lambda row: number(row[f"num_{name}"]))


_COUNTS: Final = tuple(map(_count, ("moved", "returned", "placed", "freed")))


def owner_table(period: AuditedPeriod, around: dict[str, Any], rows: Rows, limit: int) -> Table:
    """Build the table of the owners at a moment."""
    columns = (
        _TOPIC,
        _PARTITION,
        Column("owner", lambda row: row["member_id"] or f"{row['state'].lower()}: {row['reason']}"),
        Column("client", lambda row: row["group_instance_id"] or row["client_id"] or ""),
        Column("owned since", lambda row: between(row["previous_seen_at"], row["first_seen_at"])),
        Column("until", lambda row: between(row["last_seen_at"], row["next_seen_at"])),
        Column("certainty", _certainty),
    )
    caption = f"snapshots around: {_snapshots(around)}"
    if not rows:
        caption += f"; the group was {around['group_state'] or 'not listed'}"
    return filled_table(
        f"{period.group_id} on {period.cluster} at {moment(period.until)}",
        columns,
        rows[:limit],
        keys=("owner",),
        optional=("until", "owned since", "client"),
        caption=left_out(caption, len(rows), limit),
    )


def diff_table(period: AuditedPeriod, ends: Rows, rows: Rows, compared: int, limit: int) -> Group:
    """Build the table of the differences between two moments, followed by the snapshots used."""
    from rich.console import Group

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
        _TOPIC,
        _PARTITION,
        Column("change", lambda row: row["change"]),
        Column("before", lambda row: _holders(row, "before")),
        Column("after", lambda row: _holders(row, "after")),
    )
    title = f"{period.group_id} on {period.cluster}: {moment(period.since)} and {moment(period.until)}"
    shown = filled_table(title, columns, rows[:limit], keys=("before", "after"))
    return Group(shown, Text("\n".join(lines)))


def churn_table(period: AuditedPeriod, groups: Rows, limit: int) -> Table:
    """Build the table of rebalances and their causes by group."""
    columns = (
        _GROUP,
        _count("rebalances"),
        *_COUNTS,
        Column("causes", _causes_by_number),
    )
    return filled_table(
        f"Churn on {_title(period)}",
        columns,
        groups[:limit],
        optional=("freed", "placed", "returned", "causes"),
        caption=left_out("" if groups else "no snapshot shows a rebalance", len(groups), limit),
    )


def rebalances_table(rebalances: Rows, limit: int) -> Table:
    """Build the table of the rebalances of a group."""
    columns = (
        Column("between", _rebalance_time),
        Column("causes", _causes_with_plan),
        Column("joined", lambda row: ", ".join(row["joined"])),
        Column("left", lambda row: ", ".join(row["left"])),
        Column("came back", lambda row: ", ".join(row["bounced"].values())),
        *_COUNTS,
    )
    return filled_table(
        "Rebalances",
        columns,
        rebalances[:limit],
        keys=("between", "joined", "left", "came back"),
        optional=("freed", "placed", "returned"),
        caption=left_out("", len(rebalances), limit),
    )


def moves_table(moves: Rows, clients: Mapping[str, str], limit: int) -> Table:
    """Build the table of the partitions that changed owner; `clients` by member id."""
    columns = (
        _GROUP,
        _TOPIC,
        _PARTITION,
        Column("kind", lambda row: row["kind"]),
        Column("from", lambda row: row["from_member_id"]),
        Column("client", lambda row: clients.get(row["from_member_id"], "")),
        Column("to", lambda row: row["to_member_id"]),
        Column("its client", lambda row: clients.get(row["to_member_id"], "")),
        Column("between", lambda row: between(row["last_seen_at"], row["first_seen_at"])),
        _CAUSES,
    )
    return filled_table(
        "Moves",
        columns,
        moves[:limit],
        keys=("from", "to"),
        optional=("causes", "kind", "its client", "client", "between"),
        caption=left_out("", len(moves), limit),
    )


def adherence_table(period: AuditedPeriod, rows: Rows, limit: int) -> Table:
    """Build the table of hints and whether groups applied them."""
    columns = (
        _GROUP,
        Column("plan", lambda row: row["plan_id"][:SHORT_ID]),
        Column("published", lambda row: moment(row["published_at"])),
        Column("verdict", lambda row: row["verdict"]),
        numbers("before", lambda row: percent(row["share_before"])),
        numbers("best", lambda row: percent(row["share_best"])),
        Column("held from", lambda row: between(row["not_yet_at"], row["followed_from"])),
        Column("held until", lambda row: between(row["followed_until"], row["no_longer_at"])),
        Column("why no longer", lambda row: row["left_because"] or ""),
    )
    return filled_table(
        f"Adherence on {_title(period)}",
        columns,
        rows[:limit],
        keys=("verdict",),
        optional=("held until", "held from", "published", "before", "why no longer"),
        caption=left_out("", len(rows), limit),
    )


def anomalies_table(period: AuditedPeriod, rows: Rows, limit: int) -> Table:
    """Build the table of anomalies."""
    clients = period.client_names()
    columns = (
        Column("what", lambda row: row["kind"]),
        _GROUP,
        Column("partition", lambda row: "" if row["topic"] is None else f"{row['topic']}-{row['partition']}"),
        Column("member", lambda row: row["member_id"] or ""),
        Column("client", lambda row: clients.get(row["member_id"] or "", "")),
        numbers("lag", lambda row: number(row["lag_records"])),
        numbers("snapshots", lambda row: number(row["num_snapshots"])),
        Column("from", lambda row: moment(row["first_seen_at"])),
        Column("until", lambda row: moment(row["last_seen_at"])),
        Column("detail", _detail),
    )
    return filled_table(
        f"Anomalies on {_title(period)}",
        columns,
        rows[:limit],
        keys=("what",),
        optional=("snapshots", "until", "from", "client", "lag"),
        caption=left_out("" if rows else "nothing found", len(rows), limit),
    )


def left_out(text: str, count: int, limit: int) -> str:
    """Return a caption with the number of rows that a limit leaves out, if it leaves out any."""
    more = f"{count - limit} more: --limit {count}" if count > limit else ""
    return "; ".join(part for part in (text, more) if part)


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


def _causes_by_number(row: dict[str, Any]) -> str:
    return ", ".join(f"{count} {cause}" for cause, count in sorted(row["by_cause"].items()))


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
    """Text of the snapshots around a moment, each with its start and end."""
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
