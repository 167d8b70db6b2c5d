"""A broker that goes away and comes back leaves the group on its hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandbox.kafka.broker import Broker
from tests.support.hints import Cluster, Runner, is_settled
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.extended, pytest.mark.broker]


def test_a_killed_broker_comes_back_to_a_group_that_keeps_its_hint_and_takes_the_next(tmp_path: Path) -> None:
    with Broker.start(tmp_path / "node") as broker:
        cluster = Cluster(broker, group_id="g", topics={"t": 4}, hint_topic="hints")
        runners = [Runner(cluster, group_instance_id=f"pod-{i}") for i in range(2)]
        try:
            wait_until(lambda: is_settled(runners, 4))
            cluster.publish(cluster.payload({"i:pod-0": {"t": [0]}, "i:pod-1": {"t": [1, 2, 3]}}))
            wait_until(lambda: [len(r.held) for r in runners] == [1, 3])
            following = cluster.payload({"i:pod-0": {"t": [0, 1, 2]}, "i:pod-1": {"t": [3]}})
            broker.kill()
            broker.restart()
            cluster.renew_publisher()
            cluster.publish(following)
            wait_until(lambda: [len(r.held) for r in runners] == [3, 1])
            wait_until(lambda: is_settled(runners, 4))
        finally:
            for runner in runners:
                runner.close()
            cluster.close()
