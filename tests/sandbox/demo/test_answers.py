"""The end of the demo: a difference between the shown lag and the lake is a promise that was not kept."""

from __future__ import annotations

import json
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

import pytest

from sandbox.demo.answers import check_shown_lag
from tests.support.command_in_process import run_in_process
from tests.truth.recorded_lakes import extract

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.truth.recorded_lakes import RecordedLake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> RecordedLake:
    return extract("names", tmp_path_factory.mktemp("demo"))


def test_right_numbers_keep_the_promise(lake: RecordedLake) -> None:
    promise = check_shown_lag(lake.root, lake.clusters[0], run_in_process)

    assert promise.kept, promise.seen


@pytest.mark.parametrize("is_of_member", [False, True])
def test_one_wrong_number_breaks_the_promise_and_is_named(lake: RecordedLake, *, is_of_member: bool) -> None:
    changed: list[str] = []

    def with_one_record_more(arguments: Sequence[str]) -> CompletedProcess[str]:
        done = run_in_process(arguments)
        answer = json.loads(done.stdout)
        rows = answer.get("members" if is_of_member else "groups")
        if rows and not changed:
            rows[0]["lag_records"] += 1
            changed.append(rows[0]["member_id" if is_of_member else "group_id"])
        return CompletedProcess(done.args, done.returncode, json.dumps(answer), done.stderr)

    promise = check_shown_lag(lake.root, lake.clusters[0], with_one_record_more)

    assert not promise.kept
    assert promise.seen.startswith("1 of ")
    assert changed[0] in promise.seen
