"""Consumer lag of a large snapshot: Spark joins the rows, and :mod:`evenlag.lag.formula` counts their lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.lag.formula import STORED_ONLY
from evenlag.lake.tables import LAG
from spark_jobs.runtime.contract_columns import conform
from spark_jobs.transforms.group_partitions import join_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame


def build_lag(
    *,
    offsets: DataFrame,
    commits: DataFrame,
    members: DataFrame,
    groups: pa.Table,
    member_ids: pa.Array,
    marker: Mapping[str, Any],
    offset_history: DataFrame,
    commit_history: DataFrame,
    rate_window_s: int,
) -> DataFrame:
    """Build the ``lag`` rows of one snapshot from its tables.

    offset_history, commit_history: See :mod:`spark_jobs.transforms.group_partitions`; may be empty.
    rate_window_s: Length of the window that rates are computed over, in seconds.
    """
    from pyspark.sql import functions as sf

    joined = join_partitions(
        offsets, commits, members, member_ids, offset_history=offset_history, commit_history=commit_history
    )

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from evenlag.lag.formula import count_lag

        for batch in batches:
            yield from count_lag(
                pa.Table.from_batches([batch]), groups, member_ids, rate_window_s
            ).to_batches()

    counted = ", ".join(f"{each.name} {each.type}" for each in LAG.columns if each.name not in STORED_ONLY)
    of_snapshot = {name: sf.lit(marker[name]) for name in STORED_ONLY}
    return conform(joined.mapInArrow(count, schema=counted).withColumns(of_snapshot), LAG)
