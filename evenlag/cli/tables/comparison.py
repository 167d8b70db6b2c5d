"""Terminal table of simulated policies: one row per policy, and one of the measured values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.cli.console import table
from evenlag.formatting import NOTHING, duration, number, percent
from evenlag.queries.comparisons import MEASURED_SHOWN, OBSERVED, OBSERVED_SHOWN, shown_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlag.cli.tables.layout import Table

_NUMBERS: Final = (
    "time lag 95 %",
    "worst",
    "mean lag",
    "largest",
    "to drain",
    "not drained",
    "moves",
    "rebalances",
    "above bound",
    "best in",
)


def policies_table(title: str, rows: Sequence[dict[str, Any]], by: str) -> Table:
    """Build the table of policies, with the measured values last.

    Returns one row per policy. The last row has what Kafka reported, if any of it was measured.
    by: The metric that they are ranked by.
    """
    caption = (
        f"Best by {by}; of equals by mean lag, then moves. {OBSERVED_SHOWN} is what really ran, by the "
        f"model; {MEASURED_SHOWN} is what Kafka reported, without the model. ≥ is a lower bound."
    )
    shown = table(
        title,
        ("policy", "rank", *_NUMBERS),
        right=_NUMBERS,
        keys=("policy",),
        optional=(
            "rebalances",
            "largest",
            "above bound",
            "best in",
            "not drained",
            "to drain",
            "moves",
            "worst",
        ),
        caption=caption,
    )
    for row in rows:
        style = "bold" if row["is_best"] else "dim" if row["policy"] == OBSERVED else None
        shown.add_row(
            shown_policy(row["policy"]), "best" if row["is_best"] else "", *_cells(row), style=style
        )
    measured = next((row for row in rows if row["policy"] == OBSERVED), None)
    if measured is not None and measured["measured_max_lag_records"] is not None:
        shown.add_row(MEASURED_SHOWN, "", *_measured_cells(measured), style="dim")
    return shown


def _cells(row: dict[str, Any]) -> list[str]:
    days = row["group_days"]
    lag = "≥ " if row["unknown_partitions"] else ""
    time = "≥ " if row["unknown_ages"] else lag
    return [
        f"{time}{duration(row['p95_time_lag_ms'])}",
        f"{time}{duration(row['max_time_lag_ms'])}",
        f"{lag}{number(row['mean_lag_records'])}",
        f"{lag}{number(row['max_lag_records'])}",
        "not drained" if row["drain_time_ms"] is None else duration(row["drain_time_ms"]),
        f"{row['not_drained']} of {days}",
        number(row["moves"]),
        number(row["rebalances"]),
        percent(row["optimality_gap"]),
        f"{row['best_in']} of {days}",
    ]


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
    """Return notes on data that the numbers do not include, and on lower bounds.

    Returns the notes; empty when everything is known and counted.
    """
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
