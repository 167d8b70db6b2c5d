"""Validate plans: evaluate the gates, write the verdicts, then REJECTED and APPROVED events.

A plan that fails a gate is rejected with its reasons; the other plans continue. The policy approves a plan of
mode ``auto`` that passes. A plan of mode ``approve`` waits for a user, a plan of mode ``shadow`` stays
proposed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from evenlag.enums import Mode, PlanEvent
from evenlag.lake.tables import GATE_RESULTS, PLAN_EVENTS
from evenlag.lake.writer import append_once
from evenlag.planning.gate_inputs import build_gate_rows
from evenlag.publishing.event_log import PlanEventRow, append_plan_events
from spark_jobs.steps.expectations import judge_plans

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader
    from spark_jobs.planning.context import PlanContext
    from spark_jobs.steps.plan_groups import Planned

_GATES_ACTOR = "gates"
_POLICY_ACTOR = "policy"
_ALL_PASSED = "mode auto, and every gate is passed"
_PLAN_COLUMNS = ("cluster", "day", "snapshot_id", "plan_id", "group_id", "run_id")


class _Verdict(StrEnum):
    REJECTED = "rejected"
    APPROVED = "approved"
    WAITING = "waiting"


def validate_plans(
    reader: LakeReader,
    planned: Planned,
    context: PlanContext,
    marker: Mapping[str, Any],
    decided_at: datetime,
) -> dict[str, int]:
    """Evaluate the gates and write verdicts and events.

    Parameters
    ----------
    reader
        The tables.
    planned
        The plans of this snapshot.
    context
        Policy, cluster, snapshot and run.
    marker
        The snapshot's row of ``snapshots``.
    decided_at
        Time of the decision.

    Returns
    -------
    dict
        Counts: ``approved, rejected, waiting``. Waiting plans passed, but the policy does not approve them.

    Raises
    ------
    QualityCheckError
        When a gate could not be evaluated. Nothing is approved then.
    LakeError
        When a table cannot be written.
    """
    counts = dict.fromkeys(_Verdict, 0)
    if planned.heads:
        results = _judge(reader, planned, context, marker, decided_at)
        verdicts = {head["plan_id"]: _verdict(head, results[head["plan_id"]]) for head in planned.heads}
        append_plan_events(reader.paths.root, _events(planned, context, verdicts, results))
        counts |= Counter(verdicts.values())
    return {verdict.value: counts[verdict] for verdict in _Verdict}


def _judge(
    reader: LakeReader,
    planned: Planned,
    context: PlanContext,
    marker: Mapping[str, Any],
    decided_at: datetime,
) -> dict[str, list[dict[str, Any]]]:
    """Evaluate the gates of the plans that have no verdicts yet; return all rows of ``gate_results`` by plan.

    If an earlier attempt was killed after it had written its verdicts, they are valid, although gates that
    depend on the time (age, cooldown) may give others now.
    """
    of_snapshot: list[Filter] = [
        ("cluster", "=", context.cluster),
        ("day", "=", context.day),
        ("snapshot_id", "=", context.snapshot_id),
    ]
    known = reader.read(GATE_RESULTS, filters=of_snapshot).to_pylist()
    judged = {row["plan_id"] for row in known}
    heads = {head["plan_id"]: head for head in planned.heads if head["plan_id"] not in judged}
    rows = build_gate_rows(
        heads.values(),
        planned.counts,
        last_hints=_last_hints(reader, context.cluster),
        marker=marker,
        decided_at=decided_at,
    )
    new = [{name: heads[row["plan_id"]][name] for name in _PLAN_COLUMNS} | row for row in _judge_rows(rows)]
    app_id = f"validate/{context.cluster}/{context.snapshot_id}/{context.policy_hash}"
    append_once(reader.paths.root, GATE_RESULTS, new, app_id)
    results = defaultdict(list)
    for row in [*known, *new]:
        results[row["plan_id"]].append(row)
    return results


def _judge_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    import pandas as pd

    return judge_plans(pd.DataFrame.from_records(rows)) if rows else []


def _last_hints(reader: LakeReader, cluster: str) -> dict[str, datetime]:
    """When the last hint of each group was published."""
    filters: list[Filter] = [("cluster", "=", cluster), ("event", "=", PlanEvent.PUBLISHED)]
    published = reader.read(PLAN_EVENTS, columns=["group_id", "at"], filters=filters)
    newest = published.group_by("group_id").aggregate([("at", "max")])
    return dict(zip(newest["group_id"].to_pylist(), newest["at_max"].to_pylist(), strict=True))


def _verdict(head: Mapping[str, Any], results: list[dict[str, Any]]) -> _Verdict:
    if not all(row["passed"] for row in results):
        return _Verdict.REJECTED
    return _Verdict.APPROVED if head["mode"] == Mode.AUTO else _Verdict.WAITING


def _events(
    planned: Planned,
    context: PlanContext,
    verdicts: Mapping[str, _Verdict],
    results: Mapping[str, list[dict[str, Any]]],
) -> list[PlanEventRow]:
    events = []
    for head in planned.heads:
        if verdicts[head["plan_id"]] is _Verdict.REJECTED:
            failed = sorted(row["message"] for row in results[head["plan_id"]] if not row["passed"])
            event, actor, reason = PlanEvent.REJECTED, _GATES_ACTOR, "; ".join(failed)
        elif verdicts[head["plan_id"]] is _Verdict.APPROVED:
            event, actor, reason = PlanEvent.APPROVED, _POLICY_ACTOR, _ALL_PASSED
        else:
            continue
        events.append(PlanEventRow.of_plan(head, event, reason=reason, actor=actor, at=context.finished_at))
    return events
