"""One snapshot of a running cluster: the lag of its groups, their members, and what could not be read."""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.enums import GroupType
from evenlag.errors import NotFoundError
from evenlag.formatting import did_you_mean
from evenlag.kafka.arrow_rows import Problem
from evenlag.kafka.broker_requests import BrokerCalls, RequestLimits
from evenlag.kafka.cluster_reader import ClusterInventory, ClusterReader, ClusterSnapshot
from evenlag.kafka.connection import (
    Grants,
    kafka_client_settings,
    request_limits,
)
from evenlag.kafka.groups import describe_named_groups
from evenlag.kafka.topic_metadata import is_not_authorized
from evenlag.lag.arrays import Bools, Int64s, Points, integers
from evenlag.lag.formula import Behind, count_lag
from evenlag.lag.partitions import JoinedPartitions, join_partitions
from evenlag.live_lag.time_behind import TimePoints
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.policy.group_settings import GroupSettings
from evenlag.policy.portable_settings import Pseudonymizer
from evenlag.policy.settings import Policy

# A user waits for the answer: a wrong address is reported sooner than that of a policy.
_BOOTSTRAP_TIMEOUT_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class ReadTarget:
    """How a cluster is read, and the settings of its groups; `client` contains secrets."""

    name: str
    settings: ClusterSettings
    settings_of: Callable[[str], GroupSettings]
    client: Mapping[str, Any] = field(repr=False)
    pseudonymizer: Pseudonymizer | None = None


def policy_target(policy: Policy, cluster: str, *, is_named: bool = False) -> ReadTarget:
    """Return how a policy's cluster is read.

    is_named: Its brokers are named on the command line, or a page is asked for: a person waits.
    """
    settings = policy.clusters[cluster]
    client = kafka_client_settings(settings)
    if is_named and "bootstrap_timeout_ms" not in settings.kafka:
        client["bootstrap_timeout_ms"] = _BOOTSTRAP_TIMEOUT_MS
    return ReadTarget(
        name=cluster,
        settings=settings,
        settings_of=partial(policy.group_settings, cluster),
        client=client,
        pseudonymizer=settings.privacy.pseudonymizer(),
    )


# A snapshot reads for that long, so that the times of single reads differ from its own.
_READ_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """Lag of a cluster's groups at one moment.

    lag: As :func:`~evenlag.lag.formula.count_lag` returns it, ordered by group, topic and partition.
    problems: What could not be read.
    coordinators: By group id: the broker's id, or why it is unknown.
    """

    kafka_cluster_id: str
    ends_read_at: datetime
    lag: pa.Table
    members: pa.Table
    problems: Sequence[Problem]
    coordinators: Mapping[str, int | str] = field(default_factory=dict)

    def of_group(self, group_id: str) -> LiveSnapshot:
        """Return the snapshot with the rows of one group, which need not exist."""
        lag, members = (
            rows.filter(pc.equal(rows["group_id"], group_id)) for rows in (self.lag, self.members)
        )
        return replace(self, lag=lag, members=members)


