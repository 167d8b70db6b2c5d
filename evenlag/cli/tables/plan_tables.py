"""Terminal tables of plans."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from evenlag.cli.console import status_text, table
from evenlag.formatting import at_least, at_least_of, exact_of, moment, number, percent

if TYPE_CHECKING:
    from evenlag.cli.tables.layout import Table

SHORT_ID: Final = 12
_THOUSAND: Final = 1_000


def plan_table(title: str, rows: list[dict[str, Any]], *, caption: str = "") -> Table:
    """Build the table of plans.

    caption: Text below the table; none if empty.
    """
    columns = (
        "plan",
        "slot",
        "group",
        "mode",
        "status",
        "moves",
        "most loaded",
        "predicted",
        "actual",
        "why",
    )
    shown = table(
        title,
        columns,
        right=("moves", "most loaded", "predicted", "actual"),
        optional=("mode", "slot", "moves", "why", "predicted", "actual", "most loaded"),
        caption=caption,
    )
    for row in rows:
        planned, actual = row["num_unknown_lags"], row["num_unknown_partitions_actual"]
        shown.add_row(
            row["plan_id"][:SHORT_ID],
            moment(row["slot"]),
            row["group_id"],
            row["mode"],
            status_text(row["status"]),
            number(row["moves"]),
            at_least(row["max_member_lag_before_records"], planned),
            at_least(row["max_member_lag_predicted_records"], planned),
            at_least(row["max_member_lag_actual_records"], actual),
            "; ".join(filter(None, (row["reason"], _decision(row), *_unknown_lags(row)))),
        )
    return shown


def move_table(moves: list[dict[str, Any]], clients: dict[str, str]) -> Table:
    """Build the table of a plan's moves.

    clients: Instance id or client id of the members, by member id.
    """
    shown = table(
        "Moves",
        ("topic", "partition", "lag", "from", "client", "to", "its client"),
        right=("partition", "lag"),
        keys=("from", "to"),
        optional=("its client", "client"),
    )
    for move in moves:
        owners = (move["owner_before"], move["owner_after"])
        before, after = ((owner or "nobody", clients.get(owner or "", "")) for owner in owners)
        shown.add_row(move["topic"], number(move["partition"]), number(move["lag_records"]), *before, *after)
    return shown


def measures_table(plan: dict[str, Any], outcome: dict[str, Any] | None) -> Table:
    """Build the table of a plan's metrics."""
    columns = ("metric", "before", "predicted", "actual")
    shown = table("Lag", columns, right=columns[1:], keys=columns[:1])
    before, after, seen = plan["metrics_before"], plan["metrics_after"], outcome or {}
    planned = plan["num_unknown_lags"], plan["num_partitions"]
    actual = seen.get("num_unknown_partitions"), seen.get("num_partitions")
    shown.add_row(
        "most loaded member",
        at_least_of(before.get("max_member_lag_records"), *planned),
        at_least_of(after.get("max_member_lag_records"), *planned),
        at_least_of(seen.get("max_member_lag_actual_records"), *actual),
    )
    shown.add_row(
        "skew (most loaded / mean)",
        exact_of(before.get("lag_skew"), *planned, digits=2),
        exact_of(after.get("lag_skew"), *planned, digits=2),
        exact_of(seen.get("lag_skew_actual"), *actual, digits=2),
    )
    if outcome is not None:
        shown.add_row(
            "the group's lag",
            at_least_of(outcome["total_lag_before_records"], *planned),
            "",
            at_least_of(outcome["total_lag_actual_records"], *actual),
        )
    shown.add_row(
        "partitions per member",
        _range(before),
        _range(after),
        "",
    )
    shown.add_row(
        "gain, by the known load" if plan["num_unknown_partitions"] else "gain", "", percent(plan["gain"]), ""
    )
    shown.add_row("adherence", "", "", percent(seen.get("adherence")))
    return shown


def _decision(row: dict[str, Any]) -> str:
    return f"decided by {row['decided_by']}" if row["decided_by"] else ""


def _unknown_lags(row: dict[str, Any]) -> tuple[str, str]:
    """Return texts on the number of partitions with unknown lag, when planned and at the outcome."""
    counts = (
        ("when planned", row["num_unknown_lags"], row["num_partitions"]),
        ("actual", row["num_unknown_partitions_actual"], row["num_partitions_actual"]),
    )
    planned, actual = (
        f"{when}, the lag of {number(unknown)} of {number(of)} partitions is not known" if unknown else ""
        for when, unknown, of in counts
    )
    return planned, actual


def _range(metrics: dict[str, Any]) -> str:
    low, high = metrics.get("min_member_partitions"), metrics.get("max_member_partitions")
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def gate_values(observed: str | None, allowed: str | None) -> tuple[str, str]:
    """Return what a gate observed and allows, for reading: numbers with separators and four digits."""
    exact = (observed or "", allowed or "")
    short = (_readable(exact[0]), _readable(exact[1]))
    return exact if short[0] == short[1] and exact[0] != exact[1] else short


def _readable(text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        return text
    if not isfinite(value):
        return text
    # Above a thousand, a fraction says nothing.
    return f"{value:,.0f}" if value.is_integer() or abs(value) >= _THOUSAND else f"{value:.4g}"
