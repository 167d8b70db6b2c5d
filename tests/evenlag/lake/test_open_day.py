"""A table that gets a commit each minute: few files and a short log, whoever writes and reads meanwhile."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from evenlag.errors import LakeError
from evenlag.lake import delta_log
from evenlag.lake.delta_log import forget_tables, one_look, open_table, read_actions
from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.table_properties import COMMITS_PER_CHECKPOINT, LOG_HOURS
from evenlag.lake.tables import RUNS
from evenlag.lake.upkeep.direct_tables import rewrite_days, trim_log, vacuum_table, write_checkpoint
from evenlag.lake.upkeep.open_day import MANY_FILES, tend_tables
from evenlag.lake.writer import append_once
from tests.support.lakes.aged import age
from tests.support.lakes.run_rows import TODAY, of_run, run, run_ids, set_property
from tests.truth.oracle.delta_files import live_files

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Any

    import pyarrow as pa

MINUTES = 7 * 60


def append(root: Path, minute: int, cluster: str = "c", **more: Any) -> None:
    """Append a run of a minute, as a cycle does."""
    name = f"{minute:05d}"
    row = run(name, cluster=cluster, snapshot_id=f"s{name}", **more)
    append_once(str(root), RUNS, [row], [("cluster", "=", cluster), ("run_id", "=", name)])


def tend(root: Path, cluster: str = "c") -> None:
    tend_tables(LakePaths(str(root)), cluster, {RUNS})


def num_files(root: Path) -> int:
    return len(live_files(root / RUNS.name))


@pytest.mark.extended
def test_hours_of_minutes_leave_few_files_and_a_log_of_hours(tmp_path: Path) -> None:
    log, most = tmp_path / RUNS.name / "_delta_log", 0
    for minute in range(MINUTES):
        append(tmp_path, minute)
        tend(tmp_path)
        most = max(most, num_files(tmp_path) - minute // MANY_FILES)
        if minute % 60 == 0:
            age(tmp_path, 1 / 24)
    assert most <= MANY_FILES
    commits = (LOG_HOURS + 1) * 60 * (1 + 1 / MANY_FILES)
    assert len(list(log.glob("*.json"))) <= commits + COMMITS_PER_CHECKPOINT
    assert (
        len(list(log.glob("*.checkpoint.parquet"))) <= 2 + commits / COMMITS_PER_CHECKPOINT + 60 / MANY_FILES
    )
    assert run_ids(tmp_path) == [f"{minute:05d}" for minute in range(MINUTES)]
    # What was replaced longer ago is not named any more, and each cluster has one id.
    (newest,) = sorted(log.glob("*.checkpoint.parquet"))[-1:]
    assert newest.stat().st_size < 60_000


def test_small_files_of_another_cluster_of_another_day_and_without_a_snapshot_stay(tmp_path: Path) -> None:
    for minute in range(MANY_FILES):
        append(tmp_path, minute)
        append(tmp_path, minute, cluster="d")
    append(tmp_path, 70, day=TODAY - timedelta(days=40))
    append_once(str(tmp_path), RUNS, [run("audit")], None)
    before = run_ids(tmp_path)
    tend(tmp_path)
    assert num_files(tmp_path) == 1 + MANY_FILES + 2
    tend(tmp_path, "nobody")
    tend(tmp_path)
    assert num_files(tmp_path) == 1 + MANY_FILES + 2
    assert run_ids(tmp_path) == before
    # In one file with rows of snapshots.
    rewrite_days(LakePaths(str(tmp_path)), RUNS, "c", (TODAY, TODAY), 1 << 20)
    for minute in range(MANY_FILES, 2 * MANY_FILES - 1):
        append(tmp_path, minute)
    before = run_ids(tmp_path)
    tend(tmp_path)
    assert num_files(tmp_path) <= 2 + MANY_FILES + 1
    assert run_ids(tmp_path) == before


def test_a_step_compacts_one_table(tmp_path: Path) -> None:
    tables = [RUNS, replace(RUNS, name="others")]
    for minute in range(MANY_FILES):
        for table in tables:
            append_once(str(tmp_path), table, [run(f"{minute}", snapshot_id=f"s{minute:05d}")], None)
    left = []
    for _ in range(3):
        left.append(sorted(len(live_files(tmp_path / table.name)) for table in tables))
        tend_tables(LakePaths(str(tmp_path)), "c", tables)
    assert left == [[MANY_FILES, MANY_FILES], [1, MANY_FILES], [1, 1]]


def append_within(root: Path) -> list[str]:
    append_once(str(root), RUNS, [run("late", snapshot_id="s00003x")], None)
    return ["late"]


def append_elsewhere(root: Path) -> list[str]:
    append(root, 99, cluster="d")
    return ["00099"]


def tend_too(root: Path) -> list[str]:
    tend(root)
    return []


@pytest.mark.parametrize("other", [append_within, append_elsewhere, tend_too])
def test_what_another_writer_does_meanwhile_is_kept_and_nothing_is_doubled(
    other: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute in range(MANY_FILES):
        append(tmp_path, minute)
    expected, others = run_ids(tmp_path), [other]
    stream = LakeReader.stream

    def stream_and_act(*given: Any) -> pa.RecordBatchReader:
        rows = stream(*given)
        if others:
            expected.extend(others.pop()(tmp_path))
        return rows

    monkeypatch.setattr(LakeReader, "stream", stream_and_act)
    tend(tmp_path)
    assert others == []
    assert run_ids(tmp_path) == sorted(expected)
    assert num_files(tmp_path) <= 3


def test_a_reader_of_an_hour_ago_finds_its_files_however_old_they_are(tmp_path: Path) -> None:
    for minute in range(MANY_FILES):
        append(tmp_path, minute)
    with open_table(LakePaths(str(tmp_path)), RUNS) as before:
        paths = read_actions(before, LakePaths(str(tmp_path)), RUNS)["path"].to_pylist()
    age(tmp_path, 30)
    tend(tmp_path)
    assert num_files(tmp_path) == 1

    def num_left(hours_later: int) -> int:
        age(tmp_path, hours_later / 24)
        trim_log(LakePaths(str(tmp_path)), RUNS)
        vacuum_table(LakePaths(str(tmp_path)), RUNS, 1)
        return sum((tmp_path / RUNS.name / path).exists() for path in paths)

    assert [num_left(1), num_left(30)] == [MANY_FILES, 0]


def test_a_lake_of_an_earlier_version_is_continued_and_gets_the_properties_by_maintenance(
    tmp_path: Path,
) -> None:
    """Of 0.1.0: ids looked up in the log for three days, a log of days."""
    append(tmp_path, 0)
    for name, value in (("logRetentionDuration", "interval 3 days"), ("enableExpiredLogCleanup", "true")):
        set_property(tmp_path, f"delta.{name}", value)
    for minute in range(MANY_FILES):
        append(tmp_path, minute)
    tend(tmp_path)
    assert run_ids(tmp_path) == [f"{minute:05d}" for minute in range(MANY_FILES)]
    assert not append_once(str(tmp_path), RUNS, [run("again")], of_run("00003"))


def test_a_commit_that_took_hours_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine slept between the look for newer commits and the commit, which readers do not need then."""
    append(tmp_path, 0)
    import deltalake

    write, sleeps = deltalake.write_deltalake, [True]

    def write_below_the_checkpoint(*given: Any, **more: Any) -> None:
        write(*given, **more)
        if sleeps.pop():
            # What readers would see had other writers gone on meanwhile.
            newest = max((tmp_path / RUNS.name / "_delta_log").glob("*.json"))
            newest.unlink()
            awake = time.time() + LOG_HOURS * 3_600
            monkeypatch.setattr("evenlag.lake.writer.time", SimpleNamespace(time=lambda: awake))
            sleeps.append(False)

    monkeypatch.setattr("deltalake.write_deltalake", write_below_the_checkpoint)
    assert append_once(str(tmp_path), RUNS, [run("slept")], of_run("slept"))
    assert run_ids(tmp_path) == ["00000", "slept"]


