"""What a report tells, as plain values: read once, then laid out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class MemberLag:
    """A member's lag in records: before a plan, as the plan predicted it, as seen after; None: not known."""

    name: str
    before: int | None
    predicted: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class LagChange:
    """The lag of each member around a plan; without a plan, `before` is the newest reading.

    Attributes
    ----------
    plan_id, status, moves
        The plan, how it stands and the partitions it moves; None without a plan.
    before_at, after_at
        Slots of the readings.
    members
        The furthest behind first.
    """

    members: tuple[MemberLag, ...]
    before_at: datetime
    plan_id: str | None = None
    status: str | None = None
    moves: int | None = None
    after_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A partition was with one owner from a reading to the reading that no longer showed it.

    Attributes
    ----------
    partition
        ``topic-number``.
    owner
        Name of the member; None: `what` says why (nobody, not known).
    """

    partition: str
    owner: str | None
    what: str
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened: `kind` is ``rebalance`` or ``hint``."""

    at: datetime
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Who held what when.

    Attributes
    ----------
    partitions
        Those shown, in order; those that changed hands most often come in first when there are too many.
    owners
        Names in order of their first appearance.
    num_left_out
        Partitions that are not shown.
    num_unaudited
        Readings of the period that the audit does not have yet.
    """

    partitions: tuple[str, ...]
    owners: tuple[str, ...]
    stretches: tuple[Stretch, ...]
    marks: tuple[Mark, ...]
    num_left_out: int = 0
    num_unaudited: int = 0


@dataclass(frozen=True, slots=True)
class Series:
    """Lag over time: of the group and of its furthest member, at the moments of readings.

    Between the days of a replay stands a None, so that nothing is drawn there.
    """

    name: str
    at: tuple[datetime, ...]
    lag_records: tuple[int | None, ...]
    max_member_lag_records: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """What a policy would have come to over the days that all policies were compared on.

    Attributes
    ----------
    name
        As it was compared; ``observed`` is what really ran, replayed too.
    num_days
        Days counted: those that every policy has.
    p95_time_lag_ms, drain_time_ms, num_not_drained
        Mean of the days' 95th percentiles; median over the days on which all was drained, None when there is
        none; on how many days it was not.
    distance
        How far the most loaded member is above the bound on average; None: not known.
    is_best
        As `evenlag compare` says: the least time lag, then the least lag on average, then the fewest moves.
    """

    name: str
    num_days: int
    mean_lag_records: float
    max_lag_records: int
    p95_time_lag_ms: float
    max_time_lag_ms: int
    drain_time_ms: float | None
    num_not_drained: int
    moves: int
    rebalances: int
    distance: float | None = None
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class GateSummary:
    """A gate over the period: how many plans it judged and refused, and what it said last when it refused."""

    gate: str
    num_judged: int
    num_failed: int
    last_refusal: str | None


@dataclass(frozen=True, slots=True)
class DecisionSummary:
    """What planning made of the group's readings: how often, and the reason given last."""

    decision: str
    count: int
    last_at: datetime
    reason: str | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group of the cluster in the newest reading; a lag of None is not known."""

    group_id: str
    num_members: int
    num_partitions: int
    lag_records: int | None
    max_member_lag_records: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """A group's period; a part that the lake does not have is None or empty.

    Attributes
    ----------
    since, until
        The period: slots of its first and last reading.
    num_snapshots
        Readings with the group in them.
    now
        The group in the newest reading of the period.
    groups
        All groups of that reading, the furthest behind first.
    change
        Lag of each member; None when no reading shows a member.
    timeline
        None: the period has not been audited.
    observed, replayed
        Lag as seen, and as each policy would have had it.
    policies, reasons
        In the order of the table; empty: nothing compared. What could not be replayed, and why.
    model_error
        Median relative error of the replay of what really ran; None: not known.
    plans
        Rows of `evenlag.plan_rows.plan_rows`, newest first.
    """

    cluster: str
    group_id: str
    since: datetime
    until: datetime
    num_snapshots: int
    now: GroupLag
    groups: tuple[GroupLag, ...]
    change: LagChange | None
    timeline: Timeline | None
    observed: Series
    replayed: tuple[Series, ...] = ()
    policies: tuple[PolicyResult, ...] = ()
    reasons: tuple[str, ...] = ()
    model_error: float | None = None
    plans: Sequence[Mapping[str, Any]] = ()
    gates: tuple[GateSummary, ...] = ()
    decisions: tuple[DecisionSummary, ...] = ()
    num_by_event: Mapping[str, int] = field(default_factory=dict)
