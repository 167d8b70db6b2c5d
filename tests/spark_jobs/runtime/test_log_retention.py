"""Delta removes log entries and transaction ids that are older than the retention, with each checkpoint."""

from __future__ import annotations

import os
import shutil
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.table_properties import COMMITS_PER_CHECKPOINT, TRANSACTION_DAYS
from evenlag.lake.tables import COMMITS
from spark_jobs.runtime.delta_lake import Lake
from tests.support.lakes import aged
from tests.support.lakes.snapshots import frame
from tests.support.spark_tables import append_with_id

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.extended, pytest.mark.jvm]

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
            lake.append(COMMITS, frame(lake.spark, COMMITS, [{}]))

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


# What the test above, and that of ids in `test_expiry.py`, hold for one checkpoint: here for many.
@pytest.mark.soak
def test_a_log_that_is_written_every_day_keeps_the_ids_and_the_entries_of_three_days(
    lake: Lake, tmp_path: Path
) -> None:
    """Days pass by making all that was written older, in a copy, as Spark keeps what it knows by path."""
    import pyarrow.parquet as pq

    num_days, sizes, where = 6, [], lake
    for day in range(num_days):
        if day:
            copy = tmp_path / f"day-{day}"
            shutil.copytree(where.paths.local_root, copy, ignore=shutil.ignore_patterns("*.crc"))
            aged.age(copy, 1)
            where = Lake(lake.spark, str(copy))
        for number in range(INTERVAL):
            # A repeat writes nothing: its id is known.
            rows = frame(lake.spark, COMMITS, [{}])
            for _ in range(2 if number == 0 else 1):
                append_with_id(where.paths.root, COMMITS, rows, f"{day}-{number}")
        log = where.paths.local_root / COMMITS.name / "_delta_log"
        sizes.append(len(versions(log)))
        # Day 0 ends one commit before its checkpoint: each checkpoint is in the first commit of a day.
        (newest,) = sorted(log.glob("*.checkpoint*.parquet"))[-1:] or (None,)
        if newest is not None:
            found = pq.read_table(newest)["txn"].to_pylist()
            days = {int(row["appId"].partition("-")[0]) for row in found if row is not None}
            assert days == set(range(max(0, day + 1 - TRANSACTION_DAYS), day + 1))
    assert max(sizes) <= (TRANSACTION_DAYS + 1) * INTERVAL
    assert where.read(COMMITS).count() == num_days * INTERVAL
