"""Consumers as processes under skewed traffic follow a hint; the journals prove that nothing was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.faulty_workload import FaultyWorkload
from tests.support.hints import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sandbox.kafka.broker import Broker

pytestmark = pytest.mark.broker


def test_processes_follow_a_hint_under_traffic_and_nothing_is_lost_or_repeated(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group, hints = unique("events"), unique("group"), unique("hints")
    with (
        FaultyWorkload(
            {"bootstrap_servers": broker.bootstrap_servers},
            tmp_path,
            topic=topic,
            num_partitions=6,
            group_id=group,
            hint_topic=hints,
            consumer={"records_per_s": 400, "session_timeout_ms": 120_000},
        ) as workload,
        Cluster(broker, group_id=group, topics={topic: 6}, hint_topic=hints, make_topics=False) as cluster,
    ):
        workload.start_consumers(2, is_static=True)
        before = workload.wait_until_owned()
        assert sorted(map(len, before.values())) == [3, 3]
        workload.fill({0: 600, 1: 300})
        workload.start_traffic(records_per_s=200, skew=1.5, shift_every_s=1.0)
        wanted = {"consumer-0": {0}, "consumer-1": {1, 2, 3, 4, 5}}
        placement = {f"i:{name}": {topic: sorted(numbers)} for name, numbers in wanted.items()}
        cluster.publish(cluster.payload(placement))
        workload.wait_until_owned(condition=lambda owners: owners == wanted)
        workload.kill("consumer-0")
        workload.start_consumer("consumer-0", is_static=True)
        workload.wait_until_owned(condition=lambda owners: owners == wanted)
        workload.wait_until_processed(1200)
        workload.stop()
        evidence = workload.evidence()
    assert not evidence.lost
    assert not evidence.overlaps
    # Only what the killed process had not committed may be done again: at most a batch, on its partition.
    assert set(evidence.repeated) <= {(topic, 0)}
    assert sum(last - first + 1 for first, last in evidence.repeated.get((topic, 0), ())) <= 40
    assert sum(evidence.num_processed.values()) >= 1200
