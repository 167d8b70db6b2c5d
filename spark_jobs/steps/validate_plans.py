"""Validate plans: evaluate the gates, write the verdicts, then REJECTED and APPROVED events.

A plan that fails a gate is rejected with its reasons; the other plans continue. The policy approves a plan of
mode ``auto`` that passes. A plan of mode ``approve`` waits for a user, a plan of mode ``shadow`` stays
proposed, even if its group could not follow a hint.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from evenlag.enums import Mode, PlanEvent
from evenlag.lake.filters import Filter
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import GATE_RESULTS, PLAN_EVENTS, SNAPSHOTS
from evenlag.lake.writer import append_once
from evenlag.planning.gate_inputs import build_gate_rows
from evenlag.planning.plan_batch import PlanContext
from evenlag.policy.gates import cooldown_of, skipped_gates
from evenlag.publishing.event_log import append_plan_events, plan_event
from evenlag.publishing.sealing.row_seal import Sealer
from evenlag.publishing.sealing.verified_plans import (
    NOT_AS_SEALED,
    FaultyPlan,
    VerifiedPlan,
    is_followed,
    read_plans,
    seal_events,
)
from spark_jobs.steps.expectations import gate_verdicts
from spark_jobs.steps.plan_groups import Planned
from spark_jobs.steps.snapshot_rows import SnapshotRows

_GATES_ACTOR = "gates"
_POLICY_ACTOR = "policy"
_ALL_PASSED = "mode auto, and every gate is passed"
_LOST = "its run was stopped before the gates, and this version of evenlag plans the group differently"
_PLAN_COLUMNS = ("cluster", "day", "snapshot_id", "plan_id", "group_id", "run_id")


class _Verdict(StrEnum):
    REJECTED = "rejected"
    APPROVED = "approved"
    WAITING = "waiting"


def validate_plans(
    rows: SnapshotRows,
    planned: Planned,
    context: PlanContext,
    decided_at: datetime,
    sealer: Sealer | None = None,
) -> dict[str, int]:
    """Evaluate the gates and write verdicts and events.

    Returns counts; waiting plans passed, but the policy does not approve them. The sealer seals verdicts and
    approvals, and checks the plans' rows on record; None without a key.
    """
    counts: Counter[_Verdict] = Counter()
    if planned.heads:
        results = _verdict_rows(rows, planned, context, decided_at, sealer)
        # Some of these rows may be of an earlier attempt, and lay in the lake since.
        checks = _read_sealed(rows, planned, context, sealer)
        events, evidence = [], {}
        for found in planned.heads:
            plan_id, check = found["plan_id"], checks.get(found["plan_id"])
            # A head whose seal was checked may be another one than was read before.
            head = check.head if isinstance(check, VerifiedPlan) else found
            verdict = _verdict(head, results[plan_id], check)
            counts[verdict] += 1
            if verdict is not _Verdict.WAITING:
                events.append(_event(head, verdict, results[plan_id], check, context.finished_at))
            if verdict is _Verdict.APPROVED and isinstance(check, VerifiedPlan):
                evidence[plan_id] = check.evidence
        # From the verdicts on record: every attempt has the same events.
        written: list[Filter] = [*rows.filters, ("actor", "in", [_GATES_ACTOR, _POLICY_ACTOR])]
        append_plan_events(rows.reader.paths.root, seal_events(sealer, events, evidence), written)
    return {verdict.value: counts[verdict] for verdict in _Verdict}


def _read_sealed(
    rows: SnapshotRows, planned: Planned, context: PlanContext, sealer: Sealer | None
) -> dict[str, VerifiedPlan | FaultyPlan]:
    """The plans that may be published, as they were sealed; the partitions have their hash in the head."""
    followed = {head["plan_id"]: head for head in planned.heads if is_followed(head)}
    if sealer is None or not followed:
        return {}
    found = read_plans(rows.reader, sealer, context.cluster, context.day, followed, assignments="unread")
    gone = {
        plan_id: FaultyPlan(
            plan_id, head["group_id"], head["snapshot_id"], context.day, f"{NOT_AS_SEALED}it is gone"
        )
        for plan_id, head in followed.items()
    }
    return gone | found


def _verdict_rows(
    of_snapshot: SnapshotRows,
    planned: Planned,
    context: PlanContext,
    decided_at: datetime,
    sealer: Sealer | None,
) -> dict[str, list[dict[str, Any]]]:
    """Evaluate the gates of the plans that have no verdicts yet; return all rows of ``gate_results`` by plan.

    Verdicts on record are valid, although gates that depend on the time (age, cooldown) may give others now.
    """
    import pandas as pd

    reader, marker = of_snapshot.reader, of_snapshot.marker
    known = reader.read(GATE_RESULTS, filters=of_snapshot.filters).to_pylist()
    judged = {row["plan_id"] for row in known} | planned.lost
    heads = {head["plan_id"]: head for head in planned.heads if head["plan_id"] not in judged}
    rows = build_gate_rows(
        heads.values(),
        planned.counts,
        last_hints=_last_hints(reader, context.cluster, heads.values(), marker["slot"]),
        marker=marker,
        decided_at=decided_at,
    )
    judged_now = gate_verdicts(pd.DataFrame.from_records(rows))
    new = [{name: heads[row["plan_id"]][name] for name in _PLAN_COLUMNS} | row for row in judged_now]
    if sealer is not None:
        followed = [row for row in new if is_followed(heads[row["plan_id"]])]
        others = [row for row in new if not is_followed(heads[row["plan_id"]])]
        new = [*sealer.seal_rows(GATE_RESULTS, followed), *others]
    if new and not append_once(reader.paths.root, GATE_RESULTS, new, of_snapshot.filters):
        # Another attempt has judged in the meantime.
        known, new = reader.read(GATE_RESULTS, filters=of_snapshot.filters).to_pylist(), []
    results = defaultdict(list)
    for row in [*known, *new]:
        results[row["plan_id"]].append(row)
    return results


def _last_hints(
    reader: LakeReader, cluster: str, heads: Collection[Mapping[str, Any]], slot: datetime
) -> dict[str, datetime]:
    """The slot in whose cycle the last hint of each group was published; none where any cooldown is over.

    A hint is published some seconds after its slot. Counted from there, a cooldown of so many cycles would
    last for one more.
    """
    if not heads:
        return {}
    cooldown_s = max(cooldown_of(json.loads(head["settings"]), head["follow_ms"]) for head in heads)
    of_cluster: Filter = ("cluster", "=", cluster)
    since: Filter = ("at", ">=", slot - timedelta(seconds=cooldown_s))
    published = reader.read(
        PLAN_EVENTS,
        columns=["group_id", "at"],
        filters=[of_cluster, since, ("event", "=", PlanEvent.PUBLISHED)],
    )
    if not published.num_rows:
        return {}
    newest = published.group_by("group_id").aggregate([("at", "max")]).to_pylist()
    first = min(row["at_max"] for row in newest)
    days: list[Filter] = [of_cluster, ("day", ">=", (first - timedelta(days=1)).astimezone(UTC).date())]
    slots = sorted(reader.read(SNAPSHOTS, columns=["slot"], filters=days)["slot"].to_pylist())
    return {
        row["group_id"]: max((each for each in slots if each <= row["at_max"]), default=row["at_max"])
        for row in newest
    }


def _verdict(
    head: Mapping[str, Any], results: list[dict[str, Any]], check: VerifiedPlan | FaultyPlan | None
) -> _Verdict:
    skipped = skipped_gates(json.loads(head["settings"])["mode"])
    passed = [row["passed"] for row in results if row["gate"] not in skipped]
    if isinstance(check, VerifiedPlan):
        passed = list(check.verdicts.values())
    if isinstance(check, FaultyPlan) or not passed or not all(passed):
        return _Verdict.REJECTED
    return _Verdict.APPROVED if head["mode"] == Mode.AUTO else _Verdict.WAITING


def _event(
    head: Mapping[str, Any],
    verdict: _Verdict,
    results: list[dict[str, Any]],
    check: VerifiedPlan | FaultyPlan | None,
    at: datetime,
) -> dict[str, Any]:
    if verdict is _Verdict.APPROVED:
        return plan_event(head, PlanEvent.APPROVED, reason=_ALL_PASSED, actor=_POLICY_ACTOR, at=at)
    failed = sorted(row["message"] for row in results if not row["passed"])
    fault = check.fault if isinstance(check, FaultyPlan) else None
    reason = fault or "; ".join(failed) or _LOST
    return plan_event(head, PlanEvent.REJECTED, reason=reason, actor=_GATES_ACTOR, at=at)
