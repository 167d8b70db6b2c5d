"""Packs groups into batches: small groups together, a large one alone, the heaviest batch first.

The driver collects only the number of rows of each group. The rows stay on the executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Fixed cost of a group, in rows; measured on groups of 100 and of 1,000 partitions.
GROUP_ROWS: Final = 300
# The Python worker that plans a batch holds all of it in memory.
MOST_ROWS: Final = 200_000
LEAST_ROWS: Final = 10_000
# Batches per core: the last batch is then a small share of a core's work.
_PER_CORE: Final = 8


def pack_groups(num_rows: NDArray[np.int64], cores: int) -> NDArray[np.int32]:
    """Pack groups into batches for some cores: int32 [G], the batch of each group; batch 0 is the heaviest.

    Spark starts batches in order, each on the first free core. So the time is at most that of the largest
    group, or of an even share plus one batch (Graham's bound for longest processing time first).
    """
    cost = num_rows.astype(np.int64) + GROUP_ROWS
    target = int(np.clip(cost.sum() // (max(cores, 1) * _PER_CORE), LEAST_ROWS, MOST_ROWS))
    order = np.argsort(-cost, kind="stable")
    # In descending order, a new batch begins when the last is full; a group at or above the target is alone.
    before = np.cumsum(cost[order]) - cost[order]
    alone = cost[order] >= target
    small = ~alone
    filled = before - before[small][0] if small.any() else before
    number = np.where(alone, np.arange(len(order)), int(alone.sum()) + filled // target)
    _, number = np.unique(number, return_inverse=True)
    weight = np.bincount(number, cost[order])
    rank = np.empty(len(weight), dtype=np.int32)
    rank[np.argsort(-weight, kind="stable")] = np.arange(len(weight), dtype=np.int32)
    batches = np.empty(len(order), dtype=np.int32)
    batches[order] = rank[number]
    return batches


def count_group_rows(lag: DataFrame, members: DataFrame) -> tuple[list[str], NDArray[np.int64]]:
    """Count the rows of each group in a snapshot, the ids in ascending order."""
    both = lag.select("group_id").unionByName(members.select("group_id"))
    found = both.groupBy("group_id").count().toArrow().sort_by("group_id")
    return found["group_id"].to_pylist(), found["count"].to_numpy()


def with_batches(rows: DataFrame, group_ids: list[str], batches: NDArray[np.int32]) -> DataFrame:
    """Repartition rows by batch: Spark partition b of the result contains exactly batch b."""
    from pyspark.sql import functions as sf

    table = pa.table({"group_id": pa.array(group_ids, pa.string()), "batch": pa.array(batches)})
    of_group = rows.sparkSession.createDataFrame(table, "group_id STRING, batch INT")
    joined = rows.join(sf.broadcast(of_group), "group_id")
    return joined.repartitionById(int(batches.max()) + 1, sf.col("batch")).drop("batch")
