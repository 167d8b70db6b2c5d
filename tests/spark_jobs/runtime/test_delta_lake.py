"""The lake: repeatable appends, one winner a slot, add-only evolution, and nothing half-visible."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import LakeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import find_marker
from evenlag.lake.tables import LAG, PLAN_EVENTS, RUNS, SNAPSHOTS, Column
from evenlag.lake.writer import append_once
from evenlag.publishing.event_log import append_plan_events
from tests.support.lakes.snapshots import DAY, HEAD, NOW, SNAPSHOT, frame, marker

if TYPE_CHECKING:
    from pathlib import Path

    from spark_jobs.runtime.delta_lake import Lake

pytestmark = pytest.mark.jvm


def counted(partition: int, lag_records: int, *, group: str = "g") -> dict[str, Any]:
    return {"group_id": group, "topic": "t", "partition": partition, "lag_records": lag_records}


def test_of_two_markers_for_a_slot_the_first_wins(lake: Lake) -> None:
    root, reader = lake.paths.root, LakeReader(lake.paths.root)
    later = NOW + timedelta(minutes=5)
    attempts = [
        ("20260301T120000000Z-00000001", NOW),
        ("20260301T120000000Z-00000002", NOW),
        ("20260301T120500000Z-00000003", later),
    ]
    wrote = [
        append_once(
            root,
            SNAPSHOTS,
            [HEAD | marker(snapshot_id=name, slot=slot)],
            [("cluster", "=", "c"), ("slot", "=", slot)],
        )
        for name, slot in attempts
    ]
    assert wrote == [True, False, True]
    for slot, name in ((NOW, attempts[0][0]), (later, attempts[2][0])):
        found = find_marker(reader, "c", slot)
        assert found is not None
        assert found["snapshot_id"] == name
    # Spark sees the same.
    assert lake.read(SNAPSHOTS).count() == 2
    assert find_marker(reader, "other", NOW) is None


def test_a_table_not_written_yet_is_empty_for_both_readers(lake: Lake) -> None:
    assert lake.read(LAG).count() == 0
    reader = LakeReader(lake.paths.root)
    assert reader.read(LAG).num_rows == 0
    assert reader.read(LAG).schema.names == list(LAG.column_names)
    assert reader.latest_snapshot("c") is None


def test_the_light_reader_reads_what_spark_wrote_and_prunes_by_filters(lake: Lake) -> None:
    lake.append(LAG, frame(lake.spark, LAG, [counted(0, 5), counted(1, 6, group="h")]))
    reader = LakeReader(lake.paths.root)
    rows = reader.read(LAG, filters=[("cluster", "=", "c"), ("day", "=", DAY), ("group_id", "=", "h")])
    assert rows.select(["snapshot_id", "partition", "lag_records"]).to_pylist() == [
        {"snapshot_id": SNAPSHOT, "partition": 1, "lag_records": 6}
    ]
    assert reader.read(LAG, filters=[("cluster", "=", "other")]).num_rows == 0
    assert reader.read(LAG, columns=["group_id"]).column_names == ["group_id"]


def test_columns_carry_their_meaning_into_the_table(lake: Lake) -> None:
    lake.append(LAG, frame(lake.spark, LAG, [counted(0, 5)]))
    detail = lake.spark.sql(f"DESCRIBE DETAIL delta.`{lake.paths.table(LAG)}`").collect()[0]
    assert (detail.minReaderVersion, detail.minWriterVersion) == (1, 2)
    assert detail.partitionColumns == ["cluster", "day"]
    fields = {field.name: field for field in lake.read(LAG).schema.fields}
    assert fields["lag_records"].dataType.simpleString() == "bigint"


def test_a_column_added_later_is_null_in_older_rows(lake: Lake) -> None:
    lake.append(LAG, frame(lake.spark, LAG, [counted(0, 5)]))
    newer = replace(LAG, columns=(*LAG.columns, Column("note", "STRING", "new")))
    assert [row.note for row in lake.read(newer).collect()] == [None]
    assert LakeReader(lake.paths.root).read(newer, columns=["note"]).to_pylist() == [{"note": None}]


def test_a_plan_s_event_is_recorded_once_and_spark_reads_it(lake: Lake) -> None:
    event = {
        "cluster": "c",
        "day": DAY,
        "snapshot_id": SNAPSHOT,
        "plan_id": "p",
        "group_id": "g",
        "event": "PUBLISHED",
        "reason": None,
        "actor": "test",
        "at": datetime.now(UTC),
        "sequence": 7,
    }
    root = lake.paths.root
    assert append_plan_events(root, [event]) == 1
    assert append_plan_events(root, [event]) == 0
    assert [row.sequence for row in lake.read(PLAN_EVENTS).collect()] == [7]
    assert LakeReader(root).read_events()["event"].to_pylist() == ["PUBLISHED"]
    with pytest.raises(LakeError, match="not written by Spark"):
        lake.append(PLAN_EVENTS, lake.read(PLAN_EVENTS))


def test_a_lake_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "a-file"
    file.write_text("in the way")
    row = {"cluster": "c", "day": DAY, "run_id": "r", "step": "observe", "slot": datetime.now(UTC)}
    times = {"started_at": datetime.now(UTC), "finished_at": datetime.now(UTC)}
    with pytest.raises(LakeError, match="a-file cannot be written"):
        append_once(str(file), RUNS, [row | times | {"snapshot_id": SNAPSHOT}], None)
