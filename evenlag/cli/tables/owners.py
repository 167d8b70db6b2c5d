"""Terminal tables of owners: at a moment, and the differences between two moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.enums import Certainty, OwnerChange
from evenlag.cli.console import table
from evenlag.cli.tables.audit import between, left_out
from evenlag.formatting import duration, moment, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group

    from evenlag.audit.period import AuditedPeriod
    from evenlag.cli.tables.layout import Table

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
    """Build the table of the owners at a moment."""
    title = f"{period.group_id} on {period.cluster} at {moment(period.until)}"
    columns = ("topic", "partition", "owner", "client", "owned since", "until", "certainty")
    shown = table(
        title,
        columns,
        right=("partition",),
        keys=("owner",),
        optional=("until", "owned since", "client"),
        caption=_caption(around, len(rows), limit),
    )
    for row in rows[:limit]:
        shown.add_row(
            row["topic"],
            number(row["partition"]),
            row["member_id"] or f"{row['state'].lower()}: {row['reason']}",
            row["group_instance_id"] or row["client_id"] or "",
            between(row["previous_seen_at"], row["first_seen_at"]),
            between(row["last_seen_at"], row["next_seen_at"]),
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
    """Build the table of the differences between two moments, followed by the snapshots used."""
    from rich.console import Group
    from rich.text import Text

    title = f"{period.group_id} on {period.cluster}: {moment(period.since)} and {moment(period.until)}"
    columns = ("topic", "partition", "change", "before", "after")
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
    shown = table(title, columns, right=("partition",), keys=("before", "after"))
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


def _caption(around: dict[str, Any], count: int, limit: int) -> str:
    text = f"snapshots around: {_snapshots(around)}"
    if not count:
        text += f"; the group was {around['group_state'] or 'not listed'}"
    return left_out(text, count, limit)


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


def _holders(names: Sequence[str], state: str | None, certainty: str) -> str:
    together = " or " if certainty == Certainty.CHANGING else ", "
    return together.join(names) or (state or "not taken").lower()
