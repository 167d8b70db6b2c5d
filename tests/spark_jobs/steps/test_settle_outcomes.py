"""When an outcome is said to have happened: once the snapshot that shows it had been read."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.tables import OUTCOMES, SNAPSHOTS
from spark_jobs.steps.settle_outcomes import append_outcome_events, read_lifecycle_events
from tests.support.lakes.snapshots import NOW, SNAPSHOT, frame, marker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.runtime.delta_lake import Lake

pytestmark = pytest.mark.jvm

LATER = "20260301T235955000Z-00000002"
MIDNIGHT = NOW + timedelta(hours=12)


def test_an_outcome_happened_when_its_snapshot_had_been_read(spark: SparkSession, lake: Lake) -> None:
    read = {
        SNAPSHOT: (NOW, NOW + timedelta(seconds=9), NOW + timedelta(seconds=13)),
        # Its slot is yesterday's when it ends.
        LATER: (MIDNIGHT - timedelta(seconds=5), MIDNIGHT - timedelta(seconds=1), MIDNIGHT),
    }
    markers = [
        marker() | {"snapshot_id": name, "slot": slot, "started_at": began, "finished_at": ended}
        for name, (slot, began, ended) in read.items()
    ]
    lake.append(SNAPSHOTS, frame(spark, SNAPSHOTS, markers), "markers")
    settled = [
        {"snapshot_id": name, "slot": read[name][0], "plan_id": outcome, "group_id": "g", "outcome": outcome}
        for name, outcome in ((SNAPSHOT, "APPLIED"), (LATER, "EXPIRED"))
    ]
    lake.append(OUTCOMES, frame(spark, OUTCOMES, settled), "outcomes")
    for _ in range(2):
        append_outcome_events(lake, "c", LATER, read_lifecycle_events(lake, "c"))
    events = {row.event: row.at.timestamp() for row in lake.read_events().collect()}
    assert events == {"APPLIED": read[SNAPSHOT][2].timestamp(), "EXPIRED": MIDNIGHT.timestamp()}
    assert lake.read_events().count() == len(settled)
