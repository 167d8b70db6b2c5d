"""Current state of groups: the check right before a hint is published."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from assignor_core.hint import fingerprint, member_key
from assignor_core.record import topic_id_text
from evenlag.enums import GroupState, GroupType
from evenlag.kafka.arrow_rows import commit_rows, offset_rows
from evenlag.kafka.broker_requests import BrokerCalls, RequestLimits
from evenlag.kafka.coordinators import find_coordinators
from evenlag.kafka.groups import describe_named_groups
from evenlag.kafka.member_protocol import group_problem
from evenlag.kafka.offsets import read_commits, read_ends, read_log_starts, read_reset_offsets
from evenlag.kafka.topic_metadata import error_name, is_not_authorized, partitions_of, read_topics

_NOT_FOUND: Final = "GroupIdNotFound"
# UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION: members may subscribe to names that no topic can have.
_NO_SUCH_TOPIC: Final = (3, 17)
# State of a group that could not be described. A coordinator that is loading, or that moves, also reports
# ``Dead``, but with an error: only without one does the group not exist.
UNKNOWN_STATE: Final = "Unknown"


@dataclass(frozen=True, slots=True)
class LiveGroup:
    """Current state of a group.

    state: ``Dead`` for a group that does not exist, or does not have the expected type any more; ``Unknown``
        for one that could not be described, with the error.
    assignor: None while the group rebalances.
    fingerprint: Identity of members, subscriptions and partitions; None when they are not reported.
    topics: (name, topic id, number of partitions) of the subscribed topics that exist, by name.
    held: Partitions that members own, or that the coordinator's target assigns them: member key → topic id →
        partition numbers. Every member has an entry.
    unreadable: Members whose subscription or assignment cannot be read, and why; None: there are none.
    """

    state: str
    assignor: str | None
    fingerprint: str | None
    topics: tuple[tuple[str, str, int], ...] = ()
    held: Mapping[str, Mapping[str, list[int]]] = field(default_factory=dict)
    error: str | None = None
    unreadable: str | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the group does not exist: its coordinator says so, without an error."""
        return self.error is None and self.state == GroupState.DEAD

    @property
    def is_denied(self) -> bool:
        """Whether evenlag is not authorized to describe the group."""
        return self.error is not None and is_not_authorized(self.error)


def read_live_groups(
    client: Any,
    group_types: Mapping[str, GroupType],
    limits: RequestLimits | None = None,
    ignored_topics: frozenset[str] = frozenset(),
) -> dict[str, LiveGroup]:
    """Describe groups in bulk; one that could not be described has its error.

    A group that does not exist, or has another type than expected, is ``Dead``. No expression matches the
    ignored topics.
    """
    if not group_types:
        return {}
    # In the order of the groups' ids.
    members = describe_named_groups(client, group_types, limits or RequestLimits(), ignored_topics)
    names = sorted({name for row in members for name in row.get("subscription") or ()})
    described = client.describe_topics(names) if names else ()
    topics = {
        row["name"]: (topic_id_text(row["topic_id"]), len(row["partitions"]))
        for row in described
        if not row.get("error_code")
    }
    unread = {
        row["name"]: error_name(row["error_code"])
        for row in described
        if row.get("error_code") not in (0, None, *_NO_SUCH_TOPIC)
    }
    groups = groupby(members, key=itemgetter("group_id"))
    return {group_id: _live_group(list(rows), topics, unread) for group_id, rows in groups}


