"""A table of Spark that gets a commit each minute: deltalake compacts it and trims its log."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.table_properties import LOG_HOURS
from evenlag.lake.tables import LAG
from evenlag.lake.upkeep.open_day import MANY_FILES, tend_tables
from tests.support.lakes.snapshots import frame
from tests.truth.oracle.delta_files import live_files

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from spark_jobs.runtime.delta_lake import Lake

pytestmark = [pytest.mark.extended, pytest.mark.jvm]


def test_spark_and_deltalake_write_a_table_in_turn_and_at_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder: Path = lake.paths.local_root / LAG.name
    log = folder / "_delta_log"

    def append(numbers: range) -> None:
        for number in numbers:
            rows = [{"snapshot_id": f"20260301T120000000Z-{number:08d}"}]
            lake.append(LAG, frame(lake.spark, LAG, rows))

    stream, between = LakeReader.stream, [lambda: append(range(MANY_FILES, MANY_FILES + 2))]

    def stream_and_append(*given: object) -> pa.RecordBatchReader:
        rows = stream(*given)  # type: ignore[arg-type]
        if between:
            between.pop()()
        return rows

    append(range(MANY_FILES))
    monkeypatch.setattr(LakeReader, "stream", stream_and_append)
    tend_tables(lake.paths, "c", {LAG})
    assert between == []
    assert len(live_files(folder)) <= 3
    expected = [f"20260301T120000000Z-{number:08d}" for number in range(MANY_FILES + 2)]
    assert sorted(row.snapshot_id for row in lake.read(LAG).collect()) == expected
    # Hours later, Spark goes on from the log that is left.
    for path in log.iterdir():
        os.utime(path, (time.time() - (LOG_HOURS + 1) * 3_600,) * 2)
    append(range(MANY_FILES + 2, 2 * MANY_FILES + 2))
    tend_tables(lake.paths, "c", {LAG})
    append(range(2 * MANY_FILES + 2, 2 * MANY_FILES + 3))
    expected = [f"20260301T120000000Z-{number:08d}" for number in range(2 * MANY_FILES + 3)]
    assert sorted(row.snapshot_id for row in lake.read(LAG).collect()) == expected
    found = LakeReader(lake.paths.root).read(LAG, columns=["snapshot_id"])["snapshot_id"].to_pylist()
    assert sorted(found) == expected
    first = min(int(path.stem) for path in log.glob("*.json"))
    assert first > MANY_FILES // 2
    assert all(int(path.name.lstrip(".")[:20]) >= first for path in log.iterdir() if path.suffix == ".crc")
