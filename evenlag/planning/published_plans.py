"""Published plans, from the events of plans: which hint each one was, and what ended it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import zip_longest
from typing import Any, Final

from evenlag.enums import PlanEvent

# Events that end a published plan.
ENDINGS: Final = (PlanEvent.APPLIED, PlanEvent.IGNORED, PlanEvent.EXPIRED, PlanEvent.WITHDRAWN)
# What following cost the group, by the publishing that waited for it.
COST_COLUMNS: Final = ("follow_ms", "rebalancing_ms", "num_triggers")
EVENT_COLUMNS: Final = (
    "day",
    "snapshot_id",
    "plan_id",
    "group_id",
    "event",
    "reason",
    "at",
    "sequence",
    "expires_at",
    *COST_COLUMNS,
)


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """A plan whose hint was published.

    published_at, expires_at: When its hint was published, and when it expires.
    next_plan_id, next_at: The next hint of the group; None for its last one.
    ending: The event that ended the plan, if any: (event, reason).
    cost: :data:`COST_COLUMNS`; None where the publishing did not see it.
    """

    plan_id: str
    group_id: str
    snapshot_id: str
    day: date
    published_at: datetime
    expires_at: datetime | None
    next_plan_id: str | None = None
    next_at: datetime | None = None
    ending: tuple[str, str | None] | None = None
    cost: Mapping[str, int | None] = field(default_factory=lambda: dict.fromkeys(COST_COLUMNS))

    @property
    def is_withdrawn(self) -> bool:
        """Whether a person withdrew the hint."""
        return self.ending is not None and self.ending[0] == PlanEvent.WITHDRAWN


def find_published(events: Iterable[Mapping[str, Any]]) -> list[PublishedPlan]:
    """Return the published plans, ordered by group and sequence.

    events: Rows of ``plan_events`` of one cluster with :data:`EVENT_COLUMNS`: PUBLISHED and
        :data:`ENDINGS`, of whole groups.
    """
    published: dict[str, Mapping[str, Any]] = {}
    endings: dict[str, tuple[str, str | None]] = {}
    for row in sorted(events, key=lambda row: (row["at"], row["plan_id"])):
        if row["event"] == PlanEvent.PUBLISHED:
            published.setdefault(row["plan_id"], row)
        # A withdrawal says more than an outcome that was recorded beside it.
        elif row["plan_id"] not in endings or row["event"] == PlanEvent.WITHDRAWN:
            endings[row["plan_id"]] = (row["event"], row["reason"])
    ordered = sorted(published.values(), key=lambda row: (row["group_id"], row["sequence"], row["plan_id"]))
    found = []
    for row, following in zip_longest(ordered, ordered[1:]):
        later = following if following is not None and following["group_id"] == row["group_id"] else None
        found.append(
            PublishedPlan(
                plan_id=row["plan_id"],
                group_id=row["group_id"],
                snapshot_id=row["snapshot_id"],
                day=row["day"],
                published_at=row["at"],
                expires_at=row["expires_at"],
                next_plan_id=None if later is None else later["plan_id"],
                next_at=None if later is None else later["at"],
                ending=endings.get(row["plan_id"]),
                cost={name: row[name] for name in COST_COLUMNS},
            )
        )
    return found
