"""The page of events, states and reasons: what tables, logs and answers write in capitals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.enums import AnomalyKind, Certainty, HintVerdict, RebalanceCause
from evenlag.consumer.events import IGNORED, Reason
from evenlag.enums import (
    AlertState,
    ControlAction,
    DecisionKind,
    LagStatus,
    OwnershipState,
    PlanEvent,
    RequestState,
)
from evenlag.monitoring.alerts import KINDS
from release.reference.form import page, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_INTRODUCTION: Final = """\
Look up a value in capitals in tables, logs, metrics or answers."""
_DECISIONS: Final = {
    DecisionKind.PROPOSED: "a plan was made",
    DecisionKind.BREACH: "a change is wanted, but not yet by `min_breaches` consecutive snapshots",
    DecisionKind.NO_CHANGE: "the assignment is the best one within the limits",
    DecisionKind.NOT_PLANNED: "the group cannot or must not be planned: the reason says why",
    DecisionKind.FAILED: "a fault while this group was planned; other groups were planned",
}
_PLAN_EVENTS: Final = {
    PlanEvent.PROPOSED: "the plan was made",
    PlanEvent.REJECTED: "it failed a gate, a user rejected it, or nobody decided in time",
    PlanEvent.APPROVED: "the policy (mode `auto`) or a user (mode `approve`) approved it",
    PlanEvent.PUBLISHED: "its hint is on the topic",
    PlanEvent.APPLIED: "every hinted partition is with its hinted member",
    PlanEvent.IGNORED: "a newer plan replaced it, or the group has no members or another assignor",
    PlanEvent.EXPIRED: "it no longer fits the group at publishing, or its hint's time ended first",
    PlanEvent.WITHDRAWN: "an operator withdrew its hint",
}
_LAG: Final = {
    LagStatus.OK: "end offset minus committed offset",
    LagStatus.NO_COMMIT: "nothing is committed: by `reset_policy`, else null",
    LagStatus.DATA_LOSS: "the committed offset is below the log start: by `reset_policy`, else null",
    LagStatus.OUT_OF_RANGE: "the committed offset is beyond the high watermark: by `reset_policy`, else null",
    LagStatus.UNKNOWN: "the commits or the offsets could not be read: null, never 0",
    LagStatus.NOT_SUBSCRIBED: "the group has a commit, and no member subscribes to the topic: in no total",
    LagStatus.NO_MEMBERS: "the group is empty; its commits count",
}
_REASONS: Final = {
    Reason.RECEIVED: "a hint for this group was read from the topic",
    Reason.WITHDRAWN: "the group's hint was withdrawn",
    Reason.STOPPED: "all hints are stopped",
    Reason.RESUMED: "they are no longer stopped",
    Reason.MALFORMED: "a record is no hint",
    Reason.BAD_SIGNATURE: "it is not signed, or by another key",
    Reason.FOREIGN: "it is for another cluster or group",
    Reason.REPLAYED: "a newer one was seen before",
    Reason.FUTURE: "its time is more than five minutes ahead: not used until then",
    Reason.UNUSABLE: "it cannot be used, for example one of an unknown version, or one too large",
    Reason.LOADS_RECEIVED: "loads for this group were read",
    Reason.LOADS_WITHDRAWN: "the group's loads were removed",
    Reason.COMPRESSED: "a compressed batch was skipped: the topic needs `compression.type=uncompressed`",
    Reason.FOLLOWED: "the leader assigns by the hint",
    Reason.PLACED_BY_LOAD: "without a hint to follow, by loads",
    Reason.LOADS_STALE: "there are loads, and they are too old",
    Reason.NO_HINT: "the group has no hint",
    Reason.COLD: "the topic has not been read yet",
    Reason.EXPIRED: "the hint's time has ended",
    Reason.FINGERPRINT: "members, subscriptions or partitions are not those that it was made for",
    Reason.NO_TOPIC_IDS: "the brokers report no topic ids, so the fingerprint cannot be verified",
    Reason.MISMATCH: "it names members or partitions that the group does not have",
    Reason.MAX_MOVES: "it needs more moves than its own limit",
    Reason.COUNT_SLACK: "counts would differ by more than its own limit",
    Reason.INVALID: "it assigns a partition twice, or to a member without a subscription",
    Reason.INTERNAL_ERROR: "a fault of evenlag; the group still got an assignment",
    Reason.READY: "the watcher has read all of the topic, for the first time or after `UNAVAILABLE`",
    Reason.UNAVAILABLE: "the topic does not exist, or may not be read",
    Reason.TOPIC_RECREATED: "the topic was deleted and created again: what it had is forgotten",
    Reason.ASKED: "this member requested a rebalance",
    Reason.REFUSED: "this member no longer requests a hint that the leader does not follow",
    Reason.COMMIT_REFUSED: "offsets of partitions that this member does not own were not committed",
}
_ALERTS: Final = {
    "STALE_SNAPSHOT": "no recent snapshot of a cluster",
    "INCOMPLETE_SNAPSHOT": "too much of a cluster could not be read",
    "INVALID_DATA": "the newest snapshot failed another check of its data",
    "PLAN_REJECTED": "the newest plan of a group failed a gate that raises an alert",
    "HINT_NOT_FOLLOWED": "the last settled hint of a group was ignored or expired",
    "HOT_PARTITION": "one partition is most of a group's lag: no assignment helps",
    "UNHEALTHY_TABLE": "maintenance found a fault of a table",
    "EDITED_PLAN": "a row of a plan is not as it was sealed",
}
_ALERT_STATES: Final = {
    AlertState.RAISED: "new: notified",
    AlertState.STANDING: "still active, recorded once a week: not notified",
    AlertState.CLEARED: "over: notified",
}
_CAUSES: Final = {
    RebalanceCause.MEMBER_JOINED: "a member id is new",
    RebalanceCause.MEMBER_LEFT: "a member id is gone",
    RebalanceCause.MEMBER_BOUNCED: "the same consumer has another member id",
    RebalanceCause.SUBSCRIPTION_CHANGED: "a member subscribes to other topics",
    RebalanceCause.PARTITIONS_ADDED: "a topic has more partitions",
    RebalanceCause.TOPIC_RECREATED: "a topic has another id",
    RebalanceCause.ASSIGNOR_CHANGED: "the group selected another assignor",
    RebalanceCause.HINT_APPLIED: "every partition of a hint is with its hinted member now",
    RebalanceCause.UNKNOWN: "none of these can be detected",
}
_ANOMALIES: Final = {
    AnomalyKind.OWNED_BY_TWO: "two owners in one snapshot",
    AnomalyKind.OWNED_BY_NOBODY: "members subscribe, and none owns the partition",
    AnomalyKind.DEAD_MEMBER_LAG: "lag of a topic that no live member subscribes to; its last owner has left",
    AnomalyKind.UNSUBSCRIBED_LAG: "the same, and its last owner is still a member",
    AnomalyKind.STALLED: "lag, and no commit moved",
    AnomalyKind.ASSIGNOR_NOT_POLICY: "the group does not use evenlag's assignor, and its mode needs it",
    AnomalyKind.MEMBER_IDLE: "a member owns nothing while another owns several partitions of its topic",
}
_VERDICTS: Final = {
    HintVerdict.FOLLOWED: "all of it in some snapshot",
    HintVerdict.PARTLY: "more than before, never all of it",
    HintVerdict.NOT_FOLLOWED: "no more than before",
    HintVerdict.NOT_SEEN: "no snapshot shows the group in that time",
}
_CERTAINTY: Final = {
    Certainty.SEEN: "all snapshots around the time agree",
    Certainty.CHANGING: "they do not agree",
    Certainty.GAP: "they agree, and are too far apart",
    Certainty.LAST_SEEN: "there is no later snapshot",
    Certainty.FIRST_SEEN: "there is no earlier snapshot",
}
_OWNERSHIP: Final = {
    OwnershipState.OWNED: "a member owned it",
    OwnershipState.NOBODY: "no member owned it",
    OwnershipState.UNKNOWN: "the snapshot could not show it",
}
_REQUESTS: Final = {
    RequestState.ASKED: "Airflow asks a user",
    RequestState.SHADOWED: "not asked: another request of the group is open",
}
_CONTROLS: Final = {
    ControlAction.WITHDRAW: "`evenlag hints withdraw`",
    ControlAction.STOP_ALL: "`evenlag hints stop-all`",
    ControlAction.RESUME: "`evenlag hints resume`",
    ControlAction.PURGE: "`evenlag hints purge`",
}

_SECTIONS: Final = (
    (
        "Decisions about a group",
        "`decisions.decision`: one for each group and cycle.",
        DecisionKind,
        _DECISIONS,
    ),
    (
        "Events of a plan",
        "`plan_events.event`; a plan's state is its last one. Who writes them: [events](modes.md#events).",
        PlanEvent,
        _PLAN_EVENTS,
    ),
    ("Requests for approval", "`approval_requests.state`.", RequestState, _REQUESTS),
    ("Commands on hints", "`control_actions.action`.", ControlAction, _CONTROLS),
    (
        "Reasons of a consumer",
        "Of the [consumer client](../hint-client.md#see-what-happens), the Java client and the plug-in.",
        Reason,
        _REASONS,
    ),
    ("Lag statuses", "`lag.status`: [how lag is counted](../explanation/lag.md).", LagStatus, _LAG),
    ("Alerts", "`alerts.kind`: [alerts](../how-to/monitor.md#alerts).", KINDS, _ALERTS),
    ("States of an alert", "`alerts.state`.", AlertState, _ALERT_STATES),
    ("Owners of a partition", "`ownership.state`.", OwnershipState, _OWNERSHIP),
    (
        "Causes of a rebalance",
        "`evenlag audit churn`: [how they are detected](../audit.md#causes-of-a-rebalance).",
        RebalanceCause,
        _CAUSES,
    ),
    ("Adherence to a hint", "`evenlag audit adherence`.", HintVerdict, _VERDICTS),
    ("Anomalies", "`evenlag audit anomalies`.", AnomalyKind, _ANOMALIES),
    ("How certain an owner is", "`evenlag audit owner`.", Certainty, _CERTAINTY),
)


def render_events() -> str:
    """Render the page."""
    ignored = ", ".join(f"`{reason}`" for reason in Reason if reason in IGNORED)
    sections = [_section(*section) for section in _SECTIONS]
    note = f"A hint counts as ignored by a consumer for: {ignored}."
    return page("Events and states", "the enumerations of the code", [_INTRODUCTION, *sections, note])


def _section(title: str, where: str, values: Iterable[str], meanings: Mapping[Any, str]) -> str:
    names = [str(value) for value in values]
    known = {str(value): text for value, text in meanings.items()}
    if set(names) != set(known):
        raise ValueError(f"{title}: meanings and values differ: {sorted(set(names) ^ set(known))}")
    rows = ([f"`{name}`", known[name]] for name in names)
    return f"## {title}\n\n{where}\n\n{table(('value', 'meaning'), rows)}"
