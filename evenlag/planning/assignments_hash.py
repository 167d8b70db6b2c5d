"""A hash of a plan's rows of ``plan_assignments``: what seals the rows through the plan's head.

It does not depend on the order of the rows, or on how they are cut into files and chunks. No Python loop goes
over partitions.
"""

from __future__ import annotations

import hashlib
from typing import Final

import pyarrow as pa

from evenlag.lag.arrays import parts_of
from evenlag.lake.arrow_schema import arrow_type
from evenlag.lake.tables import PLAN_ASSIGNMENTS

# The same in all rows of a plan: the head has them, too.
SHARED_COLUMNS: Final = ("cluster", "day", "snapshot_id", "plan_id", "group_id")
_HASHED: Final = sorted(
    (column for column in PLAN_ASSIGNMENTS.columns if column.name not in SHARED_COLUMNS),
    key=lambda column: column.name,
)
_ORDER: Final = [(name, "ascending") for name in ("topic_id", "partition", "topic", "owner_after")]


def hash_assignments(rows: pa.Table) -> str:
    """Hash the partitions of one plan.

    Returns SHA-256 in hexadecimal.
    rows: Rows of ``plan_assignments`` of one plan, in any order; the columns that all of them share are not
        needed.
    """
    from pyarrow import csv

    schema = pa.schema([(column.name, arrow_type(column.type)) for column in _HASHED])
    own = rows.select(schema.names).cast(schema)
    # A column that a later version adds is null in the rows of earlier ones.
    names = [name for name in schema.names if own[name].null_count < own.num_rows]
    text = pa.BufferOutputStream()
    # Every value in quotes, and null without: no two tables have the same text.
    options = csv.WriteOptions(quoting_style="all_valid", delimiter=",")
    csv.write_csv(own.sort_by(_ORDER).select(names), text, options)
    return hashlib.sha256(f"plan assignments v1 {own.num_rows}\n".encode() + text.getvalue()).hexdigest()


def hash_plans(rows: pa.Table) -> dict[str, str]:
    """Hash the partitions of several plans.

    Returns as :func:`hash_assignments`, by plan id.
    """
    return {plan_id: hash_assignments(own) for plan_id, own in parts_of(rows, "plan_id").items()}