def test_the_log_is_trimmed_of_what_is_older_than_hours_and_before_a_checkpoint(tmp_path: Path) -> None:
    log = tmp_path / RUNS.name / "_delta_log"
    for minute in range(5):
        append(tmp_path, minute)
    trim_log(LakePaths(str(tmp_path)), RUNS)
    assert len(list(log.glob("*.json"))) == 6
    (log / f"{1:020d}.crc").write_text("{}", encoding="utf-8")
    age(tmp_path, (LOG_HOURS + 1) / 24)
    trim_log(LakePaths(str(tmp_path)), RUNS)
    append(tmp_path, 5)
    assert len(list(log.glob("*.json"))) <= 2
    assert run_ids(tmp_path) == [f"{minute:05d}" for minute in range(6)]


def test_several_trim_a_log_at_the_same_time(tmp_path: Path) -> None:
    """As cycles of several clusters and maintenance do; deltalake stops at a file that is gone."""
    table, log = replace(RUNS, writer="spark"), tmp_path / RUNS.name / "_delta_log"
    for minute in range(30):
        append(tmp_path, minute)
        (log / f"{minute:020d}.crc").write_text("{}", encoding="utf-8")
    # Whoever opens the table reads this checkpoint, which stays.
    trim_log(LakePaths(str(tmp_path)), table)
    age(tmp_path, (LOG_HOURS + 1) / 24)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(trim_log, [LakePaths(str(tmp_path))] * 4, [table] * 4))
    assert [path.name for path in log.glob("*.json")] == [f"{30:020d}.json"]
    assert not list(log.glob("*.crc"))
    assert len(run_ids(tmp_path)) == 30


