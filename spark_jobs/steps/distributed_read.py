"""Reading a large cluster on Spark's executors: each reads for a few brokers and writes what it read.

The order that makes lag safe holds for every partition because each step is a Spark job of its own, and the
next begins when it has ended: members, log starts, commits, ends. A task that is repeated, or that runs
twice, reads its share again within its step, and Delta takes the files of one of its attempts; an executor
that is lost costs a repeated share or the whole attempt, which then leaves no marker.

Rows go from executors into the tables. Through the driver come the names of topics and groups, which it needs
to share the work out, and each partition's log start, which it hands to who reads the end: eight bytes.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.errors import JobError, KafkaUnreachableError, LakeError
from evenlag.kafka.admin_client import open_admin_client
from evenlag.kafka.arrow_rows import Problem, commit_rows, member_rows, offset_rows, with_head
from evenlag.kafka.broker_requests import BrokerCalls
from evenlag.kafka.cluster_reader import NUM_STEPS
from evenlag.kafka.committed_offsets import read_commits
from evenlag.kafka.groups import describe_groups
from evenlag.kafka.log_offsets import Offsets, no_offsets, read_ends, read_log_starts
from evenlag.kafka.rate_limit import ReadingLimits, RequestBudget
from evenlag.lake.tables import COMMITS, MEMBERS, OFFSETS, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from evenlag.kafka.cluster_reader import ClusterInventory, Progress
    from evenlag.policy.pseudonymize import Pseudonymizer
    from spark_jobs.runtime.delta_lake import Lake

# Below these a share is not worth a connection of its own.
_MIN_PARTITIONS: Final = 2_000
_MIN_GROUPS: Final = 100
_ROWS_A_BATCH: Final = 50_000
_STARTS_DDL: Final = "row BIGINT, offset BIGINT, read_at_us BIGINT, error STRING"
_MAX_REASONS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ReadTaskSpec:
    """What an executor needs to read for us; it travels in a task's closure and nowhere else.

    Attributes
    ----------
    client_settings
        kafka-python's, secrets resolved; not in the errand's text.
    limits
        Of the whole reading; each task has its share of the requests.
    head
        The snapshot's columns.
    broken
        Brokers that are left alone, and why.
    pseudonymizer
        Hides what the policy says of members; None: nothing.
    open_client
        Makes an admin client of the settings.
    """

    client_settings: Mapping[str, Any] = field(repr=False)
    limits: ReadingLimits
    head: Mapping[str, Any]
    broken: Mapping[int, str] = field(default_factory=dict)
    pseudonymizer: Pseudonymizer | None = None
    open_client: Callable[[Mapping[str, Any]], AbstractContextManager[Any]] = open_admin_client

    @contextmanager
    def calls(self, num_tasks: int) -> Iterator[BrokerCalls]:
        """Hold calls with one task's share of the requests."""
        with self.open_client(self.client_settings) as client:
            # The driver, which looked first, has used what may be used in advance.
            budget = RequestBudget(self.limits.requests_per_s / num_tasks, is_full=False)
            yield BrokerCalls.within(client, self.limits, budget=budget, broken=self.broken)


@dataclass(frozen=True, slots=True)
class SpreadReading:
    """What a marker tells of a reading whose rows are in the tables already.

    Attributes
    ----------
    read_times
        The marker's moments by column name, by the driver's clock.
    num_unread_partitions
        Partitions with a failed read.
    problems
        What could not be read.
    """

    read_times: dict[str, datetime]
    num_unread_partitions: int
    problems: list[Problem]


