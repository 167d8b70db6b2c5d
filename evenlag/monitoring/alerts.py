"""Alerts: faults found in the lake, and which of them are new or over. No JVM.

A fault concerns the cluster, or a group that may receive hints (modes ``approve`` and ``auto``). Its kind and
subject identify it; an active fault is reported once. It is reported before it is recorded: after a crash in
between it is reported again rather than never.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from evenlag.enums import AlertState, Mode, OnFailure, PlanEvent
from evenlag.errors import SecretError
from evenlag.formatting import duration, number
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import ALERTS, DECISIONS, GATE_RESULTS, PLAN_EVENTS, PLANS, RUNS
from evenlag.lake.writer import append_once
from evenlag.logging_setup import named_logger
from evenlag.monitoring.hot_partitions import find_hot_partitions
from evenlag.monitoring.lake_health import newest_faults, read_freshness
from evenlag.policy.gates import ROUTINE_GATES
from evenlag.policy.loader import LoadedPolicy
from evenlag.publishing.approvals import asked_plans
from evenlag.publishing.publishable_plans import PUBLISHING_MODES, find_approved
from evenlag.publishing.sealing.row_seal import Sealer
from evenlag.publishing.sealing.verified_plans import (
    NOT_AS_SEALED,
    FaultyPlan,
    is_followed,
    oldest_day,
    read_plans,
)
from evenlag.quality.checks import failures_by_table, read_results, stopping_failures
from evenlag.queries.advice import needed_text, read_advice, target_text
from evenlag.safe_text import printable


class AlertKind(StrEnum):
    """What is wrong, as ``alerts`` records it."""

    STALE_SNAPSHOT = "STALE_SNAPSHOT"
    INCOMPLETE_SNAPSHOT = "INCOMPLETE_SNAPSHOT"
    INVALID_DATA = "INVALID_DATA"
    PLAN_REJECTED = "PLAN_REJECTED"
    HINT_NOT_FOLLOWED = "HINT_NOT_FOLLOWED"
    HOT_PARTITION = "HOT_PARTITION"
    TARGET_MISSED = "TARGET_MISSED"
    UNHEALTHY_TABLE = "UNHEALTHY_TABLE"
    EDITED_PLAN = "EDITED_PLAN"


_LOG = named_logger(__name__)
# An older ignored hint has been reported, and its group has had newer hints since, or none.
_LOOK_BACK: Final = timedelta(days=2)
# An active fault gets a row so often: rows of this period, and a day for the clocks, show all active faults.
_REPEATED_AFTER: Final = timedelta(days=7)
_STATE_LOOK_BACK: Final = _REPEATED_AFTER + timedelta(days=1)
# How long a refused plan is a fault, within ``PUBLISHABLE_FOR``. Its group has newer plans by then.
_REPORTED_FOR: Final = timedelta(days=2)
_GONE: Final = f"{NOT_AS_SEALED}it is of mode auto, and neither approved nor rejected"
_NO_GROUP: Final = "no group"
_SETTLED: Final = frozenset({PlanEvent.APPLIED, PlanEvent.IGNORED, PlanEvent.EXPIRED})


@dataclass(frozen=True, slots=True)
class Fault:
    """An active fault of a group, a table or the cluster, with a message for users."""

    kind: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class AlertChanges:
    """Changes since the last check.

    cleared: Faults that are over, with the message that they were raised with.
    num_standing: Number of active faults, including new ones.
    repeated: Active faults that were raised earlier, and are due to be recorded again. They are not news.
    """

    raised: tuple[Fault, ...]
    cleared: tuple[Fault, ...]
    num_standing: int
    repeated: tuple[Fault, ...] = ()

    @property
    def text(self) -> str:
        """One line per change; names in it cannot begin another line."""
        lines = [f"{fault.kind} {fault.subject}: {fault.message}" for fault in self.raised]
        lines += [f"over: {fault.kind} {fault.subject}" for fault in self.cleared]
        return "\n".join(map(printable, lines))

    def __bool__(self) -> bool:
        return bool(self.raised or self.cleared)


def find_changes(loaded: LoadedPolicy, cluster: str, now: datetime) -> AlertChanges:
    """Find the faults of a cluster that are new or over.

    A fault that cannot be determined now (for example of a snapshot without decisions) keeps its state.
    """
    reader = LakeReader(loaded.policy.lake)
    found = _find_faults(reader, loaded, cluster, now)
    recorded = _standing(reader, cluster)
    faults = {(kind, name): text for kind, texts in found.items() for name, text in (texts or {}).items()}
    raised = tuple(
        Fault(*key, message)
        for key, message in sorted(faults.items())
        if message is not None and key not in recorded
    )
    # Of a kind that this version does not know, nothing can be said either.
    cleared = tuple(
        fault
        for key, (fault, _) in sorted(recorded.items())
        if key not in faults and found.get(fault.kind) is not None
    )
    repeated = tuple(
        fault
        for fault, recorded_at in recorded.values()
        if recorded_at <= now - _REPEATED_AFTER and fault not in cleared
    )
    return AlertChanges(raised, cleared, len(recorded) + len(raised) - len(cleared), repeated)


def record_changes(
    loaded: LoadedPolicy, cluster: str, changes: AlertChanges, *, run_id: str, now: datetime
) -> None:
    """Record reported changes, so that they are not reported again, and repeat the rows of active faults."""
    head = {"cluster": cluster, "day": now.date(), "at": now, "run_id": run_id}
    rows = [
        head | {"kind": fault.kind, "subject": fault.subject, "state": state, "message": fault.message}
        for state, faults in (
            (AlertState.RAISED, changes.raised),
            (AlertState.CLEARED, changes.cleared),
            (AlertState.STANDING, changes.repeated),
        )
        for fault in faults
    ]
    append_once(loaded.policy.lake, ALERTS, rows, None)


def _find_faults(
    reader: LakeReader, loaded: LoadedPolicy, cluster: str, now: datetime
) -> dict[str, Mapping[str, str | None] | None]:
    """Messages of each kind by subject; None: the kind, or this subject, cannot be determined."""
    settings = loaded.policy.clusters[cluster]
    freshness = read_freshness(reader, cluster, settings.schedule, now)
    snapshot = reader.latest_snapshot(cluster)
    is_decided = snapshot is not None and _is_decided(reader, snapshot)
    found: dict[str, Mapping[str, str | None] | None] = {
        AlertKind.STALE_SNAPSHOT: {} if freshness.is_fresh else {cluster: freshness.reason},
        AlertKind.UNHEALTHY_TABLE: newest_faults(reader, cluster, now),
        AlertKind.EDITED_PLAN: find_edited_plans(
            reader, loaded, cluster, snapshot if is_decided else None, now
        ),
    }
    if snapshot is None:
        return found
    return found | {
        AlertKind.INCOMPLETE_SNAPSHOT: _incomplete(snapshot, settings.quality.min_completeness),
        AlertKind.HOT_PARTITION: _hot(reader, loaded, snapshot),
        AlertKind.TARGET_MISSED: _target_missed(reader, snapshot),
        AlertKind.HINT_NOT_FOLLOWED: _not_followed(reader, loaded, snapshot),
        AlertKind.INVALID_DATA: _invalid(reader, snapshot, settings.quality.on_failure),
        AlertKind.PLAN_REJECTED: _rejected(reader, loaded, snapshot) if is_decided else None,
    }


def _incomplete(snapshot: Mapping[str, Any], min_completeness: float) -> dict[str, str]:
    completeness = snapshot["completeness"]
    if completeness is None or completeness >= min_completeness:
        return {}
    message = (
        f"{completeness:.1%} of the partitions could be read, {min_completeness:.1%} are expected "
        f"({snapshot['num_unread_partitions'] or 0:,} of {snapshot['num_partitions'] or 0:,} are missing)"
    )
    return {snapshot["cluster"]: message}


def _hot(reader: LakeReader, loaded: LoadedPolicy, snapshot: Mapping[str, Any]) -> dict[str, str | None]:
    return {
        group_id: None if hot is None else hot.message
        for group_id, hot in find_hot_partitions(reader, snapshot).items()
        if _is_published(loaded, snapshot["cluster"], group_id)
    }


def _target_missed(reader: LakeReader, snapshot: Mapping[str, Any]) -> dict[str, str | None]:
    """Groups of every mode that have a target; one whose wait is unknown stays as it is."""
    found: dict[str, str | None] = {}
    for group_id, row in read_advice(reader, snapshot["cluster"], snapshot["day"]).items():
        if row["target_wait_s"] is None or row["is_target_met"]:
            continue
        needed = needed_text(row)
        text = (
            f"records wait longer than {duration(1_000 * row['target_wait_s'])}: {target_text(row)}. "
            f"The oldest waits {duration(row['wait_ms'])}; {number(row['num_members'])} members"
            f"{f', {needed} needed' if needed else ''}"
        )
        found[group_id] = text if row["is_target_met"] is False else None
    return found


def _invalid(reader: LakeReader, snapshot: Mapping[str, Any], on_failure: OnFailure) -> dict[str, str] | None:
    results = read_results(reader, snapshot)
    invalid = failures_by_table(results)
    if invalid is None or on_failure is not OnFailure.STOP or not stopping_failures(results):
        return invalid
    consequence = "no group is planned from it (quality.on_failure: stop)"
    return {name: f"{message}; {consequence}" for name, message in invalid.items()}


def _rejected(reader: LakeReader, loaded: LoadedPolicy, snapshot: Mapping[str, Any]) -> dict[str, str]:
    wanted = snapshot_filters(snapshot)
    failed = reader.read(
        GATE_RESULTS,
        columns=["group_id", "plan_id", "gate", "message"],
        filters=[*wanted, ("passed", "=", False)],
    ).to_pylist()
    if not failed:
        return {}
    heads = reader.read(PLANS, columns=["plan_id"], filters=wanted)["plan_id"].to_pylist()
    known, by_group = set(heads), dict[str, dict[str, str]]()
    for row in failed:
        if row["plan_id"] in known and row["gate"] not in ROUTINE_GATES:
            by_group.setdefault(row["group_id"], {})[row["gate"]] = row["message"]
    return {
        group_id: "; ".join(message for _, message in sorted(messages.items()))
        for group_id, messages in by_group.items()
        if _is_published(loaded, snapshot["cluster"], group_id)
    }


def _not_followed(reader: LakeReader, loaded: LoadedPolicy, snapshot: Mapping[str, Any]) -> dict[str, str]:
    """Groups whose last settled hint, without those that a newer one replaced, was ignored or expired."""
    kinds = [PlanEvent.PUBLISHED, *sorted(_SETTLED)]
    wanted = matching(cluster=snapshot["cluster"], event=kinds, since=snapshot["day"] - _LOOK_BACK)
    events = reader.read_events(filters=wanted).to_pylist()
    ends = {row["plan_id"]: row for row in events if row["event"] in _SETTLED}
    published = sorted(
        (row for row in events if row["event"] == PlanEvent.PUBLISHED), key=lambda row: row["sequence"] or 0
    )
    newest = {row["group_id"]: row["plan_id"] for row in published}
    last: dict[str, dict[str, Any]] = {}
    for row in published:
        end = ends.get(row["plan_id"])
        is_replaced = (
            end is not None
            and end["event"] == PlanEvent.IGNORED
            and newest[row["group_id"]] != row["plan_id"]
        )
        if end is not None and not is_replaced:
            last[row["group_id"]] = end
    return {
        group_id: f"plan {end['plan_id'][:12]} is {end['event']}: {end['reason']}"
        for group_id, end in last.items()
        if end["event"] != PlanEvent.APPLIED and _is_published(loaded, snapshot["cluster"], group_id)
    }


def _is_published(loaded: LoadedPolicy, cluster: str, group_id: str) -> bool:
    return loaded.policy.group_settings(cluster, group_id).mode in PUBLISHING_MODES


def _is_decided(reader: LakeReader, snapshot: Mapping[str, Any]) -> bool:
    wanted = [*snapshot_filters(snapshot), ("step", "=", "decide")]
    return bool(reader.read(RUNS, columns=["run_id"], filters=wanted).num_rows)


def _standing(reader: LakeReader, cluster: str) -> dict[tuple[str, str], tuple[Fault, datetime]]:
    """Active faults with the time of their last row: those whose last row is RAISED or STANDING.

    Whoever records changes repeats the rows of the other active faults, so all are near the newest row,
    however long ago that is.
    """
    of_cluster = matching(cluster=cluster)
    newest = reader.read_newest(ALERTS, "at", columns=["at"], filters=of_cluster).to_pylist()
    if not newest:
        return {}
    since = newest[0]["at"] - _STATE_LOOK_BACK
    rows = reader.read(ALERTS, filters=[*of_cluster, ("at", ">=", since)]).sort_by("at").to_pylist()
    last = {(row["kind"], row["subject"]): row for row in rows}
    return {
        key: (Fault(row["kind"], row["subject"], row["message"]), row["at"])
        for key, row in last.items()
        if row["state"] != AlertState.CLEARED
    }


def find_edited_plans(
    reader: LakeReader,
    loaded: LoadedPolicy,
    cluster: str,
    decided: Mapping[str, Any] | None,
    now: datetime,
) -> dict[str, str] | None:
    """Find the plans whose rows in the lake are not as they were sealed: edited, removed or added.

    Checked are the plans that may still be published: those that are approved, those that wait for a user,
    and those of `decided`, the newest snapshot if its decisions are complete. Plans that were refused for it
    are reported for two days. Rows of other plans are history: nothing depends on them.

    Returns description by group id; None where the policy configures no key.
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
    refused = [PlanEvent.REJECTED.value, PlanEvent.EXPIRED.value]
    wanted = matching(cluster=cluster, event=refused, since=since)
    columns = ["plan_id", "group_id", "reason"]
    faults: dict[str, list[str]] = defaultdict(list)
    for row in reader.read(PLAN_EVENTS, columns=columns, filters=wanted).to_pylist():
        if (row["reason"] or "").startswith(NOT_AS_SEALED):
            _add(faults, row["group_id"], row["plan_id"], row["reason"])
    return faults


def _plans_of(reader: LakeReader, snapshot: Mapping[str, Any]) -> set[str]:
    """Plans of a snapshot that may be published, by their decision or by their head."""
    wanted = snapshot_filters(snapshot)
    found: set[str] = set()
    for table in (PLANS, DECISIONS):
        rows = reader.read(table, columns=["plan_id", "mode"], filters=wanted).to_pylist()
        found |= {row["plan_id"] for row in rows if is_followed(row)}
    return found
