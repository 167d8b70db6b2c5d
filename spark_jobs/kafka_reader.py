"""One reading of a cluster: groups and members, log start offsets, commits, end offsets, in this order.

The order makes lag safe to subtract: what is committed was read before the end, so a busy consumer shows a
little lag too much rather than less than none. All calls are bulk calls; when one fails because of a single
group or partition, it is halved until the bad one stands alone, which is set down as a problem, and the
rest is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from assignor_core.hint import topic_id_text
from spark_jobs.bulk_reads import read_halving
from spark_jobs.consumer_groups import describe_consumer_groups
from spark_jobs.kafka_connection import Deadline, kafka_cluster_id

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

_Key = TypeVar("_Key", bound="Hashable")


# Groups whose commits and members evenlag understands; Connect and others use the same coordinator.
_CONSUMER_PROTOCOLS: Final = frozenset({"consumer", ""})
_CLASSIC: Final = "classic"
# The protocol of KIP-848.
_CONSUMER: Final = "consumer"
_MAX_PROBLEMS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read: its kind (group, commits, topic, offsets), name, and why."""

    kind: str
    name: str
    error: str


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its metadata show it."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]


@dataclass(slots=True)
class ClusterReading:
    """What one reading brought, as rows of the bronze tables without their snapshot columns.

    Attributes
    ----------
    offsets, commits, members
        Rows; see ``spark_jobs.tables``.
    problems
        What could not be read.
    read_times
        The marker's moments by column name.
    """

    kafka_cluster_id: str
    topics: dict[str, Topic] = field(default_factory=dict)
    offsets: list[dict[str, Any]] = field(default_factory=list)
    commits: list[dict[str, Any]] = field(default_factory=list)
    members: list[dict[str, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    read_times: dict[str, datetime] = field(default_factory=dict)
    num_groups: int = 0

    @property
    def num_unread_partitions(self) -> int:
        """Partitions with a failed read."""
        return sum(row["error"] is not None for row in self.offsets)

    @property
    def completeness(self) -> float:
        """1 - unread / partitions; 1.0 when there is nothing to read."""
        return 1.0 - self.num_unread_partitions / len(self.offsets) if self.offsets else 1.0

    def problem_rows(self) -> list[dict[str, str]]:
        """The problems as rows of the marker, at most 1,000 of them."""
        return [
            {"kind": problem.kind, "name": problem.name, "error": problem.error}
            for problem in self.problems[:_MAX_PROBLEMS]
        ]


class ClusterReader:
    """Reads a cluster once through one admin client.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``.
    ignored_topics
        Names of topics that are not looked at, e.g. the hint topic.
    timeout_s
        When it is over, what has not been read yet is a problem and not waited for.
    """

    def __init__(
        self, client: Any, *, ignored_topics: frozenset[str] = frozenset(), timeout_s: float = 120
    ) -> None:
        self._client = client
        self._ignored = ignored_topics
        self._deadline = Deadline(timeout_s)

    def read(self, *, progress: Callable[[str, int, int], None] | None = None) -> ClusterReading:
        """Read everything in the order that makes lag safe.

        Raises
        ------
        kafka.errors.KafkaError
            When the cluster as a whole does not answer; a single bad group or partition is a problem row.
        """
        report = progress or (lambda _step, _done, _total: None)
        reading = ClusterReading(kafka_cluster_id=kafka_cluster_id(self._client))
        reading.read_times["started_at"] = _now()
        steps = (
            self._read_topics,
            self._read_members,
            self._read_log_starts,
            self._read_commits,
            self._read_ends,
        )
        for number, step in enumerate(steps):
            report("observe: reading Kafka", number, len(steps))
            step(reading)
        report("observe: reading Kafka", len(steps), len(steps))
        self._mark_recreated(reading)
        reading.read_times["finished_at"] = _now()
        return reading

    # Topics and groups -----------------------------------------------------------------------------------

    def _read_topics(self, reading: ClusterReading) -> None:
        reading.topics = self._describe_topics(reading)

    def _describe_topics(self, reading: ClusterReading | None = None) -> dict[str, Topic]:
        topics = {}
        for row in self._client.describe_topics():
            name = row["name"]
            if row.get("is_internal") or name in self._ignored:
                continue
            if row.get("error_code"):
                if reading is not None:
                    reading.problems.append(Problem("topic", name, _error_name(row["error_code"])))
                continue
            numbers = sorted(part["partition_index"] for part in row["partitions"])
            topics[name] = Topic(name, topic_id_text(row["topic_id"]), tuple(numbers))
        return topics

    def _read_members(self, reading: ClusterReading) -> None:
        groups = {
            row["group_id"]: row
            for row in self._client.list_groups()
            if (row.get("protocol_type") or "") in _CONSUMER_PROTOCOLS
        }
        reading.num_groups = len(groups)
        classic = [name for name, row in groups.items() if _group_type(row) == _CLASSIC]

        def describe(names: Sequence[str]) -> Mapping[str, Any]:
            described: Mapping[str, Any] = self._client.describe_groups(list(names))
            return described

        details = self._read_halving(describe, classic, "group", reading)
        newer = [name for name, row in groups.items() if _group_type(row) == _CONSUMER]
        details |= self._read_halving(
            lambda names: describe_consumer_groups(self._client, names), newer, "group", reading
        )
        read_at = _now()
        for group_id in sorted(groups):
            reading.members.extend(_member_rows(group_id, groups[group_id], details.get(group_id), read_at))
        for group_id, detail in details.items():
            if detail.get("error"):
                reading.problems.append(Problem("group", group_id, str(detail["error"])))

    # Offsets ---------------------------------------------------------------------------------------------

    def _read_log_starts(self, reading: ClusterReading) -> None:
        from kafka.admin import OffsetSpec

        starts = self._list_offsets(OffsetSpec.EARLIEST, reading)
        reading.read_times["log_start_read_at"] = _now()
        for topic in reading.topics.values():
            for number in topic.partitions:
                start, error = starts.get((topic.name, number), (None, "not read"))
                reading.offsets.append(
                    {
                        "topic_id": topic.topic_id,
                        "topic": topic.name,
                        "partition": number,
                        "log_start_offset": start,
                        "log_start_read_at": reading.read_times["log_start_read_at"],
                        "error": error,
                    }
                )

    def _read_commits(self, reading: ClusterReading) -> None:
        group_ids = sorted({row["group_id"] for row in reading.members})

        def fetch(names: Sequence[str]) -> Mapping[str, Any]:
            fetched: Mapping[str, Any] = self._client.list_group_offsets(dict.fromkeys(names))
            return fetched

        failed: dict[str, str] = {}
        commits = self._read_halving(fetch, group_ids, "commits", reading, failed)
        read_at = reading.read_times["commits_read_at"] = _now()
        for group_id, offsets in commits.items():
            for partition, commit in offsets.items():
                topic = reading.topics.get(partition.topic)
                # Any negative commit means none. A commit whose topic is gone has nothing to lag behind.
                if commit.offset < 0 or topic is None:
                    continue
                reading.commits.append(_commit_row(group_id, topic, partition.partition, commit, read_at))
        for group_id, error in failed.items():
            reading.commits.append(_failed_commits_row(group_id, error, read_at))

    def _read_ends(self, reading: ClusterReading) -> None:
        from kafka.admin import OffsetSpec

        stable = self._list_offsets(OffsetSpec.LATEST, reading, isolation_level="read_committed")
        ends = self._list_offsets(OffsetSpec.LATEST, reading)
        read_at = reading.read_times["end_read_at"] = _now()
        for row in reading.offsets:
            key = (row["topic"], row["partition"])
            row["high_watermark"], end_error = ends.get(key, (None, "not read"))
            row["last_stable_offset"], stable_error = stable.get(key, (None, "not read"))
            row["end_read_at"] = read_at
            row["error"] = row["error"] or end_error or stable_error

    def _list_offsets(
        self, spec: Any, reading: ClusterReading, *, isolation_level: str = "read_uncommitted"
    ) -> dict[tuple[str, int], tuple[int | None, str | None]]:
        """Offsets, or why there is none, by (topic, partition)."""
        from kafka import TopicPartition
        from kafka.protocol.consumer import IsolationLevel

        level = IsolationLevel.build_from(isolation_level)
        partitions = [
            TopicPartition(topic.name, number)
            for topic in reading.topics.values()
            for number in topic.partitions
        ]

        def list_offsets(wanted: Sequence[Any]) -> Mapping[Any, Any]:
            found: Mapping[Any, Any] = self._client.list_partition_offsets(
                dict.fromkeys(wanted, spec), isolation_level=level
            )
            return found

        failed: dict[Any, str] = {}
        found = self._read_halving(list_offsets, partitions, "offsets", reading, failed)
        results: dict[tuple[str, int], tuple[int | None, str | None]] = {
            (partition.topic, partition.partition): (value.offset, None) for partition, value in found.items()
        }
        for partition, error in failed.items():
            results[partition.topic, partition.partition] = (None, error)
        return results

    def _mark_recreated(self, reading: ClusterReading) -> None:
        """A topic that changed its id while it was read: its numbers belong to two histories."""
        now = self._describe_topics()
        for row in reading.offsets:
            seen = now.get(row["topic"])
            if seen is None:
                row["error"] = row["error"] or "the topic was deleted while it was read"
            elif seen.topic_id != row["topic_id"]:
                row["error"] = "the topic was deleted and created again while it was read"

    # Halving ---------------------------------------------------------------------------------------------

    def _read_halving(
        self,
        read: Callable[[Sequence[_Key]], Mapping[_Key, Any]],
        items: Sequence[_Key],
        kind: str,
        reading: ClusterReading,
        failed: dict[_Key, str] | None = None,
    ) -> dict[_Key, Any]:
        """Read items in bulk; what cannot be read is set down as a problem."""
        results, unread = read_halving(read, items, self._deadline)
        for item, message in unread.items():
            reading.problems.append(Problem(kind, _name(item), message))
        if failed is not None:
            failed.update(unread)
        return results


def _member_rows(
    group_id: str, listed: Mapping[str, Any], detail: Mapping[str, Any] | None, read_at: datetime
) -> list[dict[str, Any]]:
    head = {
        "group_id": group_id,
        "group_state": (detail or {}).get("group_state") or listed.get("group_state"),
        "group_type": _group_type(listed),
        "protocol_type": listed.get("protocol_type") or "",
        "assignor": (detail or {}).get("protocol_data") or None,
        "read_at": read_at,
        "error": (detail or {}).get("error"),
    }
    if detail is None and head["group_type"] in {_CLASSIC, _CONSUMER}:
        head["error"] = "the group could not be described"
    members = (detail or {}).get("members") or []
    if not members:
        return [head]
    return [head | _member_columns(member) for member in members]


def _member_columns(member: Mapping[str, Any]) -> dict[str, Any]:
    metadata, assignment = member.get("member_metadata"), member.get("member_assignment")
    return {
        "member_id": member["member_id"],
        "group_instance_id": member.get("group_instance_id"),
        "client_id": member.get("client_id"),
        "client_host": member.get("client_host"),
        # A group that rebalances shows empty bytes, not an empty list: not known is not "takes nothing".
        "subscription": sorted(metadata["topics"]) if isinstance(metadata, dict) else None,
        "assignment": _held_partitions(assignment) if isinstance(assignment, dict) else None,
    }


def _held_partitions(assignment: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"topic": row["topic"], "partitions": sorted(row["partitions"])}
        for row in assignment.get("assigned_partitions") or []
    ]


def _commit_row(group_id: str, topic: Topic, number: int, commit: Any, read_at: datetime) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "topic_id": topic.topic_id,
        "topic": topic.name,
        "partition": number,
        "committed_offset": commit.offset,
        "leader_epoch": commit.leader_epoch,
        "read_at": read_at,
        "error": None,
    }


def _failed_commits_row(group_id: str, error: str, read_at: datetime) -> dict[str, Any]:
    """A group whose commits could not be read: a row with no partition, so that its lag is UNKNOWN, not 0."""
    return {
        "group_id": group_id,
        "topic_id": None,
        "topic": None,
        "partition": None,
        "committed_offset": None,
        "leader_epoch": None,
        "read_at": read_at,
        "error": error,
    }


def _group_type(listed: Mapping[str, Any]) -> str:
    # Brokers before 4.0 do not tell: all their groups are classic.
    return str(listed.get("group_type") or _CLASSIC).lower()


def _error_name(code: int) -> str:
    import kafka.errors

    return str(kafka.errors.for_code(code).__name__)


def _name(item: object) -> str:
    topic, number = getattr(item, "topic", None), getattr(item, "partition", None)
    return str(item) if topic is None else f"{topic}-{number}"


def _now() -> datetime:
    return datetime.now(UTC)