def partition_work(
    owner: NDArray[np.int64], num_tasks: int, max_shares: int, min_size: int
) -> list[NDArray[np.int64]]:
    """Share rows out to tasks so that few tasks ask the same broker, and all have about as much to ask.

    Parameters
    ----------
    owner
        Row → its broker.
    num_tasks
        Tasks that can run at once.
    max_shares
        Tasks that may ask the same broker.
    min_size
        Rows below which a broker's share is not divided further.

    Returns
    -------
    list of ndarray
        Rows of each task, ascending; at most ``num_tasks``, none empty. The largest shares are dealt out
        first, each to the task with the least so far.

    Examples
    --------
    >>> brokers = np.array([1, 1, 2, 1])
    >>> [rows.tolist() for rows in partition_work(brokers, num_tasks=2, max_shares=1, min_size=1)]
    [[0, 1, 3], [2]]
    """
    shares: list[NDArray[np.int64]] = []
    for node in np.unique(owner).tolist():
        rows = np.flatnonzero(owner == node)
        shares += np.array_split(rows, max(1, min(max_shares, num_tasks, len(rows) // min_size)))
    sizes = [0] * min(num_tasks, len(shares))
    dealt: list[list[NDArray[np.int64]]] = [[] for _ in sizes]
    for share in sorted(shares, key=len, reverse=True):
        least = sizes.index(min(sizes))
        dealt[least].append(share)
        sizes[least] += len(share)
    return [np.sort(np.concatenate(rows)) for rows in dealt if rows]


def read_spread(
    lake: Lake,
    survey: ClusterInventory,
    errand: ReadTaskSpec,
    *,
    connections_per_broker: int,
    progress: Progress | None = None,
) -> SpreadReading:
    """Read what a survey found, on executors, into the tables.

    Parameters
    ----------
    lake
        Where to write.
    survey
        What there is to be read.
    errand
        What executors need.
    connections_per_broker
        Tasks that may ask the same broker.
    progress
        Called with (step, done, total).

    Raises
    ------
    JobError
        When executors cannot read, or do not bring all partitions.
    LakeError
        When a table cannot be written.
    """
    report = progress or (lambda _step, _done, _total: None)
    spread = _Spread(lake, survey, errand, connections_per_broker)
    report("observe: reading Kafka", 1, NUM_STEPS)
    spread.read_members()
    report("observe: reading Kafka", 2, NUM_STEPS)
    starts = spread.read_log_starts()
    times = {"started_at": survey.started_at, "log_start_read_at": _now()}
    report("observe: reading Kafka", 3, NUM_STEPS)
    spread.read_commits()
    times["commits_read_at"] = _now()
    report("observe: reading Kafka", 4, NUM_STEPS)
    spread.read_ends(starts)
    times["end_read_at"] = _now()
    num_unread, problems = spread.verify_written_rows()
    times["finished_at"] = _now()
    report("observe: reading Kafka", NUM_STEPS, NUM_STEPS)
    return SpreadReading(times, num_unread, [*survey.problems, *problems])


class _Spread:
    def __init__(self, lake: Lake, survey: ClusterInventory, errand: ReadTaskSpec, max_shares: int) -> None:
        self._lake = lake
        self._survey = survey
        self._errand = replace(errand, broken=survey.broken)
        num_tasks = lake.spark.sparkContext.defaultParallelism
        self._rows = partition_work(
            survey.partitions.leader.astype(np.int64), num_tasks, max_shares, _MIN_PARTITIONS
        )
        self._group_ids = sorted(survey.listed)
        nodes = [survey.coordinators.get(group_id, "") for group_id in self._group_ids]
        owner = np.array([node if isinstance(node, int) else -1 for node in nodes], dtype=np.int64)
        self._groups = [
            [self._group_ids[number] for number in numbers.tolist()]
            for numbers in partition_work(owner, num_tasks, max_shares, _MIN_GROUPS)
        ]

    def read_members(self) -> None:
        errand, num_tasks = self._errand, len(self._groups)
        shares = [
            (
                {group_id: self._survey.listed[group_id] for group_id in names},
                {group_id: self._survey.coordinators[group_id] for group_id in names},
            )
            for names in self._groups
        ]

        def read(task: int) -> pa.Table:
            listed, coordinators = shares[task]
            with errand.calls(num_tasks) as calls:
                described = describe_groups(calls, listed, coordinators)
            rows = described if errand.pseudonymizer is None else errand.pseudonymizer.apply(described)
            return with_head(member_rows(rows), MEMBERS, errand.head)

        self._write(MEMBERS, read, num_tasks)

    def read_log_starts(self) -> Offsets:
        import pyarrow as pa

        errand, num_tasks, all_rows = self._errand, len(self._rows), self._rows
        shares = [self._survey.partitions.take(rows) for rows in all_rows]

        def read(task: int) -> pa.Table:
            with errand.calls(num_tasks) as calls:
                starts = read_log_starts(calls, shares[task])
                broken = dict(calls.broken)
            texts = [None, *starts.errors.texts]
            # Rows below 0 tell which brokers are left alone from now on.
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

        with _as_unreachable():
            found = self._frame(read, num_tasks, _STARTS_DDL).toArrow()
        return self._take_starts(found)

    def read_commits(self) -> None:
        errand, num_tasks = self._errand, len(self._groups)
        names, topic_ids = self._survey.partitions.names, self._survey.partitions.ids
        shares = [
            {group_id: self._survey.coordinators[group_id] for group_id in group_ids}
            for group_ids in self._groups
        ]

        def read(task: int) -> pa.Table:
            with errand.calls(num_tasks) as calls:
                commits = read_commits(calls, shares[task], names)
            failed_at_us = round(1_000_000 * _now().timestamp())
            return with_head(commit_rows(commits, topic_ids, failed_at_us), COMMITS, errand.head)

        self._write(COMMITS, read, num_tasks)

    def read_ends(self, starts: Offsets) -> None:
        errand, num_tasks = self._errand, len(self._rows)
        shares = [(self._survey.partitions.take(rows), starts.take(rows)) for rows in self._rows]

        def read(task: int) -> pa.Table:
            partitions, its_starts = shares[task]
            with errand.calls(num_tasks) as calls:
                stable, ends = read_ends(calls, partitions)
            return with_head(offset_rows(partitions, its_starts, stable, ends), OFFSETS, errand.head)

        self._write(OFFSETS, read, num_tasks)

    def verify_written_rows(self) -> tuple[int, list[Problem]]:
        """Count what was written and sum up its errors: what tasks tell beside their rows may come twice."""
        from pyspark.sql import functions as sf

        offsets = self._written(OFFSETS)
        counts = offsets.agg(sf.count("*").alias("rows"), sf.count("error").alias("unread")).take(1)[0]
        if counts.rows != len(self._survey.partitions):
            raise JobError(
                f"executors brought {counts.rows} of {len(self._survey.partitions)} partitions: "
                "this attempt is given up, run it again"
            )
        partition = sf.concat_ws("-", "topic", "partition")
        groups = self._written(MEMBERS).select("group_id", "error").distinct()
        problems = [
            *_sum_up("group", groups, sf.col("group_id")),
            *_sum_up("commits", self._written(COMMITS), sf.col("group_id")),
            *_sum_up("offsets", offsets, partition),
        ]
        return int(counts.unread), problems

    def _take_starts(self, found: pa.Table) -> Offsets:
        import pyarrow.compute as pc

        told = found.filter(pc.less(found["row"], 0))
        broken = dict(zip(told["offset"].to_pylist(), told["error"].to_pylist(), strict=True))
        self._errand = replace(self._errand, broken={**self._errand.broken, **broken})
        good = found.filter(pc.greater_equal(found["row"], 0))
        starts = no_offsets(len(self._survey.partitions))
        rows = good["row"].to_numpy()
        if len(np.unique(rows)) != len(self._survey.partitions):
            raise JobError(f"executors brought {len(rows)} log starts of {len(self._survey.partitions)}")
        starts.offset[rows] = good["offset"].to_numpy()
        starts.read_at_us[rows] = good["read_at_us"].to_numpy()
        for text in pc.unique(good["error"]).drop_null().to_pylist():
            starts.errors.put(rows[pc.equal(good["error"], text).fill_null(False).to_numpy()], text)
        return starts

    def _frame(self, read: Callable[[int], pa.Table], num_tasks: int, ddl: str) -> DataFrame:
        """A frame of one task a share; what ``read`` holds travels in its closure."""

        def read_share(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    yield from read(task).to_batches(max_chunksize=_ROWS_A_BATCH)

        return self._lake.spark.range(0, num_tasks, 1, max(num_tasks, 1)).mapInArrow(read_share, ddl)

    def _write(self, table: Table, read: Callable[[int], pa.Table], num_tasks: int) -> None:
        # The id is this attempt's own: nobody repeats these writes. A file a task: to gather them would be
        # to read on one executor.
        with _as_unreachable():
            self._lake.append(table, self._frame(read, num_tasks, table.ddl), None, files=max(num_tasks, 1))

    def _written(self, table: Table) -> DataFrame:
        head = self._errand.head
        return self._lake.read_snapshot(table, head["cluster"], head["snapshot_id"])


def _sum_up(kind: str, frame: DataFrame, name: Any) -> list[Problem]:
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


@contextmanager
def _as_unreachable() -> Iterator[None]:
    """Tell what Spark raises when its tasks could not reach Kafka as just that."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (LakeError, PySparkException, Py4JJavaError) as error:
        text = str(error.__cause__ if isinstance(error, LakeError) else error)
        told = [line.strip() for line in text.splitlines() if line.strip().startswith("kafka.errors.")]
        if not told:
            raise
        raise KafkaUnreachableError(
            f"executors could not read Kafka: {told[-1]}: they need the way to the brokers, and the "
            "certificates, that the driver has"
        ) from error


def _now() -> datetime:
    return datetime.now(UTC)
