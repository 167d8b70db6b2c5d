"""Which plans may be published: the publisher's own check.

An APPROVED event alone is not enough to publish. A plan must have been made to be published (never in mode
shadow, never by a comparison), approved by an actor who may approve it, and have a recorded passed verdict
of every gate. Where the policy configures a key, all rows of the plan must be as they were sealed.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple

from assignor_core.errors import HintError
from assignor_core.hint import HintPayload, plan_id
from evenlag.enums import Channel, Mode, PlanEvent
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import PLAN_EVENTS
from evenlag.policy.gates import GATES
from evenlag.policy.loader import LoadedPolicy
from evenlag.publishing.answers.actors import JOB_ACTORS, Actor, why_not
from evenlag.publishing.sealing.row_seal import Sealer
from evenlag.publishing.sealing.verified_plans import (
    FaultyPlan,
    VerifiedPlan,
    event_files,
    oldest_day,
    read_plans,
)

PUBLISHING_MODES: Final = (Mode.APPROVE, Mode.AUTO)
ENDED: Final = frozenset(PlanEvent) - {PlanEvent.PROPOSED, PlanEvent.APPROVED}


class Approved(NamedTuple):
    """Where to look for approved plans: events name them, and anybody may have written those.

    open_ids: Plans with an approval and no end.
    newer_ids: Ended plans of the same groups with an approval, and of later snapshots.
    """

    open_ids: frozenset[str] = frozenset()
    newer_ids: frozenset[str] = frozenset()
    ended_ids: frozenset[str] = frozenset()


def find_approved(
    reader: LakeReader, cluster: str, since: date, only: Collection[str] | None = None
) -> Approved:
    """Return the plans that may be approved, by events alone; :func:`read_plans` says which ones are."""
    found = reader.read_checked(
        PLAN_EVENTS,
        ("event", "in", [PlanEvent.APPROVED.value, *sorted(ENDED)]),
        filters=event_files(cluster, since),
        columns=["plan_id", "group_id", "snapshot_id", "event"],
    )
    events = [row for row in found.rows.to_pylist() if row["plan_id"] is not None]
    ended = {row["plan_id"] for row in events if row["event"] != PlanEvent.APPROVED}
    approved = [row for row in events if row["event"] == PlanEvent.APPROVED]
    opened = [
        row for row in approved if row["plan_id"] not in ended and (only is None or row["plan_id"] in only)
    ]
    oldest: dict[str | None, str] = {}
    for row in opened:
        own = row["snapshot_id"] or ""
        oldest[row["group_id"]] = min(own, oldest.get(row["group_id"], own))
    open_ids = frozenset(row["plan_id"] for row in opened)
    newer = frozenset(
        row["plan_id"]
        for row in approved
        if row["group_id"] in oldest and (row["snapshot_id"] or "") >= oldest[row["group_id"]]
    )
    return Approved(open_ids, newer - open_ids, frozenset(ended))


def read_publishable(
    loaded: LoadedPolicy,
    cluster: str,
    slot: datetime,
    *,
    only: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Read the plans that are approved and have not ended, by group, oldest first.

    Returns their heads with ``approved_at, approved_by`` and ``refusal``: why it must not be published.
    """
    reader, since = LakeReader(loaded.policy.lake), oldest_day(slot.astimezone(UTC))
    found = find_approved(reader, cluster, since, only)
    if not found.open_ids:
        return []
    sealer = Sealer.of(loaded.policy.clusters[cluster])
    plans = read_plans(reader, sealer, cluster, since, found.open_ids | found.newer_ids)
    newest = _newest_approved(plans.values())
    refused, others = [], []
    for name in sorted(found.open_ids & plans.keys()):
        plan = plans[name]
        if isinstance(plan, FaultyPlan):
            refused.append(_faulty_row(plan, slot))
        elif plan.approval is not None and not any(row["event"] in ENDED for row in plan.events):
            others.append(_row(loaded, cluster, plan, newest))
    others.sort(key=lambda plan: (plan["group_id"], plan["slot"]))
    return refused + [plan for plan in others if plan["slot"] <= slot]


def _faulty_row(plan: FaultyPlan, slot: datetime) -> dict[str, Any]:
    """What is needed to refuse a plan."""
    known = {"day": plan.day or slot.astimezone(UTC).date(), "group_type": None, "refusal": plan.fault}
    return known | {name: getattr(plan, name) for name in ("plan_id", "group_id", "snapshot_id")}


def _row(
    loaded: LoadedPolicy, cluster: str, plan: VerifiedPlan, newest: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    """The plan's head, its approval, and why it must not be published."""
    approval: Mapping[str, Any] = plan.approval or {}
    row = {**plan.head, "approved_at": approval["at"], "approved_by": approval["actor"]}
    mode = loaded.policy.group_settings(cluster, row["group_id"]).mode
    refusal = _refusal(row, mode, plan.verdicts, newest)
    return row | {"refusal": refusal or _foreign_approval(loaded, cluster, row, approval)}


def _refusal(
    plan: Mapping[str, Any],
    policy_mode: Mode,
    verdicts: Mapping[str, bool],
    newest: Mapping[str, tuple[str, str]],
) -> str | None:
    missing = [gate.name for gate in GATES if not verdicts.get(gate.name, False)]
    checks = (
        (not _is_own_payload(plan), "the payload is not the one that was approved"),
        (
            plan["mode"] not in {mode.value for mode in PUBLISHING_MODES},
            f"a plan of mode {plan['mode']} is never published, whoever approved it",
        ),
        (
            plan["mode"] != Mode.AUTO.value and plan["approved_by"] in JOB_ACTORS,
            f"a plan of mode {plan['mode']} is for a person to approve, not for {plan['approved_by']}",
        ),
        (bool(missing), f"no passed verdict of these gates is on record: {', '.join(missing)}"),
        (policy_mode not in PUBLISHING_MODES, f"the group's mode is {policy_mode.value} by now"),
        (
            (plan["snapshot_id"], plan["plan_id"]) < newest[plan["group_id"]],
            "a newer plan of the group is approved or published",
        ),
    )
    return next((reason for is_refused, reason in checks if is_refused), None)


def _is_own_payload(plan: Mapping[str, Any]) -> bool:
    """Whether a plan has the payload that its id is the hash of, and it is one of its group."""
    payload = (plan["payload"] or "").encode()
    if plan["plan_id"] != plan_id(payload):
        return False
    try:
        return bool(HintPayload.decode(payload).group_id == plan["group_id"])
    except HintError:
        return False


def _foreign_approval(
    loaded: LoadedPolicy, cluster: str, plan: Mapping[str, Any], approval: Mapping[str, Any]
) -> str | None:
    """Why the present policy does not accept who approved a plan: it, or its approvers, may have changed."""
    if plan["mode"] != Mode.APPROVE.value:
        return None
    channel = approval["channel"]
    known = Channel(channel) if channel in set(Channel) else None
    return why_not(loaded.policy, cluster, plan["group_id"], Actor(approval["actor"], known))


def _newest_approved(plans: Iterable[VerifiedPlan | FaultyPlan]) -> dict[str, tuple[str, str]]:
    """The newest approved plan of each group; snapshot ids begin with their slots.

    Published plans count too: a repeat must not replace the plan that its first try published by an older
    one.
    """
    newest: dict[str, tuple[str, str]] = {}
    for plan in plans:
        if isinstance(plan, VerifiedPlan) and plan.approval is not None:
            own = (plan.head["snapshot_id"], plan.head["plan_id"])
            newest[plan.head["group_id"]] = max(own, newest.get(plan.head["group_id"], own))
    return newest
