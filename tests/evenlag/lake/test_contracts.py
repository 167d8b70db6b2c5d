"""Contracts only ever gain columns that may be null, so that a lake outlives the versions that write it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import pytest

from evenlag.errors import SchemaError
from evenlag.lake.reader import LakeReader
from evenlag.lake.schema_evolution import (
    check_types,
    missing_columns,
    refuse_unknown,
    simple_type,
    type_of_log,
)
from evenlag.lake.tables import COMMITS, MEMBERS, OFFSETS, PLAN_ASSIGNMENTS, TABLES, Column, Table
from evenlag.lake.writer import append_once
from tests.support.lakes.older_lake import recorded_contracts
from tests.support.spark_tables import write_foreign_table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("recorded", recorded_contracts().values(), ids=lambda table: table.name)
def test_since_they_first_landed_contracts_only_gained_columns_that_may_be_null(recorded: Table) -> None:
    types = {column.name: simple_type(column.type) for column in recorded.stored_columns}
    today = TABLES[recorded.name]
    assert all(column.nullable for column in missing_columns(today, types))
    assert set(types) <= {column.name for column in today.stored_columns}
    assert today.key == recorded.key
    # Earlier versions append to these by Spark: commits of both engines exclude each other, or have rows of
    # another attempt.
    assert today.writer == recorded.writer or today in {PLAN_ASSIGNMENTS, OFFSETS, COMMITS, MEMBERS}


def test_a_column_of_another_type_is_refused_by_name() -> None:
    types = {column.name: simple_type(column.type) for column in COMMITS.columns}
    check_types(COMMITS, types)
    with pytest.raises(
        SchemaError, match=r"commits: column committed_offset is string .* and bigint .*upgrade"
    ):
        check_types(COMMITS, types | {"committed_offset": "string"})


def test_a_column_that_every_row_has_cannot_be_missing() -> None:
    types = {column.name: simple_type(column.type) for column in COMMITS.columns if column.name != "group_id"}
    with pytest.raises(SchemaError, match=r"commits: column group_id is not in the lake"):
        missing_columns(COMMITS, types)


def test_an_added_column_is_told_and_rows_with_unknown_ones_are_refused() -> None:
    types = {column.name: simple_type(column.type) for column in COMMITS.columns}
    added = Column("note", "STRUCT<a: STRING, b: ARRAY<INT>>", "new")
    newer = replace(COMMITS, columns=(*COMMITS.columns, added))
    assert missing_columns(newer, types) == (added,)
    with pytest.raises(SchemaError, match="commits: rows have columns that its contract does not have: note"):
        refuse_unknown(COMMITS, newer.column_names)


def test_types_of_the_log_read_as_spark_prints_them() -> None:
    nested = {
        "type": "array",
        "containsNull": True,
        "elementType": {
            "type": "struct",
            "fields": [
                {"name": "topic", "type": "string", "nullable": True, "metadata": {}},
                {"name": "partitions", "type": {"type": "array", "elementType": "integer"}, "nullable": True},
            ],
        },
    }
    assert type_of_log(nested) == simple_type("ARRAY<STRUCT<topic: STRING, partitions: ARRAY<INT>>>")
    assert type_of_log({"type": "map", "keyType": "string", "valueType": "long"}) == "map<string,bigint>"


@pytest.mark.parametrize(
    "table", [table for table in TABLES.values() if table.is_by_month], ids=lambda t: t.name
)
def test_a_table_without_a_month_is_refused_and_nothing_is_written(tmp_path: Path, table: Table) -> None:
    write_foreign_table(tmp_path / table.name, [{"cluster": "c", "day": date(2026, 3, 1), "group_id": "g"}])
    with pytest.raises(SchemaError, match=f"table {table.name} has no column month"):
        LakeReader(str(tmp_path)).read(table)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SchemaError, match="has no column month"):
        append_once(
            str(tmp_path), replace(table, writer="direct"), [{"cluster": "c", "day": date(2026, 3, 1)}], None
        )
    assert sorted(tmp_path.rglob("*")) == before


def test_only_the_tables_that_grow_fastest_are_partitioned_by_day() -> None:
    by_day = {table.name for table in TABLES.values() if not table.is_by_month}
    assert by_day == {
        "offsets", "commits", "members", "lag", "hourly_rates", "forecasts", "speeds", "advice",
    }  # fmt: skip
