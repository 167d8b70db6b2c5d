"""Simulate other policies with the snapshots of a day, once a day.

**What it makes.** For each cluster and the day of the run, the rows of `comparisons` (each snapshot scored
under each policy) and `replays` (the day replayed under each policy), from the snapshots that
`lag_rebalance__<cluster>` took. It does not connect to Kafka and publishes nothing. `evenlag compare` shows
the result. This DAG exists only if the policy has a section `comparison`; `comparison: {}` is enough.

**Inputs.** The policy file named by `EVENLAG_CONFIG`, the lake, and the Spark connection `spark_default`.

**Running it again.** At any time: a run replaces the day as a whole, and skips it if its inputs are the same
as before. Days are independent of each other. For past days:
`airflow backfill create --dag-id plan_comparison --from-date 2026-03-01 --to-date 2026-03-31` creates a run
for each day of March up to the 30th (both are midnights); `--reprocess-behavior failed` repeats failed runs.

**First things to check when it fails.**

1. Exit code 4: the day has no snapshot.
2. It fails within a second: the connection `spark_default`, or no `spark-submit` on the PATH.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import DAG, CronDataIntervalTimetable

from dags.dag_support.defaults import COMPARE_RUN_TIMEOUT, DEFAULT_ARGS, Tag
from dags.dag_support.policy import read_dag_policy
from dags.dag_support.spark_task import compare_step

if TYPE_CHECKING:
    from dags.dag_support.policy import DagPolicy


def make_dag(policy: DagPolicy, schedule: str | None) -> DAG:
    """Build the DAG."""
    with DAG(
        dag_id="plan_comparison",
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
        default_args=DEFAULT_ARGS,
        doc_md=__doc__,
        tags=[Tag.EVENLAG, Tag.COMPARISON],
    ) as made:
        for cluster in policy.clusters:
            compare_step(config=policy.path, cluster=cluster)
    return made


found = read_dag_policy()
if found.comparison is not None:
    plan_comparison = make_dag(found, found.comparison.schedule)
