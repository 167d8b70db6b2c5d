"""When an outcome is said to have happened: once the snapshot that shows it had been read."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import OUTCOMES, SNAPSHOTS
from evenlag.publishing.plan_outcomes import append_outcome_events
from spark_jobs.steps.snapshot_rows import SnapshotRows
from tests.support.lakes.snapshots import HEAD, NOW, SNAPSHOT, marker
from tests.support.spark_tables import write_rows

if TYPE_CHECKING:
    from spark_jobs.runtime.delta_lake import Lake

pytestmark = pytest.mark.jvm

LATER = "20260301T235955000Z-00000002"
MIDNIGHT = NOW + timedelta(hours=12)


def test_an_outcome_happened_when_its_snapshot_had_been_read(lake: Lake) -> None:
    read = {
        SNAPSHOT: (NOW, NOW + timedelta(seconds=9), NOW + timedelta(seconds=13)),
        # Its slot is yesterday's when it ends.
        LATER: (MIDNIGHT - timedelta(seconds=5), MIDNIGHT - timedelta(seconds=1), MIDNIGHT),
    }
    markers = [
        HEAD | marker() | {"snapshot_id": name, "slot": slot, "started_at": began, "finished_at": ended}
        for name, (slot, began, ended) in read.items()
    ]
    reader = LakeReader(lake.paths.root)
    write_rows(lake.paths.root, SNAPSHOTS, markers)
    settled = [
        {
            **HEAD,
            "snapshot_id": name,
            "slot": read[name][0],
            "plan_id": outcome,
            "group_id": "g",
            "outcome": outcome,
            "reason": None,
            "run_id": "r",
        }
        for name, outcome in ((SNAPSHOT, "APPLIED"), (LATER, "EXPIRED"))
    ]
    write_rows(lake.paths.root, OUTCOMES, settled)
    for _ in range(2):
        append_outcome_events(SnapshotRows(lake, reader, markers[1]), settled)
    rows = reader.read_events().to_pylist()
    events = {row["event"]: row["at"] for row in rows}
    assert events == {"APPLIED": read[SNAPSHOT][2], "EXPIRED": MIDNIGHT}
    assert len(rows) == len(settled)
