"""A lake that a development version wrote is refused by all readers and writers, and nothing is written."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from evenlag.cli.app import app
from evenlag.doctor.lake_checks import lake_checks
from evenlag.errors import OldLakeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.tables import (
    CONTROL_ACTIONS,
    LAG,
    MEMBERSHIPS,
    RUNS,
    SNAPSHOTS,
    TABLES,
    Table,
)
from evenlag.lake.writer import append_once
from spark_jobs.runtime.delta_lake import Lake
from tests.support.lakes.snapshots import DAY, HEAD, NOW, frame
from tests.support.spark_tables import write_foreign_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

MISTAKE = 2
BY_MONTH = [table for table in TABLES.values() if table.is_by_month]
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("lag",),
    ("plans",),
    ("compare", "show"),
    ("audit", "owner", "g", "--at", "2026-03-01T12:00"),
)


def write_table(root: Path, name: str, columns: tuple[str, ...] = ()) -> None:
    """Write a table with evenlag's partition columns, strings as `columns`, and one row."""
    write_foreign_table(root / name, [{"cluster": "c", "day": DAY} | dict.fromkeys(columns, "old")])


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A lake of a development version, which partitioned every table by day."""
    root = tmp_path / "lake"
    write_table(root, SNAPSHOTS.name, ("snapshot_id",))
    return root


def check_message(text: str) -> None:
    assert len(text.splitlines()) == 1, text
    assert re.search("table snapshots of the lake .* has no column month: a development version", text)
    assert "set `lake` in the policy to a new, empty location (docs/upgrade.md)" in text


def test_only_the_tables_that_grow_fastest_are_partitioned_by_day() -> None:
    by_day = {"offsets", "commits", "members", "lag", "hourly_rates", "forecasts", "speeds", "advice"}
    assert set(TABLES) - {table.name for table in BY_MONTH} == by_day


def test_readers_without_a_jvm_refuse_it(old: Path) -> None:
    reader = LakeReader(str(old))
    for read in (
        lambda: reader.exists(SNAPSHOTS),
        lambda: reader.read(SNAPSHOTS),
        lambda: reader.read(RUNS),
        lambda: read_table_files(reader, SNAPSHOTS),
    ):
        with pytest.raises(OldLakeError) as error:
            read()
        check_message(str(error.value))
        assert (error.value.exit_code, error.value.retriable) == (MISTAKE, False)


def test_the_writer_without_a_jvm_writes_nothing(old: Path) -> None:
    row = {"cluster": "c", "day": DAY, "action_id": "a", "action": "RESUME", "at": datetime.now(UTC)}
    with pytest.raises(OldLakeError) as error:
        append_once(str(old), CONTROL_ACTIONS, [row], None)
    check_message(str(error.value))
    assert not (old / CONTROL_ACTIONS.name).exists()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_end_with_the_message_and_exit_code_2(old: Path, command: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(app, [*command, "--lake", str(old)])
    assert answer.exit_code == MISTAKE, answer.output
    assert answer.stdout == ""
    check_message(answer.stderr.removeprefix("error: ").rstrip("\n"))


def test_doctor_reports_it(old: Path) -> None:
    (check,) = (
        one for one in lake_checks(LakeReader(str(old)), None, probe_writes=False) if one.name == "readable"
    )
    with pytest.raises(OldLakeError):
        check.look()
    answer = CliRunner().invoke(app, ["doctor", "--lake", str(old), "--only", "lake.readable", "--json"])
    assert answer.exit_code == 1
    ((finding,),) = (one["findings"] for one in json.loads(answer.stdout)["checks"])
    check_message(finding["finding"])


def test_spark_neither_reads_nor_writes_it(spark: SparkSession, old: Path) -> None:
    lake = Lake(spark, str(old))
    for attempt in (
        lambda: lake.exists(SNAPSHOTS),
        lambda: lake.read(SNAPSHOTS),
        lambda: lake.append(LAG, frame(spark, LAG, [{}])),
        lambda: lake.replace_days(LAG, frame(spark, LAG, [{}]), "c", [DAY]),
    ):
        with pytest.raises(OldLakeError) as error:
            attempt()
        check_message(str(error.value))
    assert not (old / LAG.name).exists()


def run() -> dict[str, Any]:
    return {"run_id": "r", "step": "observe", "slot": NOW, "started_at": NOW, "finished_at": NOW}


@pytest.mark.parametrize("table", BY_MONTH, ids=lambda table: str(table.name))
def test_each_table_without_a_month_is_refused(tmp_path: Path, table: Table) -> None:
    write_table(tmp_path, table.name, ("group_id",))
    with pytest.raises(OldLakeError, match=f"table {table.name} .*has no column month"):
        LakeReader(str(tmp_path)).read(table)


def test_spark_refuses_any_table_without_a_month(spark: SparkSession, tmp_path: Path) -> None:
    write_table(tmp_path, MEMBERSHIPS.name, ("group_id",))
    with pytest.raises(OldLakeError, match="table memberships has no column month"):
        Lake(spark, str(tmp_path)).read(MEMBERSHIPS)
    with pytest.raises(OldLakeError, match="table memberships has no column month"):
        Lake(spark, str(tmp_path)).append(MEMBERSHIPS, spark.createDataFrame([], MEMBERSHIPS.ddl))


def empty(root: Path) -> None:
    root.mkdir()


def foreign_table_of_that_name(root: Path) -> None:
    write_foreign_table(root / SNAPSHOTS.name, [{"team": "a", "goals": 3}], ())


def table_whose_creation_was_killed(root: Path) -> None:
    write_table(root, SNAPSHOTS.name, ("plan_id",))
    for file in (root / SNAPSHOTS.name / "_delta_log").iterdir():
        file.unlink()


def damaged_snapshots(root: Path) -> None:
    write_table(root, SNAPSHOTS.name, ("group_id",))
    (root / SNAPSHOTS.name / "_delta_log" / f"{0:020d}.json").write_text("no JSON", encoding="utf-8")


@pytest.mark.parametrize(
    "make",
    [empty, foreign_table_of_that_name, table_whose_creation_was_killed, damaged_snapshots],
    ids=lambda make: make.__name__,
)
def test_other_lakes_are_not_refused(
    spark: SparkSession, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    root = tmp_path / "lake"
    make(root)
    assert LakeReader(str(root)).read(RUNS).num_rows == 0
    Lake(spark, str(root)).append(LAG, frame(spark, LAG, [{}]))
    append_once(str(root), RUNS, [HEAD | run()], None)
    assert [LakeReader(str(root)).read(table).num_rows for table in (LAG, RUNS)] == [1, 1]
