"""What cycles leave in the open day: small files and commits, which become one file and no log in time.

Each commit adds a file. When a cluster has many in a table, its next step writes their rows again as one, and
removes what the log need not keep: of one table in each step, as all have many at about the same time. So a
table has about as many files, and as long a log, at the end of a day as at its begin. Another change of the
same rows makes it start over, and it may be killed at any point.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Final

import pyarrow.compute as pc

from evenlag.errors import LakeError
from evenlag.lake.delta_log import open_table, read_actions
from evenlag.lake.filters import sql_literal
from evenlag.lake.location import LakePaths
from evenlag.lake.tables import Table
from evenlag.lake.upkeep.direct_tables import replace_rows, trim_log, write_checkpoint
from evenlag.logging_setup import named_logger

_LOG = named_logger(__name__)
_SNAPSHOT: Final = "snapshot_id"
# A reader of an hour's snapshots, one a minute, opens about as many.
MANY_FILES: Final = 20
# Many files of this size are rewritten in a second; a larger one costs readers little.
_SMALL_BYTES: Final = 512 * 1024


def tend_tables(paths: LakePaths, cluster: str, tables: Iterable[Table]) -> None:
    """Write checkpoints that are due, and compact a cluster's small files in a table; an error only warns."""
    is_compacted = False
    for table in tables:
        try:
            if table.writer == "spark":
                write_checkpoint(paths, table)
            if not is_compacted and (small := _find_small(paths, table, cluster)) is not None:
                start, first, last = small
                condition = f"{_SNAPSHOT} >= {sql_literal(first)} AND {_SNAPSHOT} <= {sql_literal(last)}"
                filters = [(_SNAPSHOT, ">=", first), (_SNAPSHOT, "<=", last)]
                replace_rows(paths, table, (cluster, start), condition, filters)
                trim_log(paths, table)
                is_compacted = True
        except LakeError as error:
            _LOG.warning("%s is not compacted until the next cycle: %s", table.name, error)


def _find_small(paths: LakePaths, table: Table, cluster: str) -> tuple[date, str, str] | None:
    """Find a cluster's small files in the newest partition of a table; None if there are few.

    Returns the partition's first day, and the first and last snapshot of their rows.
    """
    with open_table(paths, table) as delta:
        files = None if delta is None else read_actions(delta, paths, table)
    if files is None or f"min.{_SNAPSHOT}" not in files.column_names:
        return None
    files = files.filter(pc.equal(files["partition.cluster"], cluster))
    starts = files[f"partition.{table.partition_by[1]}"]
    is_small = pc.and_(pc.equal(starts, pc.max(starts)), pc.less(files["size_bytes"], _SMALL_BYTES))
    small = files.filter(pc.and_(is_small, pc.is_valid(files[f"max.{_SNAPSHOT}"])))
    if small.num_rows < MANY_FILES:
        return None
    bounds = pc.min(small[f"min.{_SNAPSHOT}"]), pc.max(small[f"max.{_SNAPSHOT}"])
    return pc.max(starts).as_py(), bounds[0].as_py(), bounds[1].as_py()
