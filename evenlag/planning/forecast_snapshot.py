"""Forecast what arrives after a snapshot, for each group: rows of ``hourly_rates`` and ``forecasts``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import LakeError
from evenlag.lag.forecast_rows import LAG_COLUMNS, POINT_COLUMNS, build_forecasts, expected_ends
from evenlag.lag.hourly_rates import finish_hour, read_hours
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import FORECASTS, LAG, OFFSETS
from evenlag.lake.writer import append_once
from evenlag.logging_setup import named_logger

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader
    from evenlag.lake.snapshot_reader import SnapshotReader
    from evenlag.policy.settings import Policy

_LOG = named_logger(__name__)
_HEAD: Final = ("cluster", "day", "snapshot_id", "read_at")


def forecast_snapshot(rows: SnapshotReader, policy: Policy) -> dict[str, Any]:
    """Forecast the arrivals of a snapshot's groups, each once; return their number for the step's summary.

    An error costs neither the snapshot nor the step: planning then uses the rates of the snapshot.
    """
    try:
        finish_hour(rows)
        return {"forecasts": _forecast_groups(rows, policy)}
    except Exception as error:  # noqa: BLE001 - a forecast that fails must not fail the snapshot
        _LOG.error("the arrivals after %s were not forecast: %s", rows.snapshot_id, error, exc_info=error)
        return {"forecasts": 0}


def _forecast_groups(rows: SnapshotReader, policy: Policy) -> int:
    """The driver has a batch of groups at once, however large the snapshot is."""
    import pyarrow.compute as pc

    cluster, reader = rows.cluster, rows.reader
    done = reader.read(FORECASTS, columns=["group_id"], filters=rows.filters)["group_id"].to_pylist()
    wanted = set(rows.rows(LAG, ["group_id"])["group_id"].unique().to_pylist()) - set(done)
    if not wanted:
        return 0

    def horizon_of(group_id: str) -> int:
        return policy.group_settings(cluster, group_id).plan_horizon_s

    horizon = timedelta(seconds=max(map(horizon_of, wanted)))
    offsets = rows.rows(OFFSETS, POINT_COLUMNS)
    offsets = offsets.filter(pc.is_valid(offsets["interval_points"]))
    hourly = read_hours(reader, cluster, rows.marker["end_read_at"], horizon)
    head = _previous(reader, cluster, rows.marker["end_read_at"])
    for group_ids in rows.group_batches(wanted):
        previous = _previous_rows(rows, head, group_ids)
        lag = rows.rows_of_groups(LAG, LAG_COLUMNS, group_ids)
        found = build_forecasts(lag, offsets, previous, hourly, rows.marker, horizon_of)
        # A repeat has the same batches, or the last ones of them.
        written = [*rows.filters, ("group_id", "in", group_ids[:1])]
        append_once(reader.paths.root, FORECASTS, found, written)
    return len(wanted)


def read_expected(reader: LakeReader, cluster: str) -> pa.Table | None:
    """Read what the newest forecasts expect of each partition, which groups may share; None without any.

    Returns ``topic_id, topic, partition, read_at, end_offset, last_records_per_s``.
    """
    try:
        head = _previous(reader, cluster, datetime.now(UTC))
        if head is None:
            return None
        found = reader.read(FORECASTS, columns=["group_id", "partitions"], filters=snapshot_filters(head))
    except LakeError as error:
        _LOG.warning("the newest forecasts of %s cannot be read: %s", cluster, error)
        return None
    return expected_ends(found)


def _previous(reader: LakeReader, cluster: str, before: datetime) -> dict[str, Any] | None:
    """The head of the newest snapshot before a moment that has forecasts."""
    filters: list[Filter] = [
        ("cluster", "=", cluster),
        # Older states say nothing any more.
        ("day", ">=", (before - timedelta(days=2)).date()),
        ("read_at", "<", before),
    ]
    found = reader.read_newest(FORECASTS, "read_at", columns=_HEAD, filters=filters)
    return next(iter(found.slice(0, 1).to_pylist()), None)


def _previous_rows(rows: SnapshotReader, head: dict[str, Any] | None, group_ids: list[str]) -> pa.Table:
    of_groups: list[Filter] = [("group_id", "in", group_ids)]
    if head is None:
        return rows.reader.read(FORECASTS, filters=[*rows.filters, *of_groups]).slice(0, 0)
    return rows.reader.read(FORECASTS, filters=[*snapshot_filters(head), *of_groups])
