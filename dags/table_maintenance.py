"""Once a day, what need not be done in every cycle.

**What it makes.** For each cluster Great Expectations' Data Docs of the last 50 runs that decided, from the
verdicts in `gate_results`: `<data_docs>/<cluster>/index.html`. The pages load their styles from the web;
without a network they are plain. This DAG is there only when the policy names a folder, `data_docs`.

**Inputs.** The policy file named by `EVENLAG_CONFIG`, the lake, and the Spark connection `spark_default`. The
folder is one of the machine that the Spark driver runs on.

**Running it again.** At any time: the pages are made anew and take the old ones' place.

**First things to check when it fails.**

1. Exit code 1, *holds no Data Docs*: the folder belongs to something else; name another one in the policy.
2. It fails within a second: the connection `spark_default`, or no `spark-submit` on the PATH.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import DAG, CronTriggerTimetable

from dags.dag_support.defaults import DEFAULT_ARGS, RUN_TIMEOUT, Tag
from dags.dag_support.policy import read_dag_policy
from dags.dag_support.spark_task import data_docs_step

if TYPE_CHECKING:
    from dags.dag_support.policy import DagPolicy


def make_dag(policy: DagPolicy) -> DAG:
    """Make the DAG."""
    with DAG(
        dag_id="table_maintenance",
        description="Great Expectations' pages of the last runs",
        schedule=CronTriggerTimetable("30 3 * * *", timezone="UTC"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        # A JVM each: one after another leaves room for the cycles.
        max_active_tasks=1,
        dagrun_timeout=RUN_TIMEOUT,
        default_args=DEFAULT_ARGS,
        doc_md=__doc__,
        tags=[Tag.EVENLAG, Tag.MAINTENANCE],
    ) as made:
        for cluster in policy.clusters:
            data_docs_step(config=policy.path, cluster=cluster)
    return made


found = read_dag_policy()
if found.data_docs is not None:
    table_maintenance = make_dag(found)
