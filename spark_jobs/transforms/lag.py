"""Consumer lag per partition, with a status that qualifies the value.

``lag = max(end - committed, 0)`` in offsets: control records and records that compaction removed count, so an
idle transactional partition may report 1 forever. The end is the high watermark, or the last stable offset
for a group with ``read_committed`` consumers. Without a valid commit the group's reset policy decides.
:mod:`spark_jobs.transforms.lag_here` has the same formula in arrays, for few rows;
``tests/support/lag_rules.py`` is the table of cases that both must pass.

Rates and time lag are interpolated from the (time, offset) history of earlier snapshots, as Burrow and
kafka-lag-exporter do; record timestamps are not trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.enums import IsolationLevel, LagStatus, ResetPolicy
from evenlag.lake.tables import LAG
from spark_jobs.runtime.contract_columns import conform
from spark_jobs.transforms.group_partitions import join_partitions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame


def build_lag(
    *,
    offsets: DataFrame,
    commits: DataFrame,
    members: DataFrame,
    marker: Mapping[str, Any],
    group_settings: DataFrame,
    offset_history: DataFrame,
    commit_history: DataFrame,
    rate_window_s: int,
) -> DataFrame:
    """Build the ``lag`` rows of one snapshot from its tables.

    Parameters
    ----------
    offsets, commits, members
        The snapshot's rows of these tables.
    marker
        Its row of ``snapshots``: ``slot`` and ``commits_read_at`` are used.
    group_settings
        ``group_id, reset_policy, isolation_level``; null where the policy does not set them.
    offset_history, commit_history
        See :mod:`spark_jobs.transforms.group_partitions`; may be empty.
    rate_window_s
        Length of the window that rates are computed over, in seconds.

    Returns
    -------
    DataFrame
        By the contract of ``lag``: a row for each partition that a live member subscribes to or that the
        group has a commit for.
    """
    joined = join_partitions(
        offsets=offsets,
        commits=commits,
        members=members,
        marker=marker,
        group_settings=group_settings,
        offset_history=offset_history,
        commit_history=commit_history,
    )
    return count_lag(joined, rate_window_s)


def count_lag(partitions: DataFrame, rate_window_s: int) -> DataFrame:
    """Count the lag of the partitions of groups.

    Parameters
    ----------
    partitions
        With the columns of :data:`GROUP_PARTITIONS`.
    rate_window_s
        Length of the window that rates are computed over, in seconds.

    Returns
    -------
    DataFrame
        By the contract of ``lag``.
    """
    return conform(_with_time(_with_rates(_with_lag(partitions), rate_window_s)), LAG)


def _with_lag(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sf

    committed, start, end = sf.col("committed_offset"), sf.col("log_start_offset"), sf.col("end_offset")
    rows = rows.withColumn(
        "end_offset",
        sf.when(
            sf.col("isolation_level") == IsolationLevel.READ_COMMITTED, sf.col("last_stable_offset")
        ).otherwise(sf.col("high_watermark")),
    )
    reset = sf.col("reset_policy")
    by_reset_policy = (
        sf.when(reset == ResetPolicy.LATEST, sf.lit(0))
        .when(reset == ResetPolicy.EARLIEST, sf.greatest(end - start, sf.lit(0)))
        # By a duration (KIP-1106): null without the offset that Kafka reported for it.
        .when(_reset_offset().isNotNull(), sf.greatest(end - sf.greatest(_reset_offset(), start), sf.lit(0)))
    )
    lag = (
        sf.when(_is_unknown(), None)
        .when(committed.isNull() | (committed < start), by_reset_policy)
        .otherwise(sf.greatest(end - committed, sf.lit(0)))
    )
    return rows.withColumns(
        {
            "status": _status(committed, start, end),
            "lag_records": lag,
            "raw_lag_records": sf.when(_is_unknown(), None).otherwise(end - committed),
        }
    )


def _reset_offset() -> Column:
    """Where consumers start that reset by the duration of the group's reset policy; null: unknown."""
    from pyspark.sql import functions as sf

    of_group = sf.filter("reset_offsets", lambda one: one["reset_policy"] == sf.col("reset_policy"))
    return sf.get(of_group, 0)["offset"]


