"""Once a day, what other policies would have done with the day's readings.

**What it makes.** For each cluster the rows of `comparisons` (each reading scored under each policy) and
`replays` (the day replayed under each policy) of the run's day, from what `lag_rebalance__<cluster>` left in
the lake. It connects to no broker and publishes nothing: a comparison has no hint in it. `evenlag compare`
shows the result. This DAG is there only when the policy has a section `comparison`, if only `comparison: {}`.

**Inputs.** The policy file named by `EVENLAG_CONFIG`, the lake, and the Spark connection `spark_default`.

**Running it again.** At any time: a day is replaced whole, and one that was compared in the same way
before is left as it is. Days are independent of each other. For past days:
`airflow backfill create --dag-id plan_comparison --from-date 2026-03-01 --to-date 2026-03-31` makes a run for
each day of March up to the 30th (both are midnights); `--reprocess-behavior failed` takes up what failed.

**First things to check when it fails.**

1. Exit code 4: the day has no reading. Nothing was collected then.
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
    """Make the DAG."""
    with DAG(
        dag_id="plan_comparison",
        description="Score and replay a day's readings under other policies",
        # The interval, not the moment, says which day: a backfill gives past ones.
        schedule=CronDataIntervalTimetable(schedule, timezone="UTC") if schedule else None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        # Past days are compared when somebody asks for it, not all at once on the first day.
        catchup=False,
        max_active_runs=1,
        # A JVM each: one after another leaves room for the cycles.
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
