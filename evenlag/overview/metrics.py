"""All metrics that evenlag exports: for Prometheus, and for Airflow's metrics backend.

Of Prometheus, names and units follow its conventions: base units, a moment as a Unix time instead of an age,
and no value where evenlag does not know one. The values are states that the lake has, so all of them are
gauges; counts of events cover the last 24 hours. A metric of groups or clusters is one entry of its table.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Final, Generic, NamedTuple, TypeVar

from evenlag.enums import Outcome, OutcomeReason, PlanEvent
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import LAG, OUTCOMES, PLAN_EVENTS, PLANS
from evenlag.overview.model import ClusterState, GroupRow, Overview
from evenlag.publishing.approvals import open_requests
from evenlag.queries.lag import SUM_COLUMNS, sum_lag
from evenlag.safe_text import label_text

MAX_GROUPS: Final = 1_000
"""Groups of a cluster that have metrics of their own: those with the largest lag."""
WINDOW: Final = timedelta(hours=24)
"""Period of the counts of events and outcomes."""
_LAST_PUBLISH_WITHIN: Final = timedelta(days=30)
# A withdrawal is an event of a person, and no row of `outcomes`: it is its own reason.
_WITHDRAWN: Final = (Outcome.WITHDRAWN.value, Outcome.WITHDRAWN.value)
# What a row of an earlier version may lack.
_UNRECORDED: Final = tuple(
    (outcome.value, OutcomeReason.UNKNOWN.value) for outcome in (Outcome.IGNORED, Outcome.EXPIRED)
)
OUTCOME_REASONS: Final = tuple(
    dict.fromkeys(
        [*((reason.outcome.value, reason.value) for reason in OutcomeReason), *_UNRECORDED, _WITHDRAWN]
    )
)
"""Every pair of an outcome and its reason."""
_OUTCOMES = (PlanEvent.APPLIED, PlanEvent.IGNORED, PlanEvent.EXPIRED)

_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class ClusterCounts:
    """The plan events and outcomes of the last 24 hours, and the newest publication of 30 days."""

    events: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    published_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PlanRows:
    """The rows to count. They are the same until one of their tables changes; the counts are not."""

    events: Sequence[Mapping[str, Any]]
    outcomes: Sequence[Mapping[str, Any]]
    published_at: datetime | None

    def count(self, now: datetime) -> ClusterCounts:
        """Count what happened in the 24 hours before a time."""
        since = now - WINDOW
        # A repeated run may write an event again.
        seen = {(row["plan_id"], row["event"]) for row in self.events if row["at"] >= since}
        published = {row["plan_id"] for row in self.events if row["event"] == PlanEvent.PUBLISHED}
        ended = {row["plan_id"]: _outcome(row) for row in self.outcomes if row["slot"] >= since}
        # A withdrawal says more than an outcome beside it; what was never published was no hint.
        ended |= {
            plan_id: _WITHDRAWN
            for plan_id, event in seen
            if event == PlanEvent.WITHDRAWN and plan_id in published
        }
        return ClusterCounts(
            events=Counter(event for _, event in seen),
            outcomes=Counter(ended.values()),
            published_at=self.published_at,
        )


class ClusterRow(NamedTuple):
    """What the metrics of a cluster are made of; `counts` is None if the plan events could not be read."""

    state: ClusterState
    num_groups: int
    num_left_out: int
    counts: ClusterCounts | None


@dataclass(frozen=True, slots=True)
class Metric(Generic[_Row]):
    """A gauge: its name and help text, and its value of a row; None: not known, or nothing to report."""

    name: str
    help: str
    value: Callable[[_Row], float | None]


def _seconds(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1_000


def _advice(row: GroupRow, name: str) -> Any:
    return None if row.advice is None else row.advice[name]


_GROUP_METRICS: Final[tuple[Metric[GroupRow], ...]] = (
    Metric(
        "evenlag_group_lag_records",
        "Records not processed; a lower bound with unknown partitions, an upper one of some share groups.",
        lambda row: row.lag_records,
    ),
    Metric(
        "evenlag_group_max_member_lag_records",
        "Lag of the most loaded member.",
        lambda row: row.max_member_lag_records,
    ),
    Metric(
        "evenlag_group_lag_skew_ratio",
        "Largest lag of a member divided by the mean; 1 is even.",
        lambda row: row.lag_skew,
    ),
    Metric(
        "evenlag_group_unevenness_ratio",
        "Share of the lag that could be with others and is with the most loaded member.",
        lambda row: row.unevenness,
    ),
    Metric(
        "evenlag_group_time_lag_seconds",
        "Age of the oldest record that the group has not processed; none if it is not known of a partition.",
        lambda row: _seconds(row.time_lag_ms),
    ),
    Metric(
        "evenlag_group_time_lag_lower_bound_seconds",
        "The group is behind by at least that: the age of the oldest record, as far as it is known.",
        lambda row: _seconds(row.time_lag_at_least_ms if row.time_lag_ms is None else row.time_lag_ms),
    ),
    Metric(
        "evenlag_group_time_unknown_partitions",
        "Partitions with lag, or of unknown lag, of which the age of the oldest record is not known.",
        lambda row: row.num_unknown_time_lags,
    ),
    Metric(
        "evenlag_group_drain_seconds",
        "Time until the slowest partition has drained; 0 within a minute, +Inf if it does not shrink.",
        lambda row: _seconds(row.drain_time_ms),
    ),
    Metric("evenlag_group_members", "Members of the group.", lambda row: row.num_members),
    Metric("evenlag_group_partitions", "Partitions of the group.", lambda row: row.num_partitions),
    Metric(
        "evenlag_group_unknown_partitions",
        "Partitions whose lag is not known.",
        lambda row: row.num_unknown_partitions,
    ),
    Metric(
        "evenlag_group_not_subscribed_partitions",
        "Partitions with a commit that no member subscribes to: they are in none of the other metrics.",
        lambda row: row.num_not_subscribed_partitions,
    ),
    Metric(
        "evenlag_group_readable",
        "1 if the group's members and commits could be read, 0 if not.",
        lambda row: int(row.is_readable),
    ),
    Metric(
        "evenlag_group_stalled_partitions",
        "Partitions with lag and without commits.",
        lambda row: row.num_stalled,
    ),
    Metric(
        "evenlag_group_member_speed_min_records_per_second",
        "Least measured speed of a member, lower bounds included; none if no speed is known.",
        lambda row: min(row.speeds, default=None),
    ),
    Metric(
        "evenlag_group_member_speed_median_records_per_second",
        "Median of these speeds.",
        lambda row: median(row.speeds) if row.speeds else None,
    ),
    Metric(
        "evenlag_group_member_speed_max_records_per_second",
        "Largest of these speeds.",
        lambda row: max(row.speeds, default=None),
    ),
    Metric(
        "evenlag_group_target_wait_seconds",
        "How long records may wait by the policy; none without a target.",
        lambda row: _advice(row, "target_wait_s"),
    ),
    Metric(
        "evenlag_group_target_met",
        "1 if the oldest record is no older than the target, 0 if it is; none if that is not known.",
        lambda row: _advice(row, "is_target_met"),
    ),
    Metric(
        "evenlag_group_target_met_ratio",
        "Share of the known time of 24 hours in which the target was met.",
        lambda row: _advice(row, "met_share"),
    ),
    Metric(
        "evenlag_group_target_missed_timestamp_seconds",
        "Since when the target is missed; none if it is met.",
        lambda row: _timestamp(_advice(row, "missed_since")),
    ),
    Metric(
        "evenlag_group_needs_attention",
        "1 if the overview marks the group to look at, 0 if not.",
        lambda row: int(bool(row.asking_signs)),
    ),
)
_NEEDED: Final[tuple[Metric[GroupRow], ...]] = (
    Metric(
        "evenlag_group_members_needed",
        "Members that the group needs; reason: what binds, rate, hot_partition or partitions.",
        lambda row: _advice(row, "members_needed"),
    ),
)
_CLUSTER_METRICS: Final[tuple[Metric[ClusterRow], ...]] = (
    Metric(
        "evenlag_cluster_readable",
        "1 if the cluster's last snapshot could be read from the lake, 0 if not.",
        lambda row: int(row.state.problem is None),
    ),
    Metric(
        "evenlag_snapshot_timestamp_seconds",
        "When the last snapshot with lag read the log ends.",
        lambda row: _timestamp(row.state.read_at),
    ),
    Metric(
        "evenlag_snapshot_completeness_ratio",
        "Share of the partitions that the snapshot could read.",
        lambda row: _if_read(row, row.state.completeness),
    ),
    Metric(
        "evenlag_snapshot_stale",
        "1 if a newer snapshot was due, by the distance of the last ones.",
        lambda row: _if_read(row, int(row.state.is_stale)),
    ),
    Metric("evenlag_groups", "Groups of the snapshot.", lambda row: _if_read(row, row.num_groups)),
    Metric(
        "evenlag_open_approvals",
        "Plans that wait for approval.",
        lambda row: _if_read(row, row.state.open_approvals),
    ),
    Metric(
        "evenlag_last_publish_timestamp_seconds",
        "When a plan was last published; none for 30 days.",
        lambda row: _timestamp(row.counts.published_at) if row.counts else None,
    ),
    Metric(
        "evenlag_groups_left_out",
        "Groups without metrics of their own: there are too many.",
        lambda row: row.num_left_out,
    ),
)


def _timestamp(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _if_read(row: ClusterRow, value: float | None) -> float | None:
    return None if row.state.read_at is None else value


def render_metrics(
    overview: Overview, counts: Mapping[str, ClusterCounts], max_groups: int = MAX_GROUPS
) -> bytes:
    """Render metrics in Prometheus' text format; control characters of names are escaped."""
    from prometheus_client import generate_latest

    return generate_latest(_Collector(overview, counts, max_groups))