def _live_group(
    rows: Sequence[Mapping[str, Any]], topics: Mapping[str, tuple[str, int]], unread: Mapping[str, str]
) -> LiveGroup:
    """Convert the rows of one group, as ``describe_named_groups`` returns them."""
    head = rows[0]
    if (error := head["error"]) is not None:
        if error.startswith(_NOT_FOUND):
            return LiveGroup(GroupState.DEAD, None, None)
        return LiveGroup(UNKNOWN_STATE, None, None, error=error)
    state, assignor = str(head["group_state"]), head["assignor"]
    members = [row for row in rows if row.get("member_id") is not None]
    # The consumer protocol has a target assignment: it is what the group converges to.
    owned = "target_assignment" if head["group_type"] == GroupType.CONSUMER else "assignment"
    if not members or any(row["subscription"] is None or row[owned] is None for row in members):
        return LiveGroup(state, assignor, None, unreadable=group_problem(rows))
    subscribed = sorted({name for row in members for name in row["subscription"]})
    if hidden := next((name for name in subscribed if name in unread), None):
        # Without it the group would look as if it had other topics.
        error = f"the topic {hidden!r} could not be described: {unread[hidden]}"
        return LiveGroup(UNKNOWN_STATE, None, None, error=error)
    keys = [member_key(row["member_id"], row["group_instance_id"]) for row in members]
    topic_ids = [[topics[name][0] for name in row["subscription"] if name in topics] for row in members]
    return LiveGroup(
        state=state,
        assignor=assignor,
        fingerprint=fingerprint(zip(keys, topic_ids, strict=True), dict(topics.values())),
        topics=tuple((name, *topics[name]) for name in subscribed if name in topics),
        held={key: _existing_partitions(row[owned], topics) for key, row in zip(keys, members, strict=True)},
    )


def _existing_partitions(
    assignment: Sequence[Mapping[str, Any]], topics: Mapping[str, tuple[str, int]]
) -> dict[str, list[int]]:
    """Partitions by topic id, without topics and partitions that no longer exist."""
    return {
        topics[name][0]: [number for number in part["partitions"] if number < topics[name][1]]
        for part in assignment
        if (name := part["topic"]) in topics
    }


@dataclass(frozen=True, slots=True)
class LiveOffsets:
    """Current offsets of groups and their topics.

    offsets, commits: Rows of these tables, without the columns of a stored snapshot.
    unread_topics: By name of a topic without rows, why it has none.
    """

    offsets: pa.Table
    commits: pa.Table
    unread_topics: Mapping[str, str] = field(default_factory=dict)

    def errors(self, topics: Mapping[str, Collection[str]]) -> dict[str, str]:
        """Return why offsets of groups could not be read, by group id; an error of its commits comes first.

        topics: Names of the topics of each group.
        """
        failed = self.commits.filter(pc.is_valid(self.commits["error"]))
        bad = self.offsets.filter(pc.is_valid(self.offsets["error"]))
        unread = dict(zip(bad["topic"].to_pylist(), bad["error"].to_pylist(), strict=True))
        unread |= self.unread_topics
        found = {
            group_id: f"topic {topic}: {unread[topic]}"
            for group_id, names in topics.items()
            for topic in reversed(tuple(names))
            if topic in unread
        }
        return found | dict(zip(failed["group_id"].to_pylist(), failed["error"].to_pylist(), strict=True))


def read_live_offsets(
    client: Any,
    group_ids: Sequence[str],
    topics: Collection[str],
    limits: RequestLimits,
    reset_policies: Collection[str],
) -> LiveOffsets:
    """Read committed offsets, log starts and log ends; an error leaves its own offsets unknown."""
    calls = BrokerCalls(client, limits)
    found, topic_error = read_topics(calls, sorted(topics))
    partitions = partitions_of([found[name] for name in sorted(found)])
    starts = read_log_starts(calls, partitions)
    commits = read_commits(calls, find_coordinators(calls, sorted(group_ids)), partitions.names)
    # Log ends after commits: for a busy consumer the lag is slightly too large rather than negative.
    stable, ends = read_ends(calls, partitions)
    resets = read_reset_offsets(calls, partitions, reset_policies, ends)
    now_us = round(1_000_000 * datetime.now(UTC).timestamp())
    return LiveOffsets(
        offsets=offset_rows(partitions, starts, stable, ends, resets),
        commits=commit_rows(commits, partitions.ids, now_us),
        unread_topics=dict.fromkeys(set(topics) - set(found), topic_error or "it does not exist"),
    )
