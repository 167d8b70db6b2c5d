"""Appends of ``deltalake``: what is repeated, raced or killed is in the table once, and Spark reads it."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from evenlag.errors import LakeError, SchemaError
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.table_properties import COMMITS_PER_CHECKPOINT, wanted_properties
from evenlag.lake.tables import GATE_RESULTS, LAG, MEMBERS, RUNS, SNAPSHOTS
from evenlag.lake.upkeep.direct_tables import delete_snapshots, set_properties, trim_log
from evenlag.lake.writer import append_guarded, append_once
from evenlag.monitoring.lake_health import check_lake, check_table
from evenlag.policy.settings import MaintenanceSettings
from spark_jobs.runtime.delta_lake import Lake
from tests.support.lakes.run_rows import NOW, OLD, TODAY, actions, of_run, run, run_ids, set_property
from tests.support.lakes.snapshots import frame
from tests.support.spark_tables import write_foreign_table, write_rows
from tests.truth.oracle.delta_files import read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


# A repeat ---------------------------------------------------------------------------------------------------


def test_arrow_rows_are_written_as_they_are(tmp_path: Path) -> None:
    import pyarrow as pa

    rows = pa.Table.from_pylist([run("a"), run("b", summary='{"a": 1}')], schema=arrow_schema(RUNS))
    assert append_once(str(tmp_path), RUNS, rows, of_run("a"))
    assert LakeReader(str(tmp_path)).read(RUNS).sort_by("run_id").equals(rows)
    assert not append_once(str(tmp_path), RUNS, rows.slice(0, 0), of_run("d"))
    assert len(actions(tmp_path)) == 2, "nothing to write is no commit"


def test_rows_of_spark_whose_lists_have_no_values_are_written(tmp_path: Path) -> None:
    import pyarrow as pa

    # As Spark sends them: the lists within have no offsets. Behind their buffer is what is no offset.
    row = {
        "cluster": "c",
        "snapshot_id": "20260301T120000000Z-0badcafe",
        "group_id": "g",
        "member_id": "m",
        "day": TODAY,
    }
    rows = pa.Table.from_pylist([row], schema=arrow_schema(MEMBERS))
    name = "assignment"
    no_offsets = pa.py_buffer(b"\xff" * 64).slice(32, 0)
    topic_type, numbers_type = (field.type for field in rows.schema.field(name).type.value_type)
    numbers = pa.Array.from_buffers(numbers_type, 0, [None, no_offsets], children=[pa.array([], pa.int32())])
    fields = pa.StructArray.from_arrays(
        [pa.array([], topic_type), numbers], fields=list(rows.schema.field(name).type.value_type)
    )
    empty = pa.Array.from_buffers(
        rows.schema.field(name).type, 1, [None, pa.py_buffer(bytes(8))], children=[fields]
    )
    rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), empty)
    assert append_once(str(tmp_path), MEMBERS, rows, None)
    assert LakeReader(str(tmp_path)).read(MEMBERS)[name].to_pylist() == [[]]


def test_writes_without_an_id_are_all_written(tmp_path: Path) -> None:
    for _ in range(2):
        assert append_once(str(tmp_path), RUNS, [run("r")], None)
    assert run_ids(tmp_path) == ["r", "r"]


def test_what_the_table_has_decides_and_not_when_or_with_what_else_it_was_written(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert append_once(root, RUNS, [run("a", OLD), run("b", OLD)], of_run("b"))
    assert append_once(root, RUNS, [run("c", OLD, cluster="other")], None)
    set_property(tmp_path, "delta.logRetentionDuration", "interval 0 seconds")
    set_property(tmp_path, "delta.setTransactionRetentionDuration", "interval 0 seconds")
    time.sleep(0.01)
    trim_log(LakePaths(root), RUNS)
    assert len(actions(tmp_path)) == 1
    for name in ("a", "b"):
        assert not append_once(root, RUNS, [run(name, summary="repeated"), run("d")], of_run(name))
    # Of another cluster it is another row.
    assert append_once(root, RUNS, [run("c", OLD)], of_run("c"))
    assert run_ids(tmp_path) == ["a", "b", "c", "c"]


def test_the_log_has_one_id_for_each_cluster(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    for number in range(COMMITS_PER_CHECKPOINT):
        cluster = "cd"[number % 2]
        append_guarded(str(tmp_path), RUNS, partial(list, [run(str(number), cluster=cluster)]))
    (newest,) = (tmp_path / RUNS.name / "_delta_log").glob("*.checkpoint.parquet")
    ids = [row["appId"] for row in pq.read_table(newest)["txn"].to_pylist() if row is not None]
    assert sorted(ids) == ["runs/c", "runs/d"]


def test_maintenance_deletes_the_snapshots_of_one_day_of_one_cluster(tmp_path: Path) -> None:
    odd, ids = "o'd\\x \U0001f600", ("s-1", "it's", "back\\slash")
    rows = [
        {"cluster": cluster, "day": day, "snapshot_id": name, "slot": NOW + timedelta(minutes=number)}
        for cluster in ("c", odd)
        for day in (OLD, TODAY)
        for number, name in enumerate(ids)
    ]
    append_once(str(tmp_path), SNAPSHOTS, rows, None)
    paths = LakePaths(str(tmp_path))
    delete_snapshots(paths, SNAPSHOTS, odd, OLD, ids[1:])
    delete_snapshots(paths, SNAPSHOTS, "c", TODAY, ())
    delete_snapshots(paths, SNAPSHOTS, "nobody", TODAY, ids)
    left = [(row["cluster"], row["day"], row["snapshot_id"]) for row in rows]
    left = [row for row in left if row != (odd, OLD, "s-1") and row[:2] != ("c", TODAY)]
    found = LakeReader(str(tmp_path)).read(SNAPSHOTS).to_pylist()
    assert sorted((row["cluster"], row["day"], row["snapshot_id"]) for row in found) == sorted(left)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\x0b", "\x1e", "\x85", "\u2028", "\u2029"], ids=ascii)
def test_a_name_with_an_end_of_a_line_in_it_harms_no_log(end: str, tmp_path: Path) -> None:
    """The log has the least and the greatest name of each file."""
    head = {"cluster": "c", "day": TODAY, "snapshot_id": "s", "plan_id": "p", "passed": True, "message": end}
    names = [f"a{end}b", f"{end}", f"z{end}"]
    for number, name in enumerate(names):
        row = head | {"group_id": name, "gate": str(number)}
        assert append_once(str(tmp_path), GATE_RESULTS, [row], None)
        found = LakeReader(str(tmp_path)).read(GATE_RESULTS, filters=[("group_id", "=", name)]).to_pylist()
        assert [(row["gate"], row["message"]) for row in found] == [(str(number), end)]
    assert sorted(row["group_id"] for row in read_rows(tmp_path, GATE_RESULTS.name)) == sorted(names)


# What is refused --------------------------------------------------------------------------------------------


def test_a_table_of_spark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="table lag is written by Spark only"):
        append_once(str(tmp_path), LAG, [{"cluster": "c"}], None)
    assert list(tmp_path.iterdir()) == []


def test_a_table_with_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    row = run("r") | {"slot": "noon", "month": TODAY.replace(day=1)}
    write_foreign_table(tmp_path / RUNS.name, [row], RUNS.partition_by)
    before = actions(tmp_path)
    with pytest.raises(SchemaError, match="runs: column slot is string in the lake and timestamp"):
        append_once(str(tmp_path), RUNS, [run("s")], of_run("s"))
    assert actions(tmp_path) == before


def test_rows_with_a_column_that_the_contract_lacks_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    row = run("r", sumary="{}")
    for rows in ([run("q"), row], pa.Table.from_pylist([row])):
        with pytest.raises(SchemaError, match=r"table runs: rows have columns .*: sumary"):
            append_once(str(tmp_path), RUNS, rows, None)
    assert not (tmp_path / RUNS.name).exists()


def test_data_without_a_log_is_not_written_over(tmp_path: Path) -> None:
    append_once(str(tmp_path), RUNS, [run("r")], None)
    shutil.rmtree(tmp_path / RUNS.name / "_delta_log")
    with pytest.raises(LakeError, match="is gone"):
        append_once(str(tmp_path), RUNS, [run("s")], of_run("s"))
    assert not (tmp_path / RUNS.name / "_delta_log").exists()


# Spark and deltalake ----------------------------------------------------------------------------------------


def test_spark_and_deltalake_read_each_other_s_tables(spark: SparkSession, tmp_path: Path) -> None:
    root, lake = str(tmp_path), Lake(spark, str(tmp_path))
    head = {"cluster": "c", "day": TODAY, "plan_id": "p"}
    verdicts = [head | {"gate": "gain", "passed": True}, head | {"gate": "cooldown", "passed": False}]
    # An older evenlag made the table; this one adds a column.
    older = replace(GATE_RESULTS, columns=tuple(c for c in GATE_RESULTS.columns if c.name != "observed"))
    append_once(root, older, verdicts[:1], None)
    append_once(root, GATE_RESULTS, [verdicts[1] | {"observed": "300"}], None)
    for number in range(3):
        append_once(root, RUNS, [run(str(number), summary="{}")], None)
    # A checkpoint of deltalake, without the log before it.
    set_property(tmp_path, "delta.logRetentionDuration", "interval 0 seconds")
    time.sleep(0.01)
    trim_log(LakePaths(root), RUNS)
    assert len(actions(tmp_path)) == 1
    rows = lake.read(RUNS).orderBy("run_id").collect()
    assert [(row.run_id, row.day, row.slot.timestamp(), row.summary) for row in rows] == [
        (str(number), TODAY, NOW.timestamp(), "{}") for number in range(3)
    ]
    seen = lake.read(GATE_RESULTS).where(f"cluster = 'c' AND day = DATE '{TODAY}' AND NOT passed").collect()
    assert [(row.gate, row.observed) for row in seen] == [("cooldown", "300")]
    assert {row.observed for row in lake.read(GATE_RESULTS).collect()} == {None, "300"}
    lag_row = {
        "cluster": "c",
        "day": TODAY,
        "group_id": "g",
        "topic": "t",
        "partition": 3,
        "lag_records": 17,
    }
    write_rows(root, LAG, [lag_row])
    (found,) = LakeReader(root).read(LAG, filters=[("day", "=", TODAY), ("partition", "=", 3)]).to_pylist()
    assert {name: found[name] for name in lag_row} == lag_row
    for table in (RUNS, LAG):
        files = read_table_files(LakeReader(root), table)
        assert files is not None
        assert files.protocol == (1, 2)


def test_a_table_that_spark_wrote_in_an_earlier_version_is_continued(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, before = str(tmp_path), replace(RUNS, writer="spark")
    for number in range(2):
        Lake(spark, root).append(before, frame(spark, before, [run(f"spark {number}")]))
    for _ in range(2):
        append_once(root, RUNS, [run("deltalake")], of_run("deltalake"))
    expected = ["deltalake", "spark 0", "spark 1"]
    assert run_ids(tmp_path) == expected
    assert sorted(row.run_id for row in Lake(spark, root).read(RUNS).collect()) == expected
    # As maintenance does.
    set_properties(LakePaths(root), RUNS, wanted_properties("direct"))
    checks = {
        check.check_name: check
        for check in check_lake(LakeReader(root), MaintenanceSettings(), "c", None, NOW)
        if check.table_name == RUNS.name
    }
    assert all(check.is_ok for check in checks.values())
    files = read_table_files(LakeReader(root), RUNS)
    assert files is not None
    policy = MaintenanceSettings(vacuum_days=7)
    assert all(check.is_ok for check in check_table(RUNS, files, policy, "c", NOW))