class _Collector:
    """A collector of prometheus-client: it yields families of metrics when it is asked."""

    def __init__(self, overview: Overview, counts: Mapping[str, ClusterCounts], max_groups: int) -> None:
        self._overview, self._counts, self._max_groups = overview, counts, max_groups

    def collect(self) -> Iterator[Any]:
        """Yield the families."""
        by_cluster: dict[str, list[GroupRow]] = {}
        for row in self._overview.groups:
            by_cluster.setdefault(row.cluster, []).append(row)
        clusters, groups = [], []
        for state in self._overview.clusters:
            rows = sorted(by_cluster.get(state.name, ()), key=_largest_first)
            groups += rows[: self._max_groups]
            left_out = max(len(rows) - self._max_groups, 0)
            clusters.append(ClusterRow(state, len(rows), left_out, self._counts.get(state.name)))
        yield from _families(_CLUSTER_METRICS, ("cluster",), clusters, lambda row: [row.state.name])
        yield from _count_families(self._counts)
        yield from _families(
            _GROUP_METRICS, ("cluster", "group"), groups, lambda row: [row.cluster, label_text(row.group_id)]
        )
        yield from _families(
            _NEEDED,
            ("cluster", "group", "reason"),
            [row for row in groups if row.advice is not None],
            lambda row: [row.cluster, label_text(row.group_id), str(_advice(row, "reason"))],
        )