def _status(committed: Column, start: Column, end: Column) -> Column:
    """The first status that applies: what invalidates the value comes before what explains it."""
    from pyspark.sql import functions as sf

    return (
        sf.when(_is_unknown(), LagStatus.UNKNOWN)
        .when(sf.col("is_empty"), LagStatus.NO_MEMBERS)
        .when(~sf.col("is_subscribed") & ~sf.col("is_not_described"), LagStatus.NOT_SUBSCRIBED)
        .when(committed.isNull(), LagStatus.NO_COMMIT)
        .when(committed < start, LagStatus.DATA_LOSS)
        .when(committed > end, LagStatus.NEGATIVE)
        .otherwise(LagStatus.OK)
    )


def _is_unknown() -> Column:
    from pyspark.sql import functions as sf

    is_unread = sf.col("log_start_offset").isNull() | sf.col("end_offset").isNull()
    return sf.col("offset_error").isNotNull() | sf.col("is_unreadable") | is_unread


def _with_rates(rows: DataFrame, window_s: int) -> DataFrame:
    from pyspark.sql import functions as sf

    arrival = _rate("end_points", sf.col("read_at"), sf.col("high_watermark"), window_s)
    consume = _rate("commit_points", sf.col("commits_read_at"), sf.col("committed_offset"), window_s)
    rows = rows.withColumns({"arrival_rate_records_per_s": arrival, "consume_rate_records_per_s": consume})
    falls_by = sf.col("consume_rate_records_per_s") - sf.col("arrival_rate_records_per_s")
    lag = sf.col("lag_records")
    return rows.withColumns(
        {
            # Rates that are nearly equal give a time that is no BIGINT: such a lag never drains.
            "drain_time_ms": sf.when(lag == 0, sf.lit(0)).when(
                falls_by > 0, sf.round(1000.0 * lag / falls_by).try_cast("BIGINT")
            ),
            "stalled": (lag > 0)
            & sf.col("owner_member_id").isNotNull()
            & sf.coalesce(sf.col("consume_rate_records_per_s") == 0, sf.lit(False)),
        }
    )


def _rate(points: str, now: Column, offset: Column, window_s: int) -> Column:
    """Increase per second since the oldest point of the window; null when the offset decreased (a reset)."""
    from pyspark.sql import functions as sf

    begin = now - sf.expr(f"INTERVAL {window_s} SECONDS")
    oldest = sf.get(sf.filter(points, lambda point: point["at"] >= begin), sf.lit(0))
    seconds = sf.unix_micros(now) / 1e6 - sf.unix_micros(oldest["at"]) / 1e6
    grown = offset - oldest["offset"]
    return sf.when((seconds > 0) & (grown >= 0), grown / seconds)


def _with_time(rows: DataFrame) -> DataFrame:
    """Add ``time_lag_ms``: for how long the log end has been past the committed offset.

    The end is interpolated linearly between the last point at or below the committed offset and the first
    point above it. Null when the history does not reach back that far.
    """
    from pyspark.sql import functions as sf

    committed = sf.col("committed_offset")
    now = sf.struct(sf.col("read_at").alias("at"), sf.col("high_watermark").alias("offset"))
    none = sf.array().cast("array<struct<at: timestamp, offset: bigint>>")
    points = sf.concat(sf.coalesce("end_points", none), sf.array(now))
    below = sf.filter(points, lambda point: point["offset"] <= committed)
    above = sf.filter(points, lambda point: point["offset"] > committed)
    rows = rows.withColumns(
        {"_below": sf.try_element_at(below, sf.lit(-1)), "_above": sf.try_element_at(above, sf.lit(1))}
    )
    start, end = sf.unix_micros("_below.at"), sf.unix_micros("_above.at")
    share = (committed - sf.col("_below.offset")) / (sf.col("_above.offset") - sf.col("_below.offset"))
    passed_at = start + share * (end - start)
    time_lag_ms = sf.round((sf.unix_micros("read_at") - passed_at) / 1000)
    return rows.withColumn(
        "time_lag_ms",
        # greatest() would return 0 for an unknown age.
        sf.when(sf.col("lag_records") == 0, sf.lit(0)).when(time_lag_ms >= 0, time_lag_ms),
    )
