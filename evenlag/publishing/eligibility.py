"""Which plans may be published: the publisher's own check.

An APPROVED event alone is not enough to publish. A plan must have been made to be published (never in mode
shadow, never by a comparison), approved by an actor who may approve it, and have a recorded passed verdict
of every gate. Where the policy configures a key, all rows of the plan must be as they were sealed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from assignor_core.hint import plan_id
from evenlag.enums import Channel, Mode, PlanEvent
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import GATE_RESULTS, PLAN_EVENTS, PLANS
from evenlag.policy.gates import GATES
from evenlag.publishing.answers.actors import JOB_ACTORS, POLICY_ACTOR, Actor, why_not
from evenlag.publishing.sealing.row_seal import Sealer
from evenlag.publishing.sealing.sealed_plans import check_plans

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import date

    from evenlag.lake.file_pruning import Filter
    from evenlag.policy.cluster_settings import ClusterSettings
    from evenlag.policy.loader import LoadedPolicy

PUBLISHING_MODES: Final = (Mode.APPROVE, Mode.AUTO)
# Maximum age of an approved plan: longer than the longest approval_timeout_s. The groups of older plans have
# changed.
PUBLISHABLE_FOR: Final = timedelta(days=8)
ENDED: Final = frozenset(
    {
        PlanEvent.REJECTED,
        PlanEvent.PUBLISHED,
        PlanEvent.EXPIRED,
        PlanEvent.WITHDRAWN,
        PlanEvent.APPLIED,
        PlanEvent.IGNORED,
    }
)
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
    since = (slot.astimezone(UTC) - PUBLISHABLE_FOR).date()
    recent: list[Filter] = [("cluster", "=", cluster), ("day", ">=", since)]
    columns = ["plan_id", "group_id", "snapshot_id", "day", "event", "actor", "channel", "at"]
    told: list[Filter] = [*recent, ("event", "in", {PlanEvent.APPROVED, PlanEvent.PUBLISHED})]
    events = reader.read_events(filters=told, columns=columns).to_pylist()
    approvals = _open_approvals(reader, recent, events, only)
    if not approvals:
        return []
    faults = _seal_faults(reader, loaded.policy.clusters[cluster], cluster, since, approvals)
    sound = approvals.keys() - faults.keys()
    plans = _edited_plans(approvals, faults)
    if not sound:
        return plans
    wanted: list[Filter] = [*recent, ("plan_id", "in", sorted(sound))]
    heads = reader.read(PLANS, columns=_HEAD_COLUMNS, filters=wanted)
    verdicts = reader.read(GATE_RESULTS, columns=["plan_id", "gate", "passed"], filters=wanted).to_pylist()
    passed = {(row["plan_id"], row["gate"]): row["passed"] for row in verdicts}
    newest = _newest_plans(row for row in events if row["plan_id"] not in faults)
    allowed = set(modes) & set(PUBLISHING_MODES)
    for head in heads.sort_by([("group_id", "ascending"), ("slot", "ascending")]).to_pylist():
        policy_mode = loaded.policy.group_settings(cluster, head["group_id"]).mode
        if head["slot"] > slot or (policy_mode in PUBLISHING_MODES and policy_mode not in allowed):
            continue
        approval = approvals[head["plan_id"]]
        plan = head | {"approved_at": approval["at"], "approved_by": approval["actor"]}
        is_old = (head["snapshot_id"], head["plan_id"]) < newest[head["group_id"]]
        refusal = _refusal(plan, policy_mode, passed, is_superseded=is_old)
        plans.append(plan | {"refusal": refusal or _foreign_approval(loaded, cluster, plan, approval)})
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
    return bool(plan["approved_by"] == POLICY_ACTOR)


def _open_approvals(
    reader: LakeReader,
    recent: Sequence[Filter],
    events: Iterable[Mapping[str, Any]],
    only: Collection[str] | None,
) -> dict[str, Mapping[str, Any]]:
    """The approval of each plan that has not ended."""
    approvals = {
        row["plan_id"]: row
        for row in events
        if row["event"] == PlanEvent.APPROVED
        and row["plan_id"] is not None
        and (only is None or row["plan_id"] in only)
    }
    if approvals:
        ids: Filter = ("plan_id", "in", sorted(approvals))
        ended: list[Filter] = [*recent, ids, ("event", "in", ENDED)]
        for plan_id in reader.read(PLAN_EVENTS, columns=["plan_id"], filters=ended)["plan_id"].to_pylist():
            approvals.pop(plan_id, None)
    return approvals


def _seal_faults(
    reader: LakeReader, settings: ClusterSettings, cluster: str, since: date, plan_ids: Collection[str]
) -> dict[str, str]:
    """Why plans are not as they were sealed, by plan id; nothing is sealed without a key."""
    sealer = Sealer.of(settings)
    if sealer is None:
        return {}
    checks = check_plans(reader, sealer, cluster, since, plan_ids)
    return {plan_id: check.fault for plan_id, check in checks.items() if check.fault is not None}


def _edited_plans(
    approvals: Mapping[str, Mapping[str, Any]], faults: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What is needed to refuse plans; nothing else in their rows is relied on, not even its type."""
    empty: dict[str, Any] = dict.fromkeys(_HEAD_COLUMNS)
    plans = []
    for name, fault in sorted(faults.items()):
        row = approvals[name]
        own = {column: row[column] or "" for column in ("group_id", "snapshot_id")}
        approved = {"approved_at": row["at"], "approved_by": row["actor"], "refusal": fault}
        plans.append(empty | own | approved | {"plan_id": name, "day": row["day"]})
    return plans


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


def _foreign_approval(
    loaded: LoadedPolicy, cluster: str, plan: Mapping[str, Any], approval: Mapping[str, Any]
) -> str | None:
    """Why the policy, as it is now, does not accept who approved a plan; None if it does.

    A command may have used another policy, and the approvers may have changed since.
    """
    if plan["mode"] != Mode.APPROVE.value:
        return None
    channel = approval["channel"]
    known = Channel(channel) if channel in set(Channel) else None
    return why_not(loaded.policy, cluster, plan["group_id"], Actor(approval["actor"], known))


def _newest_plans(events: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """The newest approved or published plan of each group; snapshot ids begin with their slots.

    Published plans count too: a repeat must not replace the plan that its first try published by an older
    one.
    """
    newest: dict[str, tuple[str, str]] = {}
    for row in events:
        plan = (row["snapshot_id"], row["plan_id"])
        # Anybody who can write the lake can write an event, also one without values.
        if row["event"] in {PlanEvent.APPROVED, PlanEvent.PUBLISHED} and None not in plan:
            newest[row["group_id"]] = max(plan, newest.get(row["group_id"], plan))
    return newest
