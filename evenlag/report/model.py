"""Content of a report as plain values, independent of its layout."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


# Events of a published hint, in this order.
HINT_EVENTS: Final = ("published", "followed", "not followed", "expired", "withdrawn")
# Beyond these relative errors of the model the page warns (ADR 84).
LARGE_MEDIAN_ERROR: Final = 0.1
LARGE_P95_ERROR: Final = 0.25


class VerdictKind(StrEnum):
    """How a verdict is colored; its words say the same."""

    GOOD = "good"
    WARN = "warn"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happened in the period, in plain words.

    kind: ``good``: a plan was followed and the lag is more even; ``warn``: it was not followed or brought
        nothing; ``plain``: neither.
    happened: What happened, with the lag of the most loaded member.
    evaluation: Whether it was worth it; empty if nothing was followed.
    others: What became of the other plans of the period; empty if there are none.
    """

    kind: VerdictKind
    happened: str
    evaluation: str = ""
    others: str = ""

    @property
    def text(self) -> str:
        """All of it, as one paragraph."""
        return " ".join(part for part in (self.happened, self.evaluation, self.others) if part)


@dataclass(frozen=True, slots=True)
class MemberLag:
    """Lag of a member in records: before a plan, as predicted by it, and observed after it; None: unknown.

    unknown: For each of the three, the number of partitions with unknown lag. If there are any, the lag is
        a lower bound.
    """

    name: str
    before: int | None
    predicted: int | None
    after: int | None
    unknown: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class LagChange:
    """Lag of each member before and after a plan; without a plan, `before` is the newest snapshot.

    members: By lag, largest first.
    before_at, after_at: Read times of the lag.
    plan_id, status, moves: Id and status of the plan, and the number of partitions that it moves; None
        without a plan.
    unknown_before, unknown_after: Number of partitions with unknown lag, and of all partitions, in the two
        snapshots.
    total_before, total_after: Known lag of the group in the two snapshots; None: unknown.
    drain_before_ms, drain_after_ms: Time until the group has no lag at the rates of the two snapshots, of
        the partition that takes longest. Infinite if a partition's lag does not shrink; None: unknown.
    """

    members: tuple[MemberLag, ...]
    before_at: datetime
    plan_id: str | None = None
    status: str | None = None
    moves: int | None = None
    after_at: datetime | None = None
    unknown_before: tuple[int, int] = (0, 0)
    unknown_after: tuple[int, int] = (0, 0)
    total_before: int | None = None
    total_after: int | None = None
    drain_before_ms: float | None = None
    drain_after_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """Time during which a partition had one owner: up to the first snapshot that shows another one.

    partition: ``topic-number``.
    owner: Name of the member; None if there is no known owner.
    what: Why there is no known owner; empty if there is one.
    start, end: Read time of the first snapshot with this owner, and of the first one without it; if
        `is_open`, the end of the last snapshot.
    is_open: Whether the last snapshot of the period shows this owner.
    """

    partition: str
    owner: str | None
    what: str
    start: datetime
    end: datetime
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """An event of the timeline, at the time at which it was observed.

    kind: ``rebalance`` or ``hint``.
    event: Event of a published hint, one of `HINT_EVENTS`; empty for a rebalance.
    """

    at: datetime
    kind: str
    text: str
    event: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Owners of the partitions over time.

    partitions: Names of the partitions shown, in order. If there are too many, those with the most changes
        of owner.
    owners: Names of the owners by first appearance.
    num_left_out: Number of partitions that are not shown.
    num_unaudited: Number of snapshots of the period that are not in the audit yet.
    """

    partitions: tuple[str, ...]
    owners: tuple[str, ...]
    intervals: tuple[Interval, ...]
    marks: tuple[Mark, ...]
    num_left_out: int = 0
    num_unaudited: int = 0


@dataclass(frozen=True, slots=True)
class Series:
    """Lag of the group and of its most loaded member over time, at the read times of the lag.

    The days of a replay are separated by None, so that no line connects them.

    num_unknown: Number of partitions with unknown lag at each time: if there are any, the lag is a lower
        bound. Empty if there are none at any time.
    unknown: Statuses of these partitions: (status, number of snapshots, largest number of partitions).
    """

    name: str
    at: tuple[datetime, ...]
    lag_records: tuple[int | None, ...]
    max_member_lag_records: tuple[int | None, ...]
    num_unknown: tuple[int, ...] = ()
    unknown: tuple[tuple[str, int, int], ...] = ()

    @property
    def peak(self) -> int | None:
        """Largest lag of the group; None if it is never known."""
        return max((value for value in self.lag_records if value is not None), default=None)


@dataclass(frozen=True, slots=True)
class GateSummary:
    """Results of a gate over the period: plans checked, plans rejected, and the last rejection."""

    gate: str
    num_judged: int
    num_failed: int
    last_refusal: str | None


@dataclass(frozen=True, slots=True)
class DecisionSummary:
    """Number of snapshots of the group with a planning decision, and its last reason."""

    decision: str
    count: int
    last_at: datetime
    reason: str | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group of the cluster in the newest snapshot; a lag of None is unknown.

    num_unknown: Number of partitions with unknown lag: if there are any, the lags are lower bounds.
    unknown: Number of these partitions by lag status.
    lag_bound: LOWER or UPPER: the lags are such bounds; None: they are exact.
    time_lag_ms, time_lag_at_least_ms: Largest time lag of a partition; where it is not known, a lower bound
        of it.
    not_subscribed: Number of partitions with a commit of topics that no member subscribes to, and their
        known lag. They are in none of the other numbers.
    """

    group_id: str
    num_members: int
    num_partitions: int
    lag_records: int | None
    max_member_lag_records: int | None
    num_unknown: int = 0
    unknown: Mapping[str, int] = field(default_factory=dict)
    lag_bound: str | None = None
    time_lag_ms: int | None = None
    time_lag_at_least_ms: int | None = None
    not_subscribed: tuple[int, int | None] = (0, None)


