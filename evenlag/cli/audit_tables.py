"""Terminal tables of the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.enums import Certainty, OwnerChange
from evenlag.cli.console import table
from evenlag.formatting import duration, moment, number, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group
    from rich.table import Table

    from evenlag.audit.period import AuditedPeriod

_SHORT_ID: Final = 12
_CERTAINTY: Final = {
    Certainty.SEEN: "seen before and after",
    Certainty.CHANGING: "changed around then",
    Certainty.GAP: "the snapshots are too far apart",
    Certainty.LAST_SEEN: "last seen; no later snapshot in the audit",
    Certainty.FIRST_SEEN: "first seen later",
}


def owner_table(
    period: AuditedPeriod, around: dict[str, Any], rows: Sequence[dict[str, Any]], limit: int
) -> Table:
    """Build the table of the owners at a moment.

    Parameters
    ----------
    period
        The audited period; it ends at the moment.
    around
        Result of :func:`evenlag.audit.owners.group_around` for the moment.
    rows
        Rows of :func:`evenlag.audit.owners.owners_at`.
    limit
        Number of rows to show.

    Returns
    -------
    rich.table.Table
        One row per partition.
    """
    title = f"{period.group_id} on {period.cluster} at {moment(period.until)}"
    columns = ("topic", "partition", "owner", "client", "owned since", "until", "certainty")
    shown = table(title, columns, right=("partition",), caption=_caption(around, len(rows), limit))
    for row in rows[:limit]:
        shown.add_row(
            row["topic"],
            number(row["partition"]),
            row["member_id"] or f"{row['state'].lower()}: {row['reason']}",
            row["group_instance_id"] or row["client_id"] or "",
            _between(row["previous_seen_at"], row["first_seen_at"]),
            _between(row["last_seen_at"], row["next_seen_at"]),
            _certainty(row),
        )
    return shown


def diff_table(
    period: AuditedPeriod,
    ends: Sequence[dict[str, Any]],
    rows: Sequence[dict[str, Any]],
    compared: int,
    limit: int,
) -> Group:
    """Build the table of the differences between two moments, followed by the snapshots used.

    Parameters
    ----------
    period
        The audited period between the moments.
    ends
        Results of :func:`evenlag.audit.owners.group_around` for the first and the second moment.
    rows
        Rows of :func:`evenlag.audit.differences.diff` to show.
    compared
        Number of partitions that were compared.
    limit
        Number of rows to show.

    Returns
    -------
    rich.console.Group
        The table, and the text below it.
    """
    from rich.console import Group
    from rich.text import Text

    title = f"{period.group_id} on {period.cluster}: {moment(period.since)} and {moment(period.until)}"
    columns = ("topic", "partition", "change", "before", "after")
    found = f"{len(rows)} of {compared} partitions" if rows else f"all {compared} the same"
    lines = [_left(found, len(rows), limit)]
    lines += [
        f"{moment(at)} is based on {_snapshots(around)}"
        for at, around in zip((period.since, period.until), ends, strict=True)
    ]
    if any(row["change"] == OwnerChange.CHANGING for row in rows):
        lines.append(
            "CHANGING: the snapshots around the moment show different owners; each of them is possible"
        )
    shown = table(title, columns, right=("partition",))
    for row in rows[:limit]:
        shown.add_row(
            row["topic"],
            number(row["partition"]),
            row["change"],
            *(
                _holders(row[f"holder_{end}"], row[f"state_{end}"], row[f"certainty_{end}"])
                for end in ("before", "after")
            ),
        )
    return Group(shown, Text("\n".join(lines)))


def churn_table(period: AuditedPeriod, groups: Sequence[dict[str, Any]], limit: int) -> Table:
    """Build the table of rebalances and their causes by group.

    Parameters
    ----------
    period
        The audited period.
    groups
        Rows of :func:`evenlag.audit.rebalances.sum_up`.
    limit
        Number of rows to show.

    Returns
    -------
    rich.table.Table
        One row per group.
    """
    columns = ("group", "rebalances", "moved", "returned", "placed", "freed", "causes")
    caption = _left("" if groups else "no snapshot shows a rebalance", len(groups), limit)
    shown = table(f"Churn on {_title(period)}", columns, right=columns[1:6], caption=caption)
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
    """Build the table of the rebalances of a group.

    Parameters
    ----------
    rebalances
        Rebalances of :func:`evenlag.audit.rebalances.find_rebalances`.
    limit
        Number of rows to show.

    Returns
    -------
    rich.table.Table
        One row per rebalance.
    """
    columns = ("between", "causes", "joined", "left", "came back", "moved", "returned", "placed", "freed")
    shown = table("Rebalances", columns, right=columns[5:], caption=_left("", len(rebalances), limit))
    for row in rebalances[:limit]:
        plan = f" ({row['plan_id'][:_SHORT_ID]})" if row["plan_id"] else ""
        gap = " (snapshots are missing: at least one)" if row["across_gap"] else ""
        shown.add_row(
            _between(row["after_seen_at"], row["seen_at"]) + gap,
            ", ".join(row["causes"]) + plan,
            ", ".join(row["joined"]),
            ", ".join(row["left"]),
            ", ".join(row["bounced"].values()),
            *(number(row[f"num_{name}"]) for name in columns[5:]),
        )
    return shown


def moves_table(moves: Sequence[dict[str, Any]], limit: int) -> Table:
    """Build the table of the partitions that changed owner.

    Parameters
    ----------
    moves
        Moves of :func:`evenlag.audit.rebalances.find_rebalances`.
    limit
        Number of rows to show.

    Returns
    -------
    rich.table.Table
        One row per move.
    """
    columns = ("group", "topic", "partition", "kind", "from", "to", "between", "causes")
    shown = table("Moves", columns, right=("partition",), caption=_left("", len(moves), limit))
    for row in moves[:limit]:
        shown.add_row(
            row["group_id"],
            row["topic"],
            number(row["partition"]),
            row["kind"],
            row["from_member_id"],
            row["to_member_id"],
            _between(row["last_seen_at"], row["first_seen_at"]),
            ", ".join(row["causes"]),
        )
    return shown


def adherence_table(period: AuditedPeriod, rows: Sequence[dict[str, Any]], limit: int) -> Table:
    """Build the table of hints and whether groups applied them.

    Parameters
    ----------
    period
        The audited period.
    rows
        Rows of :func:`evenlag.audit.adherence.judge_hints`.
    limit
        Number of rows to show.

    Returns
    -------
    rich.table.Table
        One row per hint.
    """
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
    caption = _left("", len(rows), limit)
    shown = table(f"Adherence on {_title(period)}", columns, right=("before", "best"), caption=caption)
    for row in rows[:limit]:
        shown.add_row(
            row["group_id"],
            row["plan_id"][:_SHORT_ID],
            moment(row["published_at"]),
            row["verdict"],
            percent(row["share_before"]),
            percent(row["share_best"]),
            _between(row["not_yet_at"], row["followed_from"]),
            _between(row["followed_until"], row["no_longer_at"]),
            row["left_because"] or "",
        )
    return shown


def anomalies_table(period: AuditedPeriod, rows: Sequence[dict[str, Any]], limit: int) -> Table:
    """Build the table of anomalies.

    Parameters
    ----------
    period
        The audited period.
    rows
        Rows of :func:`evenlag.audit.anomalies.find_anomalies`.
    limit
        Number of rows to show.

    Returns
    -------
    rich.table.Table
        One row per anomaly.
    """
    columns = ("what", "group", "partition", "member", "lag", "snapshots", "from", "until", "detail")
    caption = _left("" if rows else "nothing found", len(rows), limit)
    shown = table(f"Anomalies on {_title(period)}", columns, right=("lag", "snapshots"), caption=caption)
    for row in rows[:limit]:
        shown.add_row(
            row["kind"],
            row["group_id"],
            "" if row["topic"] is None else f"{row['topic']}-{row['partition']}",
            row["member_id"] or "",
            number(row["lag_records"]),
            number(row["num_snapshots"]),
            moment(row["first_seen_at"]),
            moment(row["last_seen_at"]),
            row["detail"],
        )
    return shown


def _title(period: AuditedPeriod) -> str:
    return f"{period.cluster}, {moment(period.since)} to {moment(period.until)}"


def _caption(around: dict[str, Any], count: int, limit: int) -> str:
    text = f"snapshots around: {_snapshots(around)}"
    if not count:
        text += f"; the group was {around['group_state'] or 'not listed'}"
    return _left(text, count, limit)


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
    return f"{each['snapshot_id']} ({_between(each['started_at'], each['finished_at'])})"


def _left(text: str, count: int, limit: int) -> str:
    more = f"{count - limit} more: --limit {count}" if count > limit else ""
    return "; ".join(part for part in (text, more) if part)


def _certainty(row: dict[str, Any]) -> str:
    side = {"before": ", so before", "during": ", so in between", "after": ", so after"}.get(row["side"], "")
    return _CERTAINTY[row["certainty"]] + (side if row["certainty"] == Certainty.CHANGING else "")


def _holders(names: Sequence[str], state: str | None, certainty: str) -> str:
    together = " or " if certainty == Certainty.CHANGING else ", "
    return together.join(names) or (state or "not taken").lower()


def _between(early: Any, late: Any) -> str:
    """Text of a moment between two snapshots; open on a side without a snapshot."""
    if early is None or late is None:
        known, side = (late, "before") if early is None else (early, "later")
        return f"{moment(known)} or {side}" if known else "-"
    begin, end = moment(early), moment(late)
    day = len("2026-11-21 ")
    return f"{begin[:-1]}..{end[day:]}" if begin[:day] == end[:day] else f"{begin}..{end}"
