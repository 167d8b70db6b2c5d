"""Appends of ``deltalake``: what is repeated, raced or killed is in the table once, and Spark reads it."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import LakeConflictError, LakeError, SchemaError
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.table_properties import TRANSACTION_DAYS
from evenlag.lake.tables import GATE_RESULTS, LAG, RUNS
from evenlag.lake.writer import append_once, delta_rs_writer
from spark_jobs.runtime.delta_lake import Lake
from tests.support.spark_tables import write_foreign_table, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

    from pyspark.sql import SparkSession

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TODAY = datetime.now(UTC).date()
# Ids of this day's writes may have expired.
OLD = TODAY - timedelta(days=TRANSACTION_DAYS)
NUM_RACES = 25
NUM_WRITERS = 3
# Child processes start with this module, not as a copy of a process that runs deltalake's threads.
SPAWN = multiprocessing.get_context("spawn")


def run(run_id: str, day: date = TODAY, **more: Any) -> dict[str, Any]:
    """Return a row of ``runs``."""
    times = dict.fromkeys(("slot", "started_at", "finished_at"), NOW)
    return {"cluster": "c", "day": day, "run_id": run_id, "step": "observe", **times, **more}


def run_ids(root: Path) -> list[str]:
    """Return the ids of the runs in a lake, sorted."""
    return sorted(LakeReader(str(root)).read(RUNS)["run_id"].to_pylist())


def actions(root: Path) -> list[list[str]]:
    """Return the names of the actions of each commit, as the log has them."""
    files = sorted((root / RUNS.name / "_delta_log").glob("*.json"))
    return [
        [name for line in file.read_text(encoding="utf-8").splitlines() for name in json.loads(line)]
        for file in files
    ]


def set_property(root: Path, name: str, value: str) -> None:
    """Set a property of ``runs``."""
    with delta_rs_writer(str(root), RUNS) as writer:
        writer.set_properties({name: value})


def expire_ids(root: Path) -> None:
    """Let all transaction ids of ``runs`` expire."""
    set_property(root, "delta.setTransactionRetentionDuration", "interval 0 seconds")
    time.sleep(0.01)


@pytest.fixture
def unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local lake without evenlag's lock, as a lake in an object store is."""
    monkeypatch.setattr(LakePaths, "lock", lambda *_: nullcontext())


# A repeat ---------------------------------------------------------------------------------------------------


def append_in_child(root: str, run_id: str, app_id: str, answers: Any) -> None:
    """Append a run, as the main function of a process."""
    answers.put(append_once(root, RUNS, [run(run_id)], app_id))


