"""Time the gates beside the planning they judge: 10,000 plans with 1,000,000 rows, in one run.

``python -m tests.bench.gates [groups]`` builds a snapshot of so many groups (10,000), of 100 partitions and
10 members each, in a lake of its own, plans all of them with `lag-aware` (the quickest assignor that plans by
lag, so the hardest to keep up with) and judges the plans, tables included, and writes
``docs/bench/gates.json``. What the gates count is counted while the groups are planned. Starting a session,
imports and a first small round are not timed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import GATE_RESULTS, LAG, MEMBERS, PLAN_ASSIGNMENTS, PLAN_EVENTS
from evenlag.lake.writer import append_once
from evenlag.planning.plan_batch import PlanContext
from evenlag.policy.gates import GATES
from evenlag.policy.loader import parse_policy
from spark_jobs.runtime.classic_session import build_session
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.plan_groups import plan_groups
from spark_jobs.steps.snapshot_rows import SnapshotRows
from spark_jobs.steps.validate_plans import validate_plans

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from evenlag.lake.tables import Table

# A session on one machine is set for small tables and interprets all queries (docs/adr/0007); this many rows
# are run as on a cluster, with compiled ones.
LARGE_CONF = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "gates.json"
PARTITIONS, MEMBERS_PER_GROUP = 100, 10
SLOT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SNAPSHOT = "20260301T120000000Z-00000001"
MARKER = {"cluster": "c", "snapshot_id": SNAPSHOT, "finished_at": SLOT, "hint_topic_max_bytes": None}
POLICY = """
lake: /nowhere
clusters: {c: {bootstrap_servers: "localhost:9092"}}
groups: [{match: "*", mode: auto, assignor: lag-aware}]
"""


def head() -> dict[str, Column]:
    """The columns that all rows of the snapshot share."""
    from pyspark.sql import functions as sf

    return {
        "cluster": sf.lit("c"),
        "day": sf.lit(SLOT.date()),
        "snapshot_id": sf.lit(SNAPSHOT),
        "slot": sf.lit(SLOT),
    }


def with_contract(frame: DataFrame, table: Table) -> DataFrame:
    """Add what a frame lacks by a contract, as null."""
    from pyspark.sql import functions as sf

    lacking = [column for column in table.columns if column.name not in frame.columns]
    full = frame.withColumns({column.name: sf.lit(None).cast(column.type) for column in lacking})
    return full.select(*table.column_names)


def write_snapshot(lake: Lake, num_groups: int) -> None:
    """Write groups whose first member holds all that is behind."""
    from pyspark.sql import functions as sf

    spark = lake.spark
    group = sf.concat(sf.lit("group-"), sf.lpad((sf.col("id") % num_groups).cast("string"), 6, "0"))
    number = (sf.col("id") / num_groups).cast("int")
    spread = sf.abs(sf.hash("id")) % 1000
    lag = spark.range(num_groups * PARTITIONS).withColumns(
        {
            **head(),
            "group_id": group,
            "topic_id": sf.lit("AAAAAAAAAAAAAAAAAAAAAQ"),
            "topic": sf.lit("t"),
            "partition": number,
            "owner_member_id": sf.concat(sf.lit("m-"), (number % MEMBERS_PER_GROUP).cast("string")),
            "status": sf.lit("OK"),
            "lag_records": sf.when(number % MEMBERS_PER_GROUP == 0, spread * 20).otherwise(spread),
            "stalled": sf.expr("false"),
        }
    )
    lake.append(LAG, with_contract(lag, LAG))
    people = spark.range(num_groups * MEMBERS_PER_GROUP).withColumns(
        {
            **head(),
            "group_id": group,
            "group_state": sf.lit("Stable"),
            "group_type": sf.lit("classic"),
            "assignor": sf.lit("evenlag"),
            "member_id": sf.concat(sf.lit("m-"), number.cast("string")),
            "subscription": sf.array(sf.lit("t")),
        }
    )
    append_once(lake.paths.root, MEMBERS, with_contract(people, MEMBERS).toArrow(), None)


def run_once(spark: SparkSession, num_groups: int) -> dict[str, Any]:
    """Plan and judge one snapshot; return counts and seconds."""
    loaded = parse_policy(POLICY, environ={})
    context = PlanContext(
        loaded.policy, loaded.policy_hash, "c", "kafka", SNAPSHOT, SLOT, SLOT.date(), SLOT, "bench"
    )
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(spark, str(Path(folder) / "lake"))
        reader = LakeReader(lake.paths.root)
        write_snapshot(lake, num_groups)
        start = time.perf_counter()
        rows = SnapshotRows(lake, reader, MARKER)
        planned = plan_groups(rows, context)
        planned_at = time.perf_counter()
        counts = validate_plans(rows, planned, context, SLOT + timedelta(seconds=60))
        judged_at = time.perf_counter()
        return {
            "plans": len(planned.heads),
            "plan_rows": lake.read(PLAN_ASSIGNMENTS).count(),
            "gates": len(GATES),
            "verdicts": lake.read(GATE_RESULTS).count(),
            "events": lake.read(PLAN_EVENTS).count(),
            **counts,
            "planning_s": planned_at - start,
            "validation_s": judged_at - planned_at,
            "validation_by_planning": (judged_at - planned_at) / (planned_at - start),
        }


def main(arguments: list[str]) -> None:
    """Warm up, time, write."""
    num_groups = int(arguments[0]) if arguments else 10_000
    spark = build_session("evenlag-bench-gates", conf=LARGE_CONF)
    spark.sparkContext.setLogLevel("ERROR")
    run_once(spark, 20)
    row = run_once(spark, num_groups)
    note = "cores shared with other work: read the ratio, not the seconds"
    result = {"machine": {"cpus": os.cpu_count(), "spark": spark.version, "note": note}, "run": row}
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    if num_groups == 10_000:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
