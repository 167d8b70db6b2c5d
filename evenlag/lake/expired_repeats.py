"""Repeats of writes whose transaction ids may have expired: the table's key decides which rows are new."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from evenlag.lake.table_properties import TRANSACTION_DAYS
from evenlag.lake.tables import CLUSTER_AND_DAY

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.lake.reader import LakeReader
    from evenlag.lake.tables import Table


def without_expired_repeats(lake: LakeReader, table: Table, data: pa.Table) -> pa.Table:
    """Remove the rows that an earlier write has written, where its transaction id may have expired.

    No row is written before its day begins, so until ``TRANSACTION_DAYS`` later the log has the write's id.

    Returns the rows that are not in the table; all rows if none is of such an old day.
    """
    import pyarrow.compute as pc

    days = pc.unique(data["day"]).to_pylist()
    # A day earlier, as clocks of two machines differ.
    limit = datetime.now(UTC).date() - timedelta(days=TRANSACTION_DAYS - 1)
    if not days or min(days) > limit:
        return data
    key = list(dict.fromkeys([*CLUSTER_AND_DAY, *table.key]))
    # The first column of the key keeps the answer small; in some tables a day has millions of rows.
    bounds = {*CLUSTER_AND_DAY, table.key[0]}
    filters = [(name, "in", pc.unique(data[name]).to_pylist()) for name in key if name in bounds]
    found = lake.read(table, columns=key, filters=filters)
    known = set(zip(*(found[name].to_pylist() for name in key), strict=True))
    keys = zip(*(data[name].to_pylist() for name in key), strict=True)
    return data.filter([one not in known for one in keys])
