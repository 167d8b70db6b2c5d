"""One reading of a cluster: groups and members, log start offsets, commits, end offsets, in this order.

The order makes lag safe to subtract: what is committed was read before the end, so a busy consumer shows a
little lag too much rather than less than none. What one broker does not answer, and what is wrong with one
group or partition, is set down as a problem, and the rest is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from evenlag.kafka.arrow_rows import (
    Problem,
    commit_rows,
    find_offset_problems,
    find_problems,
    member_rows,
    offset_rows,
)
from evenlag.kafka.broker_requests import BrokerCalls
from evenlag.kafka.committed_offsets import read_commits
from evenlag.kafka.coordinators import find_coordinators
from evenlag.kafka.groups import GroupListing, describe_groups, list_groups
from evenlag.kafka.log_offsets import read_ends, read_log_starts
from evenlag.kafka.rate_limit import ReadingLimits, RequestBudget
from evenlag.kafka.topic_metadata import read_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from evenlag.kafka.topic_metadata import Partitions
    from evenlag.policy.pseudonymize import Pseudonymizer

    Progress = Callable[[str, int, int], None]

NUM_STEPS: Final = 5


@dataclass(frozen=True, slots=True)
class ClusterInventory:
    """What there is to be read, and whom to ask.

    Attributes
    ----------
    kafka_cluster_id
        The id that the brokers gave.
    started_at
        When the reading began.
    partitions
        Of all topics, with their leaders.
    listed
        The groups.
    coordinators
        Of each group: the broker's id, or why it is not known.
    problems
        What could not even be looked at.
    broken
        Brokers that are left alone, and why.
    """

    kafka_cluster_id: str
    started_at: datetime
    partitions: Partitions
    listed: Mapping[str, GroupListing]
    coordinators: Mapping[str, int | str]
    problems: tuple[Problem, ...]
    broken: Mapping[int, str]

    @property
    def expected_rows(self) -> int:
        """Rows to be expected: the partitions, and for each group those of an average topic."""
        num_topics = len(self.partitions.names)
        return len(self.partitions) + (
            len(self.listed) * len(self.partitions) // num_topics if num_topics else 0
        )


@dataclass(slots=True)
class ClusterReading:
    """What one reading brought: the bronze tables without their snapshot columns.

    Attributes
    ----------
    survey
        What there was to be read.
    offsets, commits, members
        Arrow tables; see ``evenlag.lake.tables``.
    problems
        What could not be read.
    read_times
        The marker's moments by column name.
    num_requests
        Requests that were sent.
    """

    survey: ClusterInventory
    offsets: pa.Table
    commits: pa.Table
    members: pa.Table
    problems: list[Problem]
    read_times: dict[str, datetime] = field(default_factory=dict)
    num_requests: int = 0

    @property
    def num_unread_partitions(self) -> int:
        """Partitions with a failed read."""
        return len(self.offsets) - int(self.offsets["error"].null_count)


class ClusterReader:
    """Reads a cluster once through one admin client.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``.
    ignored_topics
        Names of topics that are not looked at, e.g. the hint topic.
    limits
        How gently.
    known_groups
        Asked for the ids of groups that were there before, when a broker could not list the groups that it
        coordinates: these are there still, but nobody knows how far they are behind.
    budget
        What requests are taken from; None: one of ``limits.requests_per_s``.
    pseudonymizer
        Hides what the policy says of members; None: nothing.
    """

    def __init__(
        self,
        client: Any,
        *,
        ignored_topics: frozenset[str] = frozenset(),
        limits: ReadingLimits | None = None,
        known_groups: Callable[[], Sequence[str]] = tuple,
        budget: RequestBudget | None = None,
        pseudonymizer: Pseudonymizer | None = None,
    ) -> None:
        limits = limits or ReadingLimits()
        self._ignored = ignored_topics
        self._known_groups = known_groups
        self._pseudonymizer = pseudonymizer
        self._budget = budget or RequestBudget(limits.requests_per_s)
        self._calls = BrokerCalls.within(client, limits, budget=self._budget)

    def survey(self) -> ClusterInventory:
        """Look what there is to be read.

        Raises
        ------
        kafka.errors.KafkaError
            When the cluster as a whole does not answer; a single bad group or topic is a problem.
        """
        started_at = _now()
        metadata = read_metadata(self._calls, self._ignored)
        listed, silent = list_groups(self._calls)
        coordinators = find_coordinators(self._calls, sorted(listed))
        if silent:
            self._add_unlisted(listed, coordinators, silent)
        problems = [
            *(Problem("broker", self._calls.name_of(node), error) for node, error in sorted(silent.items())),
            *find_problems("topic", metadata.failed.keys(), metadata.failed.values()),
        ]
        return ClusterInventory(
            kafka_cluster_id=metadata.cluster_id,
            started_at=started_at,
            partitions=metadata.partitions,
            listed=listed,
            coordinators=coordinators,
            problems=tuple(problems),
            broken=dict(self._calls.broken),
        )

    def read(
        self, *, survey: ClusterInventory | None = None, progress: Progress | None = None
    ) -> ClusterReading:
        """Read everything in the order that makes lag safe.

        Parameters
        ----------
        survey
            What :meth:`survey` brought; looked for when not given.
        progress
            Called with (step, done, total).

        Raises
        ------
        kafka.errors.KafkaError
            As :meth:`survey`.
        """
        report = progress or (lambda _step, _done, _total: None)
        report("observe: reading Kafka", 0, NUM_STEPS)
        found = survey or self.survey()
        partitions = found.partitions
        report("observe: reading Kafka", 1, NUM_STEPS)
        described = describe_groups(self._calls, found.listed, found.coordinators)
        members = member_rows(
            described if self._pseudonymizer is None else self._pseudonymizer.apply(described)
        )
        report("observe: reading Kafka", 2, NUM_STEPS)
        starts = read_log_starts(self._calls, partitions)
        times = {"started_at": found.started_at, "log_start_read_at": _now()}
        report("observe: reading Kafka", 3, NUM_STEPS)
        read = read_commits(self._calls, found.coordinators, partitions.names)
        times["commits_read_at"] = _now()
        commits = commit_rows(read, partitions.ids, round(1_000_000 * times["commits_read_at"].timestamp()))
        report("observe: reading Kafka", 4, NUM_STEPS)
        stable, ends = read_ends(self._calls, partitions)
        times["end_read_at"] = times["finished_at"] = _now()
        offsets = offset_rows(partitions, starts, stable, ends)
        report("observe: reading Kafka", NUM_STEPS, NUM_STEPS)
        group_errors = dict(zip(members["group_id"].to_pylist(), members["error"].to_pylist(), strict=True))
        return ClusterReading(
            survey=found,
            offsets=offsets,
            commits=commits,
            members=members,
            problems=[
                *found.problems,
                *find_problems("group", group_errors.keys(), group_errors.values()),
                *find_problems("commits", read.failed.keys(), read.failed.values()),
                *find_offset_problems(offsets),
            ],
            read_times=times,
            num_requests=self._budget.num_requests,
        )

    def _add_unlisted(
        self, listed: dict[str, GroupListing], coordinators: dict[str, int | str], silent: Mapping[int, str]
    ) -> None:
        """Add groups that were there before and are coordinated by a broker that does not list them."""
        missing = sorted(set(self._known_groups()) - listed.keys())
        for group_id, node in find_coordinators(self._calls, missing).items():
            if isinstance(node, int) and node in silent:
                listed[group_id] = GroupListing(None, "classic", "consumer", error=silent[node])
                coordinators[group_id] = silent[node]


def _now() -> datetime:
    return datetime.now(UTC)
