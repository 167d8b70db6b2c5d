"""Alerts: faults found in the lake, and which of them are new or over. No JVM.

A fault concerns the cluster, or a group that may receive hints (modes ``approve`` and ``auto``). Its kind and
subject identify it; an active fault is reported once. It is reported before it is recorded: after a crash in
between it is reported again rather than never.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import AlertState, OnFailure, PlanEvent
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import ALERTS, GATE_RESULTS, PLANS, RUNS
from evenlag.lake.writer import append_once
from evenlag.monitoring.edited_plans import find_edited_plans
from evenlag.monitoring.freshness import read_freshness
from evenlag.monitoring.hot_partitions import find_hot_partitions
from evenlag.monitoring.table_health import newest_faults
from evenlag.policy.gates import ROUTINE_GATES
from evenlag.publishing.publishable_plans import PUBLISHING_MODES
from evenlag.quality.checks import failures_by_table, read_results, stopping_failures
from evenlag.safe_text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.policy.loader import LoadedPolicy


STALE_SNAPSHOT: Final = "STALE_SNAPSHOT"
INCOMPLETE_SNAPSHOT: Final = "INCOMPLETE_SNAPSHOT"
INVALID_DATA: Final = "INVALID_DATA"
PLAN_REJECTED: Final = "PLAN_REJECTED"
HINT_NOT_FOLLOWED: Final = "HINT_NOT_FOLLOWED"
HOT_PARTITION: Final = "HOT_PARTITION"
UNHEALTHY_TABLE: Final = "UNHEALTHY_TABLE"
EDITED_PLAN: Final = "EDITED_PLAN"
KINDS: Final = (
    STALE_SNAPSHOT,
    INCOMPLETE_SNAPSHOT,
    INVALID_DATA,
    PLAN_REJECTED,
    HINT_NOT_FOLLOWED,
    HOT_PARTITION,
    UNHEALTHY_TABLE,
    EDITED_PLAN,
)

RAISED: Final = AlertState.RAISED
STANDING: Final = AlertState.STANDING
CLEARED: Final = AlertState.CLEARED

# An older ignored hint has been reported, and its group has had newer hints since, or none.
_LOOK_BACK: Final = timedelta(days=2)
# An active fault gets a row so often: rows of this period, and a day for the clocks, show all active faults.
_REPEATED_AFTER: Final = timedelta(days=7)
_STATE_LOOK_BACK: Final = _REPEATED_AFTER + timedelta(days=1)
_SETTLED: Final = frozenset({PlanEvent.APPLIED, PlanEvent.IGNORED, PlanEvent.EXPIRED})


@dataclass(frozen=True, slots=True)
class Fault:
    """An active fault.

    subject: The group, the table, or the cluster.
    message: Description for users.
    """

    kind: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class AlertChanges:
    """Changes since the last check.

    raised: New faults.
    cleared: Faults that are over, with the message that they were raised with.
    num_standing: Number of active faults, including new ones.
    repeated: Faults that were raised earlier, are active, and are due to be recorded again. They are not
        news.
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
    faults, checked, is_open = _find_faults(reader, loaded, cluster, now)
    recorded = _standing(reader, cluster)
    standing = {key: fault for key, (fault, _) in recorded.items()}
    found = {(fault.kind, fault.subject): fault for fault in faults}
    raised = tuple(fault for key, fault in sorted(found.items()) if key not in standing)
    cleared = tuple(
        fault
        for key, fault in sorted(standing.items())
        if key not in found and fault.kind in checked and key not in is_open
    )
    repeated = tuple(
        fault
        for fault, recorded_at in recorded.values()
        if recorded_at <= now - _REPEATED_AFTER and fault not in cleared
    )
    return AlertChanges(raised, cleared, len(standing) + len(raised) - len(cleared), repeated)


def record_changes(
    loaded: LoadedPolicy, cluster: str, changes: AlertChanges, *, run_id: str, now: datetime
) -> None:
    """Record reported changes, so that they are not reported again, and repeat the rows of active faults."""
    head = {"cluster": cluster, "day": now.date(), "at": now, "run_id": run_id}
    rows = [
        head | {"kind": fault.kind, "subject": fault.subject, "state": state, "message": fault.message}
        for state, faults in (
            (RAISED, changes.raised),
            (CLEARED, changes.cleared),
            (STANDING, changes.repeated),
        )
        for fault in faults
    ]
    append_once(loaded.policy.lake, ALERTS, rows, None)


