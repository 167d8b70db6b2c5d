"""Metrics of clusters and groups for Prometheus, from the lake, as ``/metrics`` and a textfile have them.

Names and units follow Prometheus' conventions: base units, a moment as a Unix time instead of an age, and
no value where evenlag does not know one. The values are states that the lake has, so all of them are gauges;
counts of events cover the last 24 hours.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import PlanEvent
from evenlag.overview.model import Drain
from evenlag.overview.plan_counts import OUTCOME_REASONS
from evenlag.safe_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from evenlag.overview.model import ClusterState, GroupRow, Overview
    from evenlag.overview.plan_counts import ClusterCounts

MAX_GROUPS: Final = 1_000
"""Groups of a cluster that have metrics of their own: those with the largest lag."""


def render_metrics(
    overview: Overview, counts: Mapping[str, ClusterCounts], max_groups: int = MAX_GROUPS
) -> bytes:
    """Render metrics in Prometheus' text format.

    Returns the text, in UTF-8. Names are those of Kafka; control characters are escaped, as everywhere.
    """
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(overview, counts, max_groups))
    return bytes(generate_latest(registry))


class _Metrics:
    """A collector of prometheus-client: it yields families of metrics when it is asked."""

    def __init__(self, overview: Overview, counts: Mapping[str, ClusterCounts], max_groups: int) -> None:
        self._overview, self._counts, self._max_groups = overview, counts, max_groups

    def collect(self) -> Iterator[Any]:
        """Yield the families."""
        yield from _cluster_families(self._overview.clusters, self._overview.groups)
        yield from _count_families(self._counts)
        yield from self._group_families()

    def _group_families(self) -> Iterator[Any]:
        by_cluster: dict[str, list[GroupRow]] = {}
        for row in self._overview.groups:
            by_cluster.setdefault(row.cluster, []).append(row)
        shown: list[GroupRow] = []
        left_out = _gauge(
            "evenlag_groups_left_out", "Groups without metrics of their own: there are too many."
        )
        for state in self._overview.clusters:
            # Those of unknown lag first: a group that cannot be read may be the one with the largest lag.
            rows = sorted(
                by_cluster.get(state.name, ()),
                key=lambda row: (
                    row.is_readable and not row.num_unknown,
                    -(row.lag_records or 0),
                    row.group_id,
                ),
            )
            shown += rows[: self._max_groups]
            left_out.add_metric([state.name], max(len(rows) - self._max_groups, 0))
        yield left_out
        for name, text, value_of in _GROUP_METRICS:
            family = _gauge(name, text, ("cluster", "group"))
            for row in shown:
                value = value_of(row)
                if value is not None:
                    family.add_metric([row.cluster, printable(row.group_id)], value)
            yield family


def _gauge(name: str, text: str, labels: Sequence[str] = ("cluster",)) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, labels=list(labels))


def _seconds(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1_000


def _drain_s(row: GroupRow) -> float | None:
    """Time to drain; infinite if the lag does not shrink."""
    return math.inf if row.drain == Drain.NEVER else _seconds(row.drain_time_ms)


_GROUP_METRICS: Final = (
    (
        "evenlag_group_lag_records",
        "Records not processed; a lower bound with unknown partitions, an upper one of some share groups.",
        lambda row: row.lag_records,
    ),
    (
        "evenlag_group_max_member_lag_records",
        "Lag of the most loaded member.",
        lambda row: row.max_member_lag_records,
    ),
    (
        "evenlag_group_lag_skew_ratio",
        "Largest lag of a member divided by the mean; 1 is even.",
        lambda row: row.lag_skew,
    ),
    (
        "evenlag_group_unevenness_ratio",
        "Share of the lag that could be with others and is with the most loaded member.",
        lambda row: row.unevenness,
    ),
    (
        "evenlag_group_time_lag_seconds",
        "Age of the oldest record that the group has not processed; none if it is not known of a partition.",
        lambda row: _seconds(row.time_lag_ms),
    ),
    (
        "evenlag_group_time_lag_lower_bound_seconds",
        "The group is behind by at least that: the age of the oldest record, as far as it is known.",
        lambda row: _seconds(row.time_lag_at_least_ms if row.time_lag_ms is None else row.time_lag_ms),
    ),
    (
        "evenlag_group_time_unknown_partitions",
        "Partitions with lag, or of unknown lag, of which the age of the oldest record is not known.",
        lambda row: row.num_unknown_time_lags,
    ),
    (
        "evenlag_group_drain_seconds",
        "Time until the slowest partition has drained; 0 within a minute, +Inf if it does not shrink.",
        _drain_s,
    ),
    ("evenlag_group_members", "Members of the group.", lambda row: row.num_members),
    ("evenlag_group_partitions", "Partitions of the group.", lambda row: row.num_partitions),
    ("evenlag_group_unknown_partitions", "Partitions whose lag is not known.", lambda row: row.num_unknown),
    (
        "evenlag_group_not_subscribed_partitions",
        "Partitions with a commit that no member subscribes to: they are in none of the other metrics.",
        lambda row: row.num_not_subscribed,
    ),
    (
        "evenlag_group_readable",
        "1 if the group's members and commits could be read, 0 if not.",
        lambda row: int(row.is_readable),
    ),
    (
        "evenlag_group_stalled_partitions",
        "Partitions with lag and without commits.",
        lambda row: row.num_stalled,
    ),
    (
        "evenlag_group_needs_attention",
        "1 if the overview marks the group to look at, 0 if not.",
        lambda row: int(row.needs_attention),
    ),
)


def _cluster_families(clusters: Sequence[ClusterState], groups: Sequence[GroupRow]) -> Iterator[Any]:
    up = _gauge(
        "evenlag_cluster_readable", "1 if the cluster's last snapshot could be read from the lake, 0 if not."
    )
    read_at = _gauge(
        "evenlag_snapshot_timestamp_seconds", "When the last snapshot with lag read the log ends."
    )
    complete = _gauge(
        "evenlag_snapshot_completeness_ratio", "Share of the partitions that the snapshot could read."
    )
    stale = _gauge(
        "evenlag_snapshot_stale", "1 if a newer snapshot was due, by the distance of the last ones."
    )
    num_groups = _gauge("evenlag_groups", "Groups of the snapshot.")
    waiting = _gauge("evenlag_open_approvals", "Plans that wait for approval.")
    per_cluster = Counter(row.cluster for row in groups)
    for state in clusters:
        label = [state.name]
        up.add_metric(label, int(state.problem is None))
        if state.read_at is None:
            continue
        read_at.add_metric(label, state.read_at.timestamp())
        stale.add_metric(label, int(state.is_stale))
        num_groups.add_metric(label, per_cluster[state.name])
        waiting.add_metric(label, state.open_approvals)
        if state.completeness is not None:
            complete.add_metric(label, state.completeness)
    yield from (up, read_at, complete, stale, num_groups, waiting)


def _count_families(counts: Mapping[str, ClusterCounts]) -> Iterator[Any]:
    events = _gauge(
        "evenlag_plan_events_24h", "Plan events of the last 24 hours, by event.", ("cluster", "event")
    )
    outcomes = _gauge(
        "evenlag_hint_outcomes_24h",
        "Published plans that ended in the last 24 hours, by outcome and reason.",
        ("cluster", "outcome", "reason"),
    )
    published = _gauge(
        "evenlag_last_publish_timestamp_seconds", "When a plan was last published; none for 30 days."
    )
    for name, found in counts.items():
        for event in PlanEvent:
            events.add_metric([name, event.value.lower()], found.events.get(event.value, 0))
        for pair in OUTCOME_REASONS:
            outcomes.add_metric([name, *(each.lower() for each in pair)], found.outcomes.get(pair, 0))
        if found.published_at is not None:
            published.add_metric([name], found.published_at.timestamp())
    yield from (events, outcomes, published)
