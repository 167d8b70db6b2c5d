"""Columns of many rows as Arrow arrays, and rows by a contract from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evenlag.lake.arrow_schema import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from evenlag.lake.tables import Table


def moments(times: NDArray[np.datetime64]) -> pa.Array:
    """Return times as Arrow's timestamps in UTC."""
    import pyarrow as pa

    return array(times.astype("datetime64[us]")).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))


def build(table: Table, size: int, *parts: Mapping[str, pa.Array], **more: Any) -> pa.Table:
    """Build rows by a contract: unknown columns are left out, missing ones are null."""
    import pyarrow as pa

    given: dict[str, Any] = {}
    for part in parts:
        given |= part
    given |= more
    columns = []
    for field in arrow_schema(table):
        value = given.get(field.name)
        if value is None:
            columns.append(pa.nulls(size, field.type))
        elif isinstance(value, pa.Array):
            columns.append(value.cast(field.type))
        else:
            columns.append(pa.array([value], field.type).take(pa.array(np.zeros(size, np.int32))))
    return pa.Table.from_arrays(columns, schema=arrow_schema(table))


def repeat(values: Sequence[str], each: int) -> pa.Array:
    return array(values).take(array(np.repeat(np.arange(len(values)), each)))


def array(values: Any, *, mask: Any = None) -> pa.Array:
    """Return values as an Arrow array."""
    import pyarrow as pa

    return pa.array(values, mask=mask)


def concat(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of several tables."""
    import pyarrow as pa

    return pa.concat_tables(parts)


def from_rows(rows: Sequence[Mapping[str, Any]], table: Table) -> pa.Table:
    """Return rows by a contract."""
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=arrow_schema(table))