def _find_faults(
    reader: LakeReader, loaded: LoadedPolicy, cluster: str, now: datetime
) -> tuple[list[Fault], set[str], set[tuple[str, str]]]:
    """The faults, the kinds that were checked, and (kind, subject) of what could not be determined."""
    settings = loaded.policy.clusters[cluster]
    freshness = read_freshness(reader, {cluster: settings.schedule}, now)[0]
    checked = {STALE_SNAPSHOT}
    faults = [] if freshness.is_fresh else [Fault(STALE_SNAPSHOT, cluster, freshness.reason)]
    unhealthy = newest_faults(reader, cluster, now)
    if unhealthy is not None:
        checked.add(UNHEALTHY_TABLE)
        faults += [Fault(UNHEALTHY_TABLE, name, message) for name, message in unhealthy.items()]
    snapshot = reader.latest_snapshot(cluster)
    is_decided = snapshot is not None and _is_decided(reader, snapshot)
    edited = find_edited_plans(reader, loaded, cluster, snapshot if is_decided else None, now)
    if edited is not None:
        checked.add(EDITED_PLAN)
        faults += [Fault(EDITED_PLAN, group_id, message) for group_id, message in edited.items()]
    if snapshot is None:
        return faults, checked, set()
    checked |= {INCOMPLETE_SNAPSHOT, HOT_PARTITION, HINT_NOT_FOLLOWED}
    min_completeness = settings.quality.min_completeness
    if snapshot["completeness"] is not None and snapshot["completeness"] < min_completeness:
        unread = snapshot["num_unread_partitions"]
        message = (
            f"{snapshot['completeness']:.1%} of the partitions could be read, {min_completeness:.1%} are "
            f"expected ({unread or 0:,} of {snapshot['num_partitions'] or 0:,} are missing)"
        )
        faults.append(Fault(INCOMPLETE_SNAPSHOT, cluster, message))
    results = read_results(reader, snapshot)
    invalid = failures_by_table(results)
    if invalid is not None:
        checked.add(INVALID_DATA)
        stops = settings.quality.on_failure is OnFailure.STOP and stopping_failures(results)
        consequence = "; no group is planned from it (quality.on_failure: stop)" if stops else ""
        faults += [Fault(INVALID_DATA, name, f"{message}{consequence}") for name, message in invalid.items()]
    faults += _not_followed(reader, loaded, snapshot)
    hot = find_hot_partitions(reader, snapshot, lambda group_id: _is_published(loaded, cluster, group_id))
    faults += [Fault(HOT_PARTITION, each.group_id, each.message) for each in hot.found]
    is_open = {(HOT_PARTITION, group_id) for group_id in hot.open_groups}
    if is_decided:
        checked.add(PLAN_REJECTED)
        faults += _rejected(reader, loaded, snapshot)
    return faults, checked, is_open


def _rejected(reader: LakeReader, loaded: LoadedPolicy, snapshot: Mapping[str, Any]) -> list[Fault]:
    wanted = [*_of_day(snapshot), ("snapshot_id", "=", snapshot["snapshot_id"])]
    failed = reader.read(
        GATE_RESULTS,
        columns=["group_id", "plan_id", "gate", "message"],
        filters=[*wanted, ("passed", "=", False)],
    ).to_pylist()
    if not failed:
        return []
    heads = reader.read(PLANS, columns=["plan_id"], filters=wanted)["plan_id"].to_pylist()
    known, by_group = set(heads), dict[str, dict[str, str]]()
    for row in failed:
        if row["plan_id"] in known and row["gate"] not in ROUTINE_GATES:
            by_group.setdefault(row["group_id"], {})[row["gate"]] = row["message"]
    return [
        Fault(PLAN_REJECTED, group_id, "; ".join(message for _, message in sorted(messages.items())))
        for group_id, messages in sorted(by_group.items())
        if _is_published(loaded, snapshot["cluster"], group_id)
    ]


def _not_followed(reader: LakeReader, loaded: LoadedPolicy, snapshot: Mapping[str, Any]) -> list[Fault]:
    """Groups whose last settled hint was ignored or expired, until a later one is applied.

    A hint that a newer one replaced does not count; the hint before it does.
    """
    events = reader.read_events(
        filters=[
            ("cluster", "=", snapshot["cluster"]),
            ("day", ">=", snapshot["day"] - _LOOK_BACK),
            ("event", "in", [PlanEvent.PUBLISHED, *sorted(_SETTLED)]),
        ]
    ).to_pylist()
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
    return [
        Fault(HINT_NOT_FOLLOWED, group_id, f"plan {end['plan_id'][:12]} is {end['event']}: {end['reason']}")
        for group_id, end in sorted(last.items())
        if end["event"] != PlanEvent.APPLIED and _is_published(loaded, snapshot["cluster"], group_id)
    ]


def _is_published(loaded: LoadedPolicy, cluster: str, group_id: str) -> bool:
    return loaded.policy.group_settings(cluster, group_id).mode in PUBLISHING_MODES


def _is_decided(reader: LakeReader, snapshot: Mapping[str, Any]) -> bool:
    wanted = [*_of_day(snapshot), ("step", "=", "decide"), ("snapshot_id", "=", snapshot["snapshot_id"])]
    return bool(reader.read(RUNS, columns=["run_id"], filters=wanted).num_rows)


def _of_day(snapshot: Mapping[str, Any]) -> list[Filter]:
    return [("cluster", "=", snapshot["cluster"]), ("day", "=", snapshot["day"])]


def _standing(reader: LakeReader, cluster: str) -> dict[tuple[str, str], tuple[Fault, datetime]]:
    """Active faults with the time of their last row: those whose last row is RAISED or STANDING.

    Whoever records changes repeats the rows of the other active faults, so all are near the newest row,
    however long ago that is.
    """
    of_cluster: list[Filter] = [("cluster", "=", cluster)]
    newest = reader.read_newest(ALERTS, "at", columns=["at"], filters=of_cluster).to_pylist()
    if not newest:
        return {}
    since = newest[0]["at"] - _STATE_LOOK_BACK
    rows = reader.read(ALERTS, filters=[*of_cluster, ("at", ">=", since)]).sort_by("at").to_pylist()
    last = {(row["kind"], row["subject"]): row for row in rows}
    return {
        key: (Fault(row["kind"], row["subject"], row["message"]), row["at"])
        for key, row in last.items()
        if row["state"] != CLEARED
    }
