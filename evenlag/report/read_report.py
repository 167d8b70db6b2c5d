"""Read the report of a group and period from the lake, without a JVM."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenlag.audit.enums import RebalanceCause
from evenlag.audit.interval_merge import FIRST_INDEX, LAST_INDEX
from evenlag.audit.period import read_period
from evenlag.audit.published_hints import hint_finder, read_hints
from evenlag.audit.rebalances import find_rebalances
from evenlag.enums import OwnershipState, PlanEvent
from evenlag.errors import NotFoundError
from evenlag.formatting import moment, percent, speed_text
from evenlag.lag.group_lag import LAG_COLUMNS, GroupLag, counted_rows
from evenlag.lake.filters import Filter, matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.run_records import OPEN_PLANS
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import (
    ADVICE,
    DECISIONS,
    GATE_RESULTS,
    LAG,
    MEMBERS,
    OUTCOMES,
    PLAN_ASSIGNMENTS,
    PLAN_EVALUATIONS,
    REPLAYS,
    SNAPSHOTS,
)
from evenlag.policy.gates import GATES
from evenlag.queries.advice import SHOWN_COLUMNS
from evenlag.queries.comparisons import (
    MEASURED_SHOWN,
    OBSERVED,
    By,
    model_row,
    not_compared,
    read_optimality_gaps,
    shown_policy,
    sum_up,
)
from evenlag.queries.lag import (
    DRAIN_COLUMNS,
    MEMBER_COLUMNS,
    drain_times,
    group_row,
    group_rows,
    member_rows,
    owner_text,
    partition_rows,
    read_speeds,
)
from evenlag.queries.plan_rows import plan_rows
from evenlag.report.model import (
    HINT_EVENTS,
    DecisionSummary,
    GateSummary,
    Interval,
    LagChange,
    Mark,
    MemberLag,
    Report,
    Series,
    Timeline,
)
from evenlag.report.verdict import build_verdict, published_plans

# Lag by display name, as `member_rows` has it; the name None has the partitions without an owner.
_MemberLags = Mapping[str | None, Mapping[str, Any]]

DEFAULT_HOURS: Final = 24.0
_FIRST_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The plan to show: preferably one that was applied, then one that was published, then any.
_RANK_BY_STATUS: Final[dict[str, int]] = {
    PlanEvent.APPLIED: 0,
    PlanEvent.IGNORED: 1,
    PlanEvent.EXPIRED: 1,
    PlanEvent.PUBLISHED: 2,
    PlanEvent.WITHDRAWN: 3,
    PlanEvent.APPROVED: 3,
}
_RANK_OF_OTHERS = 4
_PLANNED_COLUMNS: Final = ("topic", "partition", "owner_before", "owner_after")
MAX_PARTITIONS: Final = 40
# A chart with more bars has many megabytes and is not readable.
MAX_INTERVALS: Final = 3_000
_HINT_EVENTS: Final = dict(
    zip(
        (PlanEvent.PUBLISHED, PlanEvent.APPLIED, PlanEvent.IGNORED, PlanEvent.EXPIRED, PlanEvent.WITHDRAWN),
        HINT_EVENTS,
        strict=True,
    )
)
_CAUSES: Final = {
    RebalanceCause.MEMBER_JOINED: "a member joined",
    RebalanceCause.MEMBER_LEFT: "a member left",
    RebalanceCause.MEMBER_BOUNCED: "a member left and joined again",
    RebalanceCause.SUBSCRIPTION_CHANGED: "a subscription changed",
    RebalanceCause.PARTITIONS_ADDED: "partitions were added",
    RebalanceCause.TOPIC_RECREATED: "a topic was created again",
    RebalanceCause.ASSIGNOR_CHANGED: "the assignor changed",
    RebalanceCause.HINT_APPLIED: "a hint was followed",
    RebalanceCause.UNKNOWN: "the snapshots do not show why",
}
_COUNTS: Final = ("moved", "returned", "placed", "freed")
_NOT_OWNED: Final = {
    OwnershipState.NOBODY: "nobody held it",
    OwnershipState.UNKNOWN: "the group did not show it",
}
_LAG_COLUMNS: Final = (
    "snapshot_id", "slot", "group_id", "owner_member_id", "topic", "partition", "status", "lag_records",
    "lag_bound", "owner_problem",
)  # fmt: skip


_NOBODY: Final = "nobody"


@dataclass(frozen=True, slots=True)
class Scope:
    """Cluster, group and period of a report.

    since, until: Slots of the first and the last snapshot.
    read_at: When the end offsets of each finished snapshot had been read, oldest first.
    end: Requested end of the period; later data is left out. None: no end was requested.
    """

    reader: LakeReader
    cluster: str
    group_id: str
    since: datetime
    until: datetime
    started_at: datetime
    finished_at: datetime
    read_at: Mapping[str, datetime]
    end: datetime | None = None

    def filters(self, *, days_after: int = 0) -> list[Filter]:
        """Return filters on the cluster, the days of the period and the group; they prune files."""
        until = self.until.date() + timedelta(days=days_after)
        return matching(cluster=self.cluster, since=self.since.date(), until=until, group_id=self.group_id)


class Names:
    """Display names: instance id, else client id, else member id.

    If several members of the period share a client id, the end of the member id is appended.
    """

    def __init__(self, known: Mapping[str, tuple[str | None, str | None]]) -> None:
        shared: dict[str, set[str]] = {}
        for member_id, (instance, client) in known.items():
            if plain := instance or client:
                shared.setdefault(plain, set()).add(f"i:{instance}" if instance else member_id)
        self._names: dict[str, str] = {}
        for member_id, (instance, client) in known.items():
            is_shared = client and len(shared.get(client, ())) > 1
            by_client = f"{client} …{member_id[-4:]}" if is_shared else client
            self._names[member_id] = instance or by_client or member_id

    def of(self, member_id: str | None) -> str:
        """Return the display name of a member."""
        return _NOBODY if member_id is None else self._names.get(member_id, member_id)


def read_names(scope: Scope) -> Names:
    """Read the display names of all members of a period."""
    columns = ["member_id", "group_instance_id", "client_id"]
    rows = scope.reader.read(MEMBERS, columns=columns, filters=scope.filters())
    rows = rows.filter(pc.is_valid(rows["member_id"])).group_by(columns).aggregate([])
    return Names({row["member_id"]: (row["group_instance_id"], row["client_id"]) for row in rows.to_pylist()})


def _events(scope: Scope) -> list[dict[str, Any]]:
    """Events of the group's plans up to the end of the period, oldest first.

    Events of the 31 days before it are read too: the publishing of the hints that end in the period.
    """
    of_group = matching(cluster=scope.cluster, group_id=scope.group_id)
    filters = [*of_group, ("at", ">=", scope.started_at - OPEN_PLANS)]
    rows = scope.reader.read_events(filters=filters).to_pylist()
    known = [row for row in rows if row["at"] is not None and (scope.end is None or row["at"] <= scope.end)]
    return sorted(known, key=lambda event: (event["at"], event["plan_id"], event["event"]))


def read_report(
    reader: LakeReader,
    cluster: str,
    group_id: str | None = None,
    *,
    hours: float = DEFAULT_HOURS,
    until: datetime | None = None,
    max_rows: int | None = None,
) -> Report:
    """Read the report of a group, or of the one with the largest lag in the last snapshot, and period.

    until: End of the period; the report has only data that was known then. Default: the newest snapshot.
    max_rows: Read at most about so many rows of ``lag``: the newest snapshots of the period, at least one.
    """
    snapshots = _snapshots(reader, cluster, hours, until)
    last = snapshots.slice(snapshots.num_rows - 1).to_pylist()[0]
    of_last = snapshot_filters(last)
    lag_of_all = reader.read(LAG, columns=LAG_COLUMNS, filters=of_last)
    groups = group_lags(lag_of_all, reader.read(MEMBERS, columns=MEMBER_COLUMNS, filters=of_last))
    if group_id is None:
        if not groups:
            raise NotFoundError(f"the snapshot of {moment(last['slot'])} on {cluster} has no group")
        group_id = groups[0]["group_id"]
    gone = group_row(group_id, 0, GroupLag(), {}) | {"unknown": {}}
    now = next((group for group in groups if group["group_id"] == group_id), gone)
    num_left_out = _num_left_out(snapshots.num_rows, now["num_partitions"], max_rows)
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
        read_at=dict(zip(ids, snapshots["end_read_at"].to_pylist(), strict=True)),
        end=until,
    )
    lag = _lag_of_group(scope, groups)
    of_group = [*of_last, ("group_id", "=", group_id)]
    advice = reader.read(ADVICE, columns=SHOWN_COLUMNS, filters=of_group).to_pylist()
    events = _events(scope)
    plans = _plans(scope, events)
    names = read_names(scope)
    comparison = read_policies(scope)
    observed = observed_lag(lag, scope.read_at)
    change = read_change(scope, lag, plans, names)
    evaluation = read_evaluation(scope, change)
    decisions = _decisions(scope)
    return Report(
        cluster=cluster,
        group_id=group_id,
        since=scope.since,
        until=scope.until,
        finished_at=scope.finished_at,
        num_snapshots=len(observed.at),
        now=now,
        groups=groups,
        verdict=build_verdict(change, plans, events, evaluation, now=now, decisions=decisions),
        change=change,
        timeline=read_timeline(scope, events, names),
        observed=observed,
        replayed=comparison.series,
        policies=comparison.results,
        reasons=comparison.reasons,
        model=comparison.model,
        hints=tuple(hint_marks(events, scope.since)),
        plans=plans,
        gates=_gates(scope),
        decisions=decisions,
        num_by_event=Counter(event["event"] for event in events if event["at"] >= scope.since),
        num_snapshots_left_out=num_left_out,
        advice=advice[0] if advice else None,
        partitions=_partitions(scope, of_group, lag, names),
    )


def _num_left_out(num_snapshots: int, num_partitions: int, max_rows: int | None) -> int:
    """Number of the oldest snapshots to leave out: the others have at most so many rows of the group."""
    if max_rows is None:
        return 0
    return num_snapshots - min(num_snapshots, max(1, max_rows // max(1, num_partitions)))


def _snapshots(reader: LakeReader, cluster: str, hours: float, until: datetime | None) -> pa.Table:
    """Snapshots of a period, oldest first; with a requested end, only those that had ended by then."""
    filters = matching(cluster=cluster)
    if until is not None:
        filters += [("day", "<=", until.date()), ("slot", "<=", until)]
    columns = ["cluster", "day", "slot", "snapshot_id", "started_at", "end_read_at", "finished_at"]
    newest = reader.read_newest(SNAPSHOTS, "slot", columns=columns, filters=filters).to_pylist()
    if not newest:
        when = "" if until is None else f" up to {moment(until)}"
        raise NotFoundError(f"there is no snapshot of {cluster}{when}: run a cycle first (evenlag run)")
    end: datetime = newest[0]["slot"] if until is None else until
    # A period cannot reach back further than the calendar.
    since = end - timedelta(hours=min(hours, (end - _FIRST_TIME) / timedelta(hours=1)))
    wanted: list[Filter] = [*filters, ("day", ">=", since.date()), ("slot", ">=", since)]
    found = reader.read(SNAPSHOTS, columns=columns, filters=wanted).sort_by([("slot", "ascending")])
    if until is not None:
        found = found.filter(pc.less_equal(found["finished_at"], until))
    if found.num_rows:
        return found
    raise NotFoundError(
        f"no snapshot of {cluster} was taken in the {hours:g} hours up to {moment(end)}: the last one before "
        f"ended at {moment(newest[0]['finished_at'])}. Use a longer period: --hours"
    )


def _lag_of_group(scope: Scope, groups: list[dict[str, Any]]) -> pa.Table:
    lag = scope.reader.read(LAG, columns=list(_LAG_COLUMNS), filters=scope.filters())
    lag = lag.filter(pc.is_in(lag["snapshot_id"], value_set=pa.array(scope.read_at, pa.string())))
    if lag.num_rows:
        return lag
    names = ", ".join(group["group_id"] for group in groups[:5]) or "none"
    raise NotFoundError(
        f"no snapshot of {scope.cluster} from {moment(scope.since)} to {moment(scope.until)} has the group "
        f"{scope.group_id!r}; groups there: {names}. Use a longer period: --hours"
    )


def _partitions(scope: Scope, filters: Sequence[Filter], lag: pa.Table, names: Names) -> list[dict[str, Any]]:
    members = scope.reader.read(MEMBERS, columns=["member_id", "client_host"], filters=filters).to_pylist()
    hosts = {row["member_id"]: row["client_host"] for row in members}
    of_first = lag.filter(pc.equal(lag["snapshot_id"], next(iter(scope.read_at)))).to_pylist()
    first = {(row["topic"], row["partition"]): row["lag_records"] for row in of_first}
    return [
        row
        | {
            "owner": names.of(row["owner_member_id"]) if row["owner_member_id"] else owner_text(row),
            "host": hosts.get(row["owner_member_id"]),
            "first_lag_records": first.get((row["topic"], row["partition"])),
        }
        for row in partition_rows(scope.reader.read(LAG, filters=filters))
    ]


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
    return [plan for plan in plans if plan["snapshot_id"] in scope.read_at]


def _gates(scope: Scope) -> tuple[GateSummary, ...]:
    columns = ["gate", "passed", "message", "snapshot_id"]
    rows = scope.reader.read(GATE_RESULTS, columns=columns, filters=scope.filters()).to_pylist()
    by_gate = _by(scope, "gate", sorted(rows, key=lambda row: str(row["snapshot_id"])))
    order = {gate.name: number for number, gate in enumerate(GATES)}
    summaries = []
    for gate in sorted(by_gate, key=lambda name: (order.get(name, len(order)), name)):
        refusals = [row["message"] for row in by_gate[gate] if not row["passed"]]
        last = refusals[-1] if refusals else None
        summaries.append(GateSummary(gate, len(by_gate[gate]), len(refusals), last))
    return tuple(summaries)


def _decisions(scope: Scope) -> tuple[DecisionSummary, ...]:
    columns = ["decision", "reason", "slot", "snapshot_id"]
    rows = scope.reader.read(DECISIONS, columns=columns, filters=scope.filters()).sort_by("slot").to_pylist()
    found = (
        DecisionSummary(name, len(made), made[-1]["slot"], made[-1]["reason"])
        for name, made in _by(scope, "decision", rows).items()
    )
    return tuple(sorted(found, key=lambda each: (-each.count, each.decision)))


def _by(scope: Scope, column: str, rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["snapshot_id"] in scope.read_at:
            found[row[column]].append(row)
    return found


@dataclass(frozen=True, slots=True)
class Comparison:
    """Simulations of a period: a row of each policy, the best first, and why policies or days are missing."""

    series: tuple[Series, ...] = ()
    results: Sequence[Mapping[str, Any]] = ()
    model: Mapping[str, Any] | None = None
    reasons: tuple[str, ...] = ()


def read_policies(scope: Scope) -> Comparison:
    """Read the simulations of a period, aggregated as in `evenlag compare`."""
    rows = scope.reader.read(REPLAYS, filters=scope.filters()).sort_by("day").to_pylist()
    by_policy: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_policy[row["policy"]].append(row)
    names = sorted(by_policy, key=lambda name: (name != OBSERVED, name))
    read_at = list(scope.read_at.values())
    replayed = (replayed_series(name, by_policy[name], read_at[0], read_at[-1]) for name in names)
    series = tuple(each for each in replayed if each.at)
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
    failed = [
        f"{row['policy']} could not be replayed on {row['days']} days: {row['reason']}"
        for row in not_compared(whole)
    ]
    return Comparison(
        series=series,
        results=sum_up(whole, gaps, By.WAITING_P99.value),
        model=model_row(whole),
        reasons=(*failed, *later),
    )


def replayed_series(name: str, days: Sequence[Mapping[str, Any]], since: datetime, until: datetime) -> Series:
    """Concatenate the days of a policy, cut to a period; None separates them: each has a start of its own."""
    # Replays before model version 3 have times cut to milliseconds, the period has microseconds.
    since = floor_to_ms(since)
    points: list[tuple[Any, ...]] = []
    for row in days:
        columns = (row[column] or () for column in ("at", "lag_records", "max_member_lag_records"))
        of_day = [point for point in zip(*columns, strict=True) if since <= point[0] <= until]
        if points and of_day:
            points.append((of_day[0][0], None, None))
        points += of_day
    return Series(
        name=shown_policy(name),
        at=tuple(at for at, _, _ in points),
        lag_records=tuple(lag for _, lag, _ in points),
        max_member_lag_records=tuple(most for _, _, most in points),
    )


def group_lags(lag: pa.Table, members: pa.Table) -> list[dict[str, Any]]:
    """Return the groups of a snapshot that have partitions, by lag, as `group_rows` does.

    ``unknown`` is the number of partitions with unknown lag by lag status. Groups that have left all
    partitions have no lag, and come last.
    """
    unknown: dict[str, dict[str, int]] = defaultdict(dict)
    for row in _unknown_by_status(counted_rows(lag), "group_id"):
        unknown[row["group_id"]][row["status"]] = row["count_all"]
    return [
        row | {"unknown": unknown[row["group_id"]]} | ({} if row["num_partitions"] else {"lag_records": 0})
        for row in group_rows(lag, members)
        if row["num_partitions"] or row["num_not_subscribed_partitions"]
    ]


def observed_lag(lag: pa.Table, read_at: Mapping[str, datetime]) -> Series:
    """Aggregate the lag of a group by snapshot, at its read times, which simulations use, too."""
    keys = ["snapshot_id"]
    shown = lag["snapshot_id"].unique().to_pylist()
    lag = counted_rows(lag)
    rows = lag.group_by(keys).aggregate([("lag_records", "sum"), ("lag_records", "count"), ([], "count_all")])
    by_snapshot = {row["snapshot_id"]: row for row in rows.to_pylist()}
    # Without a partition that counts, there is no lag.
    nothing = {"lag_records_sum": 0, "lag_records_count": 0, "count_all": 0}
    totals = [
        by_snapshot.get(name, {"snapshot_id": name, **nothing})
        for name in sorted(shown, key=lambda name: (read_at[name], name))
    ]
    owned = lag.filter(pc.is_valid(lag["owner_member_id"]))
    sums = owned.group_by([*keys, "owner_member_id"]).aggregate([("lag_records", "sum")])
    by_member = sums.group_by(keys).aggregate([("lag_records_sum", "max")])
    most = {row["snapshot_id"]: row["lag_records_sum_max"] for row in by_member.to_pylist()}
    by_status: dict[str, list[int]] = defaultdict(list)
    for row in _unknown_by_status(lag, *keys):
        by_status[row["status"]].append(row["count_all"])
    return Series(
        name=MEASURED_SHOWN,
        at=tuple(read_at[row["snapshot_id"]] for row in totals),
        lag_records=tuple(row["lag_records_sum"] for row in totals),
        max_member_lag_records=tuple(most.get(row["snapshot_id"]) for row in totals),
        num_unknown=tuple(row["count_all"] - row["lag_records_count"] for row in totals),
        unknown=tuple((status, len(counts), max(counts)) for status, counts in sorted(by_status.items())),
    )


def _unknown_by_status(lag: pa.Table, *keys: str) -> list[dict[str, Any]]:
    unknown = lag.filter(pc.is_null(lag["lag_records"]))
    rows: list[dict[str, Any]] = (
        unknown.group_by([*keys, "status"]).aggregate([([], "count_all")]).to_pylist()
    )
    return rows


_NOT_SHOWN: Final = {"lag_records": None, "num_unknown_partitions": 0}


def read_change(
    scope: Scope, lag: pa.Table, plans: Sequence[Mapping[str, Any]], names: Names
) -> LagChange | None:
    """Read the lag of the members around the newest plan that was applied, or else in the newest snapshot."""
    by_slot = lag.sort_by("slot")["snapshot_id"].to_pylist()
    readable, newest = set(by_slot), by_slot[-1]

    def of_snapshot(snapshot_id: str) -> tuple[pa.Table, pa.Table]:
        wanted = [*scope.filters(), ("snapshot_id", "=", snapshot_id)]
        members = scope.reader.read(MEMBERS, columns=["member_id"], filters=wanted)
        return lag.filter(pc.equal(lag["snapshot_id"], snapshot_id)), members

    plan = min(
        (plan for plan in plans if plan["snapshot_id"] in readable),
        key=lambda plan: _RANK_BY_STATUS.get(str(plan["status"]), _RANK_OF_OTHERS),
        default=None,
    )
    if plan is None:
        before = _lag_by_member(*of_snapshot(newest), names)
        found = _with_speeds(scope, newest, names, _members(before, {}, {}))
        read_at = max(scope.read_at[name] for name in readable)
        return LagChange(found, read_at, unknown_before=_unknown(before)) if found else None
    wanted = [*scope.filters(days_after=1), ("plan_id", "=", plan["plan_id"])]
    of_plan: list[Filter] = [(name, "=", plan[name]) for name in ("cluster", "day", "plan_id")]
    planned = scope.reader.read(PLAN_ASSIGNMENTS, columns=_PLANNED_COLUMNS, filters=of_plan)
    outcome = next(iter(scope.reader.read(OUTCOMES, filters=wanted).to_pylist()), None)
    rows, members = of_snapshot(plan["snapshot_id"])
    before, predicted = (_lag_by_member(each, members, names) for each in (rows, _as_planned(rows, planned)))
    later_id = outcome["snapshot_id"] if outcome is not None and outcome["snapshot_id"] in readable else None
    after = {} if later_id is None else _lag_by_member(*of_snapshot(later_id), names)
    snapshot_ids = [name for name in (plan["snapshot_id"], later_id) if name]
    rates = [*scope.filters(), ("snapshot_id", "in", snapshot_ids)]
    rows = scope.reader.read(LAG, columns=("snapshot_id", *DRAIN_COLUMNS), filters=rates)
    drains = drain_times(counted_rows(rows), "snapshot_id")
    return LagChange(
        members=_with_speeds(scope, plan["snapshot_id"], names, _members(before, predicted, after)),
        before_at=scope.read_at[plan["snapshot_id"]],
        plan_id=plan["plan_id"],
        status=plan["status"],
        moves=plan["moves"],
        after_at=None if later_id is None else scope.read_at[later_id],
        unknown_before=_unknown(before),
        unknown_after=_unknown(after),
        drain_before_ms=drains.get(plan["snapshot_id"]),
        drain_after_ms=drains.get(str(later_id)),
    )


def read_evaluation(scope: Scope, change: LagChange | None) -> Mapping[str, Any] | None:
    """Read the row of ``plan_evaluations`` of a plan; None before its horizon, as of the requested end."""
    if change is None or change.plan_id is None:
        return None
    wanted: list[Filter] = [*scope.filters(), ("plan_id", "=", change.plan_id)]
    rows = scope.reader.read(PLAN_EVALUATIONS, filters=wanted).to_pylist()
    return next((row for row in rows if row["snapshot_id"] in scope.read_at), None)


def _lag_by_member(rows: pa.Table, members: pa.Table, names: Names) -> _MemberLags:
    # Of two ids with one name, that with the largest lag counts.
    return {
        None if row["member_id"] is None else names.of(row["member_id"]): row
        for row in reversed(member_rows(rows, members))
    }


def _as_planned(rows: pa.Table, planned: pa.Table) -> pa.Table:
    """Replace the owners by those of a plan; the plan may contain only the partitions that it moves."""
    is_planned = pa.array([True] * planned.num_rows, pa.bool_())
    both = rows.join(
        planned.select(["topic", "partition", "owner_after"]).append_column("is_planned", is_planned),
        ["topic", "partition"],
        join_type="left outer",
    )
    owner = pc.if_else(
        pc.fill_null(both["is_planned"], fill_value=False), both["owner_after"], both["owner_member_id"]
    )
    return both.set_column(both.column_names.index("owner_member_id"), "owner_member_id", owner)


def _unknown(by_member: _MemberLags) -> tuple[int, int]:
    unknown, partitions = (
        sum(row[name] for row in by_member.values()) for name in ("num_unknown_partitions", "num_partitions")
    )
    return unknown, partitions


def _members(*parts: _MemberLags) -> tuple[MemberLag, ...]:
    found = []
    for name in {name for part in parts for name in part if name is not None}:
        before, predicted, after = (part.get(name, _NOT_SHOWN) for part in parts)
        lags = (before["lag_records"], predicted["lag_records"], after["lag_records"])
        unknown = tuple(row["num_unknown_partitions"] for row in (before, predicted, after))
        found.append(MemberLag(name, *lags, unknown))
    return tuple(
        sorted(found, key=lambda member: (member.before is None, -(member.before or 0), member.name))
    )


def _with_speeds(
    scope: Scope, snapshot_id: str, names: Names, members: tuple[MemberLag, ...]
) -> tuple[MemberLag, ...]:
    """Add the measured speeds of a snapshot."""
    found = read_speeds(scope.reader, scope.cluster, snapshot_id, scope.group_id).get(scope.group_id, {})
    by_name = {
        names.of(member_id): f"{speed_text(each['speed_records_per_s'], each['is_bound'])} "
        f"({percent(each['confidence'])})"
        for member_id, each in found.items()
    }
    return tuple(replace(member, speed=by_name.get(member.name, "")) for member in members)


def read_timeline(scope: Scope, events: Sequence[Mapping[str, Any]], names: Names) -> Timeline | None:
    """Read the timeline of a period; None if the group was not audited in it."""
    try:
        period = read_period(
            scope.reader, scope.cluster, scope.since, scope.finished_at, group_id=scope.group_id
        )
    except NotFoundError:
        return None
    inside = [
        place
        for place, snapshot in enumerate(period.snapshots.to_pylist())
        if scope.since <= snapshot["slot"] <= scope.until and snapshot["finished_at"] <= scope.finished_at
    ]
    if not inside:
        return None
    found = period.ownership.sort_by([(key, "ascending") for key in ("topic", "partition", FIRST_INDEX)])
    last_end = period.snapshots["finished_at"][inside[-1]].as_py()
    intervals = [
        _interval(row, names, scope.started_at, last_end, is_open=row[LAST_INDEX] >= inside[-1])
        for row in _next_to_each_other(found.to_pylist())
        if row[FIRST_INDEX] <= inside[-1] and row[LAST_INDEX] >= inside[0]
    ]
    if not intervals:
        return None
    rebalances, _ = find_rebalances(period, find_hint=hint_finder(read_hints(scope.reader, period)))
    ids = {period.snapshots["snapshot_id"][place].as_py() for place in inside}
    marks = [
        *hint_marks(events, scope.since),
        *(_rebalance(each, names) for each in rebalances if each["snapshot_id"] in ids),
    ]
    shown = _choose(intervals)
    kept = tuple(each for each in intervals if each.partition in shown)
    return Timeline(
        partitions=tuple(dict.fromkeys(each.partition for each in kept)),
        owners=tuple(
            dict.fromkeys(
                each.owner for each in sorted(kept, key=lambda each: each.start) if each.owner is not None
            )
        ),
        intervals=kept,
        marks=tuple(sorted(marks, key=lambda mark: mark.at)),
        num_left_out=len({each.partition for each in intervals}) - len(shown),
        num_unaudited=period.num_unaudited,
    )


def _next_to_each_other(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """End each interval where the next one of the partition begins, also over midnight."""
    key = ("topic", "topic_id", "partition")
    return [
        row | {"next_seen_at": after["first_seen_at"]}
        if after is not None
        and all(row[name] == after[name] for name in key)
        and after[FIRST_INDEX] == row[LAST_INDEX] + 1
        else row
        for row, after in zip_longest(rows, rows[1:])
    ]


def _interval(
    row: Mapping[str, Any], names: Names, since: datetime, last_end: datetime, *, is_open: bool
) -> Interval:
    is_owned = row["state"] == OwnershipState.OWNED
    start = max(row["first_seen_at"], since)
    end = last_end if is_open else min(row["next_seen_at"] or row["last_seen_at"], last_end)
    return Interval(
        partition=f"{row['topic']}-{row['partition']}",
        owner=names.of(row["member_id"]) if is_owned else None,
        what="" if is_owned else row["reason"] or _NOT_OWNED.get(row["state"], row["state"]),
        start=start,
        end=max(start, end),
        is_open=is_open,
    )


def _choose(intervals: Sequence[Interval]) -> set[str]:
    """Partitions to show: all, or those with the most changes of owner."""
    counts = Counter(each.partition for each in intervals)
    chosen: set[str] = set()
    room = MAX_INTERVALS
    for name in sorted(counts, key=lambda name: (-counts[name], name))[:MAX_PARTITIONS]:
        if counts[name] <= room or not chosen:
            chosen.add(name)
            room -= counts[name]
    return chosen


def _rebalance(row: Mapping[str, Any], names: Names) -> Mark:
    why = ", ".join(_CAUSES.get(cause, cause) for cause in row["causes"])
    who = [
        f"{what}: {', '.join(names.of(member) for member in row[what])}"
        for what in ("joined", "left")
        if row[what]
    ]
    counts = [f"{count} {what}" for what in _COUNTS if (count := row[f"num_{what}"])]
    return Mark(row["seen_at"], "rebalance", "; ".join([why, *who, ", ".join(counts) or "nothing moved"]))


def hint_marks(events: Sequence[Mapping[str, Any]], since: datetime) -> Iterator[Mark]:
    """Select the events of published hints, oldest first, from the plan events of the group."""
    published = published_plans(events)
    for event in events:
        what = _HINT_EVENTS.get(event["event"])
        if what is not None and event["plan_id"] in published and event["at"] >= since:
            because = f": {event['reason']}" if event["reason"] else ""
            yield Mark(event["at"], "hint", f"plan {event['plan_id'][:12]}{because}", event=what)
