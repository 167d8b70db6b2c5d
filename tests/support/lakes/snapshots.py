"""Small snapshots as rows, for tests of the transforms: one cluster, topics ``t`` and ``u``, group ``g``."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.planning.plan_batch import PlanContext
from evenlag.policy.loader import parse_policy
from tests.support.spark_tables import write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from evenlag.lake.tables import Table
    from evenlag.planning.plan_batch import GroupHistory

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DAY = date(2026, 3, 1)
SNAPSHOT = "20260301T120000000Z-00000001"
HEAD = {"cluster": "c", "day": DAY, "snapshot_id": SNAPSHOT}
TOPIC_IDS = {"t": "AAAAAAAAAAAAAAAAAAAAAQ", "u": "AAAAAAAAAAAAAAAAAAAAAg"}


def plan_context(
    policy: str, *, run_id: str = "r", history: Mapping[str, GroupHistory] | None = None
) -> PlanContext:
    """What plans of the snapshot share, under a policy's text."""
    loaded = parse_policy(policy, environ={})
    return PlanContext(
        policy=loaded.policy,
        policy_hash=loaded.policy_hash,
        cluster="c",
        kafka_cluster_id="kafka-1",
        snapshot_id=SNAPSHOT,
        slot=NOW,
        day=DAY,
        finished_at=NOW,
        run_id=run_id,
        history=history or {},
    )


def arrow(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows of a table by its contract; what a row lacks is null."""
    import pyarrow as pa

    schema = arrow_schema(table)
    full = [{**HEAD, **row} for row in rows]
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in full], schema)


def frame(spark: SparkSession, table: Table, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """The same rows for Spark."""
    return spark.createDataFrame(arrow(table, rows), table.ddl)


def append_rows(root: Path | str, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows by the table's own writer; what a row lacks is of the snapshot, else null."""
    write_rows(root, table, [{**HEAD, **row} for row in rows])


def offset(
    partition: int, end: int, *, topic: str = "t", start: int = 0, stable: int | None = None, **more: Any
) -> dict[str, Any]:
    """A row of ``offsets``."""
    return {
        "topic_id": TOPIC_IDS[topic],
        "topic": topic,
        "partition": partition,
        "log_start_offset": start,
        "high_watermark": end,
        "last_stable_offset": end if stable is None else stable,
        "log_start_read_at": NOW,
        "end_read_at": NOW,
        **more,
    }


def commit(
    partition: int, committed: int, *, topic: str = "t", group: str = "g", **more: Any
) -> dict[str, Any]:
    """A row of ``commits``."""
    return {
        "group_id": group,
        "topic_id": TOPIC_IDS[topic],
        "topic": topic,
        "partition": partition,
        "committed_offset": committed,
        "read_at": NOW,
        **more,
    }


def member(
    member_id: str | None = "m-1",
    *,
    group: str = "g",
    topics: Sequence[str] | None = ("t",),
    held: Mapping[str, Sequence[int]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A row of ``members`` of a stable classic group on evenlag's assignor."""
    return {
        "group_id": group,
        "group_state": "Stable",
        "group_type": "classic",
        "protocol_type": "consumer",
        "assignor": "evenlag",
        "member_id": member_id,
        "subscription": None if topics is None else list(topics),
        "assignment": [{"topic": name, "partitions": list(parts)} for name, parts in (held or {}).items()],
        "read_at": NOW,
        **more,
    }


def marker(**more: Any) -> dict[str, Any]:
    """A row of ``snapshots``."""
    return {
        "slot": NOW,
        "kafka_cluster_id": "kafka-1",
        "started_at": NOW - timedelta(seconds=1),
        "commits_read_at": NOW,
        "end_read_at": NOW,
        "finished_at": NOW,
        "completeness": 1.0,
        **more,
    }
