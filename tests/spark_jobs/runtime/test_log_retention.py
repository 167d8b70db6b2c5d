"""Delta removes log entries that are older than the retention, when it writes a checkpoint."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.table_properties import COMMITS_PER_CHECKPOINT
from evenlag.lake.tables import COMMITS
from tests.support.lakes.snapshots import frame

if TYPE_CHECKING:
    from pathlib import Path

    from spark_jobs.runtime.delta_lake import Lake

pytestmark = pytest.mark.jvm

INTERVAL = COMMITS_PER_CHECKPOINT


def versions(folder: Path) -> list[int]:
    """Return the versions that have an entry in a log."""
    return sorted(int(path.stem) for path in folder.glob("*.json"))


def age(folder: Path, days: int) -> None:
    """Make all entries and checkpoints of a log older."""
    moment = time.time() - timedelta(days=days).total_seconds()
    for number, path in enumerate(sorted(folder.iterdir())):
        os.utime(path, (moment + number, moment + number))


def test_old_entries_go_and_every_row_stays(lake: Lake) -> None:
    log = lake.paths.local_root / COMMITS.name / "_delta_log"

    def append(count: int) -> None:
        for _ in range(count):
            lake.append(COMMITS, frame(lake.spark, COMMITS, [{}]), None)

    append(2)
    age(log, 2)
    append(INTERVAL)
    # The first checkpoint removed nothing: the entries are younger than three days.
    assert versions(log) == list(range(INTERVAL + 2))
    age(log, 4)
    append(INTERVAL)
    # The second one removed what the first one contains.
    assert versions(log) == list(range(INTERVAL, 2 * INTERVAL + 2))
    assert lake.read(COMMITS).count() == 2 * INTERVAL + 2
