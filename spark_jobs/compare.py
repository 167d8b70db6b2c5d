"""Compare candidates: simulate other assignors on past days, into ``comparisons`` and ``replays``.

``python -m spark_jobs.compare --cluster orders --day 2026-03-01``; ``--to`` for more days, ``--continuous``
to simulate them as one period (``continuous_replays``).

One Spark job per day, for all groups and policies. Each day is written as a whole, ``comparisons`` first and
``replays`` last: a repeat gives the same rows. A day whose replays carry the hash of the same comparison is
skipped, so a killed backfill resumes where it stopped. No broker is contacted, and a comparison has no
payload and no plan id, so there is nothing that could be published.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from evenlag.errors import PolicyError, SnapshotNotFoundError
from evenlag.lake.filters import Filter, matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import (
    COMPARISONS,
    CONTINUOUS_REPLAYS,
    DOWNSAMPLED_DAYS,
    LAG,
    MEMBERS,
    REPLAYS,
    SNAPSHOTS,
    SPEEDS,
)
from evenlag.logging_setup import named_logger
from evenlag.policy.candidates import Candidate, parse_candidate
from evenlag.policy.loader import LoadedPolicy, load_policy
from evenlag.policy.settings import ComparisonSettings
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.entry_point import Job, JobWork, end_process, run_job
from spark_jobs.runtime.frames import CachedFrames
from spark_jobs.runtime.progress import ReportProgress, no_progress
from spark_jobs.transforms.simulations import (
    MOMENT,
    REPLAY,
    ComparisonContext,
    build_comparison,
    select_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOG = named_logger("spark_jobs.compare")
# Part of a comparison's hash: incremented when the same input gives other results.
_MODEL_VERSION: Final = 6


@dataclass(frozen=True, slots=True)
class Request:
    """What to compare: candidates ``NAME[:key=value,…]``, none for the policy's, by day or as one period."""

    cluster: str
    first: date
    last: date
    names: tuple[str, ...] = ()
    is_continuous: bool = False
    force: bool = False


def run_compare(
    lake: Lake, loaded: LoadedPolicy, request: Request, progress: ReportProgress = no_progress
) -> dict[str, Any]:
    """Compare day by day, or a period as a whole; returns days by what was done.

    The snapshots of a downsampled day are gone: its earlier comparison remains and cannot be repeated.
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
    reader = LakeReader(lake.paths.root)
    readings = _readings(reader, request.cluster, days)
    if not readings.num_rows:
        return "empty"
    table = CONTINUOUS_REPLAYS if request.is_continuous else REPLAYS
    of_day = matching(cluster=request.cluster, day=days[0])
    earlier = set(reader.read(table, columns=["comparison_id"], filters=of_day)["comparison_id"].to_pylist())
    downsampled = reader.read(DOWNSAMPLED_DAYS, columns=["day"], filters=_of_days(request.cluster, days))
    if downsampled.num_rows:
        return "skipped" if earlier else "downsampled"
    pauses = (loaded.policy.comparison or ComparisonSettings()).pauses
    snapshot_ids = readings["snapshot_id"].to_pylist()
    context = ComparisonContext(
        policy=loaded.policy,
        cluster=request.cluster,
        day=days[0],
        compared=compared,
        pauses=pauses,
        snapshot_ids=tuple(snapshot_ids),
        slots=tuple(readings["slot"].to_pylist()),
        at_us=tuple(readings["end_read_at"].cast("int64").to_pylist()),
        comparison_id=_comparison_id(loaded, compared, snapshot_ids, pauses.model_dump()),
        scores_snapshots=not request.is_continuous,
    )
    if not request.force and earlier == {context.comparison_id}:
        return "skipped"
    with CachedFrames() as cached:
        lag, members, speeds = (
            lake.read_days(each, context.cluster, days, snapshot_ids) for each in (LAG, MEMBERS, SPEEDS)
        )
        rows = cached.cache(build_comparison(lag, members, speeds, context))
        replace = partial(lake.replace_days, cluster=context.cluster, days=days[:1])
        if context.scores_snapshots:
            replace(
                COMPARISONS, select_rows(rows, MOMENT, COMPARISONS), sort_by=("group_id", "policy", "slot")
            )
        # Last: a day that has them is done.
        replace(table, select_rows(rows, REPLAY, table), sort_by=("group_id", "policy"))
    return "compared"


def _of_days(cluster: str, days: list[date]) -> list[Filter]:
    return matching(cluster=cluster, since=days[0], until=days[-1])


def _readings(reader: LakeReader, cluster: str, days: list[date]) -> pa.Table:
    """The finished snapshots of the days in order, at most one per time: a few hundred per day."""
    columns = ["snapshot_id", "slot", "end_read_at"]
    found = reader.read(SNAPSHOTS, columns=columns, filters=_of_days(cluster, days))
    found = found.sort_by([("end_read_at", "ascending"), ("snapshot_id", "ascending")])
    at_us = found["end_read_at"].cast("int64").to_numpy()
    return found.filter(pa.array(np.diff(at_us, prepend=-1) > 0))


def _comparison_id(
    loaded: LoadedPolicy, compared: tuple[Candidate, ...], readings: list[str], pauses: dict[str, float]
) -> str:
    """Hash of everything that determines the rows."""
    content = {
        "model": _MODEL_VERSION,
        "rules": [rule.model_dump(mode="json") for rule in loaded.policy.groups],
        "policies": [policy.name for policy in compared],
        "pauses": pauses,
        "readings": readings,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", required=True, help="name of the cluster in the policy")
    parser.add_argument("--day", required=True, type=date.fromisoformat, help="UTC day of the slots")
    parser.add_argument("--to", type=date.fromisoformat, help="last day (default: the same)")
    parser.add_argument(
        "--assignor",
        action="append",
        metavar="NAME[:key=value,...]",
        help="what to compare, may be given several times (default: the policy's comparison.policies)",
    )
    parser.add_argument("--continuous", action="store_true", help="simulate all the days as one period")
    parser.add_argument("--force", action="store_true", help="also days that have been compared before")


def _prepare(arguments: argparse.Namespace) -> JobWork:
    last = arguments.to or arguments.day
    if last < arguments.day:
        raise PolicyError(f"--to {last} lies before --day {arguments.day}")
    loaded = load_policy(arguments.config)
    loaded.cluster_settings(arguments.cluster)
    names = tuple(arguments.assignor or ())
    for name in names:
        parse_candidate(name)
    request = Request(arguments.cluster, arguments.day, last, names, arguments.continuous, arguments.force)

    def run(spark: SparkSession, progress: ReportProgress) -> dict[str, Any]:
        return run_compare(Lake(spark, loaded.policy.lake), loaded, request, progress)

    return JobWork(f"evenlag compare {arguments.cluster}", run, is_large=True, lake=loaded.policy.lake)


JOB: Final = Job("spark_jobs.compare", __doc__, _add_arguments, _prepare, lambda _: "compare")


if __name__ == "__main__":
    end_process(run_job(JOB))
