"""The log of a table of ``deltalake`` does not grow with the days that it is written.

Nothing is removed here but by deltalake, with the properties and the maintenance that each table gets. Days
pass by making all that was written older.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.lake.delta_log import open_log
from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_properties import COMMITS_PER_CHECKPOINT, TRANSACTION_DAYS
from evenlag.lake.tables import RUNS
from evenlag.lake.upkeep.direct_tables import DirectUpkeep
from evenlag.lake.writer import append_once
from tests.support.lakes.aged import age
from tests.support.lakes.run_rows import run

if TYPE_CHECKING:
    from pathlib import Path

DAYS, COMMITS_A_DAY = 6, 11


def known_ids(root: Path) -> set[str]:
    """The transaction ids that deltalake knows of the writes of all days."""
    delta = open_log(LakePaths(str(root)), RUNS)
    assert delta is not None
    names = [f"{day}-{number}" for day in range(DAYS) for number in range(COMMITS_A_DAY)]
    return {name for name in names if delta.transaction_version(f"run/c/{name}/runs") is not None}


def stored_ids(root: Path) -> set[str]:
    """The transaction ids in the newest checkpoint, whatever its reader makes of them."""
    import pyarrow.parquet as pq

    (newest,) = sorted((root / RUNS.name / "_delta_log").glob("*.checkpoint.parquet"))[-1:]
    return {row["appId"].split("/")[2] for row in pq.read_table(newest)["txn"].to_pylist() if row is not None}


@pytest.mark.parametrize(
    "is_maintained",
    [pytest.param(True, id="maintained", marks=pytest.mark.extended), pytest.param(False, id="written only")],
)
def test_ids_and_log_entries_of_more_than_three_days_are_gone(tmp_path: Path, *, is_maintained: bool) -> None:
    log = tmp_path / RUNS.name / "_delta_log"
    sizes = []
    for day in range(DAYS):
        if day:
            age(tmp_path, 1)
        for number in range(COMMITS_A_DAY):
            name = f"{day}-{number}"
            assert append_once(str(tmp_path), RUNS, [run(name)], f"run/c/{name}")
        if is_maintained:
            DirectUpkeep(str(tmp_path), RUNS).vacuum(7)
        sizes.append(len(list(log.iterdir())))
        recent = {
            f"{one}-{number}"
            for one in range(max(0, day + 1 - TRANSACTION_DAYS), day + 1)
            for number in range(COMMITS_A_DAY)
        }
        assert known_ids(tmp_path) == recent
        assert stored_ids(tmp_path) <= recent
    # As many as of three days, and what is kept until the next checkpoint.
    assert max(sizes) <= sizes[TRANSACTION_DAYS - 1] + COMMITS_PER_CHECKPOINT
    assert LakeReader(str(tmp_path)).read(RUNS).num_rows == DAYS * COMMITS_A_DAY
