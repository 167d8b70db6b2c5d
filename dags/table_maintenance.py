"""Once a day, or as the policy's `maintenance.schedule` says: the upkeep of the lake.

**What it makes.** One Spark task, `maintain_tables`, goes over all tables of all clusters:

1. old days are thinned to one lag an hour (`raw_days`), after the audit has what it needs of them,
2. rows of readings and plans that were never finished are removed (`orphan_days`),
3. closed days are compacted, rows sorted by group (`target_file_mb`); the open day is left alone,
4. files that were replaced are deleted (`vacuum_days`),
5. every table is checked; the verdicts are rows of `table_health`, and alerts go by them.

Then, where the policy names a folder, `data_docs`, for each cluster Great Expectations' Data Docs of the
last 50 runs that decided, from the verdicts in `gate_results`: `<data_docs>/<cluster>/index.html`. The pages
load their styles from the web; without a network they are plain.

**Inputs.** The policy file named by `EVENLAG_CONFIG`, the lake, and the Spark connection `spark_default`. The
folder of the Data Docs is one of the machine that the Spark driver runs on.

**Running it again.** At any time, beside cycles too: what is done already is not done again, and what others
write to at that moment is left for the next run. It may be killed anywhere.

**First things to check when it fails.**

1. Exit code 3, *pieces failed*: the log names each with its table, day and cause; the rest was done.
2. `evenlag lake status` shows what the checks find now.
3. `data_docs__…`, exit code 1, *holds no Data Docs*: the folder is something else's; name another one in
   the policy.
4. It fails within a second: the connection `spark_default`, or no `spark-submit` on the PATH.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import DAG, CronTriggerTimetable, TriggerRule

from dags.dag_support.defaults import DEFAULT_ARGS, MAINTENANCE_RUN_TIMEOUT, Tag
from dags.dag_support.policy import read_dag_policy
from dags.dag_support.spark_task import data_docs_step, maintain_step

if TYPE_CHECKING:
    from dags.dag_support.policy import DagPolicy


def make_dag(policy: DagPolicy, schedule: str | None) -> DAG:
    """Make the DAG."""
    with DAG(
        dag_id="table_maintenance",
        description="Compacts, thins, vacuums and checks the lake's tables",
        schedule=CronTriggerTimetable(schedule, timezone="UTC") if schedule else None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        # Two at once would compact the same days.
        max_active_runs=1,
        # A JVM each: one after another leaves room for the cycles.
        max_active_tasks=1,
        # One run does all that is to be done.
        allowed_run_types=["scheduled", "manual"],  # type: ignore[list-item]  # the SDK makes its enum of them
        dagrun_timeout=MAINTENANCE_RUN_TIMEOUT,
        default_args=DEFAULT_ARGS,
        doc_md=__doc__,
        tags=[Tag.EVENLAG, Tag.MAINTENANCE],
    ) as made:
        maintained = maintain_step(config=policy.path)
        for cluster in policy.clusters if policy.data_docs is not None else ():
            pages = data_docs_step(config=policy.path, cluster=cluster)
            # A table that could not be compacted is no reason to show old verdicts.
            pages.trigger_rule = TriggerRule.ALL_DONE
            maintained >> pages
    return made


found = read_dag_policy()
table_maintenance = make_dag(found, found.maintenance_schedule)
