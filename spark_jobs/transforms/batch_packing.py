"""Which groups are planned in one call: many small ones together, a large one alone, the heaviest first.

Only numbers of groups come to the driver: how many rows each has. Rows stay where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

# What a group costs beside its rows, in rows: measured on groups of 100 and of 1,000 partitions.
GROUP_ROWS: Final = 300
# A bundle is held in memory by the Python worker that plans it.
MOST_ROWS: Final = 200_000
LEAST_ROWS: Final = 10_000
# So many bundles a core: the last to end is then a small share of what the core has done.
_PER_CORE: Final = 8


def pack_groups(num_rows: NDArray[np.int64], cores: int) -> NDArray[np.int32]:
    """Pack groups into bundles: int32 [G], the bundle of each; bundle 0 is the heaviest.

    Parameters
    ----------
    num_rows
        int64 [G], how many rows each group has.
    cores
        How many bundles can be planned at the same time.

    Notes
    -----
    Bundles are taken up in their order, each by the first core that is free, so the time is at most that of
    the largest group or of an even share plus one bundle (Graham's bound for the longest first).
    """
    cost = num_rows.astype(np.int64) + GROUP_ROWS
    target = int(np.clip(cost.sum() // (max(cores, 1) * _PER_CORE), LEAST_ROWS, MOST_ROWS))
    order = np.argsort(-cost, kind="stable")
    # From the largest down, a new bundle begins where the last is full; one at or above it is alone.
    before = np.cumsum(cost[order]) - cost[order]
    alone = cost[order] >= target
    small = ~alone
    filled = before - before[small][0] if small.any() else before
    number = np.where(alone, np.arange(len(order)), int(alone.sum()) + filled // target)
    _, number = np.unique(number, return_inverse=True)
    weight = np.bincount(number, cost[order])
    rank = np.empty(len(weight), dtype=np.int32)
    rank[np.argsort(-weight, kind="stable")] = np.arange(len(weight), dtype=np.int32)
    bundles = np.empty(len(order), dtype=np.int32)
    bundles[order] = rank[number]
    return bundles


def read_sizes(lag: DataFrame, members: DataFrame) -> tuple[list[str], NDArray[np.int64]]:
    """Count each group's rows: the ids, ascending, and int64 [G]."""
    both = lag.select("group_id").unionByName(members.select("group_id"))
    found = both.groupBy("group_id").count().toArrow().sort_by("group_id")
    return found["group_id"].to_pylist(), found["count"].to_numpy()


def with_bundles(rows: DataFrame, group_ids: list[str], bundles: NDArray[np.int32]) -> DataFrame:
    """Bring the rows of each bundle together: partition b of the result is bundle b, and nothing else."""
    import pyarrow as pa
    from pyspark.sql import functions as sf

    table = pa.table({"group_id": pa.array(group_ids, pa.string()), "bundle": pa.array(bundles)})
    of_group = rows.sparkSession.createDataFrame(table, "group_id STRING, bundle INT")
    joined = rows.join(sf.broadcast(of_group), "group_id")
    return joined.repartitionById(int(bundles.max()) + 1, sf.col("bundle")).drop("bundle")