class LiveReader:
    """Reads the lag of a cluster as often as it is asked to, over one connection.

    client: A ``KafkaAdminClient``.
    rate_window_s: How far rates go back, over the snapshots that this object read before.
    """

    def __init__(self, client: Any, target: ReadTarget, rate_window_s: float = 0.0) -> None:
        self._client = client
        self._target = target
        self._points = TimePoints()
        self._rate_window_s = rate_window_s
        self._earlier: deque[ClusterSnapshot] = deque()

    def read(self, group_id: str | None = None) -> LiveSnapshot:
        """Read the cluster. What could not be read is unknown, and a problem."""
        settings = self._target.settings
        limits = request_limits(settings)
        reader = ClusterReader(
            self._client,
            ignored_topics=frozenset({settings.hint_topic}),
            limits=limits,
            pseudonymizer=self._target.pseudonymizer,
            reset_policy_of=lambda name: self._target.settings_of(name).reset_policy,
            from_followers=settings.fetch_from_followers,
        )
        inventory = reader.take_inventory()
        if group_id is not None:
            inventory = _only(self._client, limits, inventory, group_id)
        found = reader.read(inventory=inventory)
        calls = BrokerCalls(self._client, limits, broken=inventory.broken)
        lag = self._count(calls, found)
        return LiveSnapshot(
            kafka_cluster_id=inventory.kafka_cluster_id,
            ends_read_at=found.read_times["end_read_at"],
            lag=lag,
            members=found.members,
            problems=found.problems,
            coordinators=inventory.coordinators,
        )

    def _count(self, calls: BrokerCalls, found: ClusterSnapshot) -> pa.Table:
        """Count the lag, with rates since the oldest snapshot of the window and times of records."""
        ended_at = found.read_times["end_read_at"]
        window = timedelta(seconds=self._rate_window_s)
        while self._earlier and ended_at - self._earlier[0].read_times["end_read_at"] > window:
            self._earlier.popleft()
        oldest = self._earlier[0] if self._earlier else None
        self._earlier.append(found)
        joined = join_partitions(
            found.offsets,
            found.commits,
            found.members,
            self._target.settings_of,
            offset_history=oldest and oldest.offsets,
            commit_history=oldest and oldest.commits,
        )

        # Each point of the history is wanted, although the clocks of its reads differ.
        return count_lag(
            joined.partitions,
            joined.groups,
            joined.member_ids,
            self._rate_window_s + _READ_S,
            partial(self._find_points, calls, found, joined),
        )

    def _find_points(
        self,
        calls: BrokerCalls,
        found: ClusterSnapshot,
        joined: JoinedPartitions,
        behind: Behind,
        is_counted: Bools,
    ) -> Points:
        """Look up the times of the records where groups continue, those with the largest lag first."""
        now_ms = round(1_000 * found.read_times["end_read_at"].timestamp())
        read_ms = integers(found.offsets["end_read_at"].cast("int64")) // 1_000
        ends = integers(found.offsets["high_watermark"])
        self._points.add_ends(found.inventory.partitions, read_ms, ends)
        lag, position = behind.records, behind.position
        rows = np.flatnonzero(lag.known & (lag.values > 0) & position.known & is_counted)
        rows = _largest_group_first(joined.partitions, rows, lag.values)
        places, positions = joined.row[rows], position.values[rows]
        self._points.search(calls, found.inventory.partitions, places, positions, now_ms)
        return self._points.points(places, positions).placed(rows, len(joined.row))


def _only(client: Any, limits: RequestLimits, inventory: ClusterInventory, group_id: str) -> ClusterInventory:
    if group_id not in inventory.listed:
        # A broker lists only what evenlag may describe. Asked by name, it says which of both it is.
        (row, *_) = describe_named_groups(client, {group_id: GroupType.CLASSIC}, limits)
        if is_not_authorized(row["error"] or ""):
            raise Grants.of(client.config["bootstrap_servers"], client.config).missing_describe(
                f"the group {group_id!r}, which may exist", f"--group {shlex.quote(group_id)}"
            )
        raise NotFoundError(
            f"the cluster has no group {group_id!r}{did_you_mean(group_id, inventory.listed)}"
        )
    return replace(
        inventory,
        listed={group_id: inventory.listed[group_id]},
        coordinators={name: node for name, node in inventory.coordinators.items() if name == group_id},
    )


def _largest_group_first(table: pa.Table, rows: Int64s, lag: Int64s) -> Int64s:
    """Order rows by the lag of their group, largest first, then by their own lag."""
    encoded = pc.dictionary_encode(table["group_id"].take(pa.array(rows)).combine_chunks())
    group = np.asarray(encoded.indices.to_numpy(), dtype=np.int64)
    total = np.bincount(group, weights=lag[rows], minlength=len(encoded.dictionary))
    return rows[np.lexsort((-lag[rows], group, -total[group]))]
