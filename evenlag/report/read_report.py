"""Bring a group's period together from the lake, without a JVM."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import JobError
from evenlag.formatting import moment
from evenlag.queries.plans import plan_rows
from evenlag.report.member_names import read_names
from evenlag.report.model import DecisionSummary, GateSummary, GroupLag, Report
from evenlag.report.read_events import count_events, read_group_events
from evenlag.report.read_lag import cut, group_lags, observed_lag
from evenlag.report.read_lag_change import read_change
from evenlag.report.read_simulations import read_policies
from evenlag.report.read_timeline import read_timeline
from evenlag.report.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

DEFAULT_HOURS: Final = 24.0
_LAG_COLUMNS: Final = (
    "snapshot_id", "slot", "group_id", "owner_member_id", "topic", "partition", "status", "lag_records",
)  # fmt: skip


class NothingToReportError(JobError):
    """Raised when the lake has no reading of what was asked for."""

    exit_code = 4


def read_report(
    reader: LakeReader,
    cluster: str,
    group_id: str | None = None,
    *,
    hours: float = DEFAULT_HOURS,
    until: datetime | None = None,
) -> Report:
    """Read a group's period.

    Parameters
    ----------
    reader, cluster
        The lake, and a cluster that it knows.
    group_id
        The group; the one that is furthest behind in the last snapshot when not given.
    hours
        Length of the period.
    until
        Its end: the report is as it would have been then. All that is known when not given.

    Raises
    ------
    NothingToReportError
        When the period has no snapshot, or no snapshot has the group.
    """
    import pyarrow.compute as pc

    known = _snapshots(reader, cluster, until)
    snapshots = _of_period(known, cluster, hours, until)
    last = snapshots.slice(snapshots.num_rows - 1).to_pylist()[0]
    groups = group_lags(*_read_newest(reader, cluster, last))
    if group_id is None:
        if not groups:
            raise NothingToReportError(f"the snapshot of {moment(last['slot'])} on {cluster} has no group")
        group_id = groups[0].group_id
    ids = snapshots["snapshot_id"].to_pylist()
    scope = Scope(
        reader=reader,
        cluster=cluster,
        group_id=group_id,
        since=snapshots["slot"][0].as_py(),
        until=last["slot"],
        started_at=pc.min(snapshots["started_at"]).as_py(),
        finished_at=pc.max(snapshots["finished_at"]).as_py(),
        snapshot_ids=tuple(ids),
        read_at=dict(zip(ids, snapshots["end_read_at"].to_pylist(), strict=True)),
        end=until,
    )
    lag = _lag_of_group(scope, groups)
    events = read_group_events(reader, cluster, group_id, until=until)
    plans = _plans(scope, events)
    names = read_names(scope)
    comparison = read_policies(scope)
    observed = observed_lag(lag, scope.read_at)
    return Report(
        cluster=cluster,
        group_id=group_id,
        since=scope.since,
        until=scope.until,
        finished_at=scope.finished_at,
        num_snapshots=len(observed.at),
        now=next(
            (group for group in groups if group.group_id == group_id), GroupLag(group_id, 0, 0, None, None)
        ),
        groups=tuple(groups),
        change=read_change(scope, lag, plans, names),
        timeline=read_timeline(scope, events, names),
        observed=observed,
        replayed=tuple(
            shown
            for each in comparison.series
            if (shown := cut(each, scope.read_at[ids[0]], scope.read_at[ids[-1]])).at
        ),
        policies=comparison.results,
        reasons=comparison.reasons,
        model_error=comparison.model_error,
        plans=plans,
        gates=_gates(scope),
        decisions=_decisions(scope),
        num_by_event=count_events(events, scope.since),
    )


def _snapshots(reader: LakeReader, cluster: str, until: datetime | None) -> pa.Table:
    """All finished snapshots of slots up to a moment, oldest first."""
    from evenlag.lake.tables import SNAPSHOTS

    filters: list[Filter] = [("cluster", "=", cluster)]
    if until is not None:
        filters += [("day", "<=", until.date()), ("slot", "<=", until)]
    columns = ["slot", "snapshot_id", "started_at", "end_read_at", "finished_at"]
    found = reader.read(SNAPSHOTS, columns=columns, filters=filters)
    if found.num_rows == 0:
        when = "" if until is None else f" up to {moment(until)}"
        raise NothingToReportError(
            f"there is no snapshot of {cluster}{when}: run a cycle first (evenlag run)"
        )
    return found.sort_by([("slot", "ascending")])


def _of_period(known: pa.Table, cluster: str, hours: float, until: datetime | None) -> pa.Table:
    """The snapshots of a period: with an end, those that had ended by then, as nobody knew of others."""
    import pyarrow.compute as pc

    end = pc.max(known["slot"]).as_py() if until is None else until
    # A period that begins before all time begins with the first snapshot.
    first = pc.min(known["slot"]).as_py()
    length = timedelta(hours=min(hours, (max(end, first) - first) / timedelta(hours=1)))
    found = known.filter(pc.greater_equal(known["slot"], end - length))
    if until is not None:
        found = found.filter(pc.less_equal(found["finished_at"], until))
    if found.num_rows:
        return found
    newest = pc.max(known["finished_at"]).as_py()
    raise NothingToReportError(
        f"no snapshot of {cluster} was taken in the {hours:g} hours up to {moment(end)}: the last one before "
        f"ended at {moment(newest)}. A longer period may have it: --hours"
    )


def _read_newest(reader: LakeReader, cluster: str, snapshot: Mapping[str, Any]) -> tuple[pa.Table, pa.Table]:
    """The lag and the members of all groups in one snapshot."""
    from evenlag.lake.tables import LAG, MEMBERS

    wanted: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", "=", snapshot["slot"].date()),
        ("snapshot_id", "=", snapshot["snapshot_id"]),
    ]
    lag = reader.read(LAG, columns=[*_LAG_COLUMNS, "time_lag_ms"], filters=wanted)
    return lag, reader.read(MEMBERS, columns=["group_id", "member_id"], filters=wanted)


def _lag_of_group(scope: Scope, groups: list[GroupLag]) -> pa.Table:
    """The group's rows of the period."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from evenlag.lake.tables import LAG

    lag = scope.reader.read(LAG, columns=list(_LAG_COLUMNS), filters=scope.filters())
    lag = lag.filter(pc.is_in(lag["snapshot_id"], value_set=pa.array(scope.snapshot_ids, pa.string())))
    if lag.num_rows:
        return lag
    names = ", ".join(group.group_id for group in groups[:5]) or "none"
    raise NothingToReportError(
        f"no snapshot of {scope.cluster} from {moment(scope.since)} to {moment(scope.until)} has the group "
        f"{scope.group_id!r}; groups there: {names}. A longer period may have it: --hours"
    )