@dataclass(frozen=True, slots=True)
class Report:
    """Report on a group and period; parts without data in the lake are None or empty.

    since, until: The period: slots of its first and last snapshot.
    finished_at: End of the last snapshot. If an end was requested, later data is left out.
    num_snapshots: Number of snapshots that list the group.
    now: The group in the newest snapshot of the period.
    groups: All groups of that snapshot, by lag, largest first.
    verdict: What happened, and whether it was worth it.
    change: Lag of each member; None if no snapshot shows a member.
    timeline: Owners over time; None if the period has not been audited.
    observed, replayed: Observed lag, and simulated lag of each policy.
    policies, reasons: Rows of `evenlag.queries.comparisons.sum_up`, and why some could not be simulated.
    model_error: Error of the simulation of the real assignment; None: unknown.
    hints: Events of published hints in the period, oldest first.
    plans: Rows of `evenlag.queries.plan_rows.plan_rows`, newest first, as of the end of the period.
    num_by_event: Number of plan events in the period, by event.
    num_snapshots_left_out: Number of snapshots at the beginning of the requested period that were not read:
        it has too many rows.
    """

    cluster: str
    group_id: str
    since: datetime
    until: datetime
    finished_at: datetime
    num_snapshots: int
    now: GroupLag
    groups: tuple[GroupLag, ...]
    verdict: Verdict
    change: LagChange | None
    timeline: Timeline | None
    observed: Series
    replayed: tuple[Series, ...] = ()
    policies: Sequence[Mapping[str, Any]] = ()
    reasons: tuple[str, ...] = ()
    model_error: ModelError | None = None
    hints: tuple[Mark, ...] = ()
    plans: Sequence[Mapping[str, Any]] = ()
    gates: tuple[GateSummary, ...] = ()
    decisions: tuple[DecisionSummary, ...] = ()
    num_by_event: Mapping[str, int] = field(default_factory=dict)
    num_snapshots_left_out: int = 0


@dataclass(frozen=True, slots=True)
class ModelError:
    """How far the simulation of the real assignment is from the measured lag, over the snapshots with lag.

    median, p95: Relative error; over several days, the median of the days.
    text: Both, also in records, as `evenlag compare` says it.
    """

    median: float
    p95: float
    text: str

    @property
    def is_large(self) -> bool:
        """Whether small differences between candidates say nothing."""
        return self.median > LARGE_MEDIAN_ERROR or self.p95 > LARGE_P95_ERROR
