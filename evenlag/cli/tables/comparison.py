"""Terminal table of simulated policies: one row per policy, and one of the measured values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.cli.tables.layout import Column, Table, filled_table, numbers
from evenlag.formatting import NOTHING, duration, number, percent
from evenlag.queries.comparisons import MEASURED_SHOWN, OBSERVED, OBSERVED_SHOWN, shown_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The first ones are left out first on a narrow terminal.
_OPTIONAL: Final = (
    "rebalances", "largest", "above bound", "best in", "not drained", "to drain", "moves", "worst",
)  # fmt: skip
_COLUMNS: Final = (
    Column("policy", lambda row: shown_policy(row["policy"])),
    Column("rank", lambda row: "best" if row["is_best"] else ""),
    numbers("time lag 95 %", lambda row: _time_bound(row) + duration(row["p95_time_lag_ms"])),
    numbers("worst", lambda row: _time_bound(row) + duration(row["max_time_lag_ms"])),
    numbers("mean lag", lambda row: _lag_bound(row) + number(row["mean_lag_records"])),
    numbers("largest", lambda row: _lag_bound(row) + number(row["max_lag_records"])),
    numbers("to drain", lambda row: _drained(row["drain_time_ms"])),
    numbers("not drained", lambda row: f"{row['not_drained']} of {row['group_days']}"),
    numbers("moves", lambda row: number(row["moves"])),
    numbers("rebalances", lambda row: number(row["rebalances"])),
    numbers("above bound", lambda row: percent(row["optimality_gap"])),
    numbers("best in", lambda row: f"{row['best_in']} of {row['group_days']}"),
)


def policies_table(title: str, rows: Sequence[dict[str, Any]], by: str) -> Table:
    """Build the table of policies, ranked by a metric, with what Kafka reported last, if it was measured."""
    caption = (
        f"Best by {by}; of equals by mean lag, then moves. {OBSERVED_SHOWN} is what really ran, by the "
        f"model; {MEASURED_SHOWN} is what Kafka reported, without the model. ≥ is a lower bound."
    )
    shown = filled_table(title, _COLUMNS, (), keys=("policy",), optional=_OPTIONAL, caption=caption)
    for row in rows:
        style = "bold" if row["is_best"] else "dim" if row["policy"] == OBSERVED else None
        shown.add_row(*(column.cell(row) for column in _COLUMNS), style=style)
    measured = next((row for row in rows if row["policy"] == OBSERVED), None)
    if measured is not None and measured["measured_max_lag_records"] is not None:
        shown.add_row(MEASURED_SHOWN, "", *_measured_cells(measured), style="dim")
    return shown


def _lag_bound(row: Mapping[str, Any]) -> str:
    return "≥ " if row["unknown_partitions"] else ""


def _time_bound(row: Mapping[str, Any]) -> str:
    return "≥ " if row["unknown_ages"] else _lag_bound(row)


def _drained(drain_time_ms: float | None) -> str:
    return "not drained" if drain_time_ms is None else duration(drain_time_ms)


def _measured_cells(row: dict[str, Any]) -> list[str]:
    lag = "≥ " if row["unknown_lags"] else ""
    mean = "≥ " if row["measured_unknown_share"] else ""
    time = "≥ " if row["unknown_time_lags"] else ""
    worst, average = row["measured_max_time_lag_ms"], row["measured_mean_lag_records"]
    return [
        NOTHING,
        NOTHING if worst is None else f"{time}{duration(worst)}",
        NOTHING if average is None else f"{mean}{number(average)}",
        f"{lag}{number(row['measured_max_lag_records'])}",
        *[NOTHING] * 6,
    ]


def notes(rows: Sequence[dict[str, Any]], left_out: Mapping[str, Any]) -> list[str]:
    """Return notes on data that the numbers do not include, and on lower bounds; empty if all is known."""
    first, sentences = rows[0], []
    if left_out["left_out"]:
        sentences.append(
            f"Counted: {first['group_days']:,} group-days. Left out: {left_out['left_out']:,}, of which not "
            "every policy has a replay."
        )
    if left_out["partly_known"]:
        sentences.append(
            f"Left out of the means: {left_out['partly_known']:,} group-days on which the lag of some "
            "partition was never known."
        )
    if first["unknown_partitions"]:
        sentences.append(
            f"The lag of {first['unknown_partitions']:,} partitions was never known: they are in no figure, "
            "and what their members process of the others is a lower bound."
        )
    if first["unknown_share"]:
        sentences.append(
            f"For {percent(first['unknown_share'])} of the partitions' time no snapshot had known their lag "
            "yet: that time is in no figure of a policy."
        )
    if first["unknown_ages"]:
        sentences.append(
            f"The records that {first['unknown_ages']:,} partitions were behind at first have no known age: "
            "their time lag counts from the first snapshot on."
        )
    return sentences
