"""Build the audit of partition ownership from the snapshots: hourly, or as `audit_schedule` in the policy.

**What it makes.** For each cluster of the policy, the tables `memberships`, `ownership` and
`audited_snapshots`: the members of each group and the owner of each partition over time. `evenlag audit`
queries them.

**Inputs.** The policy file named by `EVENLAG_CONFIG` (only the names of the clusters and the lake), the
tables `snapshots`, `members` and `offsets`, and the Spark connection `spark_default`. It does not connect to
Kafka.

**Running it again.** At any time. A run rebuilds the days whose snapshots have changed since they were built:
late snapshots, and those that a failed run left out. A backfill is not needed: one run processes all days.

**First things to check when it fails.**

1. It fails within a second: the connection `spark_default`, or no `spark-submit` on the PATH.
2. Exit code 3: a table cannot be read or written; the log names it. The next run continues from there.
3. It succeeds but `evenlag audit` finds no data: `lag_rebalance__<cluster>` has not taken a snapshot yet.
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
    """Build the DAG."""
    with DAG(
        dag_id="assignment_audit",
        description="Builds the history of partition owners from the snapshots",
        schedule=CronTriggerTimetable(schedule, timezone="UTC") if schedule else None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        # Two concurrent runs would write the same days.
        max_active_runs=1,
        # Each task needs a JVM: running them one at a time leaves memory for the cycles.
        max_active_tasks=1,
        # One run processes all days.
        allowed_run_types=["scheduled", "manual"],  # type: ignore[list-item]  # the SDK converts them to its enum
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
