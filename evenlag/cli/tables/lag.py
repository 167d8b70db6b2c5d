"""Columns and captions that the tables of lag have in common, of a snapshot and of a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.cli.tables.layout import Column, numbers
from evenlag.formatting import bounded, bounded_duration, duration, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Rows = Sequence[Mapping[str, Any]]

LAG: Final = numbers("lag", lambda row: bounded(row["lag_records"], row["lag_bound"]))
BEHIND_BY: Final = numbers(
    "behind by", lambda row: bounded_duration(row["time_lag_ms"], row["time_lag_at_least_ms"])
)
RATES: Final = (
    numbers("in/s", lambda row: number(row["arrival_rate_records_per_s"], digits=1)),
    numbers("out/s", lambda row: number(row["consume_rate_records_per_s"], digits=1)),
)
DRAINED: Final = (
    numbers("drained in", lambda row: duration(row["drain_time_ms"])),
    Column("note", lambda row: "stalled" if row["stalled"] else ""),
)
_MOST_NAMED: Final = 5


def unknown_column(rows: Rows) -> tuple[Column, ...]:
    """Return the column of partitions with unknown lag; none if there are none."""
    if not any(row["num_unknown_partitions"] for row in rows):
        return ()
    return (numbers("unknown", lambda row: number(row["num_unknown_partitions"])),)


def no_owner_text(group: Mapping[str, Any]) -> str:
    """Return the text in place of a member, for partitions without a known owner."""
    return "nobody" if group["owner_problem"] is None else "nobody, or not known"


def lower_bound_text(rows: Rows, meaning: str) -> str:
    """Return how many partitions' lag is unknown and what that means; empty if all is known."""
    num_unknown = sum(row["num_unknown_partitions"] for row in rows)
    if not num_unknown:
        return ""
    num_partitions = sum(row["num_partitions"] for row in rows)
    return f"The lag of {num_unknown:,} of {num_partitions:,} partitions is not known: {meaning}"


def left_out_text(count: int, limit: int, what: str) -> str:
    """Return how many rows a limit leaves out; empty if it leaves out none."""
    return f"{count - limit:,} more {what}: --limit {count}" if count > limit else ""


def left_out_groups_text(groups: Rows, limit: int) -> str:
    """Return how many groups a limit leaves out, and the names of those whose lag is unknown.

    Groups are sorted by their known lag: those of unknown lag, which may be the largest, are left out first.
    """
    unknown = [
        row["group_id"]
        for row in groups[limit:]
        if row["lag_records"] is None or row["num_unknown_partitions"]
    ]
    names = ", ".join(unknown[:_MOST_NAMED])
    more = f" and {len(unknown) - _MOST_NAMED:,} more" if len(unknown) > _MOST_NAMED else ""
    named = f"; of unknown lag: {names}{more}" if unknown else ""
    return left_out_text(len(groups), limit, "groups") + named


def sentences(*parts: str) -> str:
    """Return a caption of the parts that are not empty."""
    return ". ".join(filter(None, parts))
