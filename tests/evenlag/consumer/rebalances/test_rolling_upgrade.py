"""A group goes over from each of Kafka's own assignors and back, member by member, with traffic running."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import InconsistentGroupProtocolError

from tests.support.hints import Cluster, Runner, is_settled, place
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sandbox.kafka.broker import Broker

pytestmark = [pytest.mark.extended, pytest.mark.broker]
NUM_PARTITIONS = 4


class Traffic:
    """Writes a record after the other, round the partitions, until it is stopped."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._stop = threading.Event()
        self.num_sent = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self._cluster.producer.send(self._topic, b"x", partition=self.num_sent % NUM_PARTITIONS)
            self.num_sent += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._cluster.producer.flush()


@pytest.fixture
def cluster(broker: Broker, unique: Callable[[str], str]) -> Iterator[Cluster]:
    with Cluster(
        broker,
        group_id=unique("group"),
        topics={unique("orders"): NUM_PARTITIONS},
        hint_topic=unique("hints"),
    ) as made:
        yield made


@pytest.mark.parametrize(
    "theirs",
    [
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    ],
    ids=lambda assignor: assignor.name,
)
def test_a_group_goes_over_from_kafkas_assignor_and_back(cluster: Cluster, theirs: Any) -> None:
    topic = next(iter(cluster.topics))
    both = {"partition_assignment_strategy": [theirs]}
    with ExitStack() as stack:
        every: list[Runner] = []

        def start(**configs: Any) -> Runner:
            runner = Runner(cluster, **configs)
            every.append(runner)
            stack.callback(runner.close)
            return runner

        def replace_each(runners: Sequence[Runner], **configs: Any) -> list[Runner]:
            current = list(runners)
            for index in range(len(current)):
                current[index].close()
                current[index] = start(**configs)
                wait_until(lambda: is_settled(current, NUM_PARTITIONS))
            return current

        runners = [start(plain=[theirs]) for _ in range(2)]
        wait_until(lambda: is_settled(runners, NUM_PARTITIONS))
        traffic = Traffic(cluster, topic)
        runners = replace_each(runners, **both)
        runners = replace_each(runners)
        wanted = [[0, 1, 2], [3]]
        cluster.publish(cluster.payload(place(runners, topic, wanted)))
        wait_until(lambda: [sorted(n for _, n in r.held) for r in runners] == wanted)
        # One that knows only theirs is refused while anybody lists evenlag's alone.
        refused = Runner(cluster, plain=[theirs])
        wait_until(lambda: refused.error is not None)
        assert isinstance(refused.error, InconsistentGroupProtocolError)
        refused.error = None
        refused.close()
        runners = replace_each(runners, **both)
        runners = replace_each(runners, plain=[theirs])
        traffic.stop()
        wait_until(lambda: sum(len(r.records) for r in every) >= traffic.num_sent)
    seen = Counter(record for runner in every for record in runner.records)
    assert len(seen) == traffic.num_sent, "nothing is lost"
    assert not [record for record, times in seen.items() if times > 1], "nothing is repeated"
