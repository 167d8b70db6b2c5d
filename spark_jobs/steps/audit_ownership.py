"""Audit: the members of each group and the partitions they owned, as intervals, from a cluster's snapshots.

Each UTC day depends only on the snapshots that started on it. A day is audited again when its snapshots have
changed since, whatever the order of their arrival; its rows are replaced, one commit per table.
``audited_snapshots`` is written last, so the next run repeats what a killed run left unfinished.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.tables import (
    AUDITED_SNAPSHOTS,
    DOWNSAMPLED_DAYS,
    MEMBERS,
    MEMBERSHIPS,
    OFFSETS,
    OWNERSHIP,
    SNAPSHOTS,
    Table,
)
from spark_jobs.runtime.cached_frames import CachedFrames
from spark_jobs.runtime.contract_columns import conform
from spark_jobs.runtime.parallel import run_in_parallel
from spark_jobs.transforms.group_memberships import build_memberships
from spark_jobs.transforms.intervals import number_snapshots
from spark_jobs.transforms.partition_ownership import build_ownership

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame, Row

    from spark_jobs.runtime.delta_lake import Lake

_LOG = logging.getLogger(__name__)

# Part of every input_hash: a new version audits every day again that still has its snapshots.
AUDIT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Audited:
    """Result of an audit.

    Attributes
    ----------
    days
        UTC days that were audited, oldest first.
    kept_days
        Days that have lost snapshots since they were audited: their rows are not changed, even where other
        snapshots were added. Days that maintenance has downsampled are skipped silently.
    """

    days: tuple[date, ...]
    kept_days: tuple[date, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return the days as JSON values, for the job's result.

        Returns
        -------
        dict
            Lists of ISO 8601 days, by attribute name.
        """
        return {
            "days": [day.isoformat() for day in self.days],
            "kept_days": [day.isoformat() for day in self.kept_days],
        }


def audit_assignments(lake: Lake, cluster: str, *, rebuild: bool = False) -> Audited:
    """Update a cluster's ``memberships``, ``ownership`` and ``audited_snapshots`` from its snapshots.

    Parameters
    ----------
    lake, cluster
        The tables, and the cluster's name in the policy.
    rebuild
        Audit every day again, even if its snapshots have not changed.

    Returns
    -------
    Audited
        Without days when all are up to date, or there is no snapshot yet.

    Raises
    ------
    LakeError
        When a table cannot be written.
    """
    markers = _markers(lake, cluster)
    changed = _changed_days(lake, cluster, markers, rebuild=rebuild).collect()
    if not changed and not markers.take(1):
        # No error: a cluster may be in the policy long before its first snapshot.
        _LOG.warning("%s has no finished snapshot yet: there is nothing to audit", cluster)
    downsampled = _downsampled_days(lake, cluster) if any(row.is_trimmed for row in changed) else set()
    kept = tuple(
        sorted(row.day for row in changed if row.is_trimmed and not downsampled.issuperset(row.slot_days))
    )
    if kept:
        _LOG.warning("%s: %d days have lost snapshots since they were audited, and stay", cluster, len(kept))
    days = sorted((row for row in changed if not row.is_trimmed), key=lambda row: row.day)
    if days:
        _write_days(lake, cluster, markers, days)
    return Audited(tuple(row.day for row in days), kept)


def _write_days(lake: Lake, cluster: str, markers: DataFrame, changed: list[Row]) -> None:
    from pyspark.sql import functions as sf

    days = {row.day: row.input_hash for row in changed}
    slot_days = {slot_day for row in changed for slot_day in row.slot_days}
    input_hash = sf.create_map(*(sf.lit(value) for pair in days.items() for value in pair))
    readings = number_snapshots(
        markers.where(sf.col("day").isin(*days)).withColumn(
            "input_hash", sf.element_at(input_hash, sf.col("day"))
        )
    )
    memberships = build_memberships(
        readings, _rows_of(lake, MEMBERS, cluster, slot_days), _rows_of(lake, OFFSETS, cluster, slot_days)
    )
    by_group = ("group_id", "first_seen_at")
    by_partition = ("group_id", "topic", "partition", "first_seen_at")
    with CachedFrames() as cached:
        cached.cache(readings)
        cached.cache(memberships)
        ownership = build_ownership(memberships, readings)
        run_in_parallel(
            partial(lake.replace_days, MEMBERSHIPS, memberships, cluster, days, sort_by=by_group),
            partial(lake.replace_days, OWNERSHIP, ownership, cluster, days, sort_by=by_partition),
        )
        audited = conform(readings, AUDITED_SNAPSHOTS)
        lake.replace_days(AUDITED_SNAPSHOTS, audited, cluster, days, sort_by=("started_at",))


def _markers(lake: Lake, cluster: str) -> DataFrame:
    """The finished snapshots by the UTC day on which they started, one per slot."""
    from pyspark.sql import functions as sf

    # A slot's snapshot may be taken late and then shows a later state: its start time counts, not the slot.
    return (
        lake.read(SNAPSHOTS)
        .where(sf.col("cluster") == cluster)
        .groupBy("cluster", "slot")
        .agg(
            *(
                sf.min_by(name, sf.struct("started_at", "snapshot_id")).alias(name)
                for name in ("snapshot_id", "started_at", "finished_at")
            ),
            sf.min("day").alias("slot_day"),
        )
        .withColumn("day", sf.to_date("started_at"))
    )


def _downsampled_days(lake: Lake, cluster: str) -> set[date]:
    """Days whose snapshots maintenance has downsampled: one row per day."""
    from pyspark.sql import functions as sf

    rows = lake.read(DOWNSAMPLED_DAYS).where(sf.col("cluster") == cluster).select("day").collect()
    return {row.day for row in rows}


def _changed_days(lake: Lake, cluster: str, markers: DataFrame, *, rebuild: bool) -> DataFrame:
    """The days whose snapshots have changed since they were audited.

    Returns
    -------
    DataFrame
        ``day, input_hash, slot_days`` (days that the rows are stored under), ``is_trimmed`` (whether
        snapshots that the audited rows were computed from no longer exist).
    """
    from pyspark.sql import functions as sf

    audited = (
        lake.read(AUDITED_SNAPSHOTS)
        .where(sf.col("cluster") == cluster)
        .groupBy("day")
        .agg(sf.min("input_hash").alias("old_input_hash"), sf.collect_set("snapshot_id").alias("old_ids"))
    )
    now = markers.groupBy("day").agg(
        sf.sort_array(sf.collect_set("snapshot_id")).alias("ids"),
        sf.collect_set("slot_day").alias("slot_days"),
    )
    input_hash = sf.sha2(sf.concat_ws("\n", sf.lit(f"audit {AUDIT_VERSION}"), "ids"), 256)
    is_changed = sf.lit(rebuild) | ~sf.col("input_hash").eqNullSafe(sf.col("old_input_hash"))
    lost = sf.array_except("old_ids", "ids")
    return (
        now.withColumn("input_hash", input_hash)
        .join(audited, "day", "left")
        .where(is_changed)
        .select(
            "day",
            "input_hash",
            "slot_days",
            sf.coalesce(sf.size(lost) > 0, sf.lit(False)).alias("is_trimmed"),
        )
    )


def _rows_of(lake: Lake, table: Table, cluster: str, days: set[date]) -> DataFrame:
    from pyspark.sql import functions as sf

    return lake.read(table).where((sf.col("cluster") == cluster) & sf.col("day").isin(*days))
