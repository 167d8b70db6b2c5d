"""Tables gain columns: a newer and an older evenlag write one lake, and what cannot be is refused."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from evenlag.errors import SchemaError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import AUDITED_SNAPSHOTS, CONTROL_ACTIONS, SNAPSHOTS, Column, Table
from evenlag.lake.writer import append_once
from spark_jobs.runtime.delta_lake import Lake
from tests.support.lakes.snapshots import DAY, HEAD, NOW, frame, marker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.jvm

ADDED = (Column("note", "STRING", "new"), Column("parts", "ARRAY<STRUCT<topic: STRING, count: INT>>", "new"))
AUDITED = {"slot": NOW, "started_at": NOW, "finished_at": NOW, "input_hash": "h"}


def newer(table: Table) -> Table:
    """Return a contract as a later version has it."""
    return replace(table, columns=(*table.columns, *ADDED))


def test_versions_write_one_table_in_any_order(lake: Lake) -> None:
    """Append and replacing of days, by an older evenlag, a newer one, and the older one again."""
    root, spark = lake.paths.root, lake.spark
    notes = {"old": None, "new": "n", "old again": None}
    for number, (name, note) in enumerate(notes.items()):
        audited = AUDITED_SNAPSHOTS if note is None else newer(AUDITED_SNAPSHOTS)
        snapshots = SNAPSHOTS if note is None else newer(SNAPSHOTS)
        more = {} if note is None else {"note": note, "parts": [{"topic": "t", "count": 1}]}
        row = AUDITED | {"snapshot_id": name} | more
        Lake(spark, root).append(audited, frame(spark, audited, [row]))
        slot = NOW + timedelta(minutes=number)
        append_once(root, snapshots, [HEAD | marker(snapshot_id=name, slot=slot, **more)], None)
    rows = {row.snapshot_id: row.note for row in Lake(spark, root).read(newer(AUDITED_SNAPSHOTS)).collect()}
    assert rows == notes
    light = LakeReader(root).read(newer(SNAPSHOTS), columns=["snapshot_id", "note", "parts"]).to_pylist()
    assert {row["snapshot_id"]: row["note"] for row in light} == notes
    assert [row["parts"] for row in light if row["note"]] == [[{"topic": "t", "count": 1}]]
    assert {row.snapshot_id: row.note for row in Lake(spark, root).read(newer(SNAPSHOTS)).collect()} == notes
    assert Lake(spark, root).read(AUDITED_SNAPSHOTS).count() == 3
    replaced = frame(spark, AUDITED_SNAPSHOTS, [AUDITED | {"snapshot_id": "replaced"}])
    Lake(spark, root).replace_days(AUDITED_SNAPSHOTS, replaced, "c", [DAY])
    assert [row.note for row in Lake(spark, root).read(newer(AUDITED_SNAPSHOTS)).collect()] == [None]


def test_two_new_versions_that_begin_a_table_at_once_both_write_it(lake: Lake) -> None:
    root, spark, errors = lake.paths.root, lake.spark, list[Exception]()
    start = threading.Barrier(2)

    def write(table: Table, name: str) -> None:
        rows = frame(spark, table, [AUDITED | {"snapshot_id": name}])
        start.wait(60)
        try:
            Lake(spark, root).append(table, rows)
        except Exception as error:  # noqa: BLE001 - reported to the test
            errors.append(error)

    threads = [
        threading.Thread(target=write, args=pair)
        for pair in ((newer(AUDITED_SNAPSHOTS), "new"), (AUDITED_SNAPSHOTS, "old"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    found = Lake(spark, root).read(newer(AUDITED_SNAPSHOTS)).collect()
    assert sorted(row.snapshot_id for row in found) == ["new", "old"]


def test_a_retyped_or_removed_column_is_refused_by_both_writers(lake: Lake, tmp_path: Path) -> None:
    columns = tuple(
        replace(column, type="STRING") if column.name == "slot" else column
        for column in AUDITED_SNAPSHOTS.columns
    )
    retyped = replace(AUDITED_SNAPSHOTS, columns=columns)
    lake.append(retyped, frame(lake.spark, retyped, [AUDITED | {"slot": "noon"}]))
    again = Lake(lake.spark, lake.paths.root)
    rows = frame(lake.spark, AUDITED_SNAPSHOTS, [AUDITED])
    for attempt in (
        lambda: again.append(AUDITED_SNAPSHOTS, rows),
        lambda: again.read(AUDITED_SNAPSHOTS),
        lambda: LakeReader(lake.paths.root).read(AUDITED_SNAPSHOTS),
    ):
        with pytest.raises(SchemaError, match=r"column slot is string in the lake and timestamp"):
            attempt()
    kept = tuple(column for column in AUDITED_SNAPSHOTS.columns if column.name != "input_hash")
    removed = replace(AUDITED_SNAPSHOTS, columns=kept)
    other = Lake(lake.spark, str(tmp_path / "other"))
    other.append(removed, frame(lake.spark, removed, [AUDITED]))
    with pytest.raises(SchemaError, match="audited_snapshots: column input_hash is not in the lake"):
        Lake(lake.spark, other.paths.root).append(AUDITED_SNAPSHOTS, rows)


def test_a_table_written_without_spark_gains_columns_too(tmp_path: Path) -> None:
    root = str(tmp_path)
    row = {"cluster": "c", "day": DAY, "action": "RESUME", "hint_topic": "h", "reason": "r", "actor": "a"}
    more = {"note": "n", "parts": [{"topic": "t", "count": 1}]}
    for name, table, added in (
        ("old", CONTROL_ACTIONS, {}),
        ("new", newer(CONTROL_ACTIONS), more),
        ("old again", CONTROL_ACTIONS, {}),
    ):
        append_once(root, table, [row | {"action_id": name, "at": NOW} | added], None)
    rows = LakeReader(root).read(newer(CONTROL_ACTIONS)).to_pylist()
    assert {found["action_id"]: found["note"] for found in rows} == {
        "old": None,
        "new": "n",
        "old again": None,
    }
    assert LakeReader(root).read(CONTROL_ACTIONS).num_rows == 3
    columns = tuple(replace(c, type="BIGINT") if c.name == "at" else c for c in CONTROL_ACTIONS.columns)
    with pytest.raises(SchemaError, match="control_actions: column at is timestamp in the lake and bigint"):
        append_once(
            root, replace(CONTROL_ACTIONS, columns=columns), [row | {"action_id": "bad", "at": 1}], None
        )
