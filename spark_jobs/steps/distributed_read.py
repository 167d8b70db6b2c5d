"""Read a large cluster on Spark's executors: each reads from a few brokers and writes its own rows.

Commits are read before log ends for every partition, because each step is a Spark job and starts after the
previous one: members, log starts, commits, log ends. A task that is retried, or runs twice, reads its share
again within its step, and Delta commits the files of one attempt. A lost executor costs a retried share, or
the whole attempt, which then leaves no marker.

Rows go from the executors to the tables. Only the names of topics and groups, which partition the work, and
the log start of each partition (eight bytes), which the last step needs, pass through the driver.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.errors import JobError
from evenlag.kafka.arrow_rows import (
    MEMBER_PROBLEM_COLUMNS,
    Problem,
    commit_rows,
    find_problems,
    find_unreadable_members,
    member_rows,
    offset_rows,
    with_head,
)
from evenlag.kafka.cluster_reader import NUM_STEPS, PROGRESS_STEP
from evenlag.kafka.committed_offsets import read_commits
from evenlag.kafka.groups import describe_groups
from evenlag.kafka.log_offsets import Offsets, no_offsets, read_ends, read_log_starts, read_reset_offsets
from evenlag.kafka.member_protocol import OTHER_PROTOCOL, REBALANCING
from evenlag.lake.tables import COMMITS, MEMBERS, OFFSETS, Table
from spark_jobs.runtime.session import num_task_slots
from spark_jobs.steps.read_tasks import partition_work, task_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from evenlag.kafka.cluster_reader import ClusterInventory, Progress
    from spark_jobs.runtime.delta_lake import Lake
    from spark_jobs.steps.read_tasks import ReadTaskSpec

# Minimum size of a share: for fewer rows, a connection costs more than it saves.
_MIN_PARTITIONS: Final = 2_000
_MIN_GROUPS: Final = 100
_ROWS_PER_BATCH: Final = 50_000
_STARTS_DDL: Final = "row BIGINT, offset BIGINT, read_at_us BIGINT, error STRING"
_MAX_REASONS: Final = 1_000
_MAX_BAD_MEMBERS: Final = 10_000


@dataclass(frozen=True, slots=True)
class DistributedSnapshot:
    """The marker's values for a snapshot whose rows are in the tables already.

    read_times: Times of the marker by column name, by the driver's clock.
    num_unread_partitions: Partitions with a failed read.
    num_unread_groups: Groups of which something could not be read.
    problems: What could not be read.
    """

    read_times: dict[str, datetime]
    num_unread_partitions: int
    num_unread_groups: int
    problems: list[Problem]


def read_distributed(
    lake: Lake,
    inventory: ClusterInventory,
    spec: ReadTaskSpec,
    *,
    connections_per_broker: int,
    progress: Progress | None = None,
) -> DistributedSnapshot:
    """Read a cluster on executors into the tables.

    connections_per_broker: Tasks that may send requests to the same broker.
    """
    report = progress or (lambda _step, _done, _total: None)
    read = _DistributedRead(lake, inventory, spec, connections_per_broker)
    report(PROGRESS_STEP, 1, NUM_STEPS)
    read.read_members()
    report(PROGRESS_STEP, 2, NUM_STEPS)
    starts = read.read_log_starts()
    times = {"started_at": inventory.started_at, "log_start_read_at": _now()}
    report(PROGRESS_STEP, 3, NUM_STEPS)
    read.read_commits()
    times["commits_read_at"] = _now()
    report(PROGRESS_STEP, 4, NUM_STEPS)
    read.read_ends(starts)
    times["end_read_at"] = _now()
    num_unread, num_unread_groups, problems = read.verify_written_rows()
    times["finished_at"] = _now()
    report(PROGRESS_STEP, NUM_STEPS, NUM_STEPS)
    return DistributedSnapshot(times, num_unread, num_unread_groups, [*inventory.problems, *problems])


class _DistributedRead:
    """Steps of one read; brokers that an earlier step gave up on are skipped by the later ones."""

    def __init__(self, lake: Lake, inventory: ClusterInventory, spec: ReadTaskSpec, max_shares: int) -> None:
        self._lake = lake
        self._inventory = inventory
        self._spec = replace(spec, broken=inventory.broken)
        num_tasks = num_task_slots(lake.spark)
        self._rows = partition_work(
            inventory.partitions.leader.astype(np.int64), num_tasks, max_shares, _MIN_PARTITIONS
        )
        self._group_ids = sorted(inventory.listed)
        nodes = [inventory.coordinators.get(group_id, "") for group_id in self._group_ids]
        owner = np.array([node if isinstance(node, int) else -1 for node in nodes], dtype=np.int64)
        self._groups = [
            [self._group_ids[number] for number in numbers.tolist()]
            for numbers in partition_work(owner, num_tasks, max_shares, _MIN_GROUPS)
        ]

    def read_members(self) -> None:
        spec, num_tasks = self._spec, len(self._groups)
        shares = [
            (
                {group_id: self._inventory.listed[group_id] for group_id in names},
                {group_id: self._inventory.coordinators[group_id] for group_id in names},
            )
            for names in self._groups
        ]

        topics = self._inventory.partitions.names

        def read(task: int) -> pa.Table:
            listed, coordinators = shares[task]
            with spec.calls(num_tasks) as calls:
                described = describe_groups(calls, listed, coordinators, lambda: topics)
            rows = described if spec.pseudonymizer is None else spec.pseudonymizer.apply(described)
            return with_head(member_rows(rows), MEMBERS, spec.head)

        self._write(MEMBERS, read, num_tasks)

    def read_log_starts(self) -> Offsets:
        import pyarrow as pa

        spec, num_tasks, all_rows = self._spec, len(self._rows), self._rows
        shares = [self._inventory.partitions.take(rows) for rows in all_rows]

        def read(task: int) -> pa.Table:
            with spec.calls(num_tasks) as calls:
                starts = read_log_starts(calls, shares[task])
                broken = dict(calls.broken)
            texts = [None, *starts.errors.texts]
            # Rows below 0 carry the brokers that the later steps skip.
            return pa.table(
                {
                    "row": pa.array([*all_rows[task].tolist(), *(-1 for _ in broken)], pa.int64()),
                    "offset": pa.array([*starts.offset.tolist(), *broken], pa.int64()),
                    "read_at_us": pa.array([*starts.read_at_us.tolist(), *(0 for _ in broken)], pa.int64()),
                    "error": pa.array(
                        [*(texts[code] for code in starts.errors.code.tolist()), *broken.values()],
                        pa.string(),
                    ),
                }
            )

        with task_errors():
            found = self._frame(read, num_tasks, _STARTS_DDL).toArrow()
        return self._collect_starts(found)

    def read_commits(self) -> None:
        spec, num_tasks = self._spec, len(self._groups)
        names, topic_ids = self._inventory.partitions.names, self._inventory.partitions.ids
        shares = [
            {group_id: self._inventory.coordinators[group_id] for group_id in group_ids}
            for group_ids in self._groups
        ]

        share_groups = self._inventory.share_groups

        def read(task: int) -> pa.Table:
            with spec.calls(num_tasks) as calls:
                commits = read_commits(calls, shares[task], names, share_groups=share_groups)
            failed_at_us = round(1_000_000 * _now().timestamp())
            return with_head(commit_rows(commits, topic_ids, failed_at_us), COMMITS, spec.head)

        self._write(COMMITS, read, num_tasks)

    def read_ends(self, starts: Offsets) -> None:
        spec, num_tasks = self._spec, len(self._rows)
        shares = [(self._inventory.partitions.take(rows), starts.take(rows)) for rows in self._rows]

        def read(task: int) -> pa.Table:
            partitions, starts_of_task = shares[task]
            with spec.calls(num_tasks) as calls:
                stable, ends = read_ends(calls, partitions)
                resets = read_reset_offsets(calls, partitions, spec.reset_policies, ends)
            rows = offset_rows(partitions, starts_of_task, stable, ends, resets)
            return with_head(rows, OFFSETS, spec.head)

        self._write(OFFSETS, read, num_tasks)

    def verify_written_rows(self) -> tuple[int, int, list[Problem]]:
        """Count the written rows and summarize their errors; a retried task would count twice elsewhere."""
        from pyspark.sql import functions as sf

        offsets = self._written(OFFSETS)
        counts = offsets.agg(sf.count("*").alias("rows"), sf.count("error").alias("unread")).take(1)[0]
        if counts.rows != len(self._inventory.partitions):
            raise JobError(
                f"executors wrote {counts.rows} of {len(self._inventory.partitions)} partitions: "
                "this attempt is discarded, run it again"
            )
        partition = sf.concat_ws("-", "topic", "partition")
        members = self._written(MEMBERS)
        unreadable = sf.lit(False)
        for name in ("subscription_error", "assignment_error"):
            is_state = (sf.col(name) == REBALANCING) | sf.col(name).startswith(OTHER_PROTOCOL)
            unreadable |= sf.coalesce(~is_state, sf.lit(False))
        bad_members = members.where(unreadable).orderBy("group_id", "member_id")
        member_problems = find_unreadable_members(
            bad_members.select(*MEMBER_PROBLEM_COLUMNS).limit(_MAX_BAD_MEMBERS).toArrow()
        )
        commits = self._written(COMMITS)
        unread_groups = members.where(unreadable | sf.col("error").isNotNull()).select("group_id")
        unread_groups = unread_groups.union(commits.where(sf.col("error").isNotNull()).select("group_id"))
        problems = [
            *_summarize("group", members.select("group_id", "error").distinct(), sf.col("group_id")),
            *find_problems("group", member_problems.keys(), member_problems.values()),
            *_summarize("commits", commits, sf.col("group_id")),
            *_summarize("offsets", offsets, partition),
        ]
        return int(counts.unread), unread_groups.distinct().count(), problems

    def _collect_starts(self, found: pa.Table) -> Offsets:
        import pyarrow.compute as pc

        given_up = found.filter(pc.less(found["row"], 0))
        broken = dict(zip(given_up["offset"].to_pylist(), given_up["error"].to_pylist(), strict=True))
        self._spec = replace(self._spec, broken={**self._spec.broken, **broken})
        good = found.filter(pc.greater_equal(found["row"], 0))
        starts = no_offsets(len(self._inventory.partitions))
        rows = good["row"].to_numpy()
        if len(np.unique(rows)) != len(self._inventory.partitions):
            raise JobError(f"executors read {len(rows)} log starts of {len(self._inventory.partitions)}")
        starts.offset[rows] = good["offset"].to_numpy()
        starts.read_at_us[rows] = good["read_at_us"].to_numpy()
        for text in pc.unique(good["error"]).drop_null().to_pylist():
            starts.errors.put(rows[pc.equal(good["error"], text).fill_null(False).to_numpy()], text)
        return starts

    def _frame(self, read: Callable[[int], pa.Table], num_tasks: int, ddl: str) -> DataFrame:
        """DataFrame with one task per share; ``read`` travels in the task's closure."""

        def read_share(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    yield from read(task).to_batches(max_chunksize=_ROWS_PER_BATCH)

        return self._lake.spark.range(0, num_tasks, 1, max(num_tasks, 1)).mapInArrow(read_share, ddl)

    def _write(self, table: Table, read: Callable[[int], pa.Table], num_tasks: int) -> None:
        # The snapshot id belongs to this attempt, so these writes are never repeated. One file per task:
        # coalescing them would read on one executor.
        with task_errors():
            self._lake.append(table, self._frame(read, num_tasks, table.ddl), files=max(num_tasks, 1))

    def _written(self, table: Table) -> DataFrame:
        head = self._spec.head
        return self._lake.read_snapshot(table, head["cluster"], head["snapshot_id"])


def _summarize(kind: str, frame: DataFrame, name: Any) -> list[Problem]:
    from pyspark.sql import functions as sf

    rows = (
        frame.where(sf.col("error").isNotNull())
        .groupBy("error")
        .agg(sf.min(name).alias("name"), sf.count("*").alias("count"))
        .orderBy("name", "error")
        .limit(_MAX_REASONS)
        .collect()
    )
    return [Problem(kind, row["name"], row["error"], row["count"]) for row in rows]


def _now() -> datetime:
    return datetime.now(UTC)
