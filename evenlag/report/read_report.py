"""Read the report of a group and period from the lake, without a JVM."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import JobError
from evenlag.formatting import moment
from evenlag.lag.group_lag import LAG_COLUMNS
from evenlag.queries.comparisons import (
    OBSERVED,
    By,
    model_error_text,
    model_row,
    not_compared,
    read_optimality_gaps,
    shown_policy,
    sum_up,
)
from evenlag.queries.lag import MEMBER_COLUMNS
from evenlag.queries.plan_rows import plan_rows
from evenlag.report.model import (
    DecisionSummary,
    GateSummary,
    GroupLag,
    ModelError,
    Report,
    Series,
)
from evenlag.report.read_lag import cut, group_lags, observed_lag, read_change, read_evaluation
from evenlag.report.read_timeline import hint_marks, read_timeline
from evenlag.report.scope import Scope, count_events, read_group_events, read_names
from evenlag.report.verdict import build_verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader


DEFAULT_HOURS: Final = 24.0
_FIRST_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAG_COLUMNS: Final = (
    "snapshot_id", "slot", "group_id", "owner_member_id", "topic", "partition", "status", "lag_records",
)  # fmt: skip


class NothingToReportError(JobError, exit_code=4):
    """Raised when the lake has no snapshot of the cluster, the group or the period."""


def read_report(
    reader: LakeReader,
    cluster: str,
    group_id: str | None = None,
    *,
    hours: float = DEFAULT_HOURS,
    until: datetime | None = None,
    max_rows: int | None = None,
) -> Report:
    """Read the report of a group and period.

    group_id: The group; default: the one with the largest lag in the last snapshot.
    until: End of the period; the report contains only data that was known then. Default: the newest
        snapshot.
    max_rows: Read at most about so many rows of ``lag``: the newest snapshots of the period, at least one.
        Default: the whole period.
    """
    import pyarrow.compute as pc

    snapshots = _snapshots(reader, cluster, hours, until)
    last = snapshots.slice(snapshots.num_rows - 1).to_pylist()[0]
    groups = group_lags(*_read_newest(reader, cluster, last))
    if group_id is None:
        if not groups:
            raise NothingToReportError(f"the snapshot of {moment(last['slot'])} on {cluster} has no group")
        group_id = groups[0].group_id
    now = next(
        (group for group in groups if group.group_id == group_id), GroupLag(group_id, 0, 0, None, None)
    )
    num_left_out = _num_left_out(snapshots.num_rows, now.num_partitions, max_rows)
    snapshots = snapshots.slice(num_left_out)
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
    events = read_group_events(reader, cluster, group_id, since=scope.started_at, until=until)
    plans = _plans(scope, events)
    names = read_names(scope)
    comparison = read_policies(scope)
    observed = observed_lag(lag, scope.read_at)
    change = read_change(scope, lag, plans, names)
    decisions = _decisions(scope)
    return Report(
        cluster=cluster,
        group_id=group_id,
        since=scope.since,
        until=scope.until,
        finished_at=scope.finished_at,
        num_snapshots=len(observed.at),
        now=now,
        groups=tuple(groups),
        verdict=build_verdict(
            change,
            plans,
            events,
            read_evaluation(scope, None if change is None else change.plan_id),
            now=now,
            decisions=decisions,
        ),
        change=change,
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
        hints=tuple(hint_marks(events, scope.since)),
        plans=plans,
        gates=_gates(scope),
        decisions=decisions,
        num_by_event=count_events(events, scope.since),
        num_snapshots_left_out=num_left_out,
    )


def _num_left_out(num_snapshots: int, num_partitions: int, max_rows: int | None) -> int:
    """Number of the oldest snapshots to leave out: the others have at most so many rows of the group."""
    if max_rows is None:
        return 0
    return num_snapshots - min(num_snapshots, max(1, max_rows // max(1, num_partitions)))


def _snapshots(reader: LakeReader, cluster: str, hours: float, until: datetime | None) -> pa.Table:
    """Snapshots of a period, oldest first; with a requested end, only those that had ended by then."""
    import pyarrow.compute as pc

    from evenlag.lake.tables import SNAPSHOTS

    filters: list[Filter] = [("cluster", "=", cluster)]
    if until is not None:
        filters += [("day", "<=", until.date()), ("slot", "<=", until)]
    columns = ["slot", "snapshot_id", "started_at", "end_read_at", "finished_at"]
    newest = reader.read_newest(SNAPSHOTS, "slot", columns=columns, filters=filters).to_pylist()
    if not newest:
        when = "" if until is None else f" up to {moment(until)}"
        raise NothingToReportError(
            f"there is no snapshot of {cluster}{when}: run a cycle first (evenlag run)"
        )
    end: datetime = newest[0]["slot"] if until is None else until
    # A period cannot reach back further than the calendar.
    since = end - timedelta(hours=min(hours, (end - _FIRST_TIME) / timedelta(hours=1)))
    wanted: list[Filter] = [*filters, ("day", ">=", since.date()), ("slot", ">=", since)]
    found = reader.read(SNAPSHOTS, columns=columns, filters=wanted).sort_by([("slot", "ascending")])
    if until is not None:
        found = found.filter(pc.less_equal(found["finished_at"], until))
    if found.num_rows:
        return found
    raise NothingToReportError(
        f"no snapshot of {cluster} was taken in the {hours:g} hours up to {moment(end)}: the last one before "
        f"ended at {moment(newest[0]['finished_at'])}. Use a longer period: --hours"
    )


def _read_newest(reader: LakeReader, cluster: str, snapshot: Mapping[str, Any]) -> tuple[pa.Table, pa.Table]:
    """Lag and members of all groups in one snapshot."""
    from evenlag.lake.tables import LAG, MEMBERS

    wanted: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", "=", snapshot["slot"].date()),
        ("snapshot_id", "=", snapshot["snapshot_id"]),
    ]
    lag = reader.read(LAG, columns=LAG_COLUMNS, filters=wanted)
    return lag, reader.read(MEMBERS, columns=MEMBER_COLUMNS, filters=wanted)


def _lag_of_group(scope: Scope, groups: list[GroupLag]) -> pa.Table:
    """Rows of ``lag`` of the group and period."""
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
        f"{scope.group_id!r}; groups there: {names}. Use a longer period: --hours"
    )


def _plans(scope: Scope, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Plans from the snapshots of the period, as of its end."""
    plans = plan_rows(
        scope.reader,
        scope.cluster,
        group=scope.group_id,
        between=(scope.since.date(), scope.until.date()),
        until=scope.end,
        events=events,
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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Simulations of a period.

    series: Simulated lag over time, by policy.
    results: Row of each policy, the best first.
    model_error: Error of the simulation of the real assignment; None: unknown.
    reasons: Why policies or days are missing.
    """

    series: tuple[Series, ...] = ()
    results: Sequence[Mapping[str, Any]] = ()
    model_error: ModelError | None = None
    reasons: tuple[str, ...] = ()


def read_policies(scope: Scope) -> Comparison:
    """Read the simulations of the days of a period.

    The results are aggregated as in `evenlag compare`, so that both report the same best policy.

    Empty if nothing was simulated.
    """
    from evenlag.lake.tables import REPLAYS

    rows = scope.reader.read(REPLAYS, filters=scope.filters()).sort_by("day").to_pylist()
    if not rows:
        return Comparison()
    by_policy: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_policy.setdefault(row["policy"], []).append(row)
    series = tuple(_series(name, days) for name, days in sorted(by_policy.items(), key=_place))
    # Days are simulated as a whole: leave out a day with data from after the requested end.
    whole = [row for row in rows if scope.end is None or row["period_end"] <= scope.end]
    goes_on = sorted({row["day"] for row in rows} - {row["day"] for row in whole})
    later = [f"{day} is left out: its simulation continues after the end of the period" for day in goes_on]
    if not whole:
        return Comparison(series=series, reasons=tuple(later))
    days = [row["day"] for row in whole]
    gaps = read_optimality_gaps(
        scope.reader, scope.cluster, since=min(days), until=max(days), group=scope.group_id
    )
    model = model_row(whole)
    return Comparison(
        series=series,
        results=sum_up(whole, gaps, By.P95_TIME_LAG.value),
        model_error=None
        if model is None
        else ModelError(model["median_error"], model["p95_error"], model_error_text(model)),
        reasons=(
            *(
                f"{row['policy']} could not be replayed on {row['days']} days: {row['reason']}"
                for row in not_compared(whole)
            ),
            *later,
        ),
    )


def _place(item: tuple[str, Sequence[Mapping[str, Any]]]) -> tuple[bool, str]:
    return item[0] != OBSERVED, item[0]


def _series(name: str, days: Sequence[Mapping[str, Any]]) -> Series:
    """Concatenate the days of a policy, separated by None: each day starts from the observed state."""
    at: list[Any] = []
    lag: list[int | None] = []
    most: list[int | None] = []
    for row in days:
        if not row["at"]:
            continue
        if at:
            at, lag, most = [*at, row["at"][0]], [*lag, None], [*most, None]
        at += row["at"]
        lag += row["lag_records"]
        most += row["max_member_lag_records"]
    return Series(shown_policy(name), tuple(at), tuple(lag), tuple(most))
