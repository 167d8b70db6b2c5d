"""Data Docs of past verdicts: only the last runs, failures in words, written again by each run."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import JobError
from evenlag.lake.tables import GATE_RESULTS, RUNS
from evenlag.policy.gates import GATES
from spark_jobs.steps.build_data_docs import build_data_docs
from tests.support.lakes.snapshots import NOW, append_rows

if TYPE_CHECKING:
    from pathlib import Path

    from spark_jobs.runtime.delta_lake import Lake

pytestmark = pytest.mark.jvm

TOO_MANY = "moves 41 partitions, at most 20 are allowed"


def snapshot_id(number: int) -> str:
    return f"{NOW + timedelta(minutes=number):%Y%m%dT%H%M%S}000Z-aaaaaaaa"


def verdicts(number: int, group: str, failing: str | None) -> list[dict[str, Any]]:
    return [
        {
            "cluster": "c",
            "day": NOW.date(),
            "snapshot_id": snapshot_id(number),
            "plan_id": f"plan-{group}-{number}",
            "group_id": group,
            "gate": gate.name,
            "passed": gate.name != failing,
            "message": TOO_MANY if gate.name == failing else "passed",
        }
        for gate in GATES
    ]


def run(number: int) -> dict[str, Any]:
    slot = NOW + timedelta(minutes=number)
    row = {"cluster": "c", "day": NOW.date(), "run_id": f"r{number}", "step": "decide", "slot": slot}
    return row | {"snapshot_id": snapshot_id(number), "started_at": slot, "finished_at": slot}


def test_the_pages_show_the_last_runs_and_why_plans_failed(lake: Lake, tmp_path: Path) -> None:
    rows = [row for number in range(3) for row in verdicts(number, "good", None)]
    rows += verdicts(2, "bad", "max_moves")
    append_rows(lake.paths.root, GATE_RESULTS, rows)
    # The fourth run planned nothing: it has no page.
    append_rows(lake.paths.root, RUNS, [run(number) for number in range(4)])
    folder = tmp_path / "docs" / "c"
    folder.parent.mkdir()

    assert build_data_docs(lake, "c", folder, num_runs=3) == 2
    pages = {page.parent.parent.name: page for page in folder.glob("validations/gates/*/*/*.html")}
    assert set(pages) == {snapshot_id(1), snapshot_id(2)}
    assert TOO_MANY in pages[snapshot_id(2)].read_text(encoding="utf-8")
    assert TOO_MANY not in pages[snapshot_id(1)].read_text(encoding="utf-8")
    assert snapshot_id(2) in (folder / "index.html").read_text(encoding="utf-8")

    assert build_data_docs(lake, "c", folder, num_runs=1) == 0
    assert not list(folder.glob("validations/gates/*/*/*.html"))
    assert sorted(path.name for path in folder.parent.iterdir()) == ["c"]


def test_a_folder_of_something_else_is_left_alone(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("dear", encoding="utf-8")
    with pytest.raises(JobError, match="contains no Data Docs"):
        build_data_docs(lake, "c", tmp_path)
    assert (tmp_path / "mine").read_text(encoding="utf-8") == "dear"
