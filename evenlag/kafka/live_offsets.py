"""Current offsets of a few groups and their topics, for the check right before a hint is published."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from evenlag.kafka.arrow_rows import commit_rows, offset_rows
from evenlag.kafka.broker_requests import BrokerCalls
from evenlag.kafka.committed_offsets import read_commits
from evenlag.kafka.coordinators import find_coordinators
from evenlag.kafka.log_offsets import read_ends, read_log_starts, read_reset_offsets
from evenlag.kafka.topic_metadata import partitions_of, read_topics

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from evenlag.kafka.rate_limit import RequestLimits


@dataclass(frozen=True, slots=True)
class LiveOffsets:
    """Current offsets of groups and their topics.

    offsets, commits: Rows of these tables, without the columns of a stored snapshot.
    unread_topics: By name of a topic without rows, why it has none.
    """

    offsets: pa.Table
    commits: pa.Table
    unread_topics: Mapping[str, str] = field(default_factory=dict)

    def error_of(self, group_id: str, topics: Collection[str]) -> str | None:
        """Return why offsets of a group could not be read; an error of its commits comes first."""
        failed = self.commits.filter(pc.is_valid(self.commits["error"]))
        errors = dict(zip(failed["group_id"].to_pylist(), failed["error"].to_pylist(), strict=True))
        if group_id in errors:
            return str(errors[group_id])
        bad = self.offsets.filter(pc.is_valid(self.offsets["error"]))
        unread = dict(zip(bad["topic"].to_pylist(), bad["error"].to_pylist(), strict=True))
        unread |= self.unread_topics
        return next((f"topic {topic}: {unread[topic]}" for topic in topics if topic in unread), None)


def read_live_offsets(
    client: Any,
    group_ids: Sequence[str],
    topics: Collection[str],
    limits: RequestLimits,
    reset_policies: Collection[str] = (),
) -> LiveOffsets:
    """Read committed offsets, log starts and log ends.

    An error of one group, partition or broker leaves its own offsets unknown.

    Returns the offsets; null where they are unknown.
    """
    calls = BrokerCalls.within(client, limits)
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
