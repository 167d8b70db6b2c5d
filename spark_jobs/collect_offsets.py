"""Collect: one reading of a cluster into the bronze tables, visible only when it is whole.

The rows of ``offsets``, ``commits`` and ``members`` are written under a snapshot id of their own, then the
marker in ``snapshots``: of two attempts at one slot, the first marker wins and the other's rows are never
looked at. A repeat of a slot that has its marker reads nothing.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_jobs.arrow_schema import arrow_schema
from spark_jobs.errors import ClusterMismatchError
from spark_jobs.hint_topic import read_max_bytes
from spark_jobs.kafka_connection import admin_client
from spark_jobs.kafka_reader import ClusterReader, ClusterReading
from spark_jobs.privacy import hide_members
from spark_jobs.side_by_side import run_side_by_side
from spark_jobs.tables import COMMITS, MEMBERS, OFFSETS, SNAPSHOTS, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from spark_jobs.lake import Lake
    from spark_jobs.settings import ClusterSettings

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection did.

    Attributes
    ----------
    snapshot_id
        The slot's finished snapshot, whoever read it.
    is_new
        False when the slot had its snapshot already.
    num_groups, num_partitions, num_problems
        Counts of the reading; 0 when nothing was read.
    """

    snapshot_id: str
    is_new: bool
    num_groups: int = 0
    num_partitions: int = 0
    num_problems: int = 0

    def summary(self) -> dict[str, Any]:
        """The counts, for a run's record."""
        return asdict(self)


def new_snapshot_id(slot: datetime) -> str:
    """Name an attempt to read: the slot in UTC, so that ids sort by time, then 32 random bits."""
    return f"{slot.astimezone(UTC):%Y%m%dT%H%M%S}{slot.microsecond // 1000:03d}Z-{secrets.token_hex(4)}"


def collect_offsets(
    lake: Lake,
    name: str,
    cluster: ClusterSettings,
    slot: datetime,
    *,
    run_id: str,
    progress: Callable[[str, int, int], None] | None = None,
) -> Collected:
    """Read a cluster for a slot and write what was seen; do nothing when the slot has its snapshot.

    Parameters
    ----------
    lake
        Where to write.
    name, cluster
        The cluster's name in the policy, and its settings.
    slot
        The moment that the reading stands for.
    run_id
        The run, for the record.
    progress
        Called with (step, done, total).

    Raises
    ------
    KafkaUnreachableError, KafkaAuthenticationError
        When the cluster cannot be read at all; nothing is written then.
    ClusterMismatchError
        When another cluster answers than the lake knows under this name.
    LakeError
        When a table cannot be written.
    """
    slot = floor_to_ms(slot)
    if found := lake.find_snapshot(name, slot_ms(slot)):
        _LOG.info("slot %s of %s has its snapshot %s", slot.isoformat(), name, found)
        return Collected(found, is_new=False)
    with admin_client(cluster) as client:
        reader = ClusterReader(
            client,
            ignored_topics=frozenset({cluster.hint_topic}),
            timeout_s=4 * cluster.request_timeout_ms / 1000,
        )
        reading = reader.read(progress=progress)
        max_bytes = read_max_bytes(client, cluster.hint_topic)
    reading.members = hide_members(reading.members, cluster.privacy)
    _check_cluster_id(lake, name, reading.kafka_cluster_id)
    snapshot_id = new_snapshot_id(slot)
    _write_reading(lake, name, slot, snapshot_id, reading, run_id, max_bytes)
    winner = lake.find_snapshot(name, slot_ms(slot)) or snapshot_id
    return Collected(
        winner,
        is_new=winner == snapshot_id,
        num_groups=reading.num_groups,
        num_partitions=len(reading.offsets),
        num_problems=len(reading.problems),
    )


def slot_ms(slot: datetime) -> int:
    """A slot in milliseconds since the epoch."""
    return round(slot.timestamp() * 1000)


def floor_to_ms(slot: datetime) -> datetime:
    """A slot to the millisecond, in UTC: what names it in ids and what finds it again are then the same."""
    utc = slot.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def _check_cluster_id(lake: Lake, name: str, kafka_cluster_id: str) -> None:
    """Refuse to mix two clusters' histories under one name."""
    from pyspark.sql import functions as sf

    rows = (
        lake.read(SNAPSHOTS)
        .where((sf.col("cluster") == name) & (sf.col("kafka_cluster_id") != kafka_cluster_id))
        .select("kafka_cluster_id")
        .take(1)
    )
    if rows:
        raise ClusterMismatchError(
            f"the brokers of {name!r} say they are cluster {kafka_cluster_id}, but the lake has "
            f"{rows[0].kafka_cluster_id} under this name: correct bootstrap_servers, or use a new name"
        )


def _write_reading(
    lake: Lake,
    name: str,
    slot: datetime,
    snapshot_id: str,
    reading: ClusterReading,
    run_id: str,
    hint_topic_max_bytes: int | None,
) -> None:
    head = {"cluster": name, "day": slot.astimezone(UTC).date(), "snapshot_id": snapshot_id}
    app_id = f"observe/{name}/{snapshot_id}"
    parts = ((OFFSETS, reading.offsets), (COMMITS, reading.commits), (MEMBERS, reading.members))
    # The id is this attempt's own: nobody repeats these writes.
    run_side_by_side(
        *(partial(lake.append, table, _frame(lake, table, rows, head), None) for table, rows in parts)
    )
    marker = {
        "slot": slot,
        "kafka_cluster_id": reading.kafka_cluster_id,
        "run_id": run_id,
        **reading.read_times,
        "num_groups": reading.num_groups,
        "num_topics": len(reading.topics),
        "num_partitions": len(reading.offsets),
        "num_unread_partitions": reading.num_unread_partitions,
        "completeness": reading.completeness,
        "problems": reading.problem_rows(),
        "hint_topic_max_bytes": hint_topic_max_bytes,
    }
    lake.insert_missing(
        SNAPSHOTS, _frame(lake, SNAPSHOTS, [marker], head), ("cluster", "day", "slot"), app_id
    )


def _frame(lake: Lake, table: Table, rows: Sequence[Mapping[str, Any]], head: Mapping[str, Any]) -> DataFrame:
    """Rows as a DataFrame of the table's contract, by Arrow; what a row lacks is null."""
    import pyarrow as pa

    schema = arrow_schema(table)
    columns = []
    for column in schema:
        if column.name in head:
            columns.append(pa.repeat(pa.scalar(head[column.name], column.type), len(rows)))
        else:
            columns.append(pa.array([row.get(column.name) for row in rows], column.type))
    return lake.spark.createDataFrame(pa.Table.from_arrays(columns, schema=schema), table.ddl)
