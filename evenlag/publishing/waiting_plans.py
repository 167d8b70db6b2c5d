"""Plans that wait for a user's approval.

A plan waits when it was made in mode ``approve``, passed its gates and has no decision yet, and its group
still is in mode ``approve``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.enums import Mode
from evenlag.errors import JobError
from evenlag.formatting import answered_by
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.lake.tables import PLANS
from evenlag.publishing.sealing.row_seal import Sealer
from evenlag.publishing.sealing.verified_plans import (
    PUBLISHABLE_FOR,
    FaultyPlan,
    VerifiedPlan,
    oldest_day,
    read_plans,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.policy.loader import LoadedPolicy


class NotWaitingError(JobError, exit_code=2):
    """Raised when a plan does not wait for approval; the message has the reason."""


class AlreadyDecidedError(NotWaitingError):
    """Raised when a plan is already decided or has ended, by a recorded event."""

    def __init__(self, message: str, event: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.event = event


class EditedPlanError(NotWaitingError):
    """Raised when the rows of a plan are not as they were sealed; the message names the row."""

    def __init__(self, plan: FaultyPlan) -> None:
        super().__init__(
            f"plan {plan.plan_id[:12]} cannot be approved, it is {plan.fault}; approve a newer plan"
        )
        self.plan = plan


def find_waiting(loaded: LoadedPolicy, cluster: str, slot: datetime) -> list[VerifiedPlan]:
    """Read the plans of a slot that wait for approval, by group."""
    reader = LakeReader(loaded.policy.lake, skip_unreadable=True)
    # Tables store milliseconds; the slot of a manual run has microseconds.
    slot = floor_to_ms(slot)
    wanted: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", "=", slot.date()),
        ("slot", "=", slot),
        ("mode", "=", Mode.APPROVE.value),
    ]
    ids = set(reader.read(PLANS, columns=["plan_id"], filters=wanted)["plan_id"].drop_null().to_pylist())
    sealer = Sealer.of(loaded.policy.clusters[cluster])
    found = read_plans(reader, sealer, cluster, slot.date(), ids, has_assignments=False)
    waiting = [
        plan
        for plan in found.values()
        if isinstance(plan, VerifiedPlan) and plan.head["slot"] == slot and _blocker(loaded, plan) is None
    ]
    return sorted(waiting, key=lambda plan: (plan.head["group_id"], plan.head["plan_id"]))


def read_plan(
    loaded: LoadedPolicy, cluster: str, plan_id: str, now: datetime, *, is_sealed: bool = True
) -> VerifiedPlan:
    """Return a plan of the last days; without `is_sealed` no seals are checked, for messages alone."""
    sealer = Sealer.of(loaded.policy.clusters[cluster]) if is_sealed else None
    found = read_plans(LakeReader(loaded.policy.lake), sealer, cluster, oldest_day(now), [plan_id])
    plan = found.get(plan_id)
    if plan is None:
        raise NotWaitingError(
            f"there is no plan {plan_id} on {cluster} of the last {PUBLISHABLE_FOR.days} days"
        )
    if isinstance(plan, FaultyPlan):
        raise EditedPlanError(plan)
    return plan


def check_waiting(loaded: LoadedPolicy, plan: VerifiedPlan) -> None:
    """Check that a plan waits for approval."""
    blocker = _blocker(loaded, plan)
    if blocker is None:
        return
    raise NotWaitingError(blocker) if plan.ending is None else AlreadyDecidedError(blocker, plan.ending)


def _blocker(loaded: LoadedPolicy, plan: VerifiedPlan) -> str | None:
    """Why a plan does not wait for approval; None when it does."""
    head, ending = plan.head, plan.ending
    name, group_id = f"plan {head['plan_id'][:12]}", head["group_id"]
    mode = loaded.policy.group_settings(head["cluster"], group_id).mode
    if head["mode"] != Mode.APPROVE.value:
        return f"{name} was made in mode {head['mode']}: only plans of mode approve wait for a person"
    if ending is not None:
        why = f": {ending['reason']}" if ending["reason"] else ""
        at = f"{ending['at']:%Y-%m-%d %H:%M:%S}Z"
        return f"{name} is {ending['event']} since {at} by {answered_by(ending)}{why}"
    if not plan.verdicts:
        return f"{name} has not been judged by the gates yet"
    if not all(plan.verdicts.values()):
        return f"{name} failed its gates"
    if mode is not Mode.APPROVE:
        return f"the group {group_id} is in mode {mode.value} by now: {name} waits for nobody"
    return None
