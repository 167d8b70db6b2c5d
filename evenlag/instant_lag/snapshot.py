"""One snapshot of a running cluster: the lag of its groups, their members, and what could not be read."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evenlag.enums import GroupType, LagStatus
from evenlag.errors import NothingThereError
from evenlag.formatting import did_you_mean
from evenlag.instant_lag.lag_rows import build_lag_rows
from evenlag.instant_lag.time_behind import TimePoints
from evenlag.kafka.acls import Grants
from evenlag.kafka.broker_requests import BrokerCalls
from evenlag.kafka.cluster_reader import ClusterReader
from evenlag.kafka.groups import describe_named_groups
from evenlag.kafka.topic_metadata import is_not_authorized

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import pyarrow as pa
    from numpy.typing import NDArray

    from evenlag.instant_lag.lag_rows import LagRows
    from evenlag.instant_lag.targets import ReadTarget
    from evenlag.kafka.arrow_rows import Problem
    from evenlag.kafka.cluster_reader import ClusterInventory, ClusterSnapshot
    from evenlag.kafka.rate_limit import RequestLimits
    from evenlag.policy.group_settings import GroupSettings


@dataclass(frozen=True, slots=True)
class InstantSnapshot:
    """Lag of a cluster's groups at one moment.

    Attributes
    ----------
    kafka_cluster_id
        The cluster id that the brokers report.
    commits_read_at, ends_read_at
        When the committed offsets, and then the ends of the logs, were read.
    lag
        As :class:`~evenlag.instant_lag.lag_rows.LagRows` has it; with ``time_lag_ms`` where it is known.
    members
        The columns of ``members`` without those of a stored snapshot.
    problems
        What could not be read.
    num_requests
        Requests sent, without those for the time lag.
    """

    kafka_cluster_id: str
    commits_read_at: datetime
    ends_read_at: datetime
    lag: pa.Table
    members: pa.Table
    problems: Sequence[Problem]
    num_requests: int

    def of_group(self, group_id: str) -> InstantSnapshot:
        """Return the snapshot with the rows of one group.

        Parameters
        ----------
        group_id
            The group; it need not exist.

        Returns
        -------
        InstantSnapshot
            A copy.
        """
        import pyarrow.compute as pc

        lag, members = (
            rows.filter(pc.equal(rows["group_id"], group_id)) for rows in (self.lag, self.members)
        )
        return replace(self, lag=lag, members=members)


class InstantReader:
    """Reads the lag of a cluster as often as it is asked to, over one connection.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``.
    target
        How the cluster is read.
    """

    def __init__(self, client: Any, target: ReadTarget) -> None:
        self._client = client
        self._target = target
        self._points = TimePoints()

    def read(self, group_id: str | None = None) -> InstantSnapshot:
        """Read the cluster.

        Parameters
        ----------
        group_id
            The only group to read; None: all of them.

        Returns
        -------
        InstantSnapshot
            The snapshot. What could not be read is unknown, and a problem.

        Raises
        ------
        NothingThereError
            When the cluster does not have the group.
        kafka.errors.KafkaError
            When no broker answers.
        """
        limits = self._target.limits
        reader = ClusterReader(
            self._client,
            ignored_topics=frozenset({self._target.hint_topic}),
            limits=limits,
            pseudonymizer=self._target.pseudonymizer,
            reset_policy_of=lambda name: self.settings_of(name).reset_policy,
        )
        inventory = reader.take_inventory()
        if group_id is not None:
            inventory = _only(self._client, limits, inventory, group_id)
        found = reader.read(inventory=inventory)
        rows = build_lag_rows(found.offsets, found.commits, found.members, self.settings_of)
        calls = BrokerCalls.within(self._client, limits, broken=inventory.broken)
        lag = self._with_time(calls, found, rows)
        return InstantSnapshot(
            kafka_cluster_id=inventory.kafka_cluster_id,
            commits_read_at=found.read_times["commits_read_at"],
            ends_read_at=found.read_times["end_read_at"],
            lag=lag,
            members=found.members,
            problems=found.problems,
            num_requests=found.num_requests,
        )

    def settings_of(self, group_id: str) -> GroupSettings:
        """Return the settings of a group, as the policy has them.

        Parameters
        ----------
        group_id
            The group.

        Returns
        -------
        GroupSettings
            Of the rule that matches, else the defaults.
        """
        return self._target.settings_of(group_id)

    def _with_time(self, calls: BrokerCalls, found: ClusterSnapshot, rows: LagRows) -> pa.Table:
        """Fill ``time_lag_ms``: 0 without lag, null where it was not looked up, or is too long to find."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table, partitions = rows.table, found.inventory.partitions
        ends = np.asarray(pc.fill_null(found.offsets["high_watermark"], -1).to_numpy(), dtype=np.int64)
        now_ms = round(1_000 * found.read_times["end_read_at"].timestamp())
        self._points.add_ends(partitions, now_ms, ends)
        lag = np.asarray(pc.fill_null(table["lag_records"], -1).to_numpy(), dtype=np.int64)
        # Where the group continues: after a reset that is not its committed offset.
        position = np.asarray(pc.fill_null(table["end_offset"], 0).to_numpy(), dtype=np.int64) - lag
        is_wanted = np.asarray(
            pc.not_equal(table["status"], LagStatus.NOT_SUBSCRIBED).to_numpy(), dtype=np.bool_
        )
        behind = _largest_group_first(table, np.flatnonzero((lag > 0) & is_wanted), lag)
        self._points.search(calls, partitions, rows.partition[behind], position[behind], now_ms)
        time = np.where(lag == 0, 0, -1)
        time[behind] = self._points.ages_ms(rows.partition[behind], position[behind], now_ms)
        number = table.column_names.index("time_lag_ms")
        return table.set_column(number, "time_lag_ms", pa.array(time, mask=time < 0))


def _only(client: Any, limits: RequestLimits, inventory: ClusterInventory, group_id: str) -> ClusterInventory:
    if group_id not in inventory.listed:
        # A broker lists only what evenlag may describe. Asked by name, it says which of both it is.
        (row, *_) = describe_named_groups(client, {group_id: GroupType.CLASSIC}, limits)
        if is_not_authorized(row["error"] or ""):
            raise Grants.of(client.config["bootstrap_servers"], client.config).missing_describe(
                f"the group {group_id!r}, which may exist", f"--group {shlex.quote(group_id)}"
            )
        raise NothingThereError(
            f"the cluster has no group {group_id!r}{did_you_mean(group_id, inventory.listed)}"
        )
    return replace(
        inventory,
        listed={group_id: inventory.listed[group_id]},
        coordinators={name: node for name, node in inventory.coordinators.items() if name == group_id},
    )


def _largest_group_first(
    table: pa.Table, rows: NDArray[np.int64], lag: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Order rows by the lag of their group, largest first, then by their own lag."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = pc.dictionary_encode(table["group_id"].take(pa.array(rows)).combine_chunks())
    group = np.asarray(encoded.indices.to_numpy(), dtype=np.int64)
    total = np.bincount(group, weights=lag[rows], minlength=len(encoded.dictionary))
    return rows[np.lexsort((-lag[rows], group, -total[group]))]
