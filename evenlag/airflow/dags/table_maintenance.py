"""Maintain the tables of the lake: once a day, or as `maintenance.schedule` in the policy.

**What it makes.** One Spark task, `maintain_tables`, processes all tables of all clusters:

1. it downsamples old days to one snapshot of lag per hour (`raw_days`), after the audit has processed them,
2. it removes rows of unfinished snapshots and plans (`orphan_days`),
3. it compacts past days, sorted by group (`target_file_mb`), but not the current day,
4. it deletes replaced files (`vacuum_days`),
5. it checks every table; the results are rows of `table_health`, which alerts use.

Then, if the policy sets the folder `data_docs`, it builds the Data Docs of each cluster: the validation
results of the last 50 planning runs, from `gate_results` and `quality_results`, in
`<data_docs>/<cluster>/index.html`. The pages load nothing from the network.

**Inputs.** The policy file of `make_dags`, by default the one that `EVENLAG_CONFIG` names, the lake, and a
Spark connection, by default `spark_default`. The folder of the Data Docs is on the machine of the Spark
driver.

**Running it again.** At any time, also while cycles run: a run skips finished work, and leaves days that
others are writing to the next run. It may be killed at any point.

**First things to check when it fails.**

1. Exit code 3, *pieces failed*: the log names each with its table, day and cause; the others were finished.
2. `evenlag lake status` shows what the checks find now.
3. `data_docs__…`, exit code 1, *contains no Data Docs*: the folder is something else's; name another one in
   the policy.
4. It fails within a second: the Spark connection, or no `spark-submit` on the PATH.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import DAG, TriggerRule

from evenlag.airflow.compat import CronTriggerTimetable, run_types
from evenlag.airflow.tasks.defaults import MAINTENANCE_RUN_TIMEOUT, Tag
from evenlag.airflow.tasks.spark_task import data_docs_step, maintain_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlag.airflow.dags.options import DagOptions
    from evenlag.airflow.dags.policy import DagPolicy


def _make_dag(policy: DagPolicy, schedule: str | None, options: DagOptions) -> DAG:
    """Build the DAG."""
    with DAG(
        dag_id=options.dag_id("table_maintenance"),
        description="Downsamples, compacts, vacuums and checks the tables of the lake",
        schedule=CronTriggerTimetable(schedule, timezone="UTC") if schedule else None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        # Two concurrent runs would compact the same days.
        max_active_runs=1,
        # Each task needs a JVM: running them one at a time leaves memory for the cycles.
        max_active_tasks=1,
        # One run does all pending work.
        **run_types("scheduled", "manual"),
        dagrun_timeout=MAINTENANCE_RUN_TIMEOUT,
        default_args=options.default_args,
        doc_md=__doc__,
        tags=options.all_tags(Tag.EVENLAG, Tag.MAINTENANCE),
    ) as made:
        maintained = maintain_step(config=policy.path, options=options.spark)
        for cluster in policy.clusters if policy.data_docs is not None else ():
            pages = data_docs_step(config=policy.path, cluster=cluster, options=options.spark)
            # Build the pages even if a part of the maintenance failed.
            pages.trigger_rule = TriggerRule.ALL_DONE
            maintained >> pages
    return made


def make_dags_of(policy: DagPolicy, options: DagOptions) -> Iterator[DAG]:
    """Build the DAG of a policy."""
    yield _make_dag(policy, policy.maintenance_schedule, options)
