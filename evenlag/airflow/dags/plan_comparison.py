"""Simulate other policies with the snapshots of a day, once a day.

**What it makes.** For each cluster and the day of the run, the rows of `comparisons` (each snapshot scored
under each policy) and `replays` (the day replayed under each policy), from the snapshots that
`lag_rebalance__<cluster>` took. It does not connect to Kafka and publishes nothing. `evenlag compare` shows
the result. This DAG exists only if the policy has a section `comparison`; `comparison: {}` is enough.

**Inputs.** The policy file of `make_dags`, by default the one that `EVENLAG_CONFIG` names, the lake, and a
Spark connection, by default `spark_default`.

**Running it again.** At any time: a run replaces the day as a whole, and skips it if its inputs are the same
as before. Days are independent of each other. For past days:
`airflow backfill create --dag-id plan_comparison --from-date 2026-03-01 --to-date 2026-03-31` creates a run
for each day of March up to the 30th (both are midnights); `--reprocess-behavior failed` repeats failed runs.

**First things to check when it fails.**

1. Exit code 4: the day has no snapshot.
2. It fails within a second: the Spark connection, or no `spark-submit` on the PATH.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import DAG

from evenlag.airflow.compat import CronDataIntervalTimetable
from evenlag.airflow.tasks.defaults import COMPARE_RUN_TIMEOUT, Tag
from evenlag.airflow.tasks.spark_task import compare_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlag.airflow.dags.options import DagOptions
    from evenlag.airflow.dags.policy import DagPolicy


def _make_dag(policy: DagPolicy, schedule: str | None, options: DagOptions) -> DAG:
    """Build the DAG."""
    with DAG(
        dag_id=options.dag_id("plan_comparison"),
        description="Scores and replays the snapshots of a day under other policies",
        # The data interval selects the day, so that a backfill can process past days.
        schedule=CronDataIntervalTimetable(schedule, timezone="UTC") if schedule else None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        # Past days are compared by a backfill only, not all at once when the DAG is first enabled.
        catchup=False,
        max_active_runs=1,
        # Each task needs a JVM: running them one at a time leaves memory for the cycles.
        max_active_tasks=1,
        dagrun_timeout=COMPARE_RUN_TIMEOUT,
        default_args=options.default_args,
        doc_md=__doc__,
        tags=options.all_tags(Tag.EVENLAG, Tag.COMPARISON),
    ) as made:
        for cluster in policy.clusters:
            compare_step(config=policy.path, cluster=cluster, options=options.spark)
    return made


def make_dags_of(policy: DagPolicy, options: DagOptions) -> Iterator[DAG]:
    """Build the DAG of a policy, if it has comparisons."""
    if policy.comparison is not None:
        yield _make_dag(policy, policy.comparison.schedule, options)