def _largest_first(row: GroupRow) -> tuple[bool, int, str]:
    """Order by lag, unknown lag first: a group that cannot be read may be the one with the largest."""
    return row.is_readable and not row.num_unknown_partitions, -(row.lag_records or 0), row.group_id


def _families(
    metrics: Sequence[Metric[_Row]],
    labels: Sequence[str],
    rows: Sequence[_Row],
    labels_of: Callable[[_Row], list[str]],
) -> Iterator[Any]:
    for metric in metrics:
        family = _gauge(metric.name, metric.help, labels)
        for row in rows:
            if (value := metric.value(row)) is not None:
                family.add_metric(labels_of(row), value)
        yield family


def _gauge(name: str, text: str, labels: Sequence[str]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, labels=list(labels))


def _count_families(counts: Mapping[str, ClusterCounts]) -> Iterator[Any]:
    events = _gauge(
        "evenlag_plan_events_24h", "Plan events of the last 24 hours, by event.", ("cluster", "event")
    )
    outcomes = _gauge(
        "evenlag_hint_outcomes_24h",
        "Published plans that ended in the last 24 hours, by outcome and reason.",
        ("cluster", "outcome", "reason"),
    )
    for name, found in counts.items():
        for event in PlanEvent:
            events.add_metric([name, event.value.lower()], found.events.get(event.value, 0))
        for pair in OUTCOME_REASONS:
            outcomes.add_metric([name, *(each.lower() for each in pair)], found.outcomes.get(pair, 0))
    yield from (events, outcomes)


