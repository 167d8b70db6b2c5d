"""Read the overview of one cluster from the lake: a bounded number of rows, whatever the lake's age."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenlag.enums import Mode, Outcome, PlanEvent
from evenlag.lag.group_lag import LAG_COLUMNS, counted_rows, is_inexact
from evenlag.lake.filters import Filter, matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import (
    GATE_RESULTS,
    LAG,
    MEMBERS,
    OUTCOMES,
    PLAN_EVALUATIONS,
    PLAN_EVENTS,
    PLANS,
    SNAPSHOTS,
)
from evenlag.monitoring.hot_partitions import hot_partitions
from evenlag.overview.model import ClusterState, GroupRow
from evenlag.publishing.approvals import open_requests
from evenlag.queries.advice import read_advice
from evenlag.queries.lag import (
    DRAIN_COLUMNS,
    MEMBER_COLUMNS,
    drain_times,
    group_rows,
    read_speeds,
    unknown_facts,
)
from evenlag.queries.plan_rows import last_events, newest_decisions, plan_row

# Snapshots of a trend, and rows of lag that a request reads at most for those that are not known yet.
NUM_POINTS: Final = 12
_MAX_TREND_ROWS: Final = 1_000_000
# A snapshot is finished before its lag is computed: then the one before it is shown.
_NUM_TRIED: Final = 3
_SHORTEST_DUE: Final = timedelta(minutes=3)
_LAG_COLUMNS: Final = tuple(dict.fromkeys((*LAG_COLUMNS, *DRAIN_COLUMNS, "topic", "partition", "stalled")))
# Lag by group; None where some of it is not known.
_Sums = dict[str, int | None]
# What :func:`read_plan_states` returns.
PlanStates = Mapping[str, Mapping[str, Any]]
LOOK_BACK: Final = timedelta(days=7)
# Rows to read at least of plans and of outcomes, newest first; more for clusters with more groups.
_MIN_ROWS: Final = 2_000
_ROWS_PER_GROUP: Final = 3
_PLAN_COLUMNS: Final = (
    "plan_id", "group_id", "day", "slot", "moves", "metrics_before", "metrics_after", "num_unknown_lags",
)  # fmt: skip
_OUTCOME_COLUMNS: Final = (
    "plan_id", "group_id", "day", "slot", "outcome", "reason", "max_member_lag_before_records",
    "max_member_lag_actual_records", "num_unknown_partitions",
)  # fmt: skip


class LagHistory:
    """Lag by group of past snapshots of all lakes and clusters. They never change, so each is read once.

    Of each cluster it keeps what the last trend has.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], dict[str, _Sums]] = {}

    def sums(
        self, reader: LakeReader, cluster: str, snapshots: Sequence[Mapping[str, Any]], max_rows: int
    ) -> list[_Sums | None]:
        """Return the lag by group of snapshots, newest first; read at most so many rows of ``lag``."""
        place = reader.paths.root, cluster
        known = self._known.get(place, {})
        missing = [s for s in snapshots if s["snapshot_id"] not in known]
        if missing:
            of_newest = reader.count(LAG, filters=_of_snapshots(cluster, missing[:1]))
            known = known | _read_sums(reader, cluster, missing[: max_rows // max(of_newest, 1)])
        names = [s["snapshot_id"] for s in snapshots]
        self._known[place] = {name: known[name] for name in names if name in known}
        return [known.get(name) for name in names]


def read_cluster(
    reader: LakeReader,
    cluster: str,
    now: datetime,
    *,
    name: str | None = None,
    history: LagHistory | None = None,
) -> tuple[ClusterState, tuple[GroupRow, ...]]:
    """Read the groups of a cluster's last snapshot with lag, and the approvals that are open at a time."""
    shown = name or cluster
    snapshots = reader.read_newest(
        SNAPSHOTS,
        "slot",
        filters=[("cluster", "=", cluster)],
        columns=("snapshot_id", "day", "slot", "end_read_at", "num_groups", "completeness"),
        limit=NUM_POINTS,
    ).to_pylist()
    if not snapshots:
        return ClusterState(shown, problem="there is no finished snapshot yet"), ()
    place, lag = _newest_with_lag(reader, cluster, snapshots)
    newest, earlier = snapshots[place], snapshots[place + 1 :]
    wanted = _of_snapshots(cluster, [newest])
    members = reader.read(MEMBERS, columns=(*MEMBER_COLUMNS, "group_state"), filters=wanted)
    past = (history or LagHistory()).sums(reader, cluster, earlier, _MAX_TREND_ROWS)
    trends = [sums for sums in reversed(past) if sums is not None]
    # Neighbours' distance, not the schedule: the policy may be elsewhere.
    gaps = [one["slot"] - other["slot"] for one, other in pairwise(snapshots)]
    due = max(_NUM_TRIED * median(gaps), _SHORTEST_DUE) if gaps else None
    plans = read_plan_states(reader, cluster, newest, now)
    stale_from = snapshots[0]["slot"] + due if due is not None else None
    state = ClusterState(
        name=shown,
        read_at=newest["end_read_at"],
        completeness=newest["completeness"],
        is_stale=stale_from is not None and now > stale_from,
        open_approvals=sum(plan["approval_until"] is not None for plan in plans.values()),
        valid_until=now if len(trends) < len(past) else _next_change(stale_from, plans, now),
    )
    decided = _decisions(reader, cluster, newest)
    advice = read_advice(reader, cluster, newest["day"])
    rows = _rows(shown, lag, members, trends, decided, plans)
    speeds = {
        group_id: tuple(member["speed_records_per_s"] for member in known.values())
        for group_id, known in read_speeds(reader, cluster, newest["snapshot_id"]).items()
    }
    return state, tuple(
        replace(row, advice=advice.get(row.group_id), speeds=speeds.get(row.group_id, ())) for row in rows
    )


def lag_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `GroupRow` that a row of `group_rows` has."""
    known = {field.name: row[field.name] for field in fields(GroupRow) if field.name in row}
    return known | {"unknown_facts": unknown_facts(row)}


def _next_change(stale_from: datetime | None, plans: PlanStates, now: datetime) -> datetime | None:
    """When time alone changes the overview: a snapshot is overdue, or an approval can no longer be given."""
    moments = [stale_from, *(plan["approval_until"] for plan in plans.values())]
    return min((moment for moment in moments if moment is not None and moment >= now), default=None)


def _of_snapshots(cluster: str, snapshots: Sequence[Mapping[str, Any]]) -> list[Filter]:
    ids = [each["snapshot_id"] for each in snapshots]
    return matching(cluster=cluster, day={each["day"] for each in snapshots}, snapshot_id=ids)


def _newest_with_lag(
    reader: LakeReader, cluster: str, snapshots: Sequence[Mapping[str, Any]]
) -> tuple[int, pa.Table]:
    """Place of the newest snapshot whose lag is computed, and its lag; the newest if none has any."""
    for place, snapshot in enumerate(snapshots[:_NUM_TRIED]):
        lag = reader.read(LAG, columns=_LAG_COLUMNS, filters=_of_snapshots(cluster, [snapshot]))
        if lag.num_rows or snapshot["num_groups"] == 0:
            return place, lag
    return 0, lag


def _read_sums(reader: LakeReader, cluster: str, snapshots: Sequence[Mapping[str, Any]]) -> dict[str, _Sums]:
    if not snapshots:
        return {}
    keys = ["snapshot_id", "group_id"]
    columns = [*keys, "status", "lag_records", "lag_bound"]
    rows = counted_rows(reader.read(LAG, columns=columns, filters=_of_snapshots(cluster, snapshots)))
    known = rows.append_column("known", pc.if_else(is_inexact(rows), None, rows["lag_records"]))
    if_all = pc.ScalarAggregateOptions(skip_nulls=False)
    found: dict[str, _Sums] = {each["snapshot_id"]: {} for each in snapshots}
    for row in known.group_by(keys).aggregate([("known", "sum", if_all)]).to_pylist():
        found[row["snapshot_id"]][row["group_id"]] = row["known_sum"]
    return found


def _decisions(
    reader: LakeReader, cluster: str, newest: Mapping[str, Any]
) -> tuple[bool, dict[str, dict[str, Any]]]:
    """Whether the snapshot itself is decided, and the newest decision about each group."""
    columns = ("group_id", "policy_mode", "mode", "decision", "reason", "snapshot_id", "slot")
    rows = newest_decisions(reader, cluster, newest["day"], columns)
    is_decided = any(row["snapshot_id"] == newest["snapshot_id"] for row in rows)
    return is_decided, {row["group_id"]: row for row in rows}


def _rows(
    name: str,
    lag: pa.Table,
    members: pa.Table,
    trends: Sequence[_Sums],
    decided: tuple[bool, Mapping[str, Mapping[str, Any]]],
    plans: PlanStates,
) -> list[GroupRow]:
    is_decided, decisions = decided
    states = dict(zip(members["group_id"].to_pylist(), members["group_state"].to_pylist(), strict=True))
    failed = set(members.filter(pc.is_valid(members["error"]))["group_id"].to_pylist())
    counted = counted_rows(lag)
    drains, stalled = drain_times(counted, "group_id"), _stalled(counted)
    hot = hot_partitions(counted, members)
    rows = []
    for row in sorted(group_rows(lag, members), key=lambda row: str(row["group_id"])):
        group_id = row["group_id"]
        decision = decisions.get(group_id, {})
        now = row["lag_records"] if row["lag_bound"] is None else None
        dominant = hot.get(group_id)
        rows.append(
            GroupRow(
                cluster=name,
                state=states.get(group_id),
                **lag_fields(row),
                is_readable=group_id not in failed and row["commit_problem"] is None,
                drain_time_ms=drains.get(group_id),
                num_stalled=stalled.get(group_id, 0),
                trend=(*(sums.get(group_id) for sums in trends), now),
                mode=decision.get("mode") or (Mode.OBSERVE.value if is_decided and not decision else None),
                policy_mode=decision.get("policy_mode"),
                decision=decision.get("decision"),
                decision_reason=decision.get("reason"),
                **plans.get(group_id, {}),
                hot=None if dominant is None else f"{dominant.topic}-{dominant.partition}",
                hot_message=None if dominant is None else dominant.message,
            )
        )
    return rows


def _stalled(lag: pa.Table) -> dict[str, int]:
    rows = lag.filter(pc.fill_null(lag["stalled"], False)).group_by("group_id").aggregate([([], "count_all")])
    return dict(zip(rows["group_id"].to_pylist(), rows["count_all"].to_pylist(), strict=True))


def read_plan_states(
    reader: LakeReader, cluster: str, snapshot: Mapping[str, Any], now: datetime
) -> PlanStates:
    """Read the plans of the week before a snapshot by group, as far as the newest rows tell.

    Returns fields of `GroupRow`: ``plan``, ``hint`` and ``approval_until``; None without data.
    """
    wanted = matching(cluster=cluster, since=snapshot["day"] - LOOK_BACK)
    limit = max(_MIN_ROWS, _ROWS_PER_GROUP * (snapshot["num_groups"] or 0))
    plans = _last_plans(reader, wanted, limit)
    hints = _last_hints(reader, wanted, limit)
    asked = {group_id: row["answer_by"] for group_id, row in open_requests(reader, cluster, now).items()}
    return {
        group_id: {
            "plan": plans.get(group_id),
            "hint": hints.get(group_id),
            "approval_until": asked.get(group_id),
        }
        for group_id in {*plans, *hints, *asked}
    }


def _last_plans(reader: LakeReader, wanted: list[Filter], limit: int) -> dict[str, Any]:
    rows = reader.read_newest(PLANS, "slot", filters=wanted, columns=_PLAN_COLUMNS, limit=limit).to_pylist()
    newest = {row["group_id"]: row for row in reversed(rows)}
    if not newest:
        return {}
    ids = [row["plan_id"] for row in newest.values()]
    since = min(row["day"] for row in newest.values())
    by_plan = [wanted[0], *matching(plan_id=ids, since=since)]
    columns = ("plan_id", "event", "reason", "at")
    events = last_events(reader.read_events(filters=by_plan, columns=columns).to_pylist())
    failed: dict[str, set[str]] = defaultdict(set)
    verdicts = reader.read(
        GATE_RESULTS, columns=("plan_id", "gate"), filters=[*by_plan, ("passed", "=", False)]
    )
    for row in verdicts.to_pylist():
        failed[row["plan_id"]].add(row["gate"])
    return {
        group_id: plan_row(row, events.get(row["plan_id"])) | {"failed_gates": sorted(failed[row["plan_id"]])}
        for group_id, row in newest.items()
    }


def _last_hints(reader: LakeReader, wanted: list[Filter], limit: int) -> dict[str, Any]:
    """Newest settled hint of each group, without those that a newer hint replaced."""
    rows = reader.read_newest(
        OUTCOMES, "slot", filters=wanted, columns=_OUTCOME_COLUMNS, limit=limit
    ).to_pylist()
    ignored = sorted({row["group_id"] for row in rows if row["outcome"] == Outcome.IGNORED})
    published: dict[str, tuple[int, str]] = {}
    if ignored:
        of_groups = [*wanted, *matching(event=PlanEvent.PUBLISHED, group_id=ignored)]
        columns = ("group_id", "plan_id", "sequence")
        for row in reader.read(PLAN_EVENTS, columns=columns, filters=of_groups).to_pylist():
            found = (row["sequence"] or 0, row["plan_id"])
            published[row["group_id"]] = max(found, published.get(row["group_id"], found))
    newest: dict[str, dict[str, Any]] = {}
    for row in reversed(rows):
        last = published.get(row["group_id"])
        if row["outcome"] != Outcome.IGNORED or last is None or last[1] == row["plan_id"]:
            newest[row["group_id"]] = row
    followed = [row["plan_id"] for row in newest.values() if row["outcome"] == Outcome.APPLIED]
    of_plans = [*wanted, *matching(plan_id=followed)]
    evaluations: dict[str, dict[str, Any]] = {}
    if followed:
        found_rows = reader.read(PLAN_EVALUATIONS, columns=("plan_id", "paid_off"), filters=of_plans)
        evaluations = {row["plan_id"]: row for row in found_rows.to_pylist()}
    return {group_id: row | evaluations.get(row["plan_id"], {}) for group_id, row in newest.items()}
