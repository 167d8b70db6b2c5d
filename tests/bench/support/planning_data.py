"""Snapshots for the bench of planning: made by Spark alone, the same at every run."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, MEMBERS
from evenlag.lake.writer import append_once
from evenlag.planning.plan_batch import PlanContext
from evenlag.policy.loader import parse_policy
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.snapshot_rows import SnapshotRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame

    from evenlag.lake.tables import Table

# As a cycle's: for rows of older days a writer compares their keys, too.
SLOT = datetime.now(UTC).replace(microsecond=0)
SNAPSHOT = f"{SLOT:%Y%m%dT%H%M%S}000Z-00000001"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
# As many partitions a member in every case: what differs is the size of a group.
PARTITIONS_PER_MEMBER = 10
HOT_PARTITIONS = 3
POLICY = """
lake: /nowhere
clusters: {c: {bootstrap_servers: "localhost:9092"}}
groups: [{match: "*", mode: %s}]
"""


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of one size.

    groups, partitions: How many, and of how many partitions each.
    kind: ``hot``: all but three partitions of the first member are read to their end. ``rough``: every
        partition is behind by some number of records, which keeps the search at work.
    per_member: Partitions that a member holds.
    name: What their ids begin with.
    """

    groups: int
    partitions: int
    kind: str = "hot"
    per_member: int = PARTITIONS_PER_MEMBER
    name: str = "group"

    @property
    def rows(self) -> int:
        """Rows of lag."""
        return self.groups * self.partitions

    @property
    def members(self) -> int:
        """Members of a group."""
        return max(self.partitions // self.per_member, 1)


def plan_context(mode: str, repeat: str) -> PlanContext:
    """What a run of the bench plans by; each with a policy hash of its own."""
    loaded = parse_policy(POLICY % mode, environ={})
    context = PlanContext(
        policy=loaded.policy,
        policy_hash=loaded.policy_hash,
        cluster="c",
        kafka_cluster_id="kafka-1",
        snapshot_id=SNAPSHOT,
        slot=SLOT,
        day=SLOT.date(),
        finished_at=SLOT,
        run_id="bench",
    )
    return replace(context, policy_hash=f"{loaded.policy_hash[:16]}-{repeat}")


def snapshot_rows(lake: Lake) -> SnapshotRows:
    """Return the lake's one snapshot, as the step gets it."""
    marker = {"cluster": "c", "day": SLOT.date(), "snapshot_id": SNAPSHOT, "slot": SLOT, "end_read_at": SLOT}
    return SnapshotRows(lake, LakeReader(lake.paths.root), marker)


@contextmanager
def lake_without_plans(lake: Lake) -> Iterator[Lake]:
    """Provide a lake with the same snapshot and without plans, and remove what is written to it.

    A plan that is on record is not written again, so each repeat needs a lake of its own.
    """
    with TemporaryDirectory(prefix="plans-", dir=lake.paths.root) as folder:
        for table in (LAG, MEMBERS):
            (Path(folder) / table.name).symlink_to(lake.paths.table(table))
        yield Lake(lake.spark, folder)


def write_groups(lake: Lake, size: Groups) -> None:
    """Append groups to the lake's one snapshot."""
    from pyspark.sql import functions as sf

    number = (sf.col("id") % size.partitions).cast("int")
    owner = number % size.members
    behind = sf.pmod(sf.xxhash64("id"), sf.lit(1_000))
    if size.kind == "hot":
        is_hot = (owner == 0) & (number < HOT_PARTITIONS * size.members)
        behind = sf.when(is_hot, 50_000 + behind).otherwise(sf.lit(0).cast("bigint"))
    lag = lake.spark.range(size.rows).withColumns(
        {
            **_head(),
            "group_id": _group_id(size, (sf.col("id") / size.partitions).cast("bigint")),
            "topic_id": sf.lit(TOPIC_ID),
            "topic": sf.lit("orders"),
            "partition": number,
            "owner_member_id": _member_id(owner),
            "status": sf.lit("OK"),
            "lag_records": behind,
            "stalled": sf.expr("false"),
        }
    )
    files = -(-size.rows // 1_000_000)
    lake.append(LAG, _by_contract(lag, LAG), files=files)
    people = lake.spark.range(size.groups * size.members).withColumns(
        {
            **_head(),
            "group_id": _group_id(size, (sf.col("id") / size.members).cast("bigint")),
            "group_state": sf.lit("Stable"),
            "group_type": sf.lit("classic"),
            "assignor": sf.lit("evenlag"),
            "member_id": _member_id(sf.col("id") % size.members),
            "subscription": sf.array(sf.lit("orders")),
        }
    )
    append_once(lake.paths.root, MEMBERS, _by_contract(people, MEMBERS).toArrow(), None)


def _head() -> dict[str, Column]:
    from pyspark.sql import functions as sf

    return {
        "cluster": sf.lit("c"),
        "day": sf.lit(SLOT.date()),
        "snapshot_id": sf.lit(SNAPSHOT),
        "slot": sf.lit(SLOT),
    }


def _group_id(size: Groups, number: Column) -> Column:
    from pyspark.sql import functions as sf

    return sf.concat(sf.lit(f"{size.name}-"), sf.lpad(number.cast("string"), 6, "0"))


def _member_id(number: Column) -> Column:
    from pyspark.sql import functions as sf

    return sf.concat(sf.lit("consumer-"), number.cast("string"), sf.lit("-5f1c3b6e"))


def _by_contract(frame: DataFrame, table: Table) -> DataFrame:
    from pyspark.sql import functions as sf

    lacking = [column for column in table.columns if column.name not in frame.columns]
    full = frame.withColumns({column.name: sf.lit(None).cast(column.type) for column in lacking})
    return full.select(*table.column_names)
