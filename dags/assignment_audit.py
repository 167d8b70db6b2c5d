"""Tell from the readings who held what: once an hour, or as the policy's `audit_schedule` says.

**What it makes.** For each cluster of the policy the tables `memberships`, `ownership` and
`audited_snapshots`: who was in each group and who held each partition, from which reading to which.
`evenlag audit` answers from them.

**Inputs.** The policy file named by `EVENLAG_CONFIG` (only the clusters' names and the lake), the tables
`snapshots`, `members` and `offsets`, and the Spark connection `spark_default`. Kafka is not asked.

**Running it again.** At any time. A day is made anew when its readings are not those that it was made from:
readings that came late, or that a failed run left out, are taken up by the next run by itself. There is
nothing to backfill: one run takes up all days there are.

**First things to check when it fails.**

1. It fails within a second: the connection `spark_default`, or no `spark-submit` on the PATH.
2. Exit code 3: a table cannot be read or written; its log names which. The next run goes on from there.
3. It is green and `evenlag audit` knows nothing: `lag_rebalance__<cluster>` has not read the cluster yet.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import DAG, CronTriggerTimetable

from dags.dag_support.defaults import DEFAULT_ARGS, RUN_TIMEOUT, Tag
from dags.dag_support.policy import read_dag_policy
from dags.dag_support.spark_task import audit_step

if TYPE_CHECKING:
    from dags.dag_support.policy import DagPolicy


def make_dag(policy: DagPolicy, schedule: str | None) -> DAG:
    """Make the DAG."""
    with DAG(
        dag_id="assignment_audit",
        description="Who held which partition from when to when, from the readings",
        schedule=CronTriggerTimetable(schedule, timezone="UTC") if schedule else None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        # Two at once would write the same days.
        max_active_runs=1,
        # A JVM each: one after another leaves room for the cycles.
        max_active_tasks=1,
        # One run takes up all days there are.
        allowed_run_types=["scheduled", "manual"],  # type: ignore[list-item]  # the SDK makes its enum of them
        dagrun_timeout=RUN_TIMEOUT,
        default_args=DEFAULT_ARGS,
        doc_md=__doc__,
        tags=[Tag.EVENLAG, Tag.AUDIT],
    ) as made:
        for cluster in policy.clusters:
            audit_step(config=policy.path, cluster=cluster)
    return made


found = read_dag_policy()
assignment_audit = make_dag(found, found.audit_schedule)
