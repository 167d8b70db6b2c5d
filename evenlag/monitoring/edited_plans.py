"""Plans whose rows in the lake are not as they were sealed.

Checked are the plans that may still be published: those that are approved, those that wait for a user, and
those of the newest decided snapshot. Plans that were refused for it are reported for two days. Rows of other
plans are history: nothing depends on them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import Mode, PlanEvent, RequestState
from evenlag.errors import SecretError
from evenlag.lake.tables import APPROVAL_REQUESTS, DECISIONS, PLAN_EVENTS, PLANS
from evenlag.logging_setup import named_logger
from evenlag.publishing.eligibility import ENDED, PUBLISHABLE_FOR
from evenlag.publishing.sealing.row_seal import Sealer
from evenlag.publishing.sealing.sealed_plans import NOT_AS_SEALED, check_plans, is_followed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader
    from evenlag.policy.loader import LoadedPolicy

_LOG = named_logger(__name__)
# How long a refused plan is a fault, within PUBLISHABLE_FOR. Its group has newer plans by then.
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

    Parameters
    ----------
    reader, loaded, cluster
        The lake, the policy, and the cluster's name in it.
    decided
        The newest snapshot, if its decisions are complete.
    now
        The current time.

    Returns
    -------
    dict or None
        Description by group id; None where the policy configures no key.

    Raises
    ------
    LakeError
        If a table cannot be read.
    """
    sealer = Sealer.of(loaded.policy.clusters[cluster])
    if sealer is None:
        return None
    since = (now - PUBLISHABLE_FOR).date()
    recent: list[Filter] = [("cluster", "=", cluster), ("day", ">=", since)]
    events = _events(reader, recent)
    faults = _refused(events, (now - _REPORTED_FOR).date())
    approved = _texts([row for row in events if row["event"] == PlanEvent.APPROVED])
    ended = _texts([row for row in events if row["event"] in ENDED]).keys()
    newest = {} if decided is None else _plans_of(reader, decided)
    groups = {plan_id: row["group_id"] or _NO_GROUP for plan_id, row in newest.items()}
    groups |= approved | _requested(reader, recent, now)
    groups = {plan_id: group_id for plan_id, group_id in groups.items() if plan_id not in ended}
    try:
        checks = check_plans(reader, sealer, cluster, since, groups)
    except SecretError as error:
        # The publisher has the key: what it refuses is known here.
        _LOG.warning("the seals of %d plans are not checked here: %s", len(groups), error)
        checks = {}
    for plan_id, check in sorted(checks.items()):
        fault = check.fault
        is_open = plan_id in newest and plan_id not in approved
        if fault is None and is_open and newest[plan_id]["mode"] == Mode.AUTO:
            fault = _GONE
        if fault is not None:
            faults[groups[plan_id]] = f"plan {plan_id[:12]} is {fault}"
    return faults


def _refused(events: Sequence[Mapping[str, Any]], since: date) -> dict[str, str]:
    """The plans that the publisher, a user's approval or the step ``decide`` has refused."""
    return {
        row["group_id"] or _NO_GROUP: f"plan {str(row['plan_id'])[:12]} is {row['reason']}"
        for row in events
        if row["day"] >= since
        and row["event"] in {PlanEvent.REJECTED, PlanEvent.EXPIRED}
        and (row["reason"] or "").startswith(NOT_AS_SEALED)
    }


def _plans_of(reader: LakeReader, snapshot: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Plans of a snapshot that may be published, by their decision or by their head."""
    wanted: list[Filter] = [(name, "=", snapshot[name]) for name in ("cluster", "day", "snapshot_id")]
    columns = ["plan_id", "group_id", "mode"]
    rows = [
        row
        for table in (PLANS, DECISIONS)
        for row in reader.read(table, columns=columns, filters=wanted).to_pylist()
    ]
    return {row["plan_id"]: row for row in rows if is_followed(row)}


def _requested(reader: LakeReader, recent: Sequence[Filter], now: datetime) -> dict[str, str]:
    wanted: list[Filter] = [*recent, ("state", "=", RequestState.ASKED), ("answer_by", ">", now)]
    return _texts(reader.read(APPROVAL_REQUESTS, columns=["plan_id", "group_id"], filters=wanted).to_pylist())


def _events(reader: LakeReader, recent: Sequence[Filter]) -> list[dict[str, Any]]:
    kinds = sorted({PlanEvent.APPROVED, PlanEvent.REJECTED, PlanEvent.EXPIRED, *ENDED})
    wanted: list[Filter] = [*recent, ("event", "in", [str(kind) for kind in kinds])]
    columns = ["plan_id", "group_id", "reason", "event", "day"]
    found: list[dict[str, Any]] = reader.read(PLAN_EVENTS, columns=columns, filters=wanted).to_pylist()
    return found


def _texts(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Group by plan id; whoever edits rows may leave either out."""
    return {row["plan_id"]: row["group_id"] or _NO_GROUP for row in rows if row["plan_id"] is not None}
