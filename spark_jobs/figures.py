"""Figures of a cluster for monitoring, from its newest snapshot; no JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.approvals import count_open_requests
from spark_jobs.lake_reader import LakeReader
from spark_jobs.tables import LAG, PLANS

if TYPE_CHECKING:
    from datetime import datetime

    from spark_jobs.lake_reader import Filter

_EVENTS = ("PROPOSED", "REJECTED", "APPROVED", "PUBLISHED", "APPLIED", "IGNORED", "EXPIRED", "WITHDRAWN")


def read_figures(lake: str, cluster: str, now: datetime) -> dict[str, float]:
    """Measure a cluster.

    Returns
    -------
    dict
        ``snapshot.age_s, snapshot.completeness, snapshot.groups, snapshot.partitions, lag.records``,
        ``plans.<event>`` (plans of the newest snapshot, by what happened to them) and ``approvals.open``;
        those that are not known are left out.

    Raises
    ------
    LakeError
        When a table cannot be read.
    """
    reader = LakeReader(lake)
    figures: dict[str, float] = {"approvals.open": count_open_requests(reader, cluster, now)}
    snapshot = reader.latest_snapshot(cluster)
    if snapshot is None:
        return figures
    wanted: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", "=", snapshot["day"]),
        ("snapshot_id", "=", snapshot["snapshot_id"]),
    ]
    figures |= {
        "snapshot.age_s": (now - snapshot["finished_at"]).total_seconds(),
        "snapshot.completeness": snapshot["completeness"],
        "snapshot.groups": snapshot["num_groups"],
        "snapshot.partitions": snapshot["num_partitions"],
        "lag.records": _total_lag(reader, wanted),
        "plans.made": reader.read(PLANS, columns=["plan_id"], filters=wanted).num_rows,
    }
    events = reader.read_events(filters=wanted)["event"].to_pylist()
    figures |= {f"plans.{event.lower()}": events.count(event) for event in _EVENTS}
    return {name: value for name, value in figures.items() if value is not None}


def _total_lag(reader: LakeReader, wanted: list[Filter]) -> int:
    import pyarrow.compute as pc

    return pc.sum(reader.read(LAG, columns=["lag_records"], filters=wanted)["lag_records"]).as_py() or 0
