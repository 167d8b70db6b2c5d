"""A lake that somebody damaged: one clear line and the right exit code, no empty answer."""

from __future__ import annotations

import os
import shutil
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from evenlag.cli.app import app
from evenlag.errors import LakeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.tables import COMMITS, LAG, SNAPSHOTS
from evenlag.lake.writer import append_once
from spark_jobs.runtime.delta_lake import Lake
from tests.support.lakes.snapshots import HEAD, NOW, commit, frame, marker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table

pytestmark = pytest.mark.jvm

NO_ANSWER, MISTAKE, NOTHING_THERE = 3, 2, 4


def counted(**more: Any) -> dict[str, Any]:
    return {"group_id": "g", "topic": "t", "partition": 0, "status": "OK", "lag_records": 1, **more}


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with three commits to `snapshots` and to `lag`, and one to `commits`."""
    root = tmp_path_factory.mktemp("whole") / "lake"
    lake = Lake(spark, str(root))
    for number in range(3):
        name = f"20260301T120000000Z-0000000{number}"
        row = marker(snapshot_id=name, slot=NOW + timedelta(minutes=number))
        append_once(str(root), SNAPSHOTS, [HEAD | row], None)
        lake.append(LAG, frame(spark, LAG, [counted(snapshot_id=name)]))
    append_once(str(root), COMMITS, [HEAD | commit(0, 5)], None)
    return root


def log_gone(table: Path) -> None:
    shutil.rmtree(table / "_delta_log")


def log_emptied(table: Path) -> None:
    begin_write(table)
    hours_ago = time.time() - 2 * 3600
    for file in table.rglob("*.parquet"):
        os.utime(file, (hours_ago, hours_ago))


def begin_write(table: Path) -> None:
    """Leave what Spark's first write of a table has before its commit: young data, and an empty log."""
    shutil.rmtree(table / "_delta_log")
    (table / "_delta_log").mkdir()
    for file in table.rglob("*.parquet"):
        os.utime(file)


def commit_of(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020d}.json"


def commit_garbled(table: Path) -> None:
    commit_of(table, 1).write_text("this is no JSON", encoding="utf-8")


def commit_cut_within_a_line(table: Path) -> None:
    content = commit_of(table, 1).read_bytes()
    commit_of(table, 1).write_bytes(content[: len(content) - 40])


def commit_cut_between_lines(table: Path) -> None:
    newest = max((table / "_delta_log").glob("*.json"))
    lines = newest.read_text(encoding="utf-8").splitlines(keepends=True)
    last = next(number for number, line in enumerate(lines) if line.startswith('{"add"'))
    newest.write_text("".join(lines[:last]), encoding="utf-8")


def commit_missing(table: Path) -> None:
    commit_of(table, 1).unlink()


def first_commit_missing(table: Path) -> None:
    commit_of(table, 0).unlink()


def data_file_missing(table: Path) -> None:
    next(table.rglob("*.parquet")).unlink()


def data_file_overwritten(table: Path) -> None:
    next(table.rglob("*.parquet")).write_bytes(b"PAR1 this is none PAR1")


LOG_DAMAGE = (
    log_gone,
    log_emptied,
    commit_garbled,
    commit_cut_within_a_line,
    commit_cut_between_lines,
    commit_missing,
    first_commit_missing,
)
DAMAGE = (*LOG_DAMAGE, data_file_missing, data_file_overwritten)


BY_BOTH_WRITERS = pytest.mark.parametrize("table", [SNAPSHOTS, LAG], ids=lambda table: table.name)


