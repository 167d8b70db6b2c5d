"""Bring a group's period together from the lake, without a JVM."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.plan_rows import plan_rows
from evenlag.report.model import DecisionSummary, GateSummary, GroupLag, Report, Series
from evenlag.report.read_change import read_change
from evenlag.report.read_names import read_names
from evenlag.report.read_policies import read_policies
from evenlag.report.read_timeline import read_timeline
from spark_jobs.errors import JobError

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from spark_jobs.lake_reader import Filter, LakeReader

DEFAULT_HOURS: Final = 24.0


class NothingToReportError(JobError):
    """Raised when the lake has no reading of what was asked for."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class Scope:
    """What a report is about: filters by cluster, day and group prune files.

    Attributes
    ----------
    since, until
        Slots of the first and the last reading.
    finished_at
        When the last one ended.
    snapshot_ids
        Finished readings of the period, oldest first.
    """

    reader: LakeReader
    cluster: str
    group_id: str
    since: datetime
    until: datetime
    finished_at: datetime
    snapshot_ids: tuple[str, ...]

    def filters(self, *, days_after: int = 0) -> list[Filter]:
        """Rows of the group on the days of the period, and so many days after it."""
        return [
            ("cluster", "=", self.cluster),
            ("day", ">=", self.since.date()),
            ("day", "<=", self.until.date() + timedelta(days=days_after)),
            ("group_id", "=", self.group_id),
        ]


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
        The group; the one that is furthest behind in the newest reading when not given.
    hours
        Length of the period.
    until
        Its end; the newest reading when not given.

    Raises
    ------
    NothingToReportError
        When the period has no reading, or no reading has the group.
    """
    import pyarrow.compute as pc

    from spark_jobs.tables import LAG

    snapshots = _snapshots(reader, cluster, hours, until)
    slots, ids = snapshots["slot"].to_pylist(), snapshots["snapshot_id"].to_pylist()
    since, end = slots[0], slots[-1]
    columns = ["snapshot_id", "slot", "group_id", "owner_member_id", "topic", "partition", "lag_records"]
    wanted: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", "=", end.date()),
        ("snapshot_id", "=", ids[-1]),
    ]
    groups = _group_lags(reader.read(LAG, columns=columns, filters=wanted))
    if group_id is None:
        if not groups:
            raise NothingToReportError(f"the reading of {end:%Y-%m-%d %H:%M}Z on {cluster} has no group")
        group_id = groups[0].group_id
    scope = Scope(reader, cluster, group_id, since, end, snapshots["finished_at"][-1].as_py(), tuple(ids))
    lag = reader.read(LAG, columns=columns, filters=scope.filters())
    lag = lag.filter(pc.is_in(lag["snapshot_id"], value_set=snapshots["snapshot_id"].combine_chunks()))
    if lag.num_rows == 0:
        known = ", ".join(group.group_id for group in groups[:5]) or "none"
        raise NothingToReportError(
            f"no reading of {cluster} from {since:%Y-%m-%d %H:%M}Z to {end:%Y-%m-%d %H:%M}Z has the group "
            f"{group_id!r}; groups there: {known}. A longer period may have it: --hours"
        )
    names = read_names(scope)
    # Days are counted back from the newest reading, which a period that ends earlier does not know.
    days = (end.date() - since.date()).days if until is None else None
    plans = plan_rows(reader, cluster, group=group_id, days=days)
    plans = [plan for plan in plans if since <= plan["slot"] <= end]
    events = reader.read_events(filters=scope.filters(days_after=1))
    plan_ids = {plan["plan_id"] for plan in plans}
    events = [row for row in events.to_pylist() if row["plan_id"] in plan_ids]
    comparison = read_policies(scope)
    return Report(
        cluster=cluster,
        group_id=group_id,
        since=since,
        until=end,
        num_snapshots=len(pc.unique(lag["snapshot_id"])),
        now=next(
            (group for group in groups if group.group_id == group_id), GroupLag(group_id, 0, 0, None, None)
        ),
        groups=tuple(groups),
        change=read_change(scope, lag, plans, names),
        timeline=read_timeline(scope, events, names),
        observed=_observed(lag),
        replayed=comparison.series,
        policies=comparison.results,
        reasons=comparison.reasons,
        model_error=comparison.model_error,
        plans=plans,
        gates=_gates(scope),
        decisions=_decisions(scope),
        num_by_event=_count_events(events),
    )


def _snapshots(reader: LakeReader, cluster: str, hours: float, until: datetime | None) -> pa.Table:
    import pyarrow.compute as pc

    from spark_jobs.tables import SNAPSHOTS

    filters: list[Filter] = [("cluster", "=", cluster)]
    if until is not None:
        filters += [("day", "<=", until.date()), ("slot", "<=", until)]
    found = reader.read(SNAPSHOTS, columns=["slot", "snapshot_id", "finished_at"], filters=filters)
    if found.num_rows == 0:
        when = "" if until is None else f" up to {until:%Y-%m-%d %H:%M}Z"
        raise NothingToReportError(f"there is no reading of {cluster}{when}: run a cycle first (evenlag run)")
    newest = pc.max(found["slot"]).as_py()
    found = found.filter(pc.greater_equal(found["slot"], newest - timedelta(hours=hours)))
    return found.sort_by([("slot", "ascending")])


def _member_sums(lag: pa.Table, *keys: str) -> pa.Table:
    """Lag by the keys and member, live ones only; what is not known counts as none."""
    import pyarrow.compute as pc

    owned = lag.filter(pc.is_valid(lag["owner_member_id"]))
    return owned.group_by([*keys, "owner_member_id"]).aggregate([("lag_records", "sum")])


def _group_lags(lag: pa.Table) -> list[GroupLag]:
    totals = lag.group_by("group_id").aggregate([("lag_records", "sum"), ([], "count_all")]).to_pylist()
    members = _member_sums(lag, "group_id").group_by("group_id")
    most = {
        row["group_id"]: row
        for row in members.aggregate([("lag_records_sum", "max"), ([], "count_all")]).to_pylist()
    }
    found = [
        GroupLag(
            group_id=row["group_id"],
            num_members=most.get(row["group_id"], {}).get("count_all", 0),
            num_partitions=row["count_all"],
            lag_records=row["lag_records_sum"],
            max_member_lag_records=most.get(row["group_id"], {}).get("lag_records_sum_max"),
        )
        for row in totals
    ]
    return sorted(found, key=lambda group: (-(group.lag_records or 0), group.group_id))


def _observed(lag: pa.Table) -> Series:
    totals = lag.group_by("slot").aggregate([("lag_records", "sum")]).sort_by("slot").to_pylist()
    by_member = _member_sums(lag, "slot").group_by("slot").aggregate([("lag_records_sum", "max")])
    most = {row["slot"]: row["lag_records_sum_max"] for row in by_member.to_pylist()}
    return Series(
        name="as seen",
        at=tuple(row["slot"] for row in totals),
        lag_records=tuple(row["lag_records_sum"] for row in totals),
        max_member_lag_records=tuple(most.get(row["slot"]) for row in totals),
    )


def _gates(scope: Scope) -> tuple[GateSummary, ...]:
    from spark_jobs.gates import GATES
    from spark_jobs.tables import GATE_RESULTS

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
    from spark_jobs.tables import DECISIONS

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


def _count_events(events: list[dict[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in events:
        counts[row["event"]] = counts.get(row["event"], 0) + 1
    return counts
