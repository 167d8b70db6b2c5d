"""What a lake weighs: bytes, rows and files of each table per reading, and what compaction makes of a day.

``python -m tests.bench.capacity [--groups 100] [--partitions 100] [--snapshots 96]`` writes a part of a
day's snapshots of a generated cluster as cycles do, one file per table and snapshot, with real values
(growing offsets, members that join and leave). Then the day is compacted by the job of maintenance, and one
group's day is read before and after. Results go to ``docs/bench/capacity.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS, SNAPSHOTS, Table
from evenlag.lake.writer import append_once
from evenlag.policy.settings import Policy
from spark_jobs.maintain import maintain_lake
from spark_jobs.runtime.classic_session import build_session
from spark_jobs.runtime.delta_lake import Lake
from tests.bench.support.backfill_data import CLUSTER, FIRST_DAY, Workload

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "capacity.json"
_MEASURED: Final = (OFFSETS, COMMITS, MEMBERS, LAG, SNAPSHOTS)
_REPEATS: Final = 5
_READINGS_A_DAY: Final = 288


def make_tables(groups: int, partitions: int, snapshots: int) -> dict[Table, pa.Table]:
    """Make the rows of a day's first snapshots; ``offsets`` and ``commits`` follow from ``lag``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    day = Workload(num_groups=groups, num_partitions=partitions).next_day()
    wanted = pc.sort_indices(day[SNAPSHOTS]["snapshot_id"])[:snapshots]
    ids = day[SNAPSHOTS]["snapshot_id"].take(wanted).combine_chunks()
    found = {
        table: rows.filter(pc.is_in(rows["snapshot_id"], value_set=ids)).combine_chunks()
        for table, rows in day.items()
    }
    lag = found[LAG]
    names = {"high_watermark": "end_offset", "last_stable_offset": "end_offset", "end_read_at": "read_at"}
    names |= {"log_start_read_at": "read_at"}
    for table in (OFFSETS, COMMITS):
        schema = arrow_schema(table)
        columns = []
        for column in schema:
            source = names.get(column.name, column.name)
            is_there = source in lag.column_names and column.name != "error"
            columns.append(lag[source] if is_there else pa.nulls(lag.num_rows, column.type))
        found[table] = pa.table(columns, schema=schema)
    return found


def write_tables(lake: Lake, tables: dict[Table, pa.Table], folder: Path, snapshots: int) -> None:
    """Write rows as cycles leave them: a file a table and reading, lag sorted by group."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for table, rows in tables.items():
        if table.writer == "direct":
            for snapshot_id in rows["snapshot_id"].unique():
                of_snapshot = rows.filter(pc.equal(rows["snapshot_id"], snapshot_id))
                append_once(lake.paths.root, table, of_snapshot, None)
            continue
        path = folder / f"{table.name}.parquet"
        pq.write_table(rows, path, coerce_timestamps="us")
        frame = lake.spark.read.parquet(str(path)).repartitionByRange(snapshots, "snapshot_id")
        lake.append(table, frame, files=snapshots, sort_by=("group_id",))


def measure(reader: LakeReader, snapshots: int) -> dict[str, Any]:
    """Rows, bytes and files of each table."""
    answers = {}
    for table in _MEASURED:
        found = read_table_files(reader, table)
        assert found is not None
        files = [file for parts in found.by_part.values() for file in parts]
        num_rows, size_bytes = sum(file.num_rows for file in files), sum(file.size_bytes for file in files)
        answers[table.name] = {
            "rows_per_snapshot": round(num_rows / snapshots, 1),
            "bytes_per_row": round(size_bytes / num_rows, 2),
            "files": len(files),
            "mb": round(size_bytes / 1e6, 2),
        }
    return answers


def time_reads(reader: LakeReader, group: str) -> float:
    """Read one group's lag of the day; median in seconds."""
    taken = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        rows = reader.read(
            LAG, filters=[("cluster", "=", CLUSTER), ("day", "=", FIRST_DAY), ("group_id", "=", group)]
        )
        assert rows.num_rows > 0
        taken.append(time.perf_counter() - started)
    return round(statistics.median(taken), 3)


def peak_heap_mb(spark: SparkSession) -> float:
    """Largest heap of the driver's JVM since the last call, summed over its pools."""
    jvm: Any = spark.sparkContext._jvm
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    heap = [pool for pool in pools if pool.getType().name() == "HEAP"]
    peak = sum(pool.getPeakUsage().getUsed() for pool in heap)
    for pool in heap:
        pool.resetPeakUsage()
    return float(round(peak / 1e6, 1))


def run(groups: int, partitions: int, snapshots: int) -> dict[str, Any]:
    """Write, measure, compact, measure again."""
    spark = build_session("evenlag capacity", is_large=True)
    with tempfile.TemporaryDirectory(prefix="evenlag-capacity-") as scratch:
        lake = Lake(spark, str(Path(scratch) / "lake"))
        tables = make_tables(groups, partitions, snapshots)
        group = tables[LAG]["group_id"][0].as_py()
        write_tables(lake, tables, Path(scratch), snapshots)
        reader = LakeReader(lake.paths.root)
        before, read_before = measure(reader, snapshots), time_reads(reader, group)
        policy = Policy.model_validate(
            {
                "lake": lake.paths.root,
                "clusters": {CLUSTER: {"bootstrap_servers": "none:1", "schedule": None}},
            }
        )
        peak_heap_mb(spark)
        started = time.perf_counter()
        done = maintain_lake(lake, policy, datetime.now(UTC), steps=("compact",))
        seconds = time.perf_counter() - started
        assert done.failures == []
        heap = peak_heap_mb(spark)
        after, read_after = measure(reader, snapshots), time_reads(reader, group)
    spark.stop()
    rows = sum(tables[table].num_rows for table in _MEASURED)
    day_mb = {
        name: round(_READINGS_A_DAY / snapshots * sum(table["mb"] for table in state.values()), 1)
        for name, state in (("before", before), ("after", after))
    }
    return {
        "groups": groups,
        "partitions": partitions,
        "snapshots": snapshots,
        "before": before,
        "after": after,
        "mb_a_day": day_mb,
        "compaction": {
            "rows": rows,
            "seconds": round(seconds, 1),
            "rows_per_s": round(rows / seconds),
            "peak_driver_heap_mb": heap,
        },
        "read_one_groups_day_s": {"before": read_before, "after": read_after},
    }


def main(arguments: list[str]) -> int:
    """Measure and keep the results."""
    parser = argparse.ArgumentParser(prog="tests.bench.capacity", description=__doc__)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=100, help="of a group")
    parser.add_argument("--snapshots", type=int, default=96, help="readings written, of 288 a day")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    result = run(given.groups, given.partitions, given.snapshots)
    given.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
