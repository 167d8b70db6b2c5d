"""Tests and benches write no table by another writer than the one that its contract names.

They write tables through `tests.support.spark_tables` only. Nothing else in `tests` and `sandbox` calls what
writes a table by ``deltalake``.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import LakeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import TableFiles, read_table_files
from evenlag.lake.tables import LAG, OWNERSHIP, PLAN_EVENTS, TABLES
from evenlag.lake.writer import append_once
from spark_jobs.runtime.delta_lake import Lake
from tests.support import spark_tables
from tests.support.lakes.snapshots import HEAD, frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
HELPER = ROOT / "tests" / "support" / "spark_tables.py"
# They use the product's own writer, and deltalake to cause its faults and to commit in between; one races
# both engines on a table of its own.
WRITER_TESTS = {
    *(
        ROOT / "tests/evenlag/lake" / f"test_{part}.py"
        for part in ("writer", "writer_races", "guarded_append", "open_day", "s3_commits")
    ),
    ROOT / "tests/spark_jobs/runtime/test_hard_link_log_store.py",
}
# It writes years of the tables of writer ``direct`` at once, and Spark's tables by a log of its own.
OLD_LAKES = ROOT / "tests/support/lakes/old_lake.py"
# It is another program than evenlag, and writes what it likes.
ATTACKERS = {ROOT / f"tests/support/sealing/{name}.py" for name in ("attacker", "forgeries")}
# What deltalake writes a table with, and the methods of its DeltaTable that change one. To read is allowed.
FUNCTIONS = {"write_deltalake", "convert_to_deltalake"}
METHODS = {"create", "update", "delete", "merge", "restore", "repair", "optimize", "vacuum", "alter"}


def direct_writes(source: str) -> Iterator[str]:
    """Yield what in a module's text writes a table by ``deltalake``, with its line."""
    tree = ast.parse(source)
    modules = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom | ast.Import)]
    names = {
        name.name for node in modules if getattr(node, "module", None) == "deltalake" for name in node.names
    }
    is_imported = bool(names) or any(
        name.name.startswith("deltalake") for node in modules for name in node.names
    )
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=found) if module.startswith("deltalake"):
                yield from (f"{node.lineno}: {name.name}" for name in found if name.name in FUNCTIONS)
            case ast.Attribute(attr=attribute) if attribute in FUNCTIONS:
                yield f"{node.lineno}: {attribute}"
            case ast.Attribute(attr=attribute) if is_imported and attribute in METHODS:
                yield f"{node.lineno}: {attribute}"


@pytest.mark.parametrize("folder", ["tests", "sandbox", "examples"])
def test_nothing_but_the_helper_writes_tables_of_the_lake(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{write}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path not in {HELPER, OLD_LAKES, *ATTACKERS, *WRITER_TESTS}
        for write in direct_writes(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from deltalake import write_deltalake\n", ["1: write_deltalake"]),
        ("import deltalake\ndeltalake.write_deltalake('x', rows)\n", ["2: write_deltalake"]),
        ("from deltalake import DeltaTable\nDeltaTable('x').update(updates={})\n", ["2: update"]),
        ("from deltalake import DeltaTable\ntable = DeltaTable('x')\ntable.delete()\n", ["3: delete"]),
        ("from deltalake import DeltaTable\nDeltaTable('x').version()\n", []),
        ("from delta.tables import DeltaTable\nDeltaTable.forPath(spark, 'x').delete()\n", []),
    ],
)
def test_a_write_by_another_writer_is_found(source: str, found: list[str]) -> None:
    assert list(direct_writes(source)) == found


def test_each_kind_of_table_is_refused_by_the_other_writer(spark: SparkSession, tmp_path: Path) -> None:
    event = HEAD | {"plan_id": "p", "group_id": "g", "event": "PUBLISHED", "actor": "publisher"}
    lag = HEAD | {"group_id": "g", "topic": "t", "partition": 1, "stalled": True}
    spark_tables.write_rows(tmp_path, PLAN_EVENTS, [event])
    spark_tables.write_rows(tmp_path, LAG, [lag])
    assert engines(tmp_path, PLAN_EVENTS.name) == {"delta-rs"}
    assert engines(tmp_path, LAG.name) == {"Apache-Spark"}
    with pytest.raises(RuntimeError, match="not written by Spark but by the direct writer"):
        spark_tables.update_rows(tmp_path, PLAN_EVENTS, {"actor": "'x'"}, "true")
    with pytest.raises(LakeError, match="not written by Spark"):
        Lake(spark, str(tmp_path)).append(PLAN_EVENTS, frame(spark, PLAN_EVENTS, [event]))
    with pytest.raises(LakeError, match="written by Spark only"):
        append_once(str(tmp_path), LAG, [lag], None)
    spark_tables.use_session(None)
    try:
        with pytest.raises(RuntimeError, match="ask for the fixture `spark`"):
            spark_tables.write_rows(tmp_path, LAG, [lag])
    finally:
        spark_tables.use_session(spark)


def num_rows(table: TableFiles) -> list[int]:
    """Return the number of rows of each file."""
    return sorted(file.num_rows for parts in table.by_part.values() for file in parts)


def test_a_test_s_table_is_like_a_job_s(spark: SparkSession, tmp_path: Path) -> None:
    row = HEAD | {"group_id": "g", "topic": "t", "partition": 1, "stalled": True}
    by_test, by_job = tmp_path / "test", tmp_path / "job"
    for _ in range(2):
        spark_tables.write_rows(by_test, LAG, [row])
        Lake(spark, str(by_job)).append(LAG, frame(spark, LAG, [row]))
    files = [read_table_files(LakeReader(str(root)), LAG) for root in (by_test, by_job)]
    shown = [
        (found.types, found.properties, found.protocol, found.version, num_rows(found))
        for found in files
        if found is not None
    ]
    assert shown[0] == shown[1]
    assert statistics(by_test) == statistics(by_job)
    # What deltalake's reader stumbles over: Spark keeps no smallest and largest BOOLEAN.
    assert "stalled" not in statistics(by_test)[0]["minValues"]


def test_writes_that_come_together_are_one_commit_each(spark: SparkSession, tmp_path: Path) -> None:
    with spark_tables.together(spark):
        for partition in range(3):
            spark_tables.write_rows(tmp_path, LAG, [HEAD | {"topic": "t", "partition": partition}])
        spark_tables.write_rows(tmp_path, OWNERSHIP, [HEAD | {"partition": 7}])
        assert not list(tmp_path.iterdir())
    reader = LakeReader(str(tmp_path))
    assert sorted(reader.read(LAG)["partition"].to_pylist()) == [0, 1, 2]
    assert reader.read(OWNERSHIP)["partition"].to_pylist() == [7]
    assert len(list((tmp_path / LAG.name / "_delta_log").glob("*.json"))) == 1


def engines(root: Path, table: str) -> set[str]:
    """Return who wrote a table, as the commits of its log say."""
    infos = [action["commitInfo"] for action in log(root, table) if "commitInfo" in action]
    return {str(info["engineInfo"]).partition("/")[0].partition(":")[0] for info in infos}


def statistics(root: Path) -> list[dict[str, Any]]:
    """Return the statistics of a table's files, as its log has them."""
    actions = log(root, LAG.name)
    return [json.loads(action["add"]["stats"]) for action in actions if "add" in action]


def log(root: Path, table: str) -> list[dict[str, Any]]:
    """Return the actions of a table's log, oldest first."""
    assert table in TABLES
    files = sorted((root / table / "_delta_log").glob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
