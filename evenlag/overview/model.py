"""Content of the overview: a cluster's last snapshot, and one row per group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from evenlag.enums import REBALANCING_STATES, DecisionKind, GroupState, Outcome
from evenlag.policy.gates import ROUTINE_GATES
from evenlag.publishing.publishable_plans import PUBLISHING_MODES

# A rise is worth a sign from this share of the lag, and from so many records.
_GROWS_FROM_SHARE: Final = 0.1
_GROWS_FROM_RECORDS: Final = 1_000


class Sign(StrEnum):
    """What a group is marked with; a filter of the overview has the same names."""

    WAITING = "waiting"
    NOT_FOLLOWED = "not-followed"
    GATES = "gates"
    FAILED = "failed"
    HOT = "hot"
    TARGET = "target"
    STALLED = "stalled"
    UNKNOWN = "unknown"
    GROWING = "growing"
    REBALANCING = "rebalancing"
    NO_MEMBERS = "no-members"


@dataclass(frozen=True)
class GroupRow:
    """A group in the last snapshot of its cluster, with what `evenlag.queries.lag.group_rows` has of it.

    cluster: Name of the cluster, with the prefix of its DAG ids.
    unknown_facts: Which of commits, subscription and owners are unknown, and why; empty: none.
    is_readable: Whether the group's members and commits could be read.
    drain_time_ms: How long the slowest partition takes; infinite if its lag does not shrink.
    num_stalled: Partitions with lag and without a commit.
    trend: Lag in the last snapshots, oldest first; None where it is not completely known.
    mode: The effective mode; None: not recorded.
    plan: The newest plan, as `evenlag.queries.plan_rows.plan_row` has it, with its ``failed_gates``.
    hint: Row of ``outcomes`` of the newest settled hint that no newer hint replaced, with ``paid_off`` from
        the plan's horizon on.
    approval_until: Until when a plan waits for approval; None: none waits.
    hot, hot_message: Partition that dominates the lag, and what to do.
    advice: What `evenlag.queries.advice.read_advice` has of it.
    speeds: Measured speeds of its members, lower bounds included, in records per second.
    live_note: The live state, and what differs in the last cycle; empty: the row is of the last cycle.
    """

    cluster: str
    group_id: str
    state: str | None = None
    num_members: int = 0
    num_partitions: int = 0
    num_unknown_partitions: int = 0
    lag_records: int | None = None
    max_member_lag_records: int | None = None
    lag_skew: float | None = None
    unevenness: float | None = None
    lag_bound: str | None = None
    time_lag_ms: int | None = None
    time_lag_at_least_ms: int | None = None
    num_unknown_time_lags: int = 0
    num_not_subscribed_partitions: int = 0
    unknown_facts: str = ""
    is_readable: bool = True
    drain_time_ms: float | None = None
    num_stalled: int = 0
    trend: Sequence[int | None] = ()
    mode: str | None = None
    policy_mode: str | None = None
    decision: str | None = None
    decision_reason: str | None = None
    plan: Mapping[str, Any] | None = None
    hint: Mapping[str, Any] | None = None
    approval_until: datetime | None = None
    hot: str | None = None
    hot_message: str | None = None
    advice: Mapping[str, Any] | None = None
    speeds: tuple[float, ...] = ()
    live_note: str = ""

    @cached_property
    def change_records(self) -> int | None:
        """Change of the lag from the first known point of the trend to now; None if now is not known."""
        known = [value for value in self.trend if value is not None]
        if len(known) < 2 or self.trend[-1] is None:  # noqa: PLR2004  # one point has no change
            return None
        return known[-1] - known[0]

    @property
    def is_growing(self) -> bool:
        """Whether the lag rose by a tenth and by at least 1,000 records."""
        change = self.change_records
        if change is None or self.lag_records is None:
            return False
        return change >= max(_GROWS_FROM_RECORDS, _GROWS_FROM_SHARE * (self.lag_records - change))

    @cached_property
    def signs(self) -> tuple[Sign, ...]:
        """What the group is marked with, in the order of :class:`Sign`."""
        plan, hint = self.plan, self.hint
        marked = {
            Sign.WAITING: self.approval_until is not None,
            Sign.NOT_FOLLOWED: hint is not None and hint["outcome"] in {Outcome.IGNORED, Outcome.EXPIRED},
            # Elsewhere a failed gate keeps nothing back.
            Sign.GATES: self.policy_mode in PUBLISHING_MODES
            and plan is not None
            and bool(set(plan["failed_gates"]) - ROUTINE_GATES),
            Sign.FAILED: self.decision == DecisionKind.FAILED,
            Sign.HOT: self.hot is not None,
            Sign.TARGET: self.advice is not None and self.advice["missed_since"] is not None,
            Sign.STALLED: self.num_stalled > 0,
            # While it rebalances, the owners of a group are unknown anyway.
            Sign.UNKNOWN: self.num_unknown_partitions > 0
            or bool(self.unknown_facts and self.state not in _REBALANCING),
            Sign.GROWING: self.is_growing,
            Sign.REBALANCING: self.state in _REBALANCING,
            Sign.NO_MEMBERS: self.num_members == 0,
        }
        return tuple(sign for sign in Sign if marked[sign])

    @cached_property
    def asking_signs(self) -> frozenset[Sign]:
        """Signs that ask a person to look; the others describe. No members: only with lag."""
        describing = {Sign.GROWING, Sign.REBALANCING} | (set() if self.lag_records else {Sign.NO_MEMBERS})
        return frozenset(self.signs) - describing


_REBALANCING: Final = frozenset({*REBALANCING_STATES, GroupState.ASSIGNING, GroupState.RECONCILING})


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster's last snapshot with lag; None: there is none.

    name: Name of the cluster, with the prefix of its DAG ids.
    read_at: When the end offsets had been read.
    is_stale: Whether a newer snapshot was due, by the distance of the last ones.
    problem: Why the cluster has no rows; None: it has.
    open_approvals: Plans that wait for approval, also of groups that the snapshot does not have.
    valid_until: The rows may differ from then on though no table has changed; None: they stay as they are.
    is_being_read: Whether it is being read again, and the rows are those of before.
    live: How live the rows are: a text, and the kind of its badge; None: nobody asked the brokers.
    """

    name: str
    read_at: datetime | None = None
    completeness: float | None = None
    is_stale: bool = False
    problem: str | None = None
    open_approvals: int = 0
    is_being_read: bool = False
    valid_until: datetime | None = None
    live: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """All groups of some clusters."""

    clusters: tuple[ClusterState, ...] = ()
    groups: tuple[GroupRow, ...] = ()
