"""Compare: what other policies would have done with a day's readings, into ``comparisons`` and ``replays``.

One Spark job a day, for all groups and policies. Each day is written whole, ``comparisons`` first and
``replays`` last: a repeat gives the same rows, and a day whose replays carry the hash of the same comparison
is left as it is, so that a backfill goes on where it was killed. Nothing here knows of hints or of brokers: a
comparison has no payload and no plan id, so there is nothing that a publisher could take.

``python -m spark_jobs.compare --cluster orders --day 2026-03-01``, or as an application of
``spark-submit``; ``--to`` for more days, ``--continuous`` to replay them in one go (``continuous_replays``).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
import time
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import JobError, PolicyError, SnapshotNotFoundError
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
from evenlag.logging_setup import airflow_run_id, log_fields, set_up_logging
from evenlag.policy.candidates import Candidate, parse_candidate
from evenlag.policy.loader import LoadedPolicy, load_policy
from evenlag.policy.settings import ComparisonSettings
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.session import build_session
from spark_jobs.transforms.simulations import (
    ComparisonContext,
    build_comparison,
    select_moments,
    select_replays,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Row

_LOG = logging.getLogger(__name__)
# In the hash of a comparison: counted up when the same input gives other figures.
_MODEL_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class Request:
    """What to compare.

    Attributes
    ----------
    cluster
        Its name in the policy.
    first, last
        Days of the slots, UTC, both included.
    names
        ``NAME[:key=value,…]``; the policy's own when there are none.
    is_continuous
        Replay the period in one go.
    anew
        Also what has been compared before.
    """

    cluster: str
    first: date
    last: date
    names: tuple[str, ...] = ()
    is_continuous: bool = False
    anew: bool = False


def run_compare(lake: Lake, loaded: LoadedPolicy, request: Request) -> dict[str, Any]:
    """Compare day by day, or a period in one go.

    Returns
    -------
    dict
        ``compared, skipped, empty, thinned``: days by what became of them, as ISO texts. Of a thinned day the
        readings are gone: what was compared before stands, and is neither made anew nor added to.

    Raises
    ------
    PolicyError
        When a policy to compare is not valid.
    SnapshotNotFoundError
        When no day of the request has a reading, or all are thinned and were not compared before.
    LakeError
        When a table cannot be written.
    """
    loaded.cluster_settings(request.cluster)
    settings = loaded.policy.comparison or ComparisonSettings()
    compared = tuple(dict.fromkeys(parse_candidate(name) for name in request.names or settings.policies))
    days = [request.first + timedelta(days=i) for i in range((request.last - request.first).days + 1)]
    done: dict[str, list[str]] = {"compared": [], "skipped": [], "empty": [], "thinned": []}
    for part in [days] if request.is_continuous else [[day] for day in days]:
        started = time.monotonic()
        outcome = _compare_days(lake, loaded, request, compared, part)
        done[outcome].append(part[0].isoformat())
        _LOG.info("%s %s: %s in %.1f s", request.cluster, part[0], outcome, time.monotonic() - started)
    if not done["compared"] and not done["skipped"]:
        raise SnapshotNotFoundError(
            f"{request.cluster} has no reading from {request.first} to {request.last}: nothing to compare"
            + ("; maintenance has thinned them (raw_days)" if done["thinned"] else "")
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
    if _are_thinned(lake, request.cluster, days):
        table = CONTINUOUS_REPLAYS if request.is_continuous else REPLAYS
        return "skipped" if _has_rows(lake, table, request.cluster, days[0]) else "thinned"
    pauses = (loaded.policy.comparison or ComparisonSettings()).pauses
    context = ComparisonContext(
        policy=loaded.policy,
        cluster=request.cluster,
        day=days[0],
        compared=compared,
        pauses=pauses,
        snapshot_ids=tuple(row.snapshot_id for row in readings),
        slots=tuple(row.slot for row in readings),
        at_ms=tuple(row.at_ms for row in readings),
        comparison_id=_comparison_id(loaded, compared, readings, pauses.model_dump()),
        scores_moments=not request.is_continuous,
    )
    table = CONTINUOUS_REPLAYS if request.is_continuous else REPLAYS
    if not request.anew and _is_done(lake, table, context):
        return "skipped"
    rows = build_comparison(
        _rows_of(lake, LAG, context, days), _rows_of(lake, MEMBERS, context, days), context
    ).cache()
    try:
        if context.scores_moments:
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
    """The finished readings of the days in order, no two at one moment: a few hundred a day."""
    from pyspark.sql import functions as sf

    rows = (
        lake.read(SNAPSHOTS)
        .where((sf.col("cluster") == cluster) & sf.col("day").between(days[0], days[-1]))
        .select("snapshot_id", "slot", sf.unix_millis("end_read_at").alias("at_ms"))
        .orderBy("at_ms", "snapshot_id")
        .collect()
    )
    return [row for i, row in enumerate(rows) if i == 0 or row.at_ms > rows[i - 1].at_ms]


def _are_thinned(lake: Lake, cluster: str, days: list[date]) -> bool:
    from pyspark.sql import functions as sf

    thinned = lake.read(DOWNSAMPLED_DAYS).where(
        (sf.col("cluster") == cluster) & sf.col("day").between(days[0], days[-1])
    )
    return bool(thinned.take(1))


def _has_rows(lake: Lake, table: Table, cluster: str, day: date) -> bool:
    from pyspark.sql import functions as sf

    return bool(lake.read(table).where((sf.col("cluster") == cluster) & (sf.col("day") == day)).take(1))


def _rows_of(lake: Lake, table: Table, context: ComparisonContext, days: list[date]) -> DataFrame:
    """Rows of these readings only: what an unfinished reading left behind does not count."""
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
    """Hash of all that the rows follow from."""
    content = {
        "model": _MODEL_VERSION,
        "rules": [rule.model_dump(mode="json") for rule in loaded.policy.groups],
        "policies": [policy.name for policy in compared],
        "pauses": pauses,
        "readings": [row.snapshot_id for row in readings],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def main(argv: Sequence[str] | None = None) -> int:
    """Compare from the command line; returns the exit status."""
    arguments = _parse(argv)
    with log_fields(run_id=airflow_run_id(), cluster=arguments.cluster, step="compare"):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    try:
        set_up_logging()
        last = arguments.to or arguments.day
        if last < arguments.day:
            raise PolicyError(f"--to {last} lies before --day {arguments.day}")
        loaded = load_policy(arguments.config)
        loaded.cluster_settings(arguments.cluster)
        names = tuple(arguments.assignor or ())
        for name in names:
            parse_candidate(name)
        request = Request(arguments.cluster, arguments.day, last, names, arguments.continuous, arguments.anew)
        spark = build_session(f"evenlag compare {arguments.cluster}", is_large=True)
        try:
            summary = run_compare(Lake(spark, loaded.policy.lake), loaded, request)
        finally:
            spark.stop()
    except JobError as error:
        _LOG.error("compare failed: %s", error)
        return error.exit_code
    _LOG.info("compare: %s", json.dumps(summary))
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="spark_jobs.compare", description=__doc__)
    parser.add_argument("--config", help="the policy file (default: EVENLAG_CONFIG, else evenlag.yaml)")
    parser.add_argument("--cluster", required=True, help="name of the cluster in the policy")
    parser.add_argument("--day", required=True, type=date.fromisoformat, help="UTC day of the slots")
    parser.add_argument("--to", type=date.fromisoformat, help="last day (default: the same)")
    parser.add_argument(
        "--assignor",
        action="append",
        metavar="NAME[:key=value,...]",
        help="what to compare, may be given several times (default: the policy's comparison.policies)",
    )
    parser.add_argument("--continuous", action="store_true", help="replay all the days in one go")
    parser.add_argument("--anew", action="store_true", help="also days that have been compared before")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