def read_plan_rows(reader: LakeReader, cluster: str, now: datetime) -> PlanRows:
    """Read the rows to count: a bounded number, whatever the lake's age."""
    # The day is that of the plan's snapshot: an event may come a day later, for example an answer.
    recent = matching(cluster=cluster, since=(now - WINDOW - timedelta(days=1)).date())
    published = matching(
        cluster=cluster, event=PlanEvent.PUBLISHED.value, since=(now - _LAST_PUBLISH_WITHIN).date()
    )
    last = reader.read_newest(PLAN_EVENTS, "at", columns=["at"], filters=published).to_pylist()
    events = reader.read(PLAN_EVENTS, columns=["plan_id", "event", "at"], filters=recent)
    outcomes = reader.read(OUTCOMES, columns=["plan_id", "outcome", "reason_code", "slot"], filters=recent)
    return PlanRows(events.to_pylist(), outcomes.to_pylist(), last[0]["at"] if last else None)


def _outcome(row: Mapping[str, Any]) -> tuple[str, str]:
    """Outcome and reason of a row; a row of an earlier version, or an edited one, has no known reason."""
    found = (row["outcome"], row["reason_code"])
    if found in OUTCOME_REASONS:
        return found
    is_applied = row["outcome"] == Outcome.APPLIED
    return row["outcome"], (OutcomeReason.AS_HINTED if is_applied else OutcomeReason.UNKNOWN).value


def read_metrics(lake: str, cluster: str, now: datetime) -> dict[str, float]:
    """Read the metrics of a cluster's newest snapshot by name, for Airflow; unknown ones are left out.

    With ``lag.unknown_partitions`` above 0, ``lag.records`` is a lower bound; both are left out of a snapshot
    with groups whose lag is not computed yet. A plan is settled by a later snapshot than its own:
    ``plans.<event>`` counts those made from this snapshot, ``outcomes.<outcome>`` those that it settled.
    """
    reader = LakeReader(lake)
    figures: dict[str, float] = {"approvals.open": len(open_requests(reader, cluster, now))}
    snapshot = reader.latest_snapshot(cluster)
    if snapshot is None:
        return figures
    wanted = snapshot_filters(snapshot)
    figures |= {
        "snapshot.age_s": (now - snapshot["finished_at"]).total_seconds(),
        "snapshot.completeness": snapshot["completeness"],
        "snapshot.groups": snapshot["num_groups"],
        "snapshot.partitions": snapshot["num_partitions"],
    }
    lag = reader.read(LAG, columns=SUM_COLUMNS, filters=wanted)
    if lag.num_rows or snapshot["num_groups"] == 0:
        # A snapshot without groups has a lag of 0.
        known = sum_lag(lag)
        figures["lag.records"] = known["lag_records"] if lag.num_rows else 0
        figures["lag.unknown_partitions"] = known["num_unknown_partitions"]
    figures |= _plans(reader, snapshot)
    outcomes = reader.read(OUTCOMES, columns=["outcome"], filters=wanted)["outcome"].to_pylist()
    figures |= {f"outcomes.{outcome.lower()}": outcomes.count(outcome) for outcome in _OUTCOMES}
    return {name: value for name, value in figures.items() if value is not None}


def _plans(reader: LakeReader, snapshot: Mapping[str, Any]) -> dict[str, int]:
    """Count the plans made from a snapshot by their events, which have the id of a later snapshot."""
    wanted = snapshot_filters(snapshot)
    plan_ids = set(reader.read(PLANS, columns=["plan_id"], filters=wanted)["plan_id"].to_pylist())
    counts: Counter[str] = Counter()
    if plan_ids:
        of_plans = matching(cluster=snapshot["cluster"], plan_id=sorted(plan_ids), since=snapshot["day"])
        events = reader.read_events(filters=of_plans)
        # A repeated run may write an event again.
        pairs = set(zip(events["plan_id"].to_pylist(), events["event"].to_pylist(), strict=True))
        counts = Counter(event for _, event in pairs)
    return {"plans.made": len(plan_ids)} | {f"plans.{event.lower()}": counts[event] for event in PlanEvent}
