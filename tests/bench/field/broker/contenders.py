"""The contenders on a real broker: their clients, their settings, and what balances them.

All consumers have their client's defaults but for what `_JAVA` and `_LIBRDKAFKA` say. A poll of at most
50 records is less than a second of work, so that no contender's rebalances wait long for a batch.

The coordinator of a share group (Kafka 4.3, `group.share.assignors`: `simple` is the only one) gives a
partition to several members only where there are more members than partitions: with fewer, members do not
help each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import GroupType
from evenlag.policy.group_settings import GateLimits
from sandbox.kafka.jvm_jars import CLIENT_ASSIGNOR_CLASS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.bench.field.traces import Trace

Span = tuple[float, float | None]
"""First second of a pod, and the first after it; None: until the end of the run."""

_GATES: Final = frozenset(GateLimits.model_fields)
_KAFKA: Final = "org.apache.kafka.clients.consumer"


class Client(Enum):
    """What the consumers are."""

    CLASSIC = "classic"
    SHARE = "share"
    KIP848 = "kip848"


class Balancer(Enum):
    """A process that acts on the group: evenlag's cycles, or a scaler, which also runs the consumers."""

    WATCH = "watch"
    SCALER = "scaler"


@dataclass(frozen=True)
class Real:
    """How a contender runs.

    configs: Further settings of its consumers.
    rebalance_every_s: How often the leader asks for a rebalance; 0: never.
    group_configs: Settings of the group at the broker.
    """

    name: str
    client: Client
    configs: Mapping[str, Any] = field(default_factory=dict)
    balancer: Balancer | None = None
    rebalance_every_s: float = 0.0
    group_configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def group_type(self) -> GroupType:
        """The kind of its group."""
        return GroupType.CONSUMER if self.client is Client.KIP848 else GroupType.CLASSIC

    @property
    def has_owners(self) -> bool:
        """Whether a partition has one owner at a time."""
        return self.client is not Client.SHARE


_JAVA: Final = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "max.poll.records": 50}
_LIBRDKAFKA: Final = {
    "enable.auto.commit": False, "auto.offset.reset": "earliest", "group.protocol": "consumer",
}  # fmt: skip
# record_limit lets a poll acquire at most max.poll.records, batch_optimized whole batches of the producer
# (Kafka 4.3's documentation of share.acquire.mode). Chosen from record_limit with 10, 50 and 200 records and
# batch_optimized with 50 and 500 (the defaults), side by side on the first 200 s of the tuning seed 1000 of
# `walks`: 95 % of the records of the third minute waited less than 39, 0.4, 13, 24 and 22 s.
_SHARE: Final = {
    "share.acknowledgement.mode": "explicit", "share.acquire.mode": "record_limit", "max.poll.records": 50,
}  # fmt: skip


def _java(assignor: str) -> dict[str, Any]:
    return {**_JAVA, "field.assignor": assignor}


REAL: Final = {
    each.name: each
    for each in (
        Real("cooperative-sticky", Client.CLASSIC, _java(f"{_KAFKA}.CooperativeStickyAssignor")),
        Real("uniform", Client.KIP848, {**_LIBRDKAFKA, "group.remote.assignor": "uniform"}),
        Real("kip-169", Client.CLASSIC, _java("evenlag.field.LagAssignor"), rebalance_every_s=300.0),
        Real(
            "keda-hpa", Client.CLASSIC, _java(f"{_KAFKA}.CooperativeStickyAssignor"), Balancer.SCALER,
        ),
        Real("share", Client.SHARE, _SHARE, group_configs={"share.auto.offset.reset": "earliest"}),
        Real("evenlag", Client.CLASSIC, _java(CLIENT_ASSIGNOR_CLASS), Balancer.WATCH),
        Real(
            "evenlag-kip848", Client.KIP848,
            {**_LIBRDKAFKA, "group.remote.assignor": "evenlag"}, Balancer.WATCH,
        ),
    )
}  # fmt: skip
"""Contenders of the broker by name."""


def policy_rule(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return evenlag's settings as keys of a rule of its policy file."""
    gates = {name: value for name, value in settings.items() if name in _GATES}
    return {**{name: value for name, value in settings.items() if name not in _GATES}, "gates": gates}


def spans(trace: Trace) -> list[list[Span]]:
    """Return the times in which each of the trace's pods runs: outages end and begin a span."""
    found: list[list[Span]] = [[] for _ in trace.pods]
    changes: list[tuple[int | None, tuple[int, ...]]] = [*trace.changes, (None, ())]
    for (start_s, running), (stop_s, _) in pairwise(changes):
        for index in running:
            for span in _outside(float(start_s or 0), stop_s, trace.outages):
                if found[index] and found[index][-1][1] == span[0]:
                    found[index][-1] = (found[index][-1][0], span[1])
                else:
                    found[index].append(span)
    return found


def _outside(start_s: float, stop_s: float | None, outages: tuple[tuple[int, int], ...]) -> list[Span]:
    """Return what is left of a span outside the outages, which are ascending."""
    left: list[Span] = []
    for first_s, after_s in outages:
        if after_s <= start_s or (stop_s is not None and first_s >= stop_s):
            continue
        if first_s > start_s:
            left.append((start_s, first_s))
        start_s = after_s
    if stop_s is None or start_s < stop_s:
        left.append((start_s, stop_s))
    return left