@pytest.mark.parametrize(
    ("num_errors", "is_trimmed", "num_openings", "outcome"),
    [
        (1, True, 2, nullcontext()),
        (99, True, 5, pytest.raises(LakeError, match="its log: File not found")),
        (99, False, 1, pytest.raises(LakeError, match="its log: File not found")),
    ],
    ids=["once", "always", "never"],
)
def test_a_table_whose_log_is_trimmed_while_it_is_opened_is_opened_again(
    num_errors: int,
    is_trimmed: bool,
    num_openings: int,
    outcome: AbstractContextManager[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import deltalake

    append(tmp_path, 0)
    forget_tables()
    log, table, openings = tmp_path / RUNS.name / "_delta_log", deltalake.DeltaTable, []

    def open_while_trimmed(folder: str) -> deltalake.DeltaTable:
        openings.append(folder)
        if len(openings) > num_errors:
            return table(folder)
        if is_trimmed:
            old.pop().unlink()
        raise deltalake.exceptions.DeltaError("File not found")

    old = [log / f".{version:020d}.json.crc" for version in range(10)]
    for path in old:
        path.touch()
    monkeypatch.setattr(deltalake, "DeltaTable", open_while_trimmed)
    with outcome:
        assert LakeReader(str(tmp_path)).exists(RUNS)
    assert len(openings) == num_openings


def test_the_size_of_a_log_is_read_while_it_is_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, 0)
    reader, is_file = LakeReader(str(tmp_path)), type(tmp_path).is_file
    before = read_table_files(reader, RUNS)
    trimmed = tmp_path / RUNS.name / "_delta_log" / f".{0:020d}.json.crc"
    trimmed.write_text("{}", encoding="utf-8")

    def remove_after_look(path: Path) -> bool:
        answer = is_file(path)
        if path == trimmed:
            path.unlink()
        return answer

    monkeypatch.setattr(type(tmp_path), "is_file", remove_after_look)
    assert read_table_files(reader, RUNS) == before
    assert not trimmed.exists()


def test_one_look_sees_own_writes_and_what_a_conflict_shows(tmp_path: Path) -> None:
    reader = LakeReader(str(tmp_path))
    with one_look() as look:
        assert reader.read(RUNS).num_rows == 0
        append(tmp_path, 0)
        assert reader.read(RUNS).num_rows == 1
        assert look.written == {RUNS}


def test_an_open_table_is_opened_anew_before_it_has_seen_many_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert delta_log._MAX_COMMITS <= 100
    monkeypatch.setattr(delta_log, "_MAX_COMMITS", 10)
    openings: list[Any] = []
    for minute in range(40):
        append(tmp_path, minute)
        with open_table(LakePaths(str(tmp_path)), RUNS) as delta:
            if not any(delta is other for other in openings):
                openings.append(delta)
    # With each commit since then, the next one takes longer.
    assert 3 <= len(openings) <= 5
    assert len(run_ids(tmp_path)) == 40


def write_two_tables(tmp_path: Path, num_old: int) -> tuple[Path, Path]:
    """Write `runs` of two lakes, "old" and "new"; return their folders."""
    for minute in range(num_old):
        append(tmp_path / "old", minute)
    append(tmp_path / "new", 99)
    forget_tables()
    return tmp_path / "old" / RUNS.name, tmp_path / "new" / RUNS.name


def test_a_local_table_that_is_replaced_while_it_is_in_use_is_not_kept_open(tmp_path: Path) -> None:
    old, new = write_two_tables(tmp_path, 1)
    with open_table(LakePaths(str(tmp_path / "old")), RUNS):
        shutil.rmtree(old)
        new.rename(old)
    assert run_ids(tmp_path / "old") == ["00099"]


def test_a_replaced_table_of_an_object_store_is_opened_anew_after_a_failed_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LakePaths, "is_local", property(lambda _: False))
    old, new = write_two_tables(tmp_path, COMMITS_PER_CHECKPOINT)
    # An update lists only what is newer than the checkpoint.
    write_checkpoint(LakePaths(str(tmp_path / "old")), RUNS)
    assert list(old.rglob("*.checkpoint.parquet"))
    assert LakeReader(str(tmp_path / "old")).exists(RUNS)
    shutil.rmtree(old)
    new.rename(old)
    with pytest.raises(LakeError, match="its data files"):
        run_ids(tmp_path / "old")
    assert run_ids(tmp_path / "old") == ["00099"]