def test_a_repeat_is_skipped_also_from_another_process(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert append_once(root, RUNS, [run("first")], "run/c/1")
    assert not append_once(root, RUNS, [run("repeat")], "run/c/1")
    answers = SPAWN.SimpleQueue()
    child = SPAWN.Process(target=append_in_child, args=(root, "from a child", "run/c/1", answers))
    child.start()
    child.join()
    assert (child.exitcode, answers.get()) == (0, False)
    assert append_once(root, RUNS, [run("second")], "run/c/2")
    assert run_ids(tmp_path) == ["first", "second"]
    # Nothing changes the table but its creation: a change of metadata conflicts with each other writer.
    assert actions(tmp_path)[1:] == [["commitInfo", "add", "txn"]] * 2


def test_an_id_belongs_to_one_table(tmp_path: Path) -> None:
    verdict = {"cluster": "c", "day": TODAY, "plan_id": "p", "gate": "gain", "passed": True}
    assert append_once(str(tmp_path), RUNS, [run("r")], "decide/c/1")
    assert append_once(str(tmp_path), GATE_RESULTS, [verdict], "decide/c/1")
    assert LakeReader(str(tmp_path)).read(GATE_RESULTS)["gate"].to_pylist() == ["gain"]


def test_arrow_rows_are_written_as_they_are(tmp_path: Path) -> None:
    import pyarrow as pa

    rows = pa.Table.from_pylist([run("a"), run("b", summary='{"a": 1}')], schema=arrow_schema(RUNS))
    assert append_once(str(tmp_path), RUNS, rows, "run/c/1")
    assert LakeReader(str(tmp_path)).read(RUNS).sort_by("run_id").equals(rows)
    assert not append_once(str(tmp_path), RUNS, rows.slice(0, 0), "run/c/2")
    assert len(actions(tmp_path)) == 2, "nothing to write is no commit"


def test_writes_without_an_id_are_all_written(tmp_path: Path) -> None:
    for _ in range(2):
        assert append_once(str(tmp_path), RUNS, [run("r")], None)
    assert run_ids(tmp_path) == ["r", "r"]


# Races ------------------------------------------------------------------------------------------------------


def race(roots: list[str], number: int, start: Barrier, answers: Any) -> None:
    """Write into each lake at the same time as the other writers: its first row, then a second one."""
    LakePaths.lock = lambda *_: nullcontext()  # type: ignore[assignment, method-assign]
    for root in roots:
        for app_id in ("created", "there"):
            start.wait()
            answers.put((root, app_id, append_once(root, RUNS, [run(f"{app_id} by {number}")], app_id)))


def test_of_three_writers_with_one_id_and_no_lock_one_wins(tmp_path: Path) -> None:
    roots = [str(tmp_path / str(number)) for number in range(NUM_RACES)]
    start, answers = SPAWN.Barrier(NUM_WRITERS), SPAWN.Queue()
    writers = [
        SPAWN.Process(target=race, args=(roots, number, start, answers)) for number in range(NUM_WRITERS)
    ]
    for writer in writers:
        writer.start()
    told = [answers.get(timeout=120) for _ in range(NUM_RACES * 2 * NUM_WRITERS)]
    for writer in writers:
        writer.join()
    for root in roots:
        for app_id in ("created", "there"):
            assert sorted(won for where, what, won in told if (where, what) == (root, app_id)) == [
                False,
                False,
                True,
            ]
        rows = run_ids(tmp_path / root)
        assert [row.split(" by ")[0] for row in rows] == ["created", "there"]
        created = [names for names in actions(tmp_path / root) if "metaData" in names]
        assert len(created) == 1, "one writer creates the table"


@pytest.mark.usefixtures("unlocked")
def test_a_writer_that_finds_the_table_just_created_by_another_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import DeltaTable

    create = DeltaTable.create

    def create_too_late(*args: Any, **options: Any) -> Any:
        create(*args, **options)
        return create(*args, **options)

    monkeypatch.setattr(DeltaTable, "create", create_too_late)
    assert append_once(str(tmp_path), RUNS, [run("r")], "run/c/1")
    assert run_ids(tmp_path) == ["r"]
    assert [names for names in actions(tmp_path) if "metaData" in names] == actions(tmp_path)[:1]


@pytest.mark.parametrize("app_id", ["run/c/1", None])
def test_an_attempt_that_committed_but_reported_a_conflict_is_not_repeated(
    app_id: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import deltalake
    from deltalake.exceptions import CommitFailedError

    write, errors = deltalake.write_deltalake, [CommitFailedError("the answer was lost")]

    def write_and_fail_once(*args: Any, **options: Any) -> None:
        write(*args, **options)
        if errors:
            raise errors.pop()

    monkeypatch.setattr("deltalake.write_deltalake", write_and_fail_once)
    append_once(str(tmp_path), RUNS, [run("r")], app_id)
    assert errors == []
    assert run_ids(tmp_path) == ["r"]


def test_a_writer_that_always_conflicts_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake.exceptions import CommitFailedError

    pauses: list[float] = []

    def conflict(*_: Any, **__: Any) -> None:
        raise CommitFailedError("another writer\nwas faster")

    monkeypatch.setattr("deltalake.write_deltalake", conflict)
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(
        LakeConflictError, match=r"table runs of .* cannot be written: another writer: was fas"
    ):
        append_once(str(tmp_path), RUNS, [run("r")], "run/c/1")
    assert len(pauses) == 5
    assert 1.5 < sum(pauses) < 5
    assert run_ids(tmp_path) == []


# After the expiry of the ids --------------------------------------------------------------------------------


def test_after_its_id_has_expired_the_key_of_each_row_decides(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    root = str(tmp_path)
    written = [run("a", OLD), run("b", OLD)]
    assert append_once(root, RUNS, written, "run/c/1")
    # The same key in another partition is another row.
    assert append_once(root, RUNS, [run("c", OLD, cluster="other"), run("d", TODAY)], "run/c/2")
    expire_ids(tmp_path)
    assert DeltaTable(str(tmp_path / RUNS.name)).transaction_version("run/c/1/runs") is None
    assert not append_once(root, RUNS, written, "run/c/1")
    assert append_once(root, RUNS, [run("b", OLD, summary="repeated"), run("c", OLD)], "run/c/1")
    assert run_ids(tmp_path) == ["a", "b", "c", "c", "d"]
    rows = LakeReader(root).read(RUNS).to_pylist()
    assert [row["summary"] for row in rows] == [None] * 5, "the first write of a row is kept"


def test_a_key_of_several_columns_is_compared_as_a_whole(tmp_path: Path) -> None:
    head = {"cluster": "c", "day": OLD, "snapshot_id": "s", "group_id": "g", "message": "m"}

    def verdict(plan_id: str, gate: str) -> dict[str, Any]:
        return head | {"plan_id": plan_id, "gate": gate, "passed": True}

    root = str(tmp_path)
    append_once(root, GATE_RESULTS, [verdict("p", "gain"), verdict("q", "cooldown")], "validate/c/1")
    with delta_rs_writer(root, GATE_RESULTS) as writer:
        writer.set_properties({"delta.setTransactionRetentionDuration": "interval 0 seconds"})
    time.sleep(0.01)
    again = [verdict("p", "gain"), verdict("p", "cooldown"), verdict("q", "gain")]
    assert append_once(root, GATE_RESULTS, again, "validate/c/1")
    rows = LakeReader(root).read(GATE_RESULTS).to_pylist()
    assert sorted((row["plan_id"], row["gate"]) for row in rows) == [
        ("p", "cooldown"),
        ("p", "gain"),
        ("q", "cooldown"),
        ("q", "gain"),
    ]


def test_expired_ids_are_not_in_checkpoints(tmp_path: Path) -> None:
    """Ids end with delta.setTransactionRetentionDuration: else each log would keep all of them for ever."""
    for number in range(3):
        append_once(str(tmp_path), RUNS, [run(str(number))], f"run/c/{number}")
    assert checkpoint_ids(tmp_path) == [f"run/c/{number}/runs" for number in range(3)]
    expire_ids(tmp_path)
    assert checkpoint_ids(tmp_path) == []
    set_property(tmp_path, "delta.setTransactionRetentionDuration", "interval 7 days")
    append_once(str(tmp_path), RUNS, [run("3")], "run/c/3")
    assert "run/c/3/runs" in checkpoint_ids(tmp_path)


def checkpoint_ids(root: Path) -> list[str]:
    """Write a checkpoint of ``runs``, and return the transaction ids in it."""
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    DeltaTable(str(root / RUNS.name)).create_checkpoint()
    (newest,) = sorted((root / RUNS.name / "_delta_log").glob("*.checkpoint.parquet"))[-1:]
    return sorted(row["appId"] for row in pq.read_table(newest)["txn"].to_pylist() if row is not None)


def test_maintenance_removes_the_log_before_its_checkpoint_and_keeps_ids(tmp_path: Path) -> None:
    for number in range(3):
        append_once(str(tmp_path), RUNS, [run(str(number))], f"run/c/{number}")
    set_property(tmp_path, "delta.logRetentionDuration", "interval 0 seconds")
    time.sleep(0.01)
    with delta_rs_writer(str(tmp_path), RUNS) as writer:
        writer.vacuum(7)
    assert len(actions(tmp_path)) == 1
    assert run_ids(tmp_path) == ["0", "1", "2"]
    assert not append_once(str(tmp_path), RUNS, [run("1")], "run/c/1")


# Killed writers ---------------------------------------------------------------------------------------------


def die(*_: Any, **__: Any) -> None:
    """End the process at once, as the kernel ends one without memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed_before_the_commit(root: str) -> None:
    """Create the table, and die before its first row is written."""
    import deltalake

    deltalake.write_deltalake = die
    append_once(root, RUNS, [run("killed")], "run/c/1")


def killed_after_the_commit(root: str) -> None:
    """Die when the commit is written, before the caller knows."""
    import deltalake

    write = deltalake.write_deltalake
    deltalake.write_deltalake = lambda *args, **options: die(write(*args, **options))
    append_once(root, RUNS, [run("killed")], "run/c/1")


@pytest.mark.parametrize(
    ("killed", "rows"), [(killed_before_the_commit, ["repeat"]), (killed_after_the_commit, ["killed"])]
)
def test_the_repeat_of_a_killed_writer_adds_what_is_missing(
    killed: Callable[[str], None], rows: list[str], tmp_path: Path
) -> None:
    child = SPAWN.Process(target=killed, args=(str(tmp_path),))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    # A created table without rows is read as an empty one.
    assert run_ids(tmp_path) == [row for row in rows if row == "killed"]
    # Its lock is free, and its id decides.
    assert append_once(str(tmp_path), RUNS, [run("repeat")], "run/c/1") == (rows == ["repeat"])
    assert run_ids(tmp_path) == rows


# What is refused --------------------------------------------------------------------------------------------


def test_a_table_of_spark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="table lag is written by Spark only"):
        append_once(str(tmp_path), LAG, [{"cluster": "c"}], None)
    assert list(tmp_path.iterdir()) == []


def test_a_table_with_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    write_foreign_table(tmp_path / RUNS.name, [run("r") | {"slot": "noon"}])
    before = actions(tmp_path)
    with pytest.raises(SchemaError, match="runs: column slot is string in the lake and timestamp"):
        append_once(str(tmp_path), RUNS, [run("s")], "run/c/1")
    assert actions(tmp_path) == before


def test_rows_with_a_column_that_the_contract_lacks_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    row = run("r", sumary="{}")
    for rows in ([run("q"), row], pa.Table.from_pylist([row])):
        with pytest.raises(SchemaError, match=r"table runs: rows have columns .*: sumary"):
            append_once(str(tmp_path), RUNS, rows, "run/c/1")
    assert not (tmp_path / RUNS.name).exists()


def test_data_without_a_log_is_not_written_over(tmp_path: Path) -> None:
    append_once(str(tmp_path), RUNS, [run("r")], "run/c/1")
    shutil.rmtree(tmp_path / RUNS.name / "_delta_log")
    with pytest.raises(LakeError, match="is gone"):
        append_once(str(tmp_path), RUNS, [run("s")], "run/c/2")
    assert not (tmp_path / RUNS.name / "_delta_log").exists()


# Spark and deltalake ----------------------------------------------------------------------------------------


def test_spark_and_deltalake_read_each_other_s_tables(spark: SparkSession, tmp_path: Path) -> None:
    root, lake = str(tmp_path), Lake(spark, str(tmp_path))
    head = {"cluster": "c", "day": TODAY, "plan_id": "p"}
    verdicts = [head | {"gate": "gain", "passed": True}, head | {"gate": "cooldown", "passed": False}]
    # An older evenlag made the table; this one adds a column.
    older = replace(GATE_RESULTS, columns=tuple(c for c in GATE_RESULTS.columns if c.name != "message"))
    append_once(root, older, verdicts[:1], "validate/c/1")
    append_once(root, GATE_RESULTS, [verdicts[1] | {"message": "too soon"}], "validate/c/2")
    for number in range(3):
        append_once(root, RUNS, [run(str(number), summary="{}")], f"run/c/{number}")
    # A checkpoint of deltalake, without the log before it.
    set_property(tmp_path, "delta.logRetentionDuration", "interval 0 seconds")
    time.sleep(0.01)
    with delta_rs_writer(root, RUNS) as writer:
        writer.vacuum(7)
    assert len(actions(tmp_path)) == 1
    rows = lake.read(RUNS).orderBy("run_id").collect()
    assert [(row.run_id, row.day, row.slot.timestamp(), row.summary) for row in rows] == [
        (str(number), TODAY, NOW.timestamp(), "{}") for number in range(3)
    ]
    seen = lake.read(GATE_RESULTS).where(f"cluster = 'c' AND day = DATE '{TODAY}' AND NOT passed").collect()
    assert [(row.gate, row.message) for row in seen] == [("cooldown", "too soon")]
    assert {row.message for row in lake.read(GATE_RESULTS).collect()} == {None, "too soon"}
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
