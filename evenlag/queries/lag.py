"""Lag of groups and members in one snapshot, with the number of partitions whose lag is unknown.

A sum over partitions of which some are unknown is a lower bound; it is None where all are unknown. A skew has
no lower bound: it is None as soon as one partition is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter


def group_rows(lag: pa.Table, members: pa.Table) -> list[dict[str, Any]]:
    """Aggregate lag by group.

    Parameters
    ----------
    lag
        Rows of ``lag`` of one snapshot: ``group_id, owner_member_id, status, lag_records, time_lag_ms``.
    members
        Rows of ``members`` of the same snapshot: ``group_id, member_id``.

    Returns
    -------
    list of dict
        By lag, largest first, groups without any known lag last: ``group_id, num_members, num_partitions,
        num_unknown_partitions, lag_records, max_member_lag_records, lag_skew, time_lag_ms,
        num_unknown_time_lags, statuses`` (number of partitions by lag status). With unknown partitions both
        lags are lower bounds, as is the time lag with unknown time lags.
    """
    by_member = _by_member(lag, members)
    statuses: dict[str, dict[str, int]] = defaultdict(dict)
    for row in lag.group_by(["group_id", "status"]).aggregate([([], "count_all")]).to_pylist():
        statuses[row["group_id"]][row["status"]] = row["count_all"]
    times = lag.group_by("group_id").aggregate([("time_lag_ms", "max"), ("time_lag_ms", "count")])
    answer = []
    for row in times.to_pylist():
        group_id = row["group_id"]
        total = sum_up(by_member[group_id].values())
        answer.append(
            {
                "group_id": group_id,
                **total,
                "time_lag_ms": row["time_lag_ms_max"],
                "num_unknown_time_lags": total["num_partitions"] - row["time_lag_ms_count"],
                "statuses": dict(sorted(statuses[group_id].items())),
            }
        )
    return sorted(
        answer, key=lambda row: (row["lag_records"] is None, -(row["lag_records"] or 0), row["group_id"])
    )


def member_rows(lag: pa.Table, members: pa.Table) -> list[dict[str, Any]]:
    """Aggregate lag by member of one group.

    Parameters
    ----------
    lag
        Rows of ``lag`` of one snapshot and group: ``group_id, owner_member_id, lag_records``.
    members
        Rows of ``members`` of the same snapshot and group: ``group_id, member_id``.

    Returns
    -------
    list of dict
        ``member_id`` (None: partitions without a known owner), ``num_partitions, num_unknown_partitions,
        lag_records``; by lag, largest first, members without any known lag last.
    """
    by_group = _by_member(lag, members)
    found = [row for of_group in by_group.values() for row in of_group.values()]
    return sorted(
        found,
        key=lambda row: (row["lag_records"] is None, -(row["lag_records"] or 0), row["member_id"] or ""),
    )


def sum_up(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Aggregate the rows of a group's members into one row of the group.

    Parameters
    ----------
    parts
        Rows of :func:`member_rows` of one group.

    Returns
    -------
    dict
        ``num_members, num_partitions, num_unknown_partitions, lag_records, max_member_lag_records,
        lag_skew`` (largest over mean lag of a member).
    """
    rows = list(parts)
    of_members = [row for row in rows if row["member_id"] is not None]
    num_unknown = sum(row["num_unknown_partitions"] for row in rows)
    known = [row["lag_records"] for row in rows if row["lag_records"] is not None and row["num_partitions"]]
    lags = [row["lag_records"] for row in of_members if row["lag_records"] is not None]
    mean = sum(lags) / len(lags) if lags else 0
    most = max(lags, default=None) if known else None
    return {
        "num_members": len(of_members),
        "num_partitions": sum(row["num_partitions"] for row in rows),
        "num_unknown_partitions": num_unknown,
        "lag_records": sum(known) if known else None,
        "max_member_lag_records": most,
        "lag_skew": most / mean if most is not None and mean and not num_unknown else None,
    }


def total_lag(cycle: Mapping[str, Any]) -> dict[str, Any]:
    """Sum the lag of a cycle's snapshot.

    Parameters
    ----------
    cycle
        ``cluster``, ``lake`` and the summary ``observe``, as ``evenlag run --json`` has them.

    Returns
    -------
    dict
        ``lag_records`` and ``num_unknown_partitions``; None when they cannot be read. The sum is None when no
        partition's lag is known.
    """
    from evenlag.errors import LakeError
    from evenlag.lake.reader import LakeReader
    from evenlag.lake.snapshot_ids import slot_day
    from evenlag.lake.tables import LAG

    snapshot_id = cycle.get("observe", {}).get("snapshot_id")
    if snapshot_id is None:
        return {"lag_records": None, "num_unknown_partitions": None}
    filters: list[Filter] = [("cluster", "=", cycle["cluster"]), ("day", "=", slot_day(snapshot_id))]
    filters.append(("snapshot_id", "=", snapshot_id))
    try:
        lags = LakeReader(cycle["lake"]).read(LAG, columns=["lag_records"], filters=filters)["lag_records"]
    except LakeError:
        return {"lag_records": None, "num_unknown_partitions": None}
    known = lags.drop_null().to_pylist()
    return {"lag_records": sum(known) if known else None, "num_unknown_partitions": lags.null_count}


def _by_member(lag: pa.Table, members: pa.Table) -> dict[str, dict[str | None, dict[str, Any]]]:
    """Rows by group and member id; the key None has the partitions without a known owner.

    A live member without partitions has a lag of 0. While a group rebalances, its lag is unknown: it may own
    some of the unknown partitions.
    """
    found: dict[str, dict[str | None, dict[str, Any]]] = defaultdict(dict)
    for group_id, member_id in zip(
        members["group_id"].to_pylist(), members["member_id"].to_pylist(), strict=True
    ):
        if member_id is not None:
            found[group_id][member_id] = _row(member_id, 0, 0, 0)
    sums = lag.group_by(["group_id", "owner_member_id"]).aggregate(
        [("lag_records", "sum"), ("lag_records", "count"), ([], "count_all")]
    )
    for row in sums.to_pylist():
        found[row["group_id"]][row["owner_member_id"]] = _row(
            row["owner_member_id"],
            row["count_all"],
            row["count_all"] - row["lag_records_count"],
            row["lag_records_sum"],
        )
    for of_group in found.values():
        if None in of_group and of_group[None]["num_unknown_partitions"]:
            for row in of_group.values():
                row["lag_records"] = row["lag_records"] if row["num_partitions"] else None
    return found


def _row(
    member_id: str | None, num_partitions: int, num_unknown: int, lag_records: int | None
) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "num_partitions": num_partitions,
        "num_unknown_partitions": num_unknown,
        "lag_records": lag_records,
    }
