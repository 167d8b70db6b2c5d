"""Upkeep of the tables of ``deltalake``: no other writer loses a row by it, and no row is there twice."""

from __future__ import annotations

import tempfile
import threading
from contextlib import contextmanager
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import LakeError
from evenlag.lake.delta_log import open_table
from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.table_properties import COMMITS_PER_CHECKPOINT
from evenlag.lake.tables import RUNS, Column, Table
from evenlag.lake.upkeep import direct_tables
from evenlag.lake.upkeep.direct_tables import delete_part, rewrite_days, vacuum_table
from evenlag.lake.writer import DirectWriter, append_once
from tests.evenlag.lake.test_writer_races import arrow_rows
from tests.support.lakes.aged import age
from tests.support.lakes.run_rows import run, run_ids
from tests.truth.oracle.delta_files import live_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FIRST = date(2026, 3, 1)
CLOSED = (FIRST, FIRST + timedelta(days=3))
OPEN = FIRST + timedelta(days=4)
TARGET = 64 * 1024**2


def write_days(root: Path, cluster: str = "c") -> None:
    """A file a day, of four closed days and the open one."""
    for number in range(5):
        append_once(
            str(root), RUNS, [run(str(number), FIRST + timedelta(days=number), cluster=cluster)], None
        )


def files(root: Path, cluster: str = "c") -> list[tuple[date, date]]:
    """First and last day of each file of March, by day."""
    found = read_table_files(LakeReader(str(root)), RUNS)
    assert found is not None
    return sorted((file.first_day, file.last_day) for file in found.by_part[cluster, FIRST])


def compact(root: Path) -> None:
    rewrite_days(LakePaths(str(root)), RUNS, "c", CLOSED, TARGET)


def test_closed_days_become_one_file_and_the_open_day_keeps_its_own(tmp_path: Path) -> None:
    for cluster in ("c", "other"):
        write_days(tmp_path, cluster)
    rows = LakeReader(str(tmp_path)).read(RUNS).to_pylist()
    compact(tmp_path)
    assert files(tmp_path) == [CLOSED, (OPEN, OPEN)]
    assert len(files(tmp_path, "other")) == 5
    after = LakeReader(str(tmp_path)).read(RUNS).to_pylist()
    assert sorted(after, key=str) == sorted(rows, key=str)


def test_values_of_a_later_version_are_kept(tmp_path: Path) -> None:
    newer = Table(RUNS.name, RUNS.doc, RUNS.key, (*RUNS.columns, Column("note", "STRING", "new")), "direct")
    write_days(tmp_path)
    append_once(str(tmp_path), newer, [run("newer", FIRST, note="kept")], None)
    compact(tmp_path)
    assert files(tmp_path) == [CLOSED, (OPEN, OPEN)]
    notes = LakeReader(str(tmp_path)).read(newer, columns=["run_id", "note"]).to_pylist()
    assert [row for row in notes if row["note"]] == [{"run_id": "newer", "note": "kept"}]


def compact_too(root: Path) -> list[str]:
    compact(root)
    return []


def append_of_the_same_days(root: Path) -> list[str]:
    append_once(str(root), RUNS, [run("late", FIRST)], None)
    return ["late"]


def append_of_today(root: Path) -> list[str]:
    append_once(str(root), RUNS, [run("new", OPEN)], None)
    return ["new"]


def append_of_another_cluster(root: Path) -> list[str]:
    append_once(str(root), RUNS, [run("elsewhere", FIRST, cluster="other")], None)
    return ["elsewhere"]


def delete_a_day(root: Path) -> list[str]:
    delete_part(LakePaths(str(root)), RUNS, ("c", FIRST), "day = DATE '2026-03-02'")
    return ["-1"]


