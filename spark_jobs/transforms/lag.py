"""Lag of a large snapshot: Spark collects the rows of each batch of groups, and :mod:`evenlag.lag` counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenlag.lag.formula import STORED_ONLY, count_lag
from evenlag.lag.partitions import FROM_OFFSETS, join_partitions
from evenlag.lake.tables import LAG
from spark_jobs.runtime.frames import conform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    # pydantic: executors do not have it.
    from evenlag.policy.group_settings import GroupSettings


_PARTITION: Final = ("topic_id", "topic", "partition")
# Columns of the four kinds of rows that a batch consists of.
_OFFSETS: Final = (*_PARTITION, *FROM_OFFSETS, "end_read_at", "error")
_COMMITS: Final = (
    *("group_id", *_PARTITION, "committed_offset", "leader_epoch"),
    *("reported_lag_records", "read_at", "error"),
)
OFFSET_HISTORY: Final = (*_PARTITION, "high_watermark", "end_read_at", "error")
COMMIT_HISTORY: Final = ("group_id", *_PARTITION, "committed_offset", "read_at", "error")


def count_rows(
    rows_of: Callable[[str], pa.Table],
    members: pa.Table,
    settings_of: Callable[[str], GroupSettings],
    rate_window_s: int,
) -> pa.Table:
    """Count the lag of groups by their rows of each kind: ``offsets``, ``commits`` and their histories."""
    joined = join_partitions(
        rows_of("offsets").sort_by([("topic", "ascending"), ("partition", "ascending")]),
        rows_of("commits"),
        members,
        settings_of,
        offset_history=rows_of("offset_history"),
        commit_history=rows_of("commit_history"),
    )
    return count_lag(joined.partitions, joined.groups, joined.member_ids, rate_window_s)


def build_lag(
    *,
    offsets: DataFrame,
    commits: DataFrame,
    offset_history: DataFrame,
    commit_history: DataFrame,
    members: pa.Table,
    batches: pa.Table,
    settings_of: Callable[[str], GroupSettings],
    marker: Mapping[str, Any],
    rate_window_s: int,
) -> DataFrame:
    """Build the ``lag`` rows of one snapshot.

    batches: ``group_id, topic, batch``: the topics of each group, and the group's batch.
    """
    from pyspark.sql import functions as sf

    def select(kind: str, frame: DataFrame, columns: tuple[str, ...], key: str) -> DataFrame:
        """Rows of a kind, once for each batch that needs them."""
        needs = offsets.sparkSession.createDataFrame(
            batches.group_by([key, "batch"]).aggregate([]), f"{key} STRING, batch INT"
        )
        return frame.select(*columns, sf.lit(kind).alias("kind")).join(sf.broadcast(needs), key)

    parts = (
        select("offsets", offsets, _OFFSETS, "topic"),
        select("commits", commits, _COMMITS, "group_id"),
        select("offset_history", offset_history, OFFSET_HISTORY, "topic"),
        select("commit_history", commit_history, COMMIT_HISTORY, "group_id"),
    )
    rows = reduce(lambda above, below: above.unionByName(below, allowMissingColumns=True), parts)

    def count(batch: pa.Table) -> pa.Table:
        def of_kind(kind: str) -> pa.Table:
            return batch.filter(pc.equal(batch["kind"], kind))

        groups = batches.filter(pc.equal(batches["batch"], batch["batch"][0]))["group_id"]
        own_members = members.filter(pc.is_in(members["group_id"], value_set=pa.array(groups.unique())))
        return count_rows(of_kind, own_members, settings_of, rate_window_s)

    schema = ", ".join(f"{each.name} {each.type}" for each in LAG.columns if each.name not in STORED_ONLY)
    counted = rows.groupBy("batch").applyInArrow(count, schema)
    return conform(counted.withColumns({name: sf.lit(marker[name]) for name in STORED_ONLY}), LAG)
