"""Appends that depend on the content of a table: who comes second decides again, by the newest content."""

from __future__ import annotations

import time
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import LakeConflictError
from evenlag.lake.location import LakePaths
from evenlag.lake.tables import RUNS
from evenlag.lake.upkeep.direct_tables import trim_log
from evenlag.lake.writer import append_guarded, append_once
from tests.support.lakes.run_rows import run, set_property
from tests.truth.oracle.delta_files import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def found(root: Path) -> list[str]:
    return sorted(row["run_id"] for row in read_rows(root, RUNS.name))


class First:
    """Writes a run if the table has none of its step, with something else in between, once."""

    def __init__(self, root: Path, run_id: str, step: str, in_between: Callable[[], object]) -> None:
        self.root, self.row, self.in_between = root, run(run_id) | {"step": step}, [in_between]
        self.num_calls = 0

    def __call__(self) -> list[dict[str, Any]]:
        self.num_calls += 1
        known = {row["step"] for row in read_rows(self.root, RUNS.name)}
        if self.in_between:
            self.in_between.pop()()
        return [] if self.row["step"] in known else [self.row]

    def append(self) -> bool:
        return bool(append_guarded(str(self.root), RUNS, self))


def first(root: Path, run_id: str, step: str = "observe") -> First:
    return First(root, run_id, step, lambda: None)


@pytest.mark.parametrize("state", ["no table", "fresh", "no log and no ids"])
def test_who_commits_second_decides_again_by_what_the_first_has_written(state: str, tmp_path: Path) -> None:
    if state != "no table":
        first(tmp_path, "before", step="decide").append()
        assert found(tmp_path) == ["before"]
    if state == "no log and no ids":
        for name in ("setTransactionRetentionDuration", "logRetentionDuration"):
            set_property(tmp_path, f"delta.{name}", "interval 0 seconds")
        time.sleep(0.01)
        trim_log(LakePaths(str(tmp_path)), RUNS)
    before = found(tmp_path)
    slow = First(tmp_path, "slow", "observe", lambda: first(tmp_path, "fast").append())
    assert not slow.append()
    assert slow.num_calls == 2
    assert found(tmp_path) == sorted(["fast", *before])
    # Long after, with the guard in the log: what the table has decides.
    assert not first(tmp_path, "late").append()
    assert first(tmp_path, "other", step="publish").append()
    assert found(tmp_path) == sorted(["fast", "other", *before])


@pytest.mark.parametrize(("cluster", "num_calls"), [("c", 2), ("d", 1)])
def test_only_writers_of_the_same_cluster_make_each_other_start_over(
    cluster: str, num_calls: int, tmp_path: Path
) -> None:
    first(tmp_path, "before", step="publish").append()

    def other() -> None:
        append_guarded(str(tmp_path), RUNS, lambda: [run("decided", cluster=cluster, step="decide")])
        append_once(str(tmp_path), RUNS, [run("elsewhere", cluster=cluster, step="audit")], None)

    slow = First(tmp_path, "slow", "observe", other)
    assert slow.append()
    assert slow.num_calls == num_calls
    assert found(tmp_path) == ["before", "decided", "elsewhere", "slow"]


@pytest.mark.parametrize("work", ["compact", "delete", "properties", "checkpoint"])
def test_maintenance_in_between_loses_and_doubles_nothing(work: str, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    for number in range(3):
        append_once(str(tmp_path), RUNS, [run(f"old-{number}", cluster="d")], None)
    first(tmp_path, "before", step="decide").append()

    def maintain() -> None:
        delta = DeltaTable(str(tmp_path / RUNS.name))
        if work == "compact":
            delta.optimize.compact()
        elif work == "delete":
            delta.delete("cluster = 'd' AND run_id = 'old-1'")
        elif work == "properties":
            delta.alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"})
        else:
            delta.create_checkpoint()

    kept = ["old-0", "old-2"] if work == "delete" else ["old-0", "old-1", "old-2"]
    assert First(tmp_path, "guarded", "publish", maintain).append()
    assert found(tmp_path) == sorted(["before", "guarded", *kept])


def test_a_commit_whose_answer_is_lost_is_found_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake: Any = import_module("deltalake")
    from deltalake.exceptions import CommitFailedError

    first(tmp_path, "before", step="decide").append()
    write, errors = deltalake.write_deltalake, [CommitFailedError("the answer was lost")]

    def write_and_fail_once(*args: Any, **options: Any) -> None:
        write(*args, **options)
        if errors:
            raise errors.pop()

    monkeypatch.setattr("deltalake.write_deltalake", write_and_fail_once)
    first(tmp_path, "mine").append()
    assert errors == []
    assert found(tmp_path) == ["before", "mine"]


def test_a_writer_that_always_comes_second_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenlag.lake.conflicts.time", SimpleNamespace(sleep=lambda _: None))
    numbers = iter(range(100))

    def choose() -> list[dict[str, Any]]:
        other = run(f"other-{next(numbers)}")
        append_guarded(str(tmp_path), RUNS, lambda: [other])
        return [run("never")]

    with pytest.raises(LakeConflictError, match=r"table runs of .* cannot be written"):
        append_guarded(str(tmp_path), RUNS, choose)
    assert found(tmp_path) == [f"other-{number}" for number in range(10)]
