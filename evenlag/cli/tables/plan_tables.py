"""Terminal tables of plans."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from evenlag.cli.console import status_text
from evenlag.cli.tables.layout import Column, Table, filled_table, numbers
from evenlag.formatting import at_least, at_least_of, exact_of, moment, number, percent

if TYPE_CHECKING:
    from collections.abc import Iterable

SHORT_ID: Final = 12
_THOUSAND: Final = 1_000


def _lag_column(heading: str, lag: str, num_unknown: str) -> Column:
    return numbers(heading, lambda row: at_least(row[lag], row[num_unknown]))


_PLAN_COLUMNS: Final = (
    Column("plan", lambda row: row["plan_id"][:SHORT_ID]),
    Column("slot", lambda row: moment(row["slot"])),
    Column("group", lambda row: row["group_id"]),
    Column("mode", lambda row: row["mode"]),
    Column("status", lambda row: status_text(row["status"])),
    numbers("moves", lambda row: number(row["moves"])),
    _lag_column("most loaded", "max_member_lag_before_records", "num_unknown_lags"),
    _lag_column("predicted", "max_member_lag_predicted_records", "num_unknown_lags"),
    _lag_column("actual", "max_member_lag_actual_records", "num_unknown_partitions_actual"),
    Column("why", lambda row: "; ".join(filter(None, (row["reason"], _decision(row), *_unknown_lags(row))))),
)


def plan_table(title: str, rows: Iterable[dict[str, Any]], *, caption: str = "") -> Table:
    """Build the table of plans."""
    optional = ("mode", "slot", "moves", "why", "predicted", "actual", "most loaded")
    return filled_table(title, _PLAN_COLUMNS, rows, optional=optional, caption=caption)


def move_table(moves: Iterable[dict[str, Any]], clients: dict[str, str]) -> Table:
    """Build the table of a plan's moves; `clients` are instance ids or client ids by member id."""
    columns = (
        Column("topic", lambda move: move["topic"]),
        numbers("partition", lambda move: number(move["partition"])),
        numbers("lag", lambda move: number(move["lag_records"])),
        Column("from", lambda move: move["owner_before"] or "nobody"),
        Column("client", lambda move: clients.get(move["owner_before"] or "", "")),
        Column("to", lambda move: move["owner_after"] or "nobody"),
        Column("its client", lambda move: clients.get(move["owner_after"] or "", "")),
    )
    return filled_table("Moves", columns, moves, keys=("from", "to"), optional=("its client", "client"))


def measures_table(plan: dict[str, Any], outcome: dict[str, Any] | None) -> Table:
    """Build the table of a plan's metrics."""
    columns = ("metric", "before", "predicted", "actual")
    shown = Table("Lag", columns, right=columns[1:], keys=columns[:1])
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
        total = at_least_of(outcome["total_lag_before_records"], *planned)
        shown.add_row("the group's lag", total, "", at_least_of(outcome["total_lag_actual_records"], *actual))
    shown.add_row("partitions per member", _range(before), _range(after), "")
    gain = "gain, by the known load" if plan["num_unknown_partitions"] else "gain"
    shown.add_row(gain, "", percent(plan["gain"]), "")
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
