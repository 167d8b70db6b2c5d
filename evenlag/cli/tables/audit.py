"""Terminal tables of the audit: rebalances, moves, adherence and anomalies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.cli.console import table
from evenlag.formatting import moment, number, percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlag.audit.period import AuditedPeriod
    from evenlag.cli.tables.layout import Table

_SHORT_ID: Final = 12


def churn_table(period: AuditedPeriod, groups: Sequence[dict[str, Any]], limit: int) -> Table:
    """Build the table of rebalances and their causes by group."""
    columns = ("group", "rebalances", "moved", "returned", "placed", "freed", "causes")
    caption = left_out("" if groups else "no snapshot shows a rebalance", len(groups), limit)
    shown = table(
        f"Churn on {_title(period)}",
        columns,
        right=columns[1:6],
        optional=("freed", "placed", "returned", "causes"),
        caption=caption,
    )
    for row in groups[:limit]:
        shown.add_row(
            row["group_id"],
            number(row["num_rebalances"]),
            number(row["num_moved"]),
            number(row["num_returned"]),
            number(row["num_placed"]),
            number(row["num_freed"]),
            ", ".join(f"{count} {cause}" for cause, count in sorted(row["by_cause"].items())),
        )
    return shown


def rebalances_table(rebalances: Sequence[dict[str, Any]], limit: int) -> Table:
    """Build the table of the rebalances of a group."""
    columns = ("between", "causes", "joined", "left", "came back", "moved", "returned", "placed", "freed")
    shown = table(
        "Rebalances",
        columns,
        right=columns[5:],
        keys=("between", "joined", "left", "came back"),
        optional=("freed", "placed", "returned"),
        caption=left_out("", len(rebalances), limit),
    )
    for row in rebalances[:limit]:
        plan = f" ({row['plan_id'][:_SHORT_ID]})" if row["plan_id"] else ""
        gap = " (snapshots are missing: at least one)" if row["across_gap"] else ""
        shown.add_row(
            between(row["after_seen_at"], row["seen_at"]) + gap,
            ", ".join(row["causes"]) + plan,
            ", ".join(row["joined"]),
            ", ".join(row["left"]),
            ", ".join(row["bounced"].values()),
            *(number(row[f"num_{name}"]) for name in columns[5:]),
        )
    return shown


def moves_table(moves: Sequence[dict[str, Any]], clients: Mapping[str, str], limit: int) -> Table:
    """Build the table of the partitions that changed owner.

    clients: Instance id or client id of the members, by member id.
    """
    columns = (
        "group", "topic", "partition", "kind", "from", "client", "to", "its client", "between", "causes",
    )  # fmt: skip
    shown = table(
        "Moves",
        columns,
        right=("partition",),
        keys=("from", "to"),
        optional=("causes", "kind", "its client", "client", "between"),
        caption=left_out("", len(moves), limit),
    )
    for row in moves[:limit]:
        shown.add_row(
            row["group_id"],
            row["topic"],
            number(row["partition"]),
            row["kind"],
            row["from_member_id"],
            clients.get(row["from_member_id"], ""),
            row["to_member_id"],
            clients.get(row["to_member_id"], ""),
            between(row["last_seen_at"], row["first_seen_at"]),
            ", ".join(row["causes"]),
        )
    return shown


def adherence_table(period: AuditedPeriod, rows: Sequence[dict[str, Any]], limit: int) -> Table:
    """Build the table of hints and whether groups applied them."""
    columns = (
        "group",
        "plan",
        "published",
        "verdict",
        "before",
        "best",
        "held from",
        "held until",
        "why no longer",
    )
    caption = left_out("", len(rows), limit)
    shown = table(
        f"Adherence on {_title(period)}",
        columns,
        right=("before", "best"),
        keys=("verdict",),
        optional=("held until", "held from", "published", "before", "why no longer"),
        caption=caption,
    )
    for row in rows[:limit]:
        shown.add_row(
            row["group_id"],
            row["plan_id"][:_SHORT_ID],
            moment(row["published_at"]),
            row["verdict"],
            percent(row["share_before"]),
            percent(row["share_best"]),
            between(row["not_yet_at"], row["followed_from"]),
            between(row["followed_until"], row["no_longer_at"]),
            row["left_because"] or "",
        )
    return shown


def anomalies_table(period: AuditedPeriod, rows: Sequence[dict[str, Any]], limit: int) -> Table:
    """Build the table of anomalies."""
    columns = (
        "what", "group", "partition", "member", "client", "lag", "snapshots", "from", "until", "detail",
    )  # fmt: skip
    clients = period.client_names()
    caption = left_out("" if rows else "nothing found", len(rows), limit)
    shown = table(
        f"Anomalies on {_title(period)}",
        columns,
        right=("lag", "snapshots"),
        keys=("what",),
        optional=("snapshots", "until", "from", "client", "lag"),
        caption=caption,
    )
    for row in rows[:limit]:
        shown.add_row(
            row["kind"],
            row["group_id"],
            "" if row["topic"] is None else f"{row['topic']}-{row['partition']}",
            row["member_id"] or "",
            clients.get(row["member_id"] or "", ""),
            number(row["lag_records"]),
            number(row["num_snapshots"]),
            moment(row["first_seen_at"]),
            moment(row["last_seen_at"]),
            # The member has a column of its own.
            row["detail"].replace(f" {row['member_id']}", "") if row["member_id"] else row["detail"],
        )
    return shown


def left_out(text: str, count: int, limit: int) -> str:
    """Extend a caption by the number of rows that a limit leaves out.

    Returns the caption; empty if there is nothing to report.
    """
    more = f"{count - limit} more: --limit {count}" if count > limit else ""
    return "; ".join(part for part in (text, more) if part)


def between(early: Any, late: Any) -> str:
    """Format a moment between two snapshots.

    Returns the text, open on a side without a snapshot.
    early, late: Times of the snapshots; None on a side without one.
    """
    if early is None or late is None:
        known, side = (late, "before") if early is None else (early, "later")
        return f"{moment(known)} or {side}" if known else "-"
    begin, end = moment(early), moment(late)
    day = len("2026-11-21 ")
    return f"{begin[:-1]}..{end[day:]}" if begin[:day] == end[:day] else f"{begin}..{end}"


def _title(period: AuditedPeriod) -> str:
    return f"{period.cluster}, {moment(period.since)} to {moment(period.until)}"
