"""Inputs of the gates: one aggregated row per plan, which Great Expectations evaluates.

The counts come from the rows that would be published, independently of the planner's own metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.policy.gates import GATES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Inputs that are computed here; all others come from the plan's head.
COMPUTED_INPUTS: Final = (
    "num_rows",
    "num_duplicates",
    "num_missing",
    "num_invalid_owners",
    "num_violations",
    "snapshot_age_s",
    "since_last_hint_s",
    "hint_topic_max_bytes",
)
# An input with such a prefix is a field of this column of ``plans``.
METRIC_PREFIXES: Final = {"before_": "metrics_before", "after_": "metrics_after"}


def build_gate_frame(
    heads: DataFrame,
    assignments: DataFrame,
    lag: DataFrame,
    members: DataFrame,
    published: DataFrame,
    snapshot: DataFrame,
    *,
    decided_at_ms: int,
) -> DataFrame:
    """Aggregate to one row per plan.

    Parameters
    ----------
    heads, assignments
        Rows of ``plans``, and all their rows of ``plan_assignments``.
    lag, members, snapshot
        The snapshot's rows of these tables.
    published
        PUBLISHED events of the cluster.
    decided_at_ms
        Time of the decision in milliseconds since the epoch; a parameter because transforms have no clock.

    Returns
    -------
    DataFrame
        ``plan_id``, ``settings`` and the inputs of all gates. Computed are: ``num_rows``,
        ``num_duplicates``, ``num_missing`` (partitions of subscribed topics without an owner),
        ``num_invalid_owners``, ``num_violations``, ``snapshot_age_s``, ``since_last_hint_s`` (null without
        a previous hint) and ``hint_topic_max_bytes`` (null without a hint topic).
    """
    from pyspark.sql import functions as sf

    subscribed = members.where(sf.col("member_id").isNotNull()).select(
        "group_id", sf.col("member_id").alias("owner_after"), sf.explode("subscription").alias("topic")
    )
    rows = _count_rows(assignments, subscribed)
    topics = subscribed.select("group_id", "topic").distinct()
    expected = (
        lag.join(topics, ["group_id", "topic"]).groupBy("group_id").agg(sf.count("*").alias("num_expected"))
    )
    last_hint = published.groupBy("group_id").agg(sf.max("at").alias("last_hint_at"))
    now_s = decided_at_ms / 1000
    return (
        heads.join(rows, ["plan_id", "group_id"], "left")
        .join(expected, "group_id", "left")
        .join(last_hint, "group_id", "left")
        .crossJoin(
            sf.broadcast(
                snapshot.select(sf.col("finished_at").alias("snapshot_finished_at"), "hint_topic_max_bytes")
            )
        )
        .withColumns(
            {
                "num_duplicates": sf.col("num_rows") - sf.col("num_distinct"),
                # A duplicate partition must not hide a missing one.
                "num_missing": sf.col("num_expected") - sf.col("num_distinct") + sf.col("num_unassigned"),
                "num_violations": sf.coalesce(sf.size("violations"), sf.lit(0)),
                "snapshot_age_s": sf.lit(now_s) - sf.unix_micros("snapshot_finished_at") / 1e6,
                "since_last_hint_s": sf.lit(now_s) - sf.unix_micros("last_hint_at") / 1e6,
            }
        )
        .select("plan_id", "settings", *(_input(name) for name in gate_inputs()))
    )


def gate_inputs() -> tuple[str, ...]:
    """Return the names of the inputs of all gates, sorted."""
    return tuple(sorted({name for gate in GATES for name in gate.all_inputs}))


def _count_rows(assignments: DataFrame, subscribed: DataFrame) -> DataFrame:
    """Count the rows of each plan: all, distinct, unassigned, and with an invalid owner."""
    from pyspark.sql import functions as sf

    owner = sf.col("owner_after")
    return (
        assignments.join(
            subscribed.withColumn("is_valid", sf.lit(True)), ["group_id", "topic", "owner_after"], "left"
        )
        .groupBy("plan_id", "group_id")
        .agg(
            sf.count("*").alias("num_rows"),
            sf.countDistinct("topic_id", "topic", "partition").alias("num_distinct"),
            sf.count_if(owner.isNull()).alias("num_unassigned"),
            sf.count_if(owner.isNotNull() & sf.col("is_valid").isNull()).alias("num_invalid_owners"),
        )
    )


def _input(name: str) -> Column:
    from pyspark.sql import functions as sf

    for prefix, column in METRIC_PREFIXES.items():
        if name.startswith(prefix):
            return sf.col(f"{column}.{name.removeprefix(prefix)}").alias(name)
    return sf.col(name)