@pytest.fixture(params=DAMAGE, ids=lambda damage: damage.__name__)
def damage(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Damage to the folder of a table."""
    found: Callable[[Path], None] = request.param
    return found


def check_message(text: str, root: Path, table: Table = SNAPSHOTS) -> None:
    assert len(text.splitlines()) == 1, text
    assert text.startswith(f"table {table.name} of {root} cannot be read: ")
    assert "docs/runbook.md" in text
    assert "<unknown>" not in text


@BY_BOTH_WRITERS
def test_reading_a_damaged_table_is_one_clear_error(
    damage: Callable[[Path], None],
    table: Table,
    whole: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(whole, root)
    damage(root / table.name)
    reader = LakeReader(str(root))
    with pytest.raises(LakeError) as error:
        reader.read(table)
    check_message(str(error.value), root, table)
    assert error.value.exit_code == NO_ANSWER
    assert reader.read(COMMITS).num_rows == 1, "the others are as they were"
    assert capfd.readouterr().err == "", "Rust's panics and their stacks do not reach the terminal"


@BY_BOTH_WRITERS
@pytest.mark.parametrize("log_damage", LOG_DAMAGE, ids=lambda damage: damage.__name__)
def test_the_files_of_a_damaged_log_are_no_answer_either(
    log_damage: Callable[[Path], None], table: Table, whole: Path, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(whole, root)
    log_damage(root / table.name)
    with pytest.raises(LakeError) as error:
        read_table_files(LakeReader(str(root)), table)
    check_message(str(error.value), root, table)


COMMANDS = (
    ("lag",),
    ("plans",),
    ("lake", "status"),
    ("report", "--file", "never.html"),
    ("audit", "owner", "g", "--at", "2026-03-01T12:00"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("log_damage", [log_gone, commit_garbled], ids=lambda damage: damage.__name__)
def test_commands_end_with_no_answer(
    log_damage: Callable[[Path], None], command: tuple[str, ...], whole: Path, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(whole, root)
    log_damage(root / SNAPSHOTS.name)
    answer = CliRunner().invoke(app, [*command, "--lake", str(root)])
    assert answer.exit_code == NO_ANSWER, answer.output
    assert answer.stdout == ""
    check_message(answer.stderr.removeprefix("error: ").rstrip("\n"), root)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("scheme", ["oci", "wasb", "ofs"])
def test_an_address_that_no_reader_knows_is_a_mistake(scheme: str, command: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(app, [*command, "--lake", f"{scheme}://bucket/lake"])
    assert answer.exit_code == MISTAKE, answer.output
    assert answer.stdout == ""
    lines = answer.stderr.splitlines()
    assert len(lines) == 1
    assert f"{scheme}://bucket/lake" in lines[0]
    assert "s3a" in lines[0]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_lake_that_is_not_there_has_no_snapshot_yet(command: tuple[str, ...], tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, [*command, "--lake", str(tmp_path / "none")])
    assert answer.exit_code == NOTHING_THERE
    assert "has no snapshot yet" in answer.stderr


def test_doctor_tells_the_table_and_looks_on(whole: Path, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    shutil.copytree(whole, root)
    log_gone(root / SNAPSHOTS.name)
    answer = CliRunner().invoke(app, ["doctor", "--lake", str(root), "--only", "lake"])
    assert answer.exit_code == 1
    words = " ".join(answer.stdout.replace("│", " ").split())
    assert "its log" in words
    assert "is gone" in words


def test_spark_neither_reads_nor_writes_over_data_without_a_log(
    spark: SparkSession, whole: Path, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    shutil.copytree(whole, root)
    log_gone(root / LAG.name)
    lake = Lake(spark, str(root))
    with pytest.raises(LakeError, match="is gone"):
        lake.read(LAG)
    with pytest.raises(LakeError, match="is gone"):
        lake.append(LAG, frame(spark, LAG, [counted()]))
    assert not (root / LAG.name / "_delta_log").exists()


def test_a_table_that_is_just_being_made_is_not_there_yet(whole: Path, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    shutil.copytree(whole, root)
    begin_write(root / LAG.name)
    assert LakeReader(str(root)).read(LAG).num_rows == 0


def test_a_first_write_that_was_killed_is_done_again(
    spark: SparkSession, whole: Path, tmp_path: Path
) -> None:
    # Spark makes the log's folder before any data file, so data beside an empty one was never committed.
    root = tmp_path / "lake"
    shutil.copytree(whole, root)
    begin_write(root / LAG.name)
    lake = Lake(spark, str(root))
    lake.append(LAG, frame(spark, LAG, [counted()]))
    assert LakeReader(str(root)).read(LAG).num_rows == 1
