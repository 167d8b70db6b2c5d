"""Blocks are resumed: what has a result is not run again, and a block that fails leaves none."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.field.broker import command
from tests.bench.field.broker.contenders import REAL
from tests.bench.field.broker.producer import VoidError, check_report
from tests.bench.field.broker.programs import Programs

_FINE = {"late_records": 0, "late_worst_ms": 3.0, "not_acknowledged": 0, "acknowledged_p99_ms": 20.0}


class FakeBlocks:
    """Stands for `Block`: notes what is run, and fails for some contenders."""

    def __init__(self) -> None:
        self.ran: list[list[str]] = []
        self.failing: set[str] = set()
        self.settings: dict[str, dict[str, Any]] = {}

    def __call__(self, _trace: Any, names: list[str], _programs: Any, folder: Path, **_: Any) -> FakeBlocks:
        folder.mkdir(exist_ok=True)
        (folder / "journal").touch()
        self.ran.append(names)
        return self

    def run(self) -> dict[str, dict[str, Any]]:
        if self.failing & set(self.ran[-1]):
            raise VoidError("late")
        return {
            name: {"contender": name, "p50_s": 1.0, "p99_s": 1.23456, "unfinished": 0}
            for name in self.ran[-1]
        }


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBlocks:
    """Return blocks that run nothing."""
    fake = FakeBlocks()
    monkeypatch.setattr(command, "Block", fake)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(Programs, "build", lambda _folder: Programs(Path(), Path(), ""))
    monkeypatch.setattr(Programs, "code", lambda _programs: "code")
    monkeypatch.setattr(command, "versions", dict)
    monkeypatch.setattr(command, "chosen_settings", lambda: fake.settings)
    return fake


def run(tmp_path: Path, *more: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["--traces", "walks", "--seeds", "4", "--parallel", "3", "--keep", str(tmp_path / "kept")]
    return command.run(parser.parse_args([*words, *more]))


@pytest.mark.usefixtures("blocks")
def test_a_result_is_a_file_with_what_it_was_measured_with(tmp_path: Path) -> None:
    assert run(tmp_path, "--contenders", "share") == 0
    [path] = (tmp_path / "results").iterdir()
    result = json.loads(path.read_text(encoding="utf-8"))
    assert (result["trace"], result["seed"], result["contender"], result["kind"]) == (
        "walks",
        4,
        "share",
        "broker",
    )
    assert result["p99_s"] == 1.235
    assert {"command", "code", "versions"} <= set(result)
    assert (tmp_path / "kept" / "walks-4-share" / "journal").exists()


def test_only_what_has_no_result_is_run(blocks: FakeBlocks, tmp_path: Path) -> None:
    run(tmp_path, "--contenders", "share", "evenlag")
    first = blocks.ran[0]
    blocks.ran.clear()
    run(tmp_path)
    assert [len(names) for names in blocks.ran] == [3, 2]
    assert not set(first) & {name for names in blocks.ran for name in names}
    blocks.ran.clear()
    run(tmp_path)
    assert blocks.ran == []


def test_a_contender_with_other_settings_is_run_again(blocks: FakeBlocks, tmp_path: Path) -> None:
    for _ in range(2):
        run(tmp_path, "--contenders", "share", "evenlag")
        blocks.settings = {"evenlag": {"count_slack": 2}}
    assert [sorted(names) for names in blocks.ran] == [["evenlag", "share"], ["evenlag"]]


def test_the_order_is_of_the_trace_and_the_seed(blocks: FakeBlocks, tmp_path: Path) -> None:
    blocks.failing = {"share"}
    run(tmp_path, "--parallel", "7")
    run(tmp_path, "--parallel", "7")
    run(tmp_path, "--parallel", "7", "--seeds", "5")
    assert blocks.ran[0] == blocks.ran[1]
    assert blocks.ran[0] != blocks.ran[2]


def test_a_block_that_fails_leaves_no_result_and_the_others_run(blocks: FakeBlocks, tmp_path: Path) -> None:
    blocks.failing = {"share"}
    assert run(tmp_path) == 1
    written = {path.stem.split("-", 3)[3] for path in (tmp_path / "results").glob("*.json")}
    done = {name for names in blocks.ran if "share" not in names for name in names}
    assert written == done
    assert len(done) in (4, 6)


def test_the_quick_run_has_all_contenders_and_writes_nothing(
    blocks: FakeBlocks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.quick() == 0
    assert blocks.ran == [list(REAL)]
    assert not (tmp_path / "results").exists()
    assert "share: p50 1 s, p99 1.23 s, 0 unfinished\n" in capsys.readouterr().out
    blocks.failing = {"share"}
    assert command.quick() == 1


@pytest.mark.parametrize(
    "worse", [{"late_records": 1}, {"not_acknowledged": 1}, {"acknowledged_p99_ms": 501.0}]
)
def test_a_late_record_makes_a_run_void(worse: dict[str, float]) -> None:
    check_report(_FINE)
    with pytest.raises(VoidError):
        check_report(_FINE | worse)
