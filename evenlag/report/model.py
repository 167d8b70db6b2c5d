"""What a report tells, as plain values: read once, then laid out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


# What may happen to a published hint, in this order.
HINT_EVENTS: Final = ("published", "followed", "not followed", "ran out", "withdrawn")


@dataclass(frozen=True, slots=True)
class MemberLag:
    """A member's lag in records: before a plan, as the plan predicted it, as seen after; None: not known.

    Attributes
    ----------
    unknown
        For each of the three, how many of its partitions' lag is not known: with any, it is a lower bound.
    """

    name: str
    before: int | None
    predicted: int | None
    after: int | None
    unknown: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class LagChange:
    """The lag of each member around a plan; without a plan, `before` is the newest reading.

    Attributes
    ----------
    plan_id, status, moves
        The plan, how it stands and the partitions it moves; None without a plan.
    before_at, after_at
        When the lag was read.
    members
        The furthest behind first.
    unknown_before, unknown_after
        How many of how many partitions' lag was not known in the two snapshots.
    """

    members: tuple[MemberLag, ...]
    before_at: datetime
    plan_id: str | None = None
    status: str | None = None
    moves: int | None = None
    after_at: datetime | None = None
    unknown_before: tuple[int, int] = (0, 0)
    unknown_after: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Interval:
    """A partition was with one owner from a snapshot to the snapshot that no longer showed it.

    Attributes
    ----------
    partition
        ``topic-number``.
    owner
        Name of the member; None: `what` says why (nobody, not known).
    end
        When the snapshot was read that no longer showed it; where `is_open`, when the last one ended.
    is_open
        It was still so in the period's last snapshot.
    """

    partition: str
    owner: str | None
    what: str
    start: datetime
    end: datetime
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened, at the time at which it was seen.

    Attributes
    ----------
    kind
        ``rebalance`` or ``hint``.
    event
        What happened to a published hint: one of `HINT_EVENTS`; empty for a rebalance.
    """

    at: datetime
    kind: str
    text: str
    event: str = ""


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
    intervals: tuple[Interval, ...]
    marks: tuple[Mark, ...]
    num_left_out: int = 0
    num_unaudited: int = 0


@dataclass(frozen=True, slots=True)
class Series:
    """Lag over time: of the group and of its furthest member, at the moments at which lag was read.

    Between the days of a replay is a None, so that nothing is drawn there.

    Attributes
    ----------
    num_unknown
        At each moment: partitions whose lag was not known, which makes the sum a lower bound; empty: none.
    unknown
        What status these partitions had: (status, in how many snapshots, of how many partitions at most).
    """

    name: str
    at: tuple[datetime, ...]
    lag_records: tuple[int | None, ...]
    max_member_lag_records: tuple[int | None, ...]
    num_unknown: tuple[int, ...] = ()
    unknown: tuple[tuple[str, int, int], ...] = ()

    @property
    def peak(self) -> int | None:
        """The largest lag of the group; None: never known."""
        return max((value for value in self.lag_records if value is not None), default=None)


@dataclass(frozen=True, slots=True)
class MeasuredResult:
    """What was measured of the lag on the days compared; None: not known.

    Attributes
    ----------
    unknown_lags, unknown_share, unknown_time_lags
        Lags, parts of the time and time lags that are not known: with any, the largest lag, the mean lag and
        the largest time lag are lower bounds.
    """

    mean_lag_records: float | None
    max_lag_records: int
    max_time_lag_ms: int | None
    unknown_lags: int
    unknown_share: float | None
    unknown_time_lags: int


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
        Mean of the days' 95th percentiles; median over the days, None when on the median day not all was
        drained; on how many days it was not.
    optimality_gap
        How far the most loaded member is above the bound on average; None: not known.
    is_best
        As `evenlag compare` says: the least time lag, then the least lag on average, then the fewest moves;
        several when they are equal.
    unknown_ages
        Partitions whose first backlog has no known age: time lags are lower bounds when there are any.
    measured
        Of ``observed`` only: what was measured, without the model; None: not known.
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
    optimality_gap: float | None = None
    is_best: bool = False
    unknown_ages: int = 0
    measured: MeasuredResult | None = None


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
    """A group of the cluster in the newest reading; a lag of None is not known.

    Attributes
    ----------
    num_unknown
        Partitions whose lag is not known: with any, a lag is a lower bound.
    unknown
        Status → partitions of these.
    """

    group_id: str
    num_members: int
    num_partitions: int
    lag_records: int | None
    max_member_lag_records: int | None
    num_unknown: int = 0
    unknown: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """A group's period; a part that the lake does not have is None or empty.

    Attributes
    ----------
    since, until
        The period: slots of its first and last reading.
    finished_at
        When the last one ended; what is known of a later time is left out where an end was asked for.
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
        Rows of `evenlag.queries.plans.plan_rows`, newest first, as they were at the period's end.
    num_by_event
        What happened to plans in the period: event → how often.
    """

    cluster: str
    group_id: str
    since: datetime
    until: datetime
    finished_at: datetime
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