@pytest.mark.parametrize("place", ["opened", "read"])
@pytest.mark.parametrize(
    "other",
    [compact_too, append_of_the_same_days, append_of_today, append_of_another_cluster, delete_a_day],
    ids=lambda other: str(other.__name__),
)
def test_what_another_writer_does_meanwhile_is_kept_and_nothing_is_doubled(
    other: Callable[[Path], list[str]], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(tmp_path)
    changes: list[str] = []
    is_first = True

    def act() -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            changes.extend(other(tmp_path))

    stream_once = LakeReader.stream

    @contextmanager
    def open_and_act(*arguments: Any, **more: Any) -> Iterator[Any]:
        with open_table(*arguments, **more) as found:
            act()
            yield found

    def act_on_stream(self: LakeReader, *arguments: Any) -> Any:
        rows = stream_once(self, *arguments)
        act()
        return rows

    if place == "opened":
        monkeypatch.setattr(direct_tables, "open_table", open_and_act)
    else:
        monkeypatch.setattr(LakeReader, "stream", act_on_stream)
    compact(tmp_path)
    expected = {str(number) for number in range(5)} | {name for name in changes if name[0] != "-"}
    expected -= {name[1:] for name in changes if name[0] == "-"}
    assert run_ids(tmp_path) == sorted(expected)


def test_compactions_and_appends_at_the_same_time_lose_and_double_nothing(tmp_path: Path) -> None:
    write_days(tmp_path)
    errors: list[BaseException] = []

    def keep(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - reported to the test
            errors.append(error)

    def append() -> None:
        for number in range(8):
            append_once(str(tmp_path), RUNS, [run(f"late {number}", FIRST)], None)

    threads = [threading.Thread(target=keep, args=(lambda: compact(tmp_path),)) for _ in range(3)]
    threads.append(threading.Thread(target=keep, args=(append,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A compaction that loses every time is left to the next maintenance: nothing is written then.
    assert all(isinstance(error, LakeError) for error in errors)
    expected = sorted([*map(str, range(5)), *(f"late {number}" for number in range(8))])
    assert run_ids(tmp_path) == expected
    compact(tmp_path)
    assert run_ids(tmp_path) == expected
    assert files(tmp_path) == [CLOSED, (OPEN, OPEN)]


def test_vacuum_deletes_what_was_replaced_and_what_a_killed_writer_left_also_before_a_checkpoint(
    tmp_path: Path,
) -> None:
    root, folder = tmp_path / "lake", tmp_path / "lake" / RUNS.name / "cluster=c"

    def write(*days: int) -> None:
        for number in days:
            append_once(str(root), RUNS, [run(str(number), FIRST + timedelta(days=number))], None)

    def files() -> set[str]:
        return {path.name for path in folder.rglob("*.parquet")}

    write(0, 1, 2, 3)
    (folder / "month=2026-03-01" / "part-killed.parquet").write_bytes(b"half a file")
    compact(root)
    replaced = files()
    vacuum_table(LakePaths(str(root)), RUNS, 7)
    assert files() == replaced
    age(root, 8)
    # As many commits as write a checkpoint, which does not name the replaced files any more.
    write(*range(4, 4 + COMMITS_PER_CHECKPOINT))
    young = files() - replaced
    vacuum_table(LakePaths(str(root)), RUNS, 7)
    live = {file.path.name for file in live_files(root / RUNS.name)}
    assert files() == live
    assert len(live & replaced) == 1
    assert young <= live
    assert len(run_ids(root)) == 4 + COMMITS_PER_CHECKPOINT


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"table runs of .* does not exist"):
        vacuum_table(LakePaths(str(tmp_path)), RUNS, 7)
    assert list(tmp_path.iterdir()) == []


def append_in_parts(root: Path) -> None:
    rows = arrow_rows([run("new")])
    DirectWriter(str(root), RUNS).append_parts(lambda: [rows], "c", [("run_id", "=", "new")])


@pytest.mark.parametrize("write", [compact, append_in_parts])
def test_a_folder_for_temporary_files_that_cannot_be_used_is_an_error_of_one_line(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(LakeError, match=r"^table runs of .* cannot be written: .*gone[^\n]*$"):
        write(tmp_path)
    assert run_ids(tmp_path) == [str(number) for number in range(5)]
