"""Plans that a withdrawal of a group's hint concerns."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import PlanEvent
from evenlag.lake.snapshot_ids import slot_day
from evenlag.lake.tables import PLAN_EVENTS
from evenlag.publishing.eligibility import PUBLISHABLE_FOR
from evenlag.publishing.hint_topic import is_plausible

if TYPE_CHECKING:
    from assignor_core.hint import Hint
    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

# Events that end a plan, or its hint.
_NEVER_MORE: Final = frozenset(
    {
        PlanEvent.REJECTED,
        PlanEvent.EXPIRED,
        PlanEvent.WITHDRAWN,
        PlanEvent.PUBLISHED,
        PlanEvent.APPLIED,
        PlanEvent.IGNORED,
    }
)


def plans_to_withdraw(
    lake: LakeReader, cluster: str, group_id: str, hint: Hint | None
) -> tuple[list[dict[str, Any]], bool]:
    """Return the plans of a group to withdraw, and whether the lake has any published hint of the group.

    Parameters
    ----------
    lake
        Reader of the lake.
    cluster, group_id
        The cluster's name in the policy, and the group.
    hint
        The group's hint on the topic; None without one. One that no publisher of evenlag has written, going
        by its numbers, is not recorded.

    Returns
    -------
    tuple of (list of dict, bool)
        Each plan has ``plan_id``, ``snapshot_id`` and the ``sequence`` of its hint (None: not published).
        They are the plan of the hint on the topic or, without one, the last published plan that is not
        withdrawn yet; and the approved plans that may still be published.

    Raises
    ------
    LakeError
        When the events cannot be read.
    """
    of_group: list[Filter] = [("cluster", "=", cluster), ("group_id", "=", group_id)]
    newest = lake.read_newest(
        PLAN_EVENTS, "at", filters=[*of_group, ("event", "=", PlanEvent.PUBLISHED)]
    ).to_pylist()
    last = max(newest, key=lambda event: event["sequence"] or 0, default=None)
    since = (datetime.now(UTC) - PUBLISHABLE_FOR).date()
    if last is not None:
        since = min(since, last["day"])
    events = lake.read_events(filters=[*of_group, ("day", ">=", since)]).to_pylist()
    told: dict[str, set[str]] = {}
    for event in events:
        told.setdefault(event["plan_id"], set()).add(event["event"])
    plans = []
    if hint is not None and _is_recordable(hint):
        # Its PUBLISHED event is missing if the publisher was killed: the hint has its snapshot id.
        head = {"snapshot_id": hint.payload.snapshot_id, "sequence": hint.sequence}
        plans.append({"plan_id": hint.plan_id} | head)
    elif last is not None and PlanEvent.WITHDRAWN not in told.get(last["plan_id"], ()):
        plans.append(last)
    plans += [
        event | {"sequence": None}
        for event in events
        if event["event"] == PlanEvent.APPROVED
        and not told[event["plan_id"]] & _NEVER_MORE
        and event["plan_id"] not in {plan["plan_id"] for plan in plans}
    ]
    return plans, last is not None


def _is_recordable(hint: Hint) -> bool:
    """Whether a hint may be from a publisher: whoever writes to the topic chooses what it contains."""
    now_ms = time.time_ns() // 1_000_000
    if not is_plausible(hint, now_ms):
        return False
    try:
        day = slot_day(hint.payload.snapshot_id)
    except ValueError:
        return False
    issued_on = datetime.fromtimestamp(hint.issued_at_ms / 1000, UTC).date()
    return abs(issued_on - day) <= PUBLISHABLE_FOR
