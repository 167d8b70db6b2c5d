"""Writers without a JVM that repeat, race or are killed: what they write is in the table once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from importlib import import_module
from threading import Event, Thread, Timer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import LakeConflictError
from evenlag.lake import delta_log
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.delta_log import one_look, open_table
from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import RUNS
from evenlag.lake.writer import DirectWriter, append_once
from tests.support.lakes.run_rows import actions, of_run, run, run_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

    import pyarrow as pa

    from evenlag.lake.filters import Filter

NUM_RACES = 25
NUM_WRITERS = 3
# Child processes start with this module, not as a copy of a process that runs deltalake's threads.
SPAWN = multiprocessing.get_context("spawn")


def of_step(step: str) -> list[Filter]:
    """Return filters that select the runs of a step."""
    return [("cluster", "=", "c"), ("step", "=", step)]


def append_in_child(root: str, run_id: str, answers: Any) -> None:
    """Append a run, as the main function of a process."""
    answers.put(append_once(root, RUNS, [run(run_id)], of_step("observe")))


def test_a_repeat_is_skipped_also_from_another_process(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert append_once(root, RUNS, [run("first")], of_step("observe"))
    assert not append_once(root, RUNS, [run("repeat")], of_step("observe"))
    answers = SPAWN.SimpleQueue()
    child = SPAWN.Process(target=append_in_child, args=(root, "from a child", answers))
    child.start()
    child.join()
    assert (child.exitcode, answers.get()) == (0, False)
    assert append_once(root, RUNS, [run("second", step="decide")], of_step("decide"))
    assert run_ids(tmp_path) == ["first", "second"]
    # Nothing changes the table but its creation: a change of metadata conflicts with each other writer.
    assert actions(tmp_path)[1:] == [["commitInfo", "add", "txn"]] * 2


@pytest.mark.parametrize("is_first", [True, False])
def test_who_knows_an_old_version_of_a_remote_table_repeats_nothing_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    monkeypatch.setattr(LakePaths, "is_local", property(lambda _: False))
    root = str(tmp_path)
    if is_first:
        assert not LakeReader(root).exists(RUNS)
    else:
        assert append_once(root, RUNS, [run("other", step="decide")], of_step("decide"))
    answers = SPAWN.SimpleQueue()
    child = SPAWN.Process(target=append_in_child, args=(root, "from a child", answers))
    child.start()
    child.join()
    assert (child.exitcode, answers.get()) == (0, True)
    known = delta_log._IDLE[LakePaths(root).table(RUNS)].delta
    assert (known and known.version()) == (None if is_first else 1)
    assert not append_once(root, RUNS, [run("repeat")], of_step("observe"))
    assert run_ids(tmp_path) == ["from a child", *([] if is_first else ["other"])]


# Races ------------------------------------------------------------------------------------------------------


def race(roots: list[str], number: int, start: Barrier, answers: Any) -> None:
    """Write into each lake at the same time as the other writers: its first row, then a second one."""
    for root in roots:
        for step in ("created", "there"):
            start.wait()
            row = run(f"{step} by {number}", step=step)
            answers.put((root, step, append_once(root, RUNS, [row], of_step(step))))


def test_of_three_writers_with_one_id_one_wins(tmp_path: Path) -> None:
    roots = [str(tmp_path / str(number)) for number in range(NUM_RACES)]
    start, answers = SPAWN.Barrier(NUM_WRITERS), SPAWN.Queue()
    writers = [
        SPAWN.Process(target=race, args=(roots, number, start, answers)) for number in range(NUM_WRITERS)
    ]
    for writer in writers:
        writer.start()
    shown = [answers.get(timeout=600) for _ in range(NUM_RACES * 2 * NUM_WRITERS)]
    for writer in writers:
        writer.join()
    for root in roots:
        for step in ("created", "there"):
            assert sorted(won for where, what, won in shown if (where, what) == (root, step)) == [
                False,
                False,
                True,
            ]
        rows = run_ids(tmp_path / root)
        assert [row.split(" by ")[0] for row in rows] == ["created", "there"]
        created = [names for names in actions(tmp_path / root) if "metaData" in names]
        assert len(created) == 1, "one writer creates the table"
        log = tmp_path / root / RUNS.name / "_delta_log"
        assert all(str(tmp_path) not in file.read_text(encoding="utf-8") for file in log.glob("*.json"))


def arrow_rows(rows: list[dict[str, Any]]) -> pa.Table:
    """Return runs as Arrow rows."""
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=arrow_schema(RUNS))


def append_and_wake_late(root: str) -> None:
    """Let another writer commit the same rows while one has opened the table, and written half of them."""

    def part(*names: str) -> pa.Table:
        return arrow_rows([run(name) for name in names])

    def read() -> Iterator[pa.Table]:
        yield part("a", "b")
        other = Thread(target=fast)
        other.start()
        other.join()
        yield part("c")

    def fast() -> None:
        written.append(
            DirectWriter(root, RUNS).append_parts(
                lambda: [part("a"), part("b", "c")], "c", of_step("observe")
            )
        )

    written: list[bool] = []
    # The first write of a table is another one: its creation is a commit of its own.
    append_once(root, RUNS, [run("before", step="decide")], None)
    for _ in range(2):
        assert not DirectWriter(root, RUNS).append_parts(read, "c", of_step("observe"))
    assert written == [True]
    assert sorted(LakeReader(root).read(RUNS)["run_id"].to_pylist()) == ["a", "b", "before", "c"]


def test_a_writer_that_wakes_late_adds_nothing_to_what_another_has_written(tmp_path: Path) -> None:
    append_and_wake_late(str(tmp_path))


def test_a_writer_that_finds_the_table_just_created_by_another_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake: Any = import_module("deltalake")

    write = deltalake.write_deltalake

    def create_too_late(*args: Any, mode: str, **options: Any) -> None:
        if mode == "error":
            write(*args, mode=mode, **options)
        write(*args, mode=mode, **options)

    monkeypatch.setattr("deltalake.write_deltalake", create_too_late)
    assert append_once(str(tmp_path), RUNS, [run("r")], of_run("r"))
    assert run_ids(tmp_path) == ["r"]
    assert [names for names in actions(tmp_path) if "metaData" in names] == actions(tmp_path)[:1]


@pytest.mark.parametrize("failing", ["error", "append"], ids=["creation", "append"])
@pytest.mark.parametrize("written", [of_run("r"), None], ids=["once", "plain"])
def test_an_attempt_that_committed_but_reported_a_conflict_is_not_repeated(
    written: list[Filter] | None, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake: Any = import_module("deltalake")
    from deltalake.exceptions import CommitFailedError

    write, errors = deltalake.write_deltalake, [CommitFailedError("the answer was lost")]

    def write_and_fail_once(*args: Any, mode: str, **options: Any) -> None:
        write(*args, mode=mode, **options)
        if mode == failing and errors:
            raise errors.pop()

    monkeypatch.setattr("deltalake.write_deltalake", write_and_fail_once)
    append_once(str(tmp_path), RUNS, [run("r")], written)
    assert errors == []
    assert run_ids(tmp_path) == ["r"]


def test_a_table_that_another_thread_returns_late_hides_no_rows_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on an object store, where the block may use a table that was opened before.
    monkeypatch.setattr(LakePaths, "is_local", property(lambda _: False))
    root, opened, is_over = str(tmp_path), Event(), Event()
    append_once(root, RUNS, [run("before")], None)

    def use() -> None:
        with open_table(LakePaths(root), RUNS):
            opened.set()
            is_over.wait(60)

    other = Thread(target=use)
    other.start()
    opened.wait(60)
    with one_look():
        append_once(root, RUNS, [run("r")], of_run("r"))
        is_over.set()
        other.join()
        assert LakeReader(root).count(RUNS, filters=of_run("r")) == 1


def test_a_writer_that_always_conflicts_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake.exceptions import CommitFailedError

    pauses: list[float] = []

    def conflict(*_: Any, **__: Any) -> None:
        raise CommitFailedError("another writer\nwas faster")

    monkeypatch.setattr("deltalake.write_deltalake", conflict)
    monkeypatch.setattr("evenlag.lake.conflicts.time", SimpleNamespace(sleep=pauses.append))
    with pytest.raises(
        LakeConflictError, match=r"table runs of .* cannot be written: another writer: was fas"
    ):
        append_once(str(tmp_path), RUNS, [run("r")], of_run("r"))
    assert len(pauses) == 9
    assert 4.5 < sum(pauses) < 14
    assert run_ids(tmp_path) == []


# Killed writers ---------------------------------------------------------------------------------------------


def die(*_: Any, **__: Any) -> None:
    """End the process at once, as the kernel ends one without memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed_before_the_commit(root: str) -> None:
    """Create the table, and die before its first row is written."""
    deltalake: Any = import_module("deltalake")

    write = deltalake.write_deltalake
    deltalake.write_deltalake = lambda *args, mode, **options: (
        die() if mode == "append" else write(*args, mode=mode, **options)
    )
    append_once(root, RUNS, [run("killed")], of_step("observe"))


def killed_after_the_commit(root: str) -> None:
    """Die when the commit is written, before the caller knows."""
    deltalake: Any = import_module("deltalake")

    write = deltalake.write_deltalake

    def write_and_die(*args: Any, mode: str, **options: Any) -> None:
        write(*args, mode=mode, **options)
        if mode == "append":
            die()

    deltalake.write_deltalake = write_and_die
    append_once(root, RUNS, [run("killed")], of_step("observe"))


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
    assert append_once(str(tmp_path), RUNS, [run("repeat")], of_step("observe")) == (rows == ["repeat"])
    assert run_ids(tmp_path) == rows


# Forks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["evenlag.lake.small_files", "evenlag.private_files"])
def test_a_process_that_is_forked_while_a_thread_holds_a_lock_can_use_it(module: str) -> None:
    lock = import_module(module)._LOCK
    lock.acquire()
    release = Timer(0.3, lock.release)
    release.start()
    if (child := os.fork()) == 0:
        os._exit(0 if lock.acquire(timeout=5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    release.join()
    assert not lock.locked()
