"""A scaler as KEDA's Kafka scaler with Kubernetes' HorizontalPodAutoscaler, over ``cooperative-sticky``.

Sources: KEDA's page "Apache Kafka" (keda.sh/docs/latest/scalers/apache-kafka) and
``pkg/scalers/kafka_scaler.go`` (github.com/kedacore/keda, 8b4f083c); "Horizontal Pod Autoscaling"
(kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale).

The autoscaler reads the lag at each of its syncs: KEDA's metrics server asks the scaler then, unless
``useCachedMetrics`` is set. ``pollingInterval`` (30 s) is how often KEDA itself asks, to start from or stop
at no replicas; with ``minReplicaCount`` 1 that has no effect but its requests.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tests.bench.field.contenders.kafka_assignors import CooperativeSticky
from tests.bench.field.contenders.scaling import ScaledGroup

if TYPE_CHECKING:
    from evenlag.lag.arrays import Bools, Int64s
    from tests.bench.field.contenders.group import Observed
    from tests.bench.field.traces import Trace


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger of the type ``kafka``, with KEDA's defaults."""

    lag_threshold: int = 10
    activation_lag_threshold: int = 0
    allow_idle_consumers: bool = False
    limit_to_partitions_with_lag: bool = False
    exclude_persistent_lag: bool = False
    ensure_even_distribution_of_partitions: bool = False

    def metric(self, lag: Int64s, persists: Bools | None = None) -> int:
        """Return the lag that the autoscaler gets, of which a replica is to have `lag_threshold`.

        persists: Partitions whose commit did not change since the last look.
        """
        counted = lag if persists is None or not self.exclude_persistent_lag else np.where(persists, 0, lag)
        total, limit = int(counted.sum()), len(lag)
        if self.allow_idle_consumers and not (
            self.limit_to_partitions_with_lag or self.ensure_even_distribution_of_partitions
        ):
            return total
        if self.ensure_even_distribution_of_partitions:
            replicas = -(-total // self.lag_threshold)
            total = self.lag_threshold * next(
                (each for each in range(1, limit) if limit % each == 0 and each >= replicas), limit
            )
        if self.limit_to_partitions_with_lag:
            limit = int((counted > 0).sum())
        return limit * self.lag_threshold if total // self.lag_threshold > limit else total

    def is_active(self, lag: Int64s) -> bool:
        """Return whether KEDA keeps a workload that may have no replicas from having none."""
        return int(lag.sum()) > self.activation_lag_threshold


@dataclass(slots=True)
class Autoscaler:
    """An autoscaler of one external metric by its average value, with Kubernetes' default behaviour.

    Up: at once, by 100 % or 4 pods in 15 s, whichever is more. Down: to the highest recommendation of the
    last 300 s, by 100 % in 15 s. No change within a tolerance of 10 %.
    """

    min_replicas: int = 1
    max_replicas: int = 100
    tolerance: float = 0.1
    down_stabilisation_s: float = 300.0
    period_s: float = 15.0
    pods_up: int = 4
    _recommended: deque[tuple[float, int]] = field(default_factory=deque)
    _added: deque[tuple[float, int]] = field(default_factory=deque)

    def desired(self, now_s: float, replicas: int, metric: int, per_replica: int) -> int:
        """Return how many replicas there are to be."""
        recommended = replicas
        ratio = metric / (per_replica * replicas)
        if not 1.0 - self.tolerance <= ratio <= 1.0 + self.tolerance:
            recommended = -(-metric // per_replica)
        self._recommended.append((now_s, recommended))
        while self._recommended[0][0] < now_s - self.down_stabilisation_s:
            self._recommended.popleft()
        highest = max(count for _, count in self._recommended)
        stable = recommended if recommended > replicas else min(highest, replicas)
        wanted = min(max(self._limited(now_s, replicas, stable), self.min_replicas), self.max_replicas)
        if wanted > replicas:
            self._added.append((now_s, wanted - replicas))
        return wanted

    def _limited(self, now_s: float, replicas: int, wanted: int) -> int:
        while self._added and self._added[0][0] <= now_s - self.period_s:
            self._added.popleft()
        at_start = replicas - sum(count for _, count in self._added)
        return min(wanted, max(2 * at_start, at_start + self.pods_up))


class KedaHpa(ScaledGroup, CooperativeSticky):
    """A deployment that the autoscaler scales; who is removed is the newest replica.

    lag_threshold: How many records of lag a replica is to have.
    min_share: ``minReplicaCount`` as a share of the trace's first processes; one replica at least.
    """

    SYNC_S: ClassVar[float] = 15.0
    POLL_S: ClassVar[float] = 30.0
    # Metadata, commits and end offsets, from one broker.
    _REQUESTS: ClassVar[int] = 3

    def __init__(
        self, trace: Trace, *, lag_threshold: int, min_share: float, even_distribution: bool
    ) -> None:
        self._trigger = Trigger(lag_threshold, ensure_even_distribution_of_partitions=even_distribution)
        self._autoscaler = Autoscaler(max(1, round(min_share * len(trace.changes[0][1]))))
        super().__init__(trace)

    def start(self, seen: Observed) -> None:
        """Start the deployment and both loops, each at a phase of its own."""
        super().start(seen)
        for interval_s, event in ((self.SYNC_S, self._sync), (self.POLL_S, self._poll)):
            self.every(interval_s, float(self.chance.uniform(0.0, interval_s)), event)

    def _poll(self, _seen: Observed) -> None:
        self.counts.broker_requests += self._REQUESTS

    def _sync(self, seen: Observed) -> None:
        self._poll(seen)
        with self.deciding():
            metric = self._trigger.metric(seen.lag)
            count = self._autoscaler.desired(
                seen.now_s, len(self.wanted), metric, self._trigger.lag_threshold
            )
        if count != len(self.wanted):
            self.scale_to(self.replicas(count), seen)
