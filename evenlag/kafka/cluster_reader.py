"""Read one snapshot of a cluster: groups and members, log starts, commits, log ends, in this order.

Commits are read before log ends, so the lag of a busy consumer is slightly too large rather than negative. An
error of one broker, group or partition is recorded as a problem, and the rest is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from evenlag.enums import GroupState, GroupType
from evenlag.kafka.arrow_rows import (
    Problem,
    commit_rows,
    find_offset_problems,
    find_problems,
    find_unreadable_members,
    member_rows,
    offset_rows,
)
from evenlag.kafka.broker_requests import BrokerCalls, RequestBudget, RequestLimits
from evenlag.kafka.connection import Grants
from evenlag.kafka.coordinators import find_coordinators
from evenlag.kafka.groups import GroupListing, describe_groups, list_groups
from evenlag.kafka.interval_points import with_interval_points
from evenlag.kafka.member_protocol import CONSUMER_PROTOCOL_TYPE
from evenlag.kafka.offsets import read_commits, read_ends, read_log_starts, read_reset_offsets
from evenlag.kafka.topic_metadata import (
    TOPIC_DENIED,
    Metadata,
    Partitions,
    error_name,
    find_denied_topics,
    is_not_authorized,
    read_metadata,
)
from evenlag.policy.portable_settings import Pseudonymizer

Progress = Callable[[str, int, int], None]

NUM_STEPS: Final = 5
PROGRESS_STEP: Final = "observe: reading Kafka"
# INVALID_GROUP_ID, GROUP_ID_NOT_FOUND: the coordinator answers, and does not have the group. A group that
# evenlag may not describe (GROUP_AUTHORIZATION_FAILED) may exist.
_NOT_THERE: Final = (24, 69)
_COMMITS_ONLY: Final = "its coordinator has commits of it, and neither lists nor describes it"


@dataclass(frozen=True, slots=True)
class ClusterInventory:
    """Partitions and groups of a cluster, and the brokers that coordinate them.

    coordinators: By group id: the broker's id, or why it is unknown.
    problems, broken: What could not be listed, and the brokers to skip, with the error.
    """

    kafka_cluster_id: str
    started_at: datetime
    partitions: Partitions
    listed: Mapping[str, GroupListing]
    coordinators: Mapping[str, int | str]
    problems: tuple[Problem, ...]
    broken: Mapping[int, str]


@dataclass(slots=True)
class ClusterSnapshot:
    """One snapshot: rows of ``offsets``, ``commits`` and ``members`` without their snapshot columns.

    read_times: Times of the marker, by column name.
    num_unread_groups: Groups of which something could not be read.
    """

    inventory: ClusterInventory
    offsets: pa.Table
    commits: pa.Table
    members: pa.Table
    problems: list[Problem]
    read_times: dict[str, datetime] = field(default_factory=dict)
    num_unread_groups: int = 0
    num_requests: int = 0

    @property
    def num_unread_partitions(self) -> int:
        """Partitions with an error."""
        return len(self.offsets) - int(self.offsets["error"].null_count)


class ClusterReader:
    """Reads one snapshot through one admin client, without ignored topics such as the hint topic.

    known_groups: Returns the types of the previous snapshot's groups by id. Those that no broker lists are
        asked for, because a broker that takes over others' groups may not list them yet. Where their
        coordinator does not answer, they are in the snapshot, and their lag is unknown.
    reset_policy_of: Returns the reset policy of a group; None where it is unknown.
    from_followers: Whether consumers read from replicas in their rack, not from leaders only.
    expected: Returns what :func:`~evenlag.kafka.interval_points.with_interval_points` expects; None: nothing.
    """

    def __init__(
        self,
        client: Any,
        *,
        ignored_topics: frozenset[str] = frozenset(),
        limits: RequestLimits | None = None,
        known_groups: Callable[[], Mapping[str, str]] = dict,
        budget: RequestBudget | None = None,
        pseudonymizer: Pseudonymizer | None = None,
        reset_policy_of: Callable[[str], str | None] = lambda _group_id: None,
        from_followers: bool = False,
        expected: Callable[[], pa.Table | None] = lambda: None,
    ) -> None:
        limits = limits or RequestLimits()
        self._ignored = ignored_topics
        self._known_groups = known_groups
        self._pseudonymizer = pseudonymizer
        self._reset_policy_of = reset_policy_of
        self._from_followers = from_followers
        self._expected = expected
        self._client = client
        self._budget = budget or RequestBudget(limits.requests_per_s)
        self._calls = BrokerCalls(client, limits, budget=self._budget)

    def take_inventory(self) -> ClusterInventory:
        """List the cluster's partitions and groups."""
        started_at = datetime.now(UTC)
        metadata = read_metadata(self._calls, self._ignored, from_followers=self._from_followers)
        listed, silent = list_groups(self._calls)
        if silent:
            metadata = self._await_failover(silent)
            listed, silent = list_groups(self._calls, metadata.brokers)
        known = {name: kind for name, kind in self._known_groups().items() if name not in listed}
        found, silent_again = find_unlisted(self._calls, known, metadata.brokers, metadata.partitions.names)
        listed |= found
        silent |= silent_again
        if not listed and not silent and not self._may_list_groups():
            raise self._grants.missing_describe("the cluster, and on any group", "--cluster")
        unread = {group_id: row.error for group_id, row in found.items() if row.error is not None}
        coordinators = find_coordinators(self._calls, sorted(listed.keys() - unread)) | unread
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
        self, *, inventory: ClusterInventory | None = None, progress: Progress | None = None
    ) -> ClusterSnapshot:
        """Read members, log starts, commits and log ends."""
        report = progress or (lambda _step, _done, _total: None)
        report(PROGRESS_STEP, 0, NUM_STEPS)
        found = inventory or self.take_inventory()
        partitions = found.partitions
        report(PROGRESS_STEP, 1, NUM_STEPS)
        described = describe_groups(self._calls, found.listed, found.coordinators, lambda: partitions.names)
        denied = self._denied_topics(described, found)
        members = member_rows(
            described if self._pseudonymizer is None else self._pseudonymizer.apply(described)
        )
        report(PROGRESS_STEP, 2, NUM_STEPS)
        starts = read_log_starts(self._calls, partitions)
        times = {"started_at": found.started_at, "log_start_read_at": datetime.now(UTC)}
        report(PROGRESS_STEP, 3, NUM_STEPS)
        share = {name for name, row in found.listed.items() if row.group_type == GroupType.SHARE}
        read = read_commits(self._calls, found.coordinators, partitions.names, share_groups=share)
        times["commits_read_at"] = datetime.now(UTC)
        commits = commit_rows(read, partitions.ids, round(1_000_000 * times["commits_read_at"].timestamp()))
        report(PROGRESS_STEP, 4, NUM_STEPS)
        stable, ends = read_ends(self._calls, partitions)
        times["end_read_at"] = datetime.now(UTC)
        policies = {policy for group_id in found.listed if (policy := self._reset_policy_of(group_id))}
        resets = read_reset_offsets(self._calls, partitions, policies, ends)
        offsets = offset_rows(partitions, starts, stable, ends, resets)
        expected = self._expected()
        if expected is not None:
            offsets = with_interval_points(offsets, expected, self._calls, partitions)
        times["finished_at"] = datetime.now(UTC)
        report(PROGRESS_STEP, NUM_STEPS, NUM_STEPS)
        group_errors = dict(zip(members["group_id"].to_pylist(), members["error"].to_pylist(), strict=True))
        self._require_rights(group_errors, denied, len(partitions))
        group_errors |= find_unreadable_members(members)
        unread = {group_id for group_id, error in group_errors.items() if error is not None}
        return ClusterSnapshot(
            inventory=found,
            offsets=offsets,
            commits=commits,
            members=members,
            problems=[
                *found.problems,
                *(Problem("topic", topic, error) for topic, error in denied.items()),
                *find_problems("group", group_errors.keys(), group_errors.values()),
                *find_problems("commits", read.failed.keys(), read.failed.values()),
                *find_offset_problems(offsets),
            ],
            read_times=times,
            num_unread_groups=len(unread | read.failed.keys()),
            num_requests=self._budget.num_requests,
        )

    @property
    def _grants(self) -> Grants:
        config = self._client.config
        return Grants.of(config["bootstrap_servers"], config)

    def _may_list_groups(self) -> bool:
        operations = self._client.describe_cluster().get("authorized_operations")
        # Brokers without an authorizer allow everything, and old ones do not say.
        return operations is None or "DESCRIBE" in operations

    def _denied_topics(
        self, described: Sequence[Mapping[str, Any]], found: ClusterInventory
    ) -> dict[str, str]:
        """Return the topics that groups subscribe to and that evenlag may not describe, with the error."""
        subscribed = {topic for row in described for topic in row.get("subscription") or ()}
        hidden = subscribed.difference(
            found.partitions.names, self._ignored, (each.name for each in found.problems)
        )
        return dict.fromkeys(find_denied_topics(self._calls, sorted(hidden)), error_name(TOPIC_DENIED))

    def _require_rights(
        self, group_errors: Mapping[str, str | None], denied: Mapping[str, str], num_partitions: int
    ) -> None:
        refused = sorted(name for name, error in group_errors.items() if error and is_not_authorized(error))
        if refused and len(refused) == len(group_errors):
            raise self._grants.missing_describe(_these("group", refused), "--group '*'")
        if denied and not num_partitions:
            raise self._grants.missing_describe(_these("topic", sorted(denied)), "--topic '*'")

    def _await_failover(self, silent: Mapping[int, str]) -> Metadata:
        """Wait until the cluster has replaced the brokers that do not answer, while there is time."""
        for _ in self._calls.rounds():
            metadata = read_metadata(self._calls, self._ignored, from_followers=self._from_followers)
            if not metadata.brokers & silent.keys():
                break
        return metadata


