"""Plans whose rows in the lake are not as they were sealed.

Checked are the plans that may still be published: those that are approved, those that wait for a user, and
those of the newest decided snapshot. Plans that were refused for it are reported for two days. Rows of other
plans are history: nothing depends on them.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import Mode, PlanEvent
from evenlag.errors import SecretError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import DECISIONS, PLAN_EVENTS, PLANS
from evenlag.logging_setup import named_logger
from evenlag.publishing.approvals import asked_plans
from evenlag.publishing.publishable_plans import find_approved
from evenlag.publishing.sealing.row_seal import Sealer
from evenlag.publishing.sealing.verified_plans import (
    NOT_AS_SEALED,
    FaultyPlan,
    is_followed,
    oldest_day,
    read_plans,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.policy.loader import LoadedPolicy

_LOG = named_logger(__name__)
# How long a refused plan is a fault, within ``PUBLISHABLE_FOR``. Its group has newer plans by then.
_REPORTED_FOR: Final = timedelta(days=2)
_GONE: Final = f"{NOT_AS_SEALED}it is of mode auto, and neither approved nor rejected"
_NO_GROUP: Final = "no group"


def find_edited_plans(
    reader: LakeReader,
    loaded: LoadedPolicy,
    cluster: str,
    decided: Mapping[str, Any] | None,
    now: datetime,
) -> dict[str, str] | None:
    """Find the plans whose rows were edited, removed or added.

    Returns description by group id; None where the policy configures no key.
    decided: The newest snapshot, if its decisions are complete.
    """
    sealer = Sealer.of(loaded.policy.clusters[cluster])
    if sealer is None:
        return None
    # A file that cannot be read keeps no fault of another plan from being reported.
    reader = LakeReader(reader.paths.root, skip_unreadable=True)
    since = oldest_day(now)
    faults = _refused(reader, cluster, (now - _REPORTED_FOR).date())
    newest = set() if decided is None else _plans_of(reader, decided)
    approved = find_approved(reader, cluster, since)
    ids = approved.open_ids | ((newest | asked_plans(reader, cluster, now)) - approved.ended_ids)
    try:
        plans = read_plans(reader, sealer, cluster, since, ids)
    except SecretError as error:
        # The publisher has the key: what it refuses is known here.
        _LOG.warning("the seals of %d plans are not checked here: %s", len(ids), error)
        plans = {}
    for plan_id, plan in sorted(plans.items()):
        if isinstance(plan, FaultyPlan):
            _add(faults, plan.group_id, plan_id, plan.fault)
        elif plan_id in newest and plan.approval is None and plan.head["mode"] == Mode.AUTO:
            _add(faults, plan.head["group_id"], plan_id, _GONE)
    return {group_id: "; ".join(messages) for group_id, messages in faults.items()}


def _add(faults: dict[str, list[str]], group_id: str | None, plan_id: str | None, fault: str) -> None:
    """Add a fault of a plan; whoever edits rows may leave either id out."""
    faults[group_id or _NO_GROUP].append(f"plan {str(plan_id)[:12]} is {fault}")


def _refused(reader: LakeReader, cluster: str, since: date) -> dict[str, list[str]]:
    """The plans that the publisher, a user's approval or the step ``decide`` has refused."""
    wanted: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", ">=", since),
        ("event", "in", [PlanEvent.REJECTED.value, PlanEvent.EXPIRED.value]),
    ]
    columns = ["plan_id", "group_id", "reason"]
    faults: dict[str, list[str]] = defaultdict(list)
    for row in reader.read(PLAN_EVENTS, columns=columns, filters=wanted).to_pylist():
        if (row["reason"] or "").startswith(NOT_AS_SEALED):
            _add(faults, row["group_id"], row["plan_id"], row["reason"])
    return faults


def _plans_of(reader: LakeReader, snapshot: Mapping[str, Any]) -> set[str]:
    """Plans of a snapshot that may be published, by their decision or by their head."""
    wanted: list[Filter] = [(name, "=", snapshot[name]) for name in ("cluster", "day", "snapshot_id")]
    rows = [
        row
        for table in (PLANS, DECISIONS)
        for row in reader.read(table, columns=["plan_id", "mode"], filters=wanted).to_pylist()
    ]
    return {row["plan_id"] for row in rows if is_followed(row)}
