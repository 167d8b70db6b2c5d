"""Counts of what became of a cluster's plans and hints, for its metrics: a bounded number of rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import Outcome, OutcomeReason, PlanEvent
from evenlag.lake.tables import OUTCOMES, PLAN_EVENTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

WINDOW: Final = timedelta(hours=24)
"""Period of the counts of events and outcomes."""
_LAST_PUBLISH_WITHIN: Final = timedelta(days=30)
# A withdrawal is an event of a person, and no row of `outcomes`: it is its own reason.
_WITHDRAWN: Final = (Outcome.WITHDRAWN.value, Outcome.WITHDRAWN.value)
# What a row of an earlier version may lack.
_UNRECORDED: Final = tuple(
    (outcome.value, OutcomeReason.UNKNOWN.value) for outcome in (Outcome.IGNORED, Outcome.EXPIRED)
)
OUTCOME_REASONS: Final = tuple(
    dict.fromkeys(
        [*((reason.outcome.value, reason.value) for reason in OutcomeReason), *_UNRECORDED, _WITHDRAWN]
    )
)
"""Every pair of an outcome and its reason."""


@dataclass(frozen=True, slots=True)
class ClusterCounts:
    """What the lake's plans add to the metrics of a cluster.

    events: Plan events of the last 24 hours, by event.
    outcomes: Published plans that ended in the last 24 hours, by (outcome, reason), see
        :data:`OUTCOME_REASONS`.
    published_at: The newest publication of the last 30 days; None if there is none.
    """

    events: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    published_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PlanRows:
    """The rows to count. They are the same until one of their tables changes; the counts are not.

    events: Rows of ``plan_events``, of somewhat more than the last 24 hours.
    published_at: When the newest plan was published; None: not in 30 days.
    """

    events: Sequence[Mapping[str, Any]]
    outcomes: Sequence[Mapping[str, Any]]
    published_at: datetime | None

    def count(self, now: datetime) -> ClusterCounts:
        """Count what happened in the 24 hours before a time."""
        since = now - WINDOW
        # A repeated run may write an event again.
        seen = {(row["plan_id"], row["event"]) for row in self.events if row["at"] >= since}
        published = {row["plan_id"] for row in self.events if row["event"] == PlanEvent.PUBLISHED}
        ended = {row["plan_id"]: _outcome(row) for row in self.outcomes if row["slot"] >= since}
        # A withdrawal says more than an outcome beside it; what was never published was no hint.
        ended |= {
            plan_id: _WITHDRAWN
            for plan_id, event in seen
            if event == PlanEvent.WITHDRAWN and plan_id in published
        }
        return ClusterCounts(
            events=Counter(event for _, event in seen),
            outcomes=Counter(ended.values()),
            published_at=self.published_at,
        )


def read_plan_rows(reader: LakeReader, cluster: str, now: datetime) -> PlanRows:
    """Read the rows to count: a bounded number, whatever the lake's age."""
    # The day is that of the plan's snapshot: an event may come a day later, for example an answer.
    recent: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", ">=", (now - WINDOW - timedelta(days=1)).date()),
    ]
    published = reader.read_newest(
        PLAN_EVENTS,
        "at",
        columns=["at"],
        filters=[
            ("cluster", "=", cluster),
            ("day", ">=", (now - _LAST_PUBLISH_WITHIN).date()),
            ("event", "=", PlanEvent.PUBLISHED.value),
        ],
    ).to_pylist()
    return PlanRows(
        events=reader.read(PLAN_EVENTS, columns=["plan_id", "event", "at"], filters=recent).to_pylist(),
        outcomes=reader.read(
            OUTCOMES, columns=["plan_id", "outcome", "reason_code", "slot"], filters=recent
        ).to_pylist(),
        published_at=published[0]["at"] if published else None,
    )


def _outcome(row: Mapping[str, Any]) -> tuple[str, str]:
    """Outcome and reason of a row; a row of an earlier version, or an edited one, has no known reason."""
    found = (row["outcome"], row["reason_code"])
    if found in OUTCOME_REASONS:
        return found
    is_applied = row["outcome"] == Outcome.APPLIED
    return row["outcome"], (OutcomeReason.AS_HINTED if is_applied else OutcomeReason.UNKNOWN).value