def _plans(scope: Scope, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Plans made from the period's snapshots, as they were at its end."""
    # Days are counted back from the newest snapshot, which a period that ends earlier does not know.
    days = (scope.until.date() - scope.since.date()).days if scope.end is None else None
    plans = plan_rows(
        scope.reader, scope.cluster, group=scope.group_id, days=days, until=scope.end, events=events
    )
    inside = set(scope.snapshot_ids)
    return [plan for plan in plans if plan["snapshot_id"] in inside]


def _gates(scope: Scope) -> tuple[GateSummary, ...]:
    from evenlag.lake.tables import GATE_RESULTS
    from evenlag.policy.gates import GATES

    columns = ["gate", "passed", "message", "snapshot_id"]
    rows = scope.reader.read(GATE_RESULTS, columns=columns, filters=scope.filters()).to_pylist()
    by_gate: dict[str, list[dict[str, Any]]] = {}
    wanted = set(scope.snapshot_ids)
    for row in sorted(rows, key=lambda row: str(row["snapshot_id"])):
        if row["snapshot_id"] in wanted:
            by_gate.setdefault(row["gate"], []).append(row)
    order = {gate.name: number for number, gate in enumerate(GATES)}
    summaries = []
    for gate in sorted(by_gate, key=lambda name: (order.get(name, len(order)), name)):
        refusals = [row["message"] for row in by_gate[gate] if not row["passed"]]
        last = refusals[-1] if refusals else None
        summaries.append(GateSummary(gate, len(by_gate[gate]), len(refusals), last))
    return tuple(summaries)


def _decisions(scope: Scope) -> tuple[DecisionSummary, ...]:
    from evenlag.lake.tables import DECISIONS

    columns = ["decision", "reason", "slot", "snapshot_id"]
    rows = scope.reader.read(DECISIONS, columns=columns, filters=scope.filters()).sort_by("slot").to_pylist()
    counts: dict[str, list[dict[str, Any]]] = {}
    wanted = set(scope.snapshot_ids)
    for row in rows:
        if row["snapshot_id"] in wanted:
            counts.setdefault(row["decision"], []).append(row)
    found = (
        DecisionSummary(name, len(made), made[-1]["slot"], made[-1]["reason"])
        for name, made in counts.items()
    )
    return tuple(sorted(found, key=lambda each: (-each.count, each.decision)))
