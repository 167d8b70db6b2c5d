"""The end of the demo: a difference between an answer and the lake is a promise that was not kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sandbox.command_in_process import run_in_process
from sandbox.demo.answers import compare_answers
from sandbox.truth import check_lake
from sandbox.truth.checks import CommandResult
from sandbox.truth.expected.tables import check_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pytest

    from tests.truth.recorded_lakes import RecordedLake


def _with_one_row_more(arguments: Sequence[str]) -> CommandResult:
    done = run_in_process(arguments)
    if tuple(arguments[:2]) != ("lake", "status") or "--json" not in arguments:
        return done
    answer = json.loads(done.stdout)
    answer["tables"][0]["num_rows"] += 1
    return CommandResult(done.exit_code, json.dumps(answer), done.stderr)


def test_one_wrong_number_breaks_the_promise_and_is_named(
    recorded_lake: Callable[[str], RecordedLake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = recorded_lake("brokers")
    # All commands are asked by test_recorded_answers; here one is enough.
    monkeypatch.setattr(check_lake, "PARTS", (("lake status", check_tables),))
    monkeypatch.setattr(check_lake, "AUDIT_PARTS", ())
    told: list[str] = []

    promise = compare_answers(lake.root, _with_one_row_more, tmp_path / "answers", told.append)

    assert not promise.kept
    assert "lake status: tables." in promise.seen
    assert "1 differ" in promise.seen
    assert "num_rows" in (tmp_path / "answers" / "differences.txt").read_text(encoding="utf-8")
    assert "compared with the lake: 1 differ" in told[0]
