"""Build the audit of partition ownership from the snapshots: hourly, or as `audit_schedule` in the policy.

**What it makes.** For each cluster of the policy, the tables `memberships`, `ownership` and
`audited_snapshots`: the members of each group and the owner of each partition over time. `evenlag audit`
queries them.

**Inputs.** The policy file of `make_dags`, by default the one that `EVENLAG_CONFIG` names (only the names of
the clusters and the lake), the tables `snapshots`, `members` and `offsets`, and a Spark connection, by
default `spark_default`. It does not connect to Kafka.

**Running it again.** At any time. A run rebuilds the days whose snapshots have changed since they were built:
late snapshots, and those that a failed run left out. A backfill is not needed. Each day is committed for
itself, oldest first; when a run has used up half of its time, the next run continues.

**First things to check when it fails.**

1. It fails within a second: the Spark connection, or no `spark-submit` on the PATH.
2. Exit code 3: a table cannot be read or written; the log names it. The next run continues from there.
3. It succeeds but `evenlag audit` finds no data: `lag_rebalance__<cluster>` has not taken a snapshot yet.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import DAG

from evenlag.airflow.compat import CronTriggerTimetable, run_types
from evenlag.airflow.tasks.defaults import RUN_TIMEOUT, Tag, audit_budget_s
from evenlag.airflow.tasks.spark_task import audit_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlag.airflow.dags.options import DagOptions
    from evenlag.airflow.dags.policy import DagPolicy


def _make_dag(policy: DagPolicy, schedule: str | None, options: DagOptions) -> DAG:
    """Build the DAG."""
    with DAG(
        dag_id=options.dag_id("assignment_audit"),
        description="Builds the history of partition owners from the snapshots",
        schedule=CronTriggerTimetable(schedule, timezone="UTC") if schedule else None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        # Two concurrent runs would write the same days.
        max_active_runs=1,
        # Each task needs a JVM: running them one at a time leaves memory for the cycles.
        max_active_tasks=1,
        # A run processes all days, or as many as it has the time for.
        **run_types("scheduled", "manual"),
        dagrun_timeout=RUN_TIMEOUT,
        default_args=options.default_args,
        doc_md=__doc__,
        tags=options.all_tags(Tag.EVENLAG, Tag.AUDIT),
    ) as made:
        for cluster in policy.clusters:
            audit_step(
                config=policy.path,
                cluster=cluster,
                budget_s=audit_budget_s(len(policy.clusters)),
                options=options.spark,
            )
    return made


def make_dags_of(policy: DagPolicy, options: DagOptions) -> Iterator[DAG]:
    """Build the DAG of a policy."""
    yield _make_dag(policy, policy.audit_schedule, options)
