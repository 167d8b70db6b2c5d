"""Content of a report as plain values, independent of its layout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

# Events of a published hint, in this order.
HINT_EVENTS: Final = ("published", "followed", "not followed", "expired", "withdrawn")


class VerdictKind(StrEnum):
    """The color of a verdict: a followed plan made the lag more even, it brought nothing, or neither."""

    GOOD = "good"
    WARN = "warn"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happened in the period, in plain words: whether it was worth it, and the other plans."""

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

    unknown: Partitions with unknown lag of each of the three, which is a lower bound if there are any.
    speed: Its measured speed and the confidence in it, before the plan; empty: unknown.
    """

    name: str
    before: int | None
    predicted: int | None
    after: int | None
    unknown: tuple[int, int, int] = (0, 0, 0)
    speed: str = ""


@dataclass(frozen=True, slots=True)
class LagChange:
    """Lag of each member, largest first, before and after a plan; without one, in the newest snapshot.

    unknown_before, unknown_after: Partitions with unknown lag, and all partitions.
    drain_before_ms, drain_after_ms: As :func:`~evenlag.queries.lag.drain_times` has it.
    """

    members: tuple[MemberLag, ...]
    before_at: datetime
    plan_id: str | None = None
    status: str | None = None
    moves: int | None = None
    after_at: datetime | None = None
    unknown_before: tuple[int, int] = (0, 0)
    unknown_after: tuple[int, int] = (0, 0)
    drain_before_ms: float | None = None
    drain_after_ms: float | None = None

    @property
    def has_drain_times(self) -> bool:
        """Whether one of the two is known."""
        return (self.drain_before_ms, self.drain_after_ms) != (None, None)

    def largest(self, part: str) -> int | None:
        """Return the lag of the most loaded member: ``before``, ``predicted`` or ``after``."""
        known = [value for member in self.members if (value := getattr(member, part)) is not None]
        return max(known, default=None)


@dataclass(frozen=True, slots=True)
class Interval:
    """Time of one owner of a partition, or why there is none: up to the first snapshot that shows another.

    is_open: Whether the last snapshot of the period shows this owner; then `end` is its end.
    """

    partition: str
    owner: str | None
    what: str
    start: datetime
    end: datetime
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A ``rebalance``, or an event of a published ``hint`` (see `HINT_EVENTS`), when it was observed."""

    at: datetime
    kind: str
    text: str
    event: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Owners of the partitions over time, by first appearance; those with fewer changes may be left out."""

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

    num_unknown: Partitions with unknown lag at each time, which make it a lower bound; empty for replays.
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
class Report:
    """Report on a group and period; parts without data in the lake are None or empty.

    since, until: The period: slots of its first and last snapshot.
    finished_at: End of the last snapshot. If an end was requested, later data is left out.
    now, groups: The group, and all groups by lag, in the newest snapshot of the period: rows as
        `evenlag.report.read_report.group_lags` has them.
    policies, reasons: Rows of `evenlag.queries.comparisons.sum_up`, and why some could not be simulated.
    model: The error of the simulation, as `evenlag.queries.comparisons.model_row` has it.
    plans: Rows of `evenlag.queries.plan_rows.plan_rows`, newest first, as of the end of the period.
    num_snapshots_left_out: Snapshots at the beginning of the period that were not read: too many rows.
    advice: The group's row of ``advice`` of the last snapshot.
    partitions: Rows of `evenlag.queries.lag.partition_rows` of the last snapshot, with ``owner`` and ``host``
        as shown, and ``first_lag_records`` in the first snapshot of the period.
    """

    cluster: str
    group_id: str
    since: datetime
    until: datetime
    finished_at: datetime
    num_snapshots: int
    now: Mapping[str, Any]
    groups: Sequence[Mapping[str, Any]]
    verdict: Verdict
    change: LagChange | None
    timeline: Timeline | None
    observed: Series
    replayed: tuple[Series, ...] = ()
    policies: Sequence[Mapping[str, Any]] = ()
    reasons: tuple[str, ...] = ()
    model: Mapping[str, Any] | None = None
    hints: tuple[Mark, ...] = ()
    plans: Sequence[Mapping[str, Any]] = ()
    gates: tuple[GateSummary, ...] = ()
    decisions: tuple[DecisionSummary, ...] = ()
    num_by_event: Mapping[str, int] = field(default_factory=dict)
    num_snapshots_left_out: int = 0
    advice: Mapping[str, Any] | None = None
    partitions: Sequence[Mapping[str, Any]] = ()
