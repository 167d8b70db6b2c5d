"""Observed lag: of all groups in one snapshot, and of one group over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.lag.group_lag import counted_rows
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.queries.comparisons import MEASURED_SHOWN
from evenlag.queries.lag import group_rows
from evenlag.report.model import GroupLag, Series

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import pyarrow as pa


def group_lags(lag: pa.Table, members: pa.Table) -> list[GroupLag]:
    """Aggregate the lag of the groups of a snapshot.

    Returns by lag, largest first; last the groups of which only partitions without a subscriber are left.
    lag, members: Rows of the snapshot, as in :func:`evenlag.queries.lag.group_rows`.
    """
    unknown: dict[str, dict[str, int]] = {}
    for row in _unknown_by_status(counted_rows(lag), "group_id"):
        unknown.setdefault(row["group_id"], {})[row["status"]] = row["count_all"]
    return [
        GroupLag(
            group_id=row["group_id"],
            num_members=row["num_members"],
            num_partitions=row["num_partitions"],
            lag_records=row["lag_records"] if row["num_partitions"] else 0,
            max_member_lag_records=row["max_member_lag_records"],
            num_unknown=row["num_unknown_partitions"],
            unknown=unknown.get(row["group_id"], {}),
            lag_bound=row["lag_bound"],
            time_lag_ms=row["time_lag_ms"],
            time_lag_at_least_ms=row["time_lag_at_least_ms"],
            not_subscribed=(row["num_not_subscribed_partitions"], row["not_subscribed_lag_records"]),
        )
        for row in group_rows(lag, members)
        if row["num_partitions"] or row["num_not_subscribed_partitions"]
    ]


def observed_lag(lag: pa.Table, read_at: Mapping[str, datetime]) -> Series:
    """Aggregate the lag of a group by snapshot.

    read_at: Time at which the end offsets had been read, by snapshot id; simulations use it, too.
    """
    keys = ["snapshot_id"]
    shown = lag["snapshot_id"].unique().to_pylist()
    lag = counted_rows(lag)
    rows = lag.group_by(keys).aggregate([("lag_records", "sum"), ("lag_records", "count"), ([], "count_all")])
    by_snapshot = {row["snapshot_id"]: row for row in rows.to_pylist()}
    # Without a partition that counts, there is no lag.
    nothing = {"lag_records_sum": 0, "lag_records_count": 0, "count_all": 0}
    totals = [
        by_snapshot.get(name, {"snapshot_id": name, **nothing})
        for name in sorted(shown, key=lambda name: (read_at[name], name))
    ]
    by_member = _member_sums(lag, *keys).group_by(keys).aggregate([("lag_records_sum", "max")])
    most = {row["snapshot_id"]: row["lag_records_sum_max"] for row in by_member.to_pylist()}
    by_status: dict[str, list[int]] = {}
    for row in _unknown_by_status(lag, *keys):
        by_status.setdefault(row["status"], []).append(row["count_all"])
    return Series(
        name=MEASURED_SHOWN,
        at=tuple(read_at[row["snapshot_id"]] for row in totals),
        lag_records=tuple(row["lag_records_sum"] for row in totals),
        max_member_lag_records=tuple(most.get(row["snapshot_id"]) for row in totals),
        num_unknown=tuple(row["count_all"] - row["lag_records_count"] for row in totals),
        unknown=tuple((status, len(counts), max(counts)) for status, counts in sorted(by_status.items())),
    )


def cut(series: Series, since: datetime, until: datetime) -> Series:
    """Cut a simulated series to a period."""
    # Replays before model version 3 have times cut to milliseconds, the period has microseconds.
    since = floor_to_ms(since)
    places = [place for place, at in enumerate(series.at) if since <= at <= until]
    while places and series.lag_records[places[0]] is None:
        places.pop(0)
    return Series(
        name=series.name,
        at=tuple(series.at[place] for place in places),
        lag_records=tuple(series.lag_records[place] for place in places),
        max_member_lag_records=tuple(series.max_member_lag_records[place] for place in places),
    )


def _member_sums(lag: pa.Table, *keys: str) -> pa.Table:
    """Lag by the keys and owner; null where all of it is unknown."""
    import pyarrow.compute as pc

    owned = lag.filter(pc.is_valid(lag["owner_member_id"]))
    return owned.group_by([*keys, "owner_member_id"]).aggregate([("lag_records", "sum")])


def _unknown_by_status(lag: pa.Table, *keys: str) -> list[dict[str, Any]]:
    import pyarrow.compute as pc

    unknown = lag.filter(pc.is_null(lag["lag_records"]))
    rows: list[dict[str, Any]] = (
        unknown.group_by([*keys, "status"]).aggregate([([], "count_all")]).to_pylist()
    )
    return rows
