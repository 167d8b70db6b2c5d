"""Which plans may be published: the publisher's own check.

An APPROVED event alone is not enough to publish. A plan must have been made to be published (never in mode
shadow, never by a comparison), approved by an actor who may approve it, and have a recorded passed verdict
of every gate.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from assignor_core.hint import plan_id
from evenlag.enums import Mode, PlanEvent
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import GATE_RESULTS, PLANS
from evenlag.policy.gates import GATES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from evenlag.policy.loader import LoadedPolicy

PUBLISHING_MODES: Final = (Mode.APPROVE, Mode.AUTO)
# Maximum age of an approved plan: longer than the longest approval_timeout_s. The groups of older plans have
# changed.
_LOOK_BACK: Final = timedelta(days=8)
_ENDED: Final = frozenset(
    {
        PlanEvent.REJECTED,
        PlanEvent.PUBLISHED,
        PlanEvent.EXPIRED,
        PlanEvent.WITHDRAWN,
        PlanEvent.APPLIED,
        PlanEvent.IGNORED,
    }
)
# Actors that jobs record. Any other actor is a user, or a user's command.
_POLICY_ACTOR: Final = "policy"
JOB_ACTORS: Final = frozenset({_POLICY_ACTOR, "planner", "gates", "observer", "evenlag"})
_HEAD_COLUMNS: Final = (
    "plan_id",
    "group_id",
    "snapshot_id",
    "slot",
    "day",
    "mode",
    "gain",
    "group_type",
    "fingerprint",
    "payload",
)


def read_publishable(
    loaded: LoadedPolicy,
    cluster: str,
    slot: datetime,
    modes: Iterable[Mode] = PUBLISHING_MODES,
    *,
    only: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Read the plans that are approved and have not ended.

    Parameters
    ----------
    loaded
        The policy; its current modes apply too.
    cluster
        Name of the cluster in the policy.
    slot
        Plans of later slots are ignored.
    modes
        Current modes of the groups to read plans of.
    only
        Ids of the plans to read; all when None.

    Returns
    -------
    list of dict
        Heads of plans by group, oldest first, with ``approved_at, approved_by`` and ``refusal``: why the plan
        must not be published, None when it may be.

    Raises
    ------
    LakeError
        When a table cannot be read.
    """
    reader = LakeReader(loaded.policy.lake)
    since = (slot.astimezone(UTC) - _LOOK_BACK).date()
    recent = [("cluster", "=", cluster), ("day", ">=", since)]
    columns = ["plan_id", "group_id", "snapshot_id", "event", "actor", "at"]
    told = [*recent, ("event", "in", {PlanEvent.APPROVED, PlanEvent.PUBLISHED})]
    events = reader.read_events(filters=told).select(columns).to_pylist()
    approvals = {
        row["plan_id"]: row
        for row in events
        if row["event"] == PlanEvent.APPROVED and (only is None or row["plan_id"] in only)
    }
    if approvals:
        ids = ("plan_id", "in", sorted(approvals))
        endings = reader.read_events(filters=[*recent, ids, ("event", "in", _ENDED)])
        for ended in endings["plan_id"].to_pylist():
            approvals.pop(ended, None)
    if not approvals:
        return []
    wanted = [*recent, ("plan_id", "in", sorted(approvals))]
    heads = reader.read(PLANS, columns=_HEAD_COLUMNS, filters=wanted)
    verdicts = reader.read(GATE_RESULTS, columns=["plan_id", "gate", "passed"], filters=wanted).to_pylist()
    passed = {(row["plan_id"], row["gate"]): row["passed"] for row in verdicts}
    newest = _newest_plans(events)
    allowed = set(modes) & set(PUBLISHING_MODES)
    plans = []
    for head in heads.sort_by([("group_id", "ascending"), ("slot", "ascending")]).to_pylist():
        policy_mode = loaded.policy.group_settings(cluster, head["group_id"]).mode
        if head["slot"] > slot or (policy_mode in PUBLISHING_MODES and policy_mode not in allowed):
            continue
        approval = approvals[head["plan_id"]]
        plan = head | {"approved_at": approval["at"], "approved_by": approval["actor"]}
        is_old = (head["snapshot_id"], head["plan_id"]) < newest[head["group_id"]]
        plans.append(plan | {"refusal": _refusal(plan, policy_mode, passed, is_superseded=is_old)})
    return plans


def is_approved_by_policy(plan: Mapping[str, Any]) -> bool:
    """Whether the policy approved a plan, not a user.

    Parameters
    ----------
    plan
        A row of :func:`read_publishable`.

    Returns
    -------
    bool
        True when the approval's actor is the policy.
    """
    return bool(plan["approved_by"] == _POLICY_ACTOR)


def _refusal(
    plan: Mapping[str, Any],
    policy_mode: Mode,
    passed: Mapping[tuple[str, str], bool],
    *,
    is_superseded: bool,
) -> str | None:
    missing = [gate.name for gate in GATES if not passed.get((plan["plan_id"], gate.name), False)]
    checks = (
        (
            plan["plan_id"] != plan_id(plan["payload"].encode()),
            "the payload is not the one that was approved",
        ),
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
        (is_superseded, "a newer plan of the group is approved or published"),
    )
    return next((reason for is_refused, reason in checks if is_refused), None)


def _newest_plans(events: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """The newest approved or published plan of each group; snapshot ids begin with their slots.

    Published plans count too: a repeat must not replace the plan that its first try published by an older
    one.
    """
    newest: dict[str, tuple[str, str]] = {}
    for row in events:
        if row["event"] in {PlanEvent.APPROVED, PlanEvent.PUBLISHED}:
            plan = (row["snapshot_id"], row["plan_id"])
            newest[row["group_id"]] = max(plan, newest.get(row["group_id"], plan))
    return newest
