"""Kafka's own assignors, also with more consumers or partitions, and KIP-169's leader that balances lag.

The decisions are `assignor_core`'s, which tests hold to Kafka's:

- ``range``: equal to Java's to the partition (``tests/assignor_core/assignors/test_against_kafka.py``);
- ``cooperative-sticky``: counts as even, and no more moves than Java's (the same file);
- ``uniform``: for one topic the counts and the number of moves of Kafka's ``UniformAssignor``
  (``tests/broker_plugin/test_like_uniform.py``);
- ``kip-169``: the KIP's example, and equal to its rule run from a heap
  (``tests/assignor_core/assignors/test_lag_aware.py``): partitions by descending lag, each to the member with
  the fewest partitions, of these the one with the least lag, as in the KIP's text and its author's
  implementation (github.com/grantneale/kafka-lag-based-assignor).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from assignor_core.assignors import get_assignor
from tests.bench.field.contenders.group import Fleet, GroupContender

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assignor_core.group import Group
    from evenlag.lag.arrays import Int32s
    from tests.bench.field.contenders.group import Observed
    from tests.bench.field.traces import Trace

# Clones of a process start and stop so much later than it: a deploy of more processes takes longer.
_CLONE_LATER_S = 15


class CooperativeSticky(GroupContender):
    """``cooperative-sticky`` in Kafka's Java client."""

    assignor: ClassVar[str] = "cooperative-sticky"

    def target(self, group: Group, members: Sequence[int], seen: Observed) -> Int32s:
        """Return what the assignor assigns."""
        del members, seen
        return get_assignor(self.assignor).assign(group)


class Range(CooperativeSticky):
    """``range`` in Kafka's Java client: eager."""

    assignor = "range"
    is_eager = True


class Uniform(CooperativeSticky):
    """``uniform``, KIP-848's default, in librdkafka."""

    client = "kip848"
    waits_for_static = False


class LagGreedy(CooperativeSticky):
    """KIP-169's leader, with a rebalance every five minutes.

    The KIP's assignor reads lags when a rebalance happens, so a member asks for one
    (``KafkaConsumer.enforceRebalance``, KIP-568). It is an eager assignor, topic by topic. Of the brokers it
    asks for both ends of all partitions and the commits.
    """

    assignor = "lag-aware"
    is_eager = True
    interval_s: ClassVar[float] = 300.0
    _REQUESTS: ClassVar[int] = 3

    def start(self, seen: Observed) -> None:
        """Start, and rebalance at intervals."""
        super().start(seen)
        self.every(self.interval_s, self.interval_s, self.rebalance_on_request)

    def target(self, group: Group, members: Sequence[int], seen: Observed) -> Int32s:
        """Return what the leader assigns by the lags of now."""
        self.counts.broker_requests += self._REQUESTS
        return super().target(group, members, seen)


def with_more_processes(trace: Trace, factor: float) -> Fleet:
    """Return the trace's processes and clones of some, so that at least `factor` times as many run.

    A clone starts and stops after its original, so that both are not away at once.
    """
    pods = list(trace.pods)
    lives = {pod: list(spans) for pod, spans in _lives(trace).items()}
    share = Fraction(factor).limit_denominator(100) - 1
    for number, slot in enumerate(_slots(trace)):
        for clone in range(math.ceil((number + 1) * share) - math.ceil(number * share)):
            first = trace.pods[slot[0][2]]
            instance_id = first.instance_id and f"{first.instance_id}-clone-{clone}"
            lives[len(pods)] = [
                (start_s and start_s + _CLONE_LATER_S, end_s + _CLONE_LATER_S) for start_s, end_s, _ in slot
            ]
            pods.append(first._replace(name=f"{first.name}-clone-{clone}", instance_id=instance_id))
    seconds = sorted({at_s for spans in lives.values() for span in spans for at_s in span})
    return Fleet(
        pods,
        [
            (at_s, [pod for pod, spans in lives.items() if any(first <= at_s < end for first, end in spans)])
            for at_s in seconds
            if at_s < trace.duration_s
        ],
    )


def _lives(trace: Trace) -> dict[int, list[tuple[int, int]]]:
    """Return from when until when each process runs."""
    lives: dict[int, list[tuple[int, int]]] = {}
    ends = [*(at_s for at_s, _ in trace.changes[1:]), trace.duration_s]
    for (at_s, running), end_s in zip(trace.changes, ends, strict=True):
        for pod in running:
            spans = lives.setdefault(pod, [])
            start_s = spans.pop()[0] if spans and spans[-1][1] == at_s else at_s
            spans.append((start_s, end_s))
    return lives


def _slots(trace: Trace) -> list[list[tuple[int, int, int]]]:
    """Return (start, end, process) by slot; a process takes the slot that is free longest."""
    slots: list[list[tuple[int, int, int]]] = []
    for start_s, pod, end_s in sorted(
        (start_s, pod, end_s) for pod, spans in _lives(trace).items() for start_s, end_s in spans
    ):
        free = [slot for slot in slots if slot[-1][1] <= start_s]
        slot = min(free, key=lambda slot: slot[-1][1], default=None)
        if slot is None:
            slots.append(slot := [])
        slot.append((start_s, end_s, pod))
    return slots
