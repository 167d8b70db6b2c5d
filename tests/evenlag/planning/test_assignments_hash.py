"""The hash of a plan's partitions: of every value, whatever the order and the pieces of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import PLAN_ASSIGNMENTS
from evenlag.planning.assignments_hash import SHARED_COLUMNS, hash_assignments

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = arrow_schema(PLAN_ASSIGNMENTS)
HASHED = [column for column in PLAN_ASSIGNMENTS.columns if column.name not in SHARED_COLUMNS]
ROWS: list[dict[str, Any]] = [
    {
        "topic_id": f"t{number % 2}",
        "topic": "örders",
        "partition": number // 2,
        "owner_before": None if number == 3 else "m-1",
        "owner_after": "m-2",
        "owner_after_key": "m:m-2",
        "moved": number != 3,
        "lag_records": None if number == 5 else number,
        "lag_status": "OK",
    }
    for number in range(8)
]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_the_order_and_the_pieces_of_the_rows_do_not_matter() -> None:
    import pyarrow as pa

    whole = table(ROWS)
    pieces = pa.concat_tables([whole.slice(5), whole.slice(0, 2), whole.slice(2, 3)])
    assert hash_assignments(pieces) == hash_assignments(whole) == hash_assignments(table(ROWS[::-1]))
    # Of plans that follow each other in one table.
    assert hash_assignments(whole.slice(3, 4)) == hash_assignments(table(ROWS[3:7]))
    assert len({hash_assignments(table(ROWS[:number])) for number in range(9)}) == 9


@pytest.mark.parametrize("column", HASHED, ids=lambda column: column.name)
def test_every_value_of_every_row_matters(column: Any) -> None:
    others: dict[str, list[Any]] = {
        "STRING": ["", "x", None],
        "INT": [99, None],
        "BIGINT": [2**60, -1, None],
        "BOOLEAN": [True, False, None],
    }
    seen = {hash_assignments(table(ROWS))}
    changed = 0
    for number, row in enumerate(ROWS):
        for value in others[column.type]:
            if value != row[column.name]:
                rows = [*ROWS[:number], row | {column.name: value}, *ROWS[number + 1 :]]
                seen.add(hash_assignments(table(rows)))
                changed += 1
    assert len(seen) == changed + 1


def test_values_do_not_run_into_each_other() -> None:
    first, second = [{"topic": "ab"}, {"topic": "c"}], [{"topic": "a"}, {"topic": "bc"}]
    assert hash_assignments(table(first)) != hash_assignments(table(second))
    swapped = [{"owner_before": "a", "owner_after": None}], [{"owner_before": None, "owner_after": "a"}]
    assert hash_assignments(table(swapped[0])) != hash_assignments(table(swapped[1]))
