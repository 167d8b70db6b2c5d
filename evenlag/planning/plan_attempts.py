"""Which rows of ``plan_assignments`` are a plan's: those of the attempt that the plan's head names.

Every attempt to write the plans of a snapshot has an id. Its rows have it, and the heads that it writes after
them. Heads are written once for a snapshot, so of several attempts the rows of one are read. Those of a
killed attempt stay in the table until maintenance removes them. The heads of earlier versions of evenlag name
no attempt: those versions wrote the rows of a plan once, so all of them count.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from evenlag.lake.tables import PLAN_ASSIGNMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from evenlag.lake.reader import LakeReader


def new_attempt_id() -> str:
    """Return a new id for an attempt to write plans: 64 random bits."""
    return secrets.token_hex(8)


def read_assignments(
    reader: LakeReader, heads: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None
) -> pa.Table:
    """Read the partitions of plans."""
    from evenlag.lake.arrow_schema import arrow_schema

    heads = list(heads)
    names = list(columns or PLAN_ASSIGNMENTS.column_names)
    if not heads:
        return arrow_schema(PLAN_ASSIGNMENTS).empty_table().select(names)
    rows = reader.read(
        PLAN_ASSIGNMENTS,
        columns=list(dict.fromkeys([*names, "plan_id", "attempt_id"])),
        filters=[
            ("cluster", "=", heads[0]["cluster"]),
            ("day", "in", sorted({head["day"] for head in heads})),
            ("plan_id", "in", sorted({head["plan_id"] for head in heads})),
        ],
    )
    return select_attempts(rows, heads).select(names)


def select_attempts(rows: pa.Table, heads: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Select the rows that are of the attempts that heads name.

    Returns the selected rows; none of a plan without a head.
    heads: Rows of ``plans``, with the same columns.

    Examples
    --------
    >>> import pyarrow as pa
    >>> rows = pa.table({"plan_id": ["p", "p", "q", "r"], "attempt_id": ["1", "2", None, "1"]})
    >>> heads = [{"plan_id": "p", "attempt_id": "2"}, {"plan_id": "q", "attempt_id": None}]
    >>> select_attempts(rows, heads).to_pylist()
    [{'plan_id': 'p', 'attempt_id': '2'}, {'plan_id': 'q', 'attempt_id': None}]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    named = {head["plan_id"]: head["attempt_id"] for head in heads}
    plans, attempts = (pa.array(list(part), pa.string()) for part in (named.keys(), named.values()))
    place = pc.index_in(rows["plan_id"], plans)
    wanted = attempts.take(place)
    is_named = pc.or_(pc.is_null(wanted), pc.fill_null(pc.equal(rows["attempt_id"], wanted), False))
    return rows.filter(pc.and_(pc.is_valid(place), is_named))