def _these(kind: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"the {kind} {names[0]!r}"
    return f"all {len(names):,} {kind}s, e.g. {names[0]!r}"


def find_unlisted(
    calls: BrokerCalls, known: Mapping[str, str], brokers: Collection[int], topics: Sequence[str]
) -> tuple[dict[str, GroupListing], dict[int, str]]:
    """Ask for groups that no broker lists; return those that exist or may, and the brokers that list none.

    First their commits are read with ``require_stable``: the coordinator answers when it has loaded the group
    and knows that all that it loaded is replicated. What it describes and lists after that is complete.
    """
    if not known:
        return {}, {}
    names = {
        group_id: GroupListing(None, group_type, CONSUMER_PROTOCOL_TYPE)
        for group_id, group_type in known.items()
    }
    coordinators = find_coordinators(calls, sorted(names))
    share = {group_id for group_id, group_type in known.items() if group_type == GroupType.SHARE}
    commits = read_commits(calls, coordinators, topics, share_groups=share, require_stable=True)
    described = {row["group_id"]: row for row in describe_groups(calls, names, coordinators, lambda: topics)}
    # Last: the type of a group may have changed.
    listed, silent = list_groups(calls, brokers)
    have_commits = {commits.groups[number] for number in set(commits.group.tolist())}
    found = dict(listed)
    for group_id, row in described.items():
        if group_id in listed:
            continue
        error = _failure(row["error"]) or _failure(commits.failed.get(group_id))
        if error is None and group_id in have_commits:
            error = _COMMITS_ONLY
        if _exists(row):
            found[group_id] = GroupListing(row["group_state"], row["group_type"], row["protocol_type"])
        elif error is not None:
            found[group_id] = GroupListing(None, row["group_type"], CONSUMER_PROTOCOL_TYPE, error=error)
    return found, silent


def _exists(row: Mapping[str, Any]) -> bool:
    """Whether a description shows a group; older brokers describe one that is gone as dead, without error."""
    return row["error"] is None and row["group_state"] not in {None, GroupState.DEAD.value}


def _failure(error: str | None) -> str | None:
    """Return an error that leaves it open whether a group exists; None for an answer."""
    if error is None or error.partition(":")[0] in map(error_name, _NOT_THERE):
        return None
    return error
