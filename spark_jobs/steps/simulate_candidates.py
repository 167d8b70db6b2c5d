"""Simulate what other policies would have done with a day's snapshots: ``comparisons`` and ``replays``.

One Spark job per day, for all groups and policies. Each day is written as a whole, ``comparisons`` first and
``replays`` last: a repeat gives the same rows. A day whose replays carry the hash of the same comparison is
skipped, so a killed backfill resumes where it stopped. No broker is contacted, and a comparison has no
payload and no plan id, so there is nothing that could be published.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import SnapshotNotFoundError
from evenlag.lake.tables import (
    COMPARISONS,
    CONTINUOUS_REPLAYS,
    DOWNSAMPLED_DAYS,
    LAG,
    MEMBERS,
    REPLAYS,
    SNAPSHOTS,
    Table,
)
from evenlag.logging_setup import named_logger
from evenlag.policy.candidates import Candidate, parse_candidate
from evenlag.policy.settings import ComparisonSettings
from spark_jobs.runtime.progress import ReportProgress, no_progress
from spark_jobs.transforms.simulations import (
    ComparisonContext,
    build_comparison,
    select_moments,
    select_replays,
)

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame, Row

    from evenlag.policy.loader import LoadedPolicy
    from spark_jobs.runtime.delta_lake import Lake

_LOG = named_logger(__name__)
# Part of a comparison's hash: incremented when the same input gives other results.
_MODEL_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class Request:
    """What to compare.

    cluster: Name of the cluster in the policy.
    first, last: First and last day of the slots, UTC.
    names: Candidates as ``NAME[:key=value,…]``; when empty, those of the policy.
    is_continuous: Simulate the period as a whole.
    force: Compare again what has been compared before.
    """

    cluster: str
    first: date
    last: date
    names: tuple[str, ...] = ()
    is_continuous: bool = False
    force: bool = False


def run_compare(
    lake: Lake, loaded: LoadedPolicy, request: Request, progress: ReportProgress = no_progress
) -> dict[str, Any]:
    """Compare day by day, or a period as a whole.

    Returns ``compared, skipped, empty, downsampled``: days by what was done, as ISO 8601 text. The
    snapshots of a downsampled day are gone: its earlier comparison remains and cannot be repeated.
    """
    loaded.cluster_settings(request.cluster)
    settings = loaded.policy.comparison or ComparisonSettings()
    compared = tuple(dict.fromkeys(parse_candidate(name) for name in request.names or settings.policies))
    days = [request.first + timedelta(days=i) for i in range((request.last - request.first).days + 1)]
    done: dict[str, list[str]] = {"compared": [], "skipped": [], "empty": [], "downsampled": []}
    parts = [days] if request.is_continuous else [[day] for day in days]
    for number, part in enumerate(parts):
        progress("compare: simulating days", number, len(parts))
        started = time.monotonic()
        outcome = _compare_days(lake, loaded, request, compared, part)
        done[outcome].append(part[0].isoformat())
        _LOG.info("%s %s: %s in %.1f s", request.cluster, part[0], outcome, time.monotonic() - started)
    progress("compare: simulating days", len(parts), len(parts))
    if not done["compared"] and not done["skipped"]:
        raise SnapshotNotFoundError(
            f"{request.cluster} has no snapshot from {request.first} to {request.last}: nothing to compare"
            + ("; maintenance has downsampled them (raw_days)" if done["downsampled"] else "")
        )
    return done


def _compare_days(
    lake: Lake,
    loaded: LoadedPolicy,
    request: Request,
    compared: tuple[Candidate, ...],
    days: list[date],
) -> str:
    readings = _readings(lake, request.cluster, days)
    if not readings:
        return "empty"
    if _are_downsampled(lake, request.cluster, days):
        table = CONTINUOUS_REPLAYS if request.is_continuous else REPLAYS
        return "skipped" if _has_rows(lake, table, request.cluster, days[0]) else "downsampled"
    pauses = (loaded.policy.comparison or ComparisonSettings()).pauses
    context = ComparisonContext(
        policy=loaded.policy,
        cluster=request.cluster,
        day=days[0],
        compared=compared,
        pauses=pauses,
        snapshot_ids=tuple(row.snapshot_id for row in readings),
        slots=tuple(row.slot for row in readings),
        at_us=tuple(row.at_us for row in readings),
        comparison_id=_comparison_id(loaded, compared, readings, pauses.model_dump()),
        scores_snapshots=not request.is_continuous,
    )
    table = CONTINUOUS_REPLAYS if request.is_continuous else REPLAYS
    if not request.force and _is_done(lake, table, context):
        return "skipped"
    rows = build_comparison(
        _rows_of_days(lake, LAG, context, days), _rows_of_days(lake, MEMBERS, context, days), context
    ).cache()
    try:
        if context.scores_snapshots:
            lake.replace_days(
                COMPARISONS,
                select_moments(rows),
                context.cluster,
                days[:1],
                sort_by=("group_id", "policy", "slot"),
            )
        # Last: a day that has them is done.
        replays = select_replays(rows, table)
        lake.replace_days(table, replays, context.cluster, days[:1], sort_by=("group_id", "policy"))
    finally:
        rows.unpersist()
    return "compared"


def _readings(lake: Lake, cluster: str, days: list[date]) -> list[Row]:
    """The finished snapshots of the days in order, at most one per time: a few hundred per day."""
    from pyspark.sql import functions as sf

    rows = (
        lake.read(SNAPSHOTS)
        .where((sf.col("cluster") == cluster) & sf.col("day").between(days[0], days[-1]))
        .select("snapshot_id", "slot", sf.unix_micros("end_read_at").alias("at_us"))
        .orderBy("at_us", "snapshot_id")
        .collect()
    )
    return [row for i, row in enumerate(rows) if i == 0 or row.at_us > rows[i - 1].at_us]


def _are_downsampled(lake: Lake, cluster: str, days: list[date]) -> bool:
    from pyspark.sql import functions as sf

    downsampled = lake.read(DOWNSAMPLED_DAYS).where(
        (sf.col("cluster") == cluster) & sf.col("day").between(days[0], days[-1])
    )
    return bool(downsampled.take(1))


def _has_rows(lake: Lake, table: Table, cluster: str, day: date) -> bool:
    from pyspark.sql import functions as sf

    return bool(lake.read(table).where((sf.col("cluster") == cluster) & (sf.col("day") == day)).take(1))


def _rows_of_days(lake: Lake, table: Table, context: ComparisonContext, days: list[date]) -> DataFrame:
    """Rows of these snapshots only: rows of unfinished snapshots do not count."""
    from pyspark.sql import functions as sf

    return lake.read(table).where(
        (sf.col("cluster") == context.cluster)
        & sf.col("day").between(days[0], days[-1])
        & sf.col("snapshot_id").isin(list(context.snapshot_ids))
    )


def _is_done(lake: Lake, table: Table, context: ComparisonContext) -> bool:
    from pyspark.sql import functions as sf

    if not lake.exists(table):
        return False
    found = (
        lake.read(table)
        .where((sf.col("cluster") == context.cluster) & (sf.col("day") == context.day))
        .select("comparison_id")
        .distinct()
        .take(2)
    )
    return [row.comparison_id for row in found] == [context.comparison_id]


def _comparison_id(
    loaded: LoadedPolicy,
    compared: tuple[Candidate, ...],
    readings: list[Row],
    pauses: dict[str, float],
) -> str:
    """Hash of everything that determines the rows."""
    content = {
        "model": _MODEL_VERSION,
        "rules": [rule.model_dump(mode="json") for rule in loaded.policy.groups],
        "policies": [policy.name for policy in compared],
        "pauses": pauses,
        "readings": [row.snapshot_id for row in readings],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
