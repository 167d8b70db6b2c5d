"""Rows of ``runs`` for tests of the writer without a JVM, and what is in the table and its log after them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import RUNS
from evenlag.lake.upkeep.direct_tables import set_properties

if TYPE_CHECKING:
    from pathlib import Path

    from evenlag.lake.filters import Filter

NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
TODAY: Final = datetime.now(UTC).date()
# No log is that old.
OLD: Final = TODAY - timedelta(days=3)


def run(run_id: str, day: date = TODAY, **more: Any) -> dict[str, Any]:
    """Return a row of ``runs``."""
    times = dict.fromkeys(("slot", "started_at", "finished_at"), NOW)
    return {"cluster": "c", "day": day, "run_id": run_id, "step": "observe", **times, **more}


def of_run(run_id: str) -> list[Filter]:
    """Return filters that select a run."""
    return [("cluster", "=", "c"), ("run_id", "=", run_id)]


def run_ids(root: Path) -> list[str]:
    """Return the ids of the runs in a lake, sorted."""
    return sorted(LakeReader(str(root)).read(RUNS)["run_id"].to_pylist())


def actions(root: Path) -> list[list[str]]:
    """Return the names of the actions of each commit, as the log has them."""
    files = sorted((root / RUNS.name / "_delta_log").glob("*.json"))
    return [
        [name for line in file.read_text(encoding="utf-8").split("\n") if line for name in json.loads(line)]
        for file in files
    ]


def set_property(root: Path, name: str, value: str) -> None:
    """Set a property of ``runs``."""
    set_properties(LakePaths(str(root)), RUNS, {name: value})
