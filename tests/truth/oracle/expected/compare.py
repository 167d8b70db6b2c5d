"""`evenlag compare`: a comparison of candidates, aggregated from the rows of the replays."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final

from tests.truth.oracle.forms import UNKNOWN, duration, number, percent
from tests.truth.oracle.lake_rows import by
from tests.truth.oracle.session import compare_exports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.truth.oracle.lake_rows import Row
    from tests.truth.oracle.session import Session

COMMAND: Final = "compare"
OBSERVED: Final = "observed"
OBSERVED_SHOWN: Final = "as it ran (replayed)"
MEASURED_SHOWN: Final = "as it ran (measured)"
BY: Final = (
    "waiting_p99_ms",
    "waiting_p95_ms",
    "mean_lag_records",
    "max_lag_records",
    "max_time_lag_ms",
    "moves",
)


def check_compare(session: Session) -> None:
    """Compare the output for all groups by each measure, for each group, and for continuous replays."""
    for table, options in (("replays", ()), ("continuous_replays", ("--continuous",))):
        replays = session.rows.rows(table)
        if not replays:
            session.fails(COMMAND, *options, exit_code=4)
            continue
        for measure in BY:
            _check(session, replays, None, (*options, "--by", measure), measure)
        for group_id in sorted({row["group_id"] for row in replays}):
            _check(session, replays, group_id, options, BY[0])
        days = sorted({row["day"] for row in replays})
        for option, day in (("--from", days[-1]), ("--to", days[0])):
            chosen = [
                row for row in replays if (row["day"] >= day if option == "--from" else row["day"] <= day)
            ]
            _check(session, chosen, None, (*options, option, day.isoformat()), BY[0])
        _check_each(session, replays, options)


def _check(
    session: Session, replays: Sequence[Row], group_id: str | None, options: Sequence[str], measure: str
) -> None:
    own = [row for row in replays if group_id in {None, row["group_id"]}]
    arguments = (*([group_id] if group_id else []), *options)
    name = " ".join(arguments)
    expected = answer(session, own, group_id, measure)
    head = {"cluster": session.rows.cluster, "by": measure, "days": sorted({row["day"] for row in own})}
    session.same(COMMAND, name, session.ask(COMMAND, *arguments), head | {"groups": [expected]})
    if measure != BY[0]:
        return
    tables, _ = session.printed(COMMAND, *arguments)
    printed = tables[0].rows if tables else None
    rows = expected["policies"]
    session.same(COMMAND, f"printed {name}", printed, cells(rows) if rows else printed)
    if (
        rows
        and "--from" not in options
        and "--to" not in options
        and session.is_first(f"{COMMAND} {group_id is None}")
    ):
        compare_exports(session, COMMAND, arguments, [{"group_id": group_id} | row for row in rows])


def _check_each(session: Session, replays: Sequence[Row], options: Sequence[str]) -> None:
    groups = sorted({row["group_id"] for row in replays})
    expected = [
        answer(session, [row for row in replays if row["group_id"] == name], name, BY[0]) for name in groups
    ]
    shown = session.ask(COMMAND, *options, "--per-group")
    session.same(COMMAND, "--per-group", shown and shown["groups"], expected)


def answer(session: Session, replays: Sequence[Row], group_id: str | None, measure: str) -> Row:
    """Return the expected output for a group, or for all groups."""
    everything = {(row["day"], row["group_id"]) for row in replays}
    return {
        "group_id": group_id,
        "policies": sum_up(session, replays, measure),
        "left_out": len(everything) - len(_whole(replays)),
        "partly_known": len(_whole(replays)) - len(_counted(replays)),
        "model": model(replays),
        "not_compared": _not_compared(replays),
    }


def sum_up(session: Session, replays: Sequence[Row], measure: str) -> list[Row]:
    """Return one row per candidate, the best first, over groups and days with replays of every candidate."""
    cells = _counted(replays)
    found = []
    for policy in sorted({row["policy"] for cell in cells for row in cell}):
        own = [row for cell in cells for row in cell if row["policy"] == policy]
        won = [
            cell
            for cell in cells
            if _rank(_of(cell, policy), measure) == min(_rank(r, measure) for r in cell)
        ]
        found.append(_summed(own) | {"best_in": len(won), "optimality_gap": _distance(session, own)})
    in_order = sorted(found, key=lambda row: (*_rank(row, measure), row["policy"]))
    return [row | {"is_best": _rank(row, measure) == _rank(in_order[0], measure)} for row in in_order]


def _whole(replays: Sequence[Row]) -> list[list[Row]]:
    done = [row for row in replays if row["reason"] is None]
    policies = {row["policy"] for row in done}
    return [cell for cell in by(done, "day", "group_id").values() if {r["policy"] for r in cell} == policies]


def _counted(replays: Sequence[Row]) -> list[list[Row]]:
    """The group-days with a known lag of every partition, if there are any."""
    cells = _whole(replays)
    known = [cell for cell in cells if not any(_unknown_partitions(row) for row in cell)]
    return known or cells


def _unknown_partitions(row: Row) -> int:
    """Partitions whose lag was never known; a lake of an older version does not say."""
    return row.get("num_unknown_partitions") or 0


def _of(cell: Sequence[Row], policy: str) -> Row:
    return next(row for row in cell if row["policy"] == policy)


def _rank(row: Row, measure: str) -> tuple[Any, ...]:
    value = row.get(measure)
    return (value is None, value, row["mean_lag_records"], row["moves"])


def _summed(rows: Sequence[Row]) -> Row:
    undrained = sum(row["drain_time_ms"] is None for row in rows)
    drained = sorted(row["drain_time_ms"] for row in rows if row["drain_time_ms"] is not None)
    # A drain time beyond the period is longer than all others.
    places = {(len(rows) - 1) // 2, len(rows) // 2}
    middle = None if max(places) >= len(drained) else fmean(drained[place] for place in places)
    return {
        "policy": rows[0]["policy"],
        "group_days": len(rows),
        "mean_lag_records": fmean(row["mean_lag_records"] for row in rows),
        "max_lag_records": max(row["max_lag_records"] for row in rows),
        "max_time_lag_ms": max(row["max_time_lag_ms"] for row in rows),
        "drain_time_ms": middle,
        "not_drained": undrained,
        **{name: sum(row[name] for row in rows) for name in ("moves", "takeover_moves", "rebalances")},
        "unknown_share": _mean(rows, "unknown_share"),
        "unknown_ages": sum(_known(rows, "num_unknown_ages")),
        "unknown_partitions": sum(map(_unknown_partitions, rows)),
        **_waiting(rows),
        **_bounds(rows),
        **(_measured(rows) if rows[0]["policy"] == OBSERVED else {}),
    }


def _waiting(rows: Sequence[Row]) -> Row:
    """Waiting on the days that have it; a lake of an older version has none."""
    known = [row for row in rows if row.get("record_s") is not None]
    total = sum(row["record_s"] for row in known) if known else None

    def share(limit: str) -> float | None:
        above = sum(row[f"record_s_above_{limit}"] for row in known)
        return None if total is None else above / total if total else 0.0

    return {
        **{name: _mean(known, name) for name in ("waiting_p50_ms", "waiting_p95_ms", "waiting_p99_ms")},
        "record_s": total,
        **{f"above_{limit}": share(limit) for limit in ("5s", "30s", "300s")},
        "unknown_waiting": len(rows) - len(known),
    }


def _bounds(rows: Sequence[Row]) -> Row:
    """What the snapshots leave open; a lake of an older version does not say."""
    has_all = all(row.get("most_record_s") is not None for row in rows)
    record_s = ("least_record_s", "most_record_s")
    peaks = [f"{each}peak_member_lag_records" for each in ("", "least_", "most_")]
    return {
        **{name: max(row[name] for row in rows) if has_all else None for name in peaks},
        **{name: sum(row[name] for row in rows) if has_all else None for name in record_s},
        "wide_share": _mean([row for row in rows if row.get("wide_share") is not None], "wide_share"),
    }


def _measured(rows: Sequence[Row]) -> Row:
    return {
        "measured_mean_lag_records": _mean(rows, "measured_mean_lag_records"),
        "measured_max_lag_records": max(_known(rows, "measured_max_lag_records"), default=None),
        "measured_max_time_lag_ms": max(_known(rows, "measured_max_time_lag_ms"), default=None),
        "measured_unknown_share": _mean(rows, "measured_unknown_share"),
        "unknown_lags": sum(_known(rows, "num_unknown_lags")),
        "unknown_time_lags": sum(_known(rows, "num_unknown_time_lags")),
    }


def _known(rows: Sequence[Row], name: str) -> list[Any]:
    return [row[name] for row in rows if row[name] is not None]


def _mean(rows: Sequence[Row], name: str) -> float | None:
    known = _known(rows, name)
    return fmean(known) if known else None


def _distance(session: Session, rows: Sequence[Row]) -> float | None:
    """Mean optimality gap of the snapshots on the days of the replays."""
    known: list[float] = []
    for row in rows:
        is_continuous = row in session.rows.rows("continuous_replays")
        last = row["period_end"].date() if is_continuous else row["day"]
        of_group = session.rows.where("comparisons", policy=row["policy"], group_id=row["group_id"])
        days = [each for each in of_group if row["day"] <= each["day"] <= last]
        known += [each["optimality_gap"] for each in days if each["optimality_gap"] is not None]
    return fmean(known) if known else None


def model(replays: Sequence[Row]) -> Row | None:
    """Return the error of the replay of the observed assignments."""
    rows = [r for r in replays if r["policy"] == OBSERVED and r["median_error"] is not None]
    if not rows:
        return None
    rows = [row for row in rows if not _unknown_partitions(row)] or rows
    names = ("median_error", "p95_error", "median_error_records", "p95_error_records")
    counts = [row.get("num_error_snapshots") for row in rows]
    return {
        "group_days": len(rows),
        "error_snapshots": None if any(count is None for count in counts) else sum(counts),
        **{name: median(row[name] for row in rows) for name in names},
        **{
            f"{kind}_capacities": sum(r[f"num_{kind}_capacities"] for r in rows)
            for kind in ("observed", "assumed")
        },
    }


def _not_compared(replays: Sequence[Row]) -> list[Row]:
    counts = Counter(
        (row["group_id"], row["policy"], row["reason"]) for row in replays if row["reason"] is not None
    )
    return [
        {"group_id": group_id, "policy": policy, "reason": reason, "days": days}
        for (group_id, policy, reason), days in sorted(counts.items())
    ]


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """Return the printed table: one row per candidate, and one of the measured lag."""
    found = [_cells(row) for row in rows]
    measured = [
        row for row in rows if row["policy"] == OBSERVED and row["measured_max_lag_records"] is not None
    ]
    return found + [_measured_cells(row) for row in measured]


def _cells(row: Row) -> list[str]:
    lag = "≥ " if row["unknown_partitions"] else ""
    bound = "≥ " if row["unknown_ages"] or row["unknown_partitions"] else ""
    return [
        OBSERVED_SHOWN if row["policy"] == OBSERVED else row["policy"],
        "best" if row["is_best"] else "",
        *(
            duration(row[name]) if row[name] is None else bound + duration(row[name])
            for name in ("waiting_p50_ms", "waiting_p95_ms", "waiting_p99_ms")
        ),
        *(percent(row[f"above_{limit}"]) for limit in ("5s", "30s", "300s")),
        bound + duration(row["max_time_lag_ms"]),
        lag + number(row["mean_lag_records"]),
        between(row, "peak_member_lag_records"),
        between(row, "record_s"),
        "not drained" if row["drain_time_ms"] is None else duration(row["drain_time_ms"]),
        f"{row['not_drained']} of {row['group_days']}",
        number(row["moves"]),
        number(row["rebalances"]),
        percent(row["optimality_gap"]),
        f"{row['best_in']} of {row['group_days']}",
    ]


def between(row: Row, name: str) -> str:
    """Return a number with its bounds, if they are known and differ."""
    shown, least, most = (number(row[each]) for each in (name, f"least_{name}", f"most_{name}"))
    return shown if least == most else f"{shown} ({least} to {most})"


def _measured_cells(row: Row) -> list[str]:
    def tail(text: str, unknown: Any) -> str:
        return f"≥ {text}" if unknown and text != UNKNOWN else text

    return [
        MEASURED_SHOWN,
        "",
        *[UNKNOWN] * 6,
        tail(duration(row["measured_max_time_lag_ms"]), row["unknown_time_lags"]),
        tail(number(row["measured_mean_lag_records"]), row["measured_unknown_share"]),
        *[UNKNOWN] * 8,
    ]
