"""A sink of Kafka Connect and an application of Spring Boot follow hints: they have ordinary consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.enums import GroupType
from evenlag.kafka.live_groups import LiveGroup, read_live_groups
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.rebalance_trigger.await_followers import await_followers
from tests.support.hints import Cluster, Runner
from tests.support.java_client.connect import ConnectWorker
from tests.support.java_client.spring import SpringApplication
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.brokers import Brokers
    from tests.support.java_client.framework import Framework

pytestmark = [pytest.mark.broker, pytest.mark.soak]

NUM_PARTITIONS = 8
NUM_TASKS = 3


def live_group(cluster: Cluster) -> LiveGroup | None:
    """Return the group as the broker describes it, if it is stable."""
    live = read_live_groups(cluster.admin, {cluster.group_id: GroupType.CLASSIC})[cluster.group_id]
    return live if live.state == "Stable" else None


def held(cluster: Cluster) -> dict[str, list[int]]:
    """Return the partitions by member, if the group is stable."""
    live = live_group(cluster)
    if live is None or live.held is None:
        return {}
    return {key: sorted(n for numbers in by_id.values() for n in numbers) for key, by_id in live.held.items()}


@pytest.fixture(params=[ConnectWorker, SpringApplication], ids=["Connect", "Spring"])
def running(
    request: pytest.FixtureRequest,
    broker: Brokers,
    client_jar: Path,
    tmp_path: Path,
    unique: Callable[[str], str],
) -> Iterator[tuple[Cluster, Framework]]:
    """Yield the group of consumers that share the topic evenly, and the framework that runs them."""
    start: Callable[..., Framework] = request.param
    with (
        Cluster(
            broker,
            group_id=f"connect-{unique('sink')}",
            topics={unique("orders"): NUM_PARTITIONS},
            hint_topic=unique("hints"),
        ) as cluster,
        start(tmp_path, client_jar, cluster, num_tasks=NUM_TASKS) as framework,
    ):
        framework.wait_until_running()
        wait_until(lambda: sorted(map(len, held(cluster).values())) == [2, 3, 3], what="not even")
        yield cluster, framework


def send(cluster: Cluster, first: int, count: int = 80) -> list[str]:
    """Send records to the topic's partitions in turn; return their values."""
    [topic] = cluster.topics
    values = [f"record-{number}" for number in range(first, first + count)]
    for number, value in enumerate(values, start=first):
        cluster.producer.send(topic, value.encode(), partition=number % NUM_PARTITIONS)
    cluster.producer.flush()
    return values


def test_its_consumers_follow_a_hint(running: tuple[Cluster, Framework]) -> None:
    """A member in Python asks for the rebalance, one in Java leads; no record is lost or repeated."""
    cluster, framework = running
    [topic] = cluster.topics
    sent = send(cluster, 0)
    runner = Runner(cluster)
    wait_until(lambda: sorted(map(len, held(cluster).values())) == [2, 2, 2, 2], what="not even again")
    wait_until(lambda: "READY" in framework.log.read_text(encoding="utf-8"), what="hints are not read")
    tasks = sorted(key for key in held(cluster) if key != runner.key)
    plan = dict(zip([*tasks, runner.key], ([0, 1, 2, 3, 4], [5], [6], [7]), strict=True))
    placement = {key: {topic: tuple(numbers)} for key, numbers in plan.items()}
    sent += send(cluster, len(sent))
    cluster.publish(cluster.payload(placement))
    wait_until(lambda: held(cluster) == plan, what="the group does not follow")
    sent += send(cluster, len(sent))

    def seen() -> list[str]:
        values = [sent[offset * NUM_PARTITIONS + number] for _, number, offset in runner.records]
        return sorted([*framework.records(), *values])

    wait_until(lambda: len(seen()) >= len(sent), what="records are lost")
    runner.close()
    wait_until(lambda: sorted(map(len, held(cluster).values())) == [2, 3, 3], what="not even at the end")
    sent += send(cluster, len(sent))
    wait_until(lambda: len(seen()) >= len(sent), what="records are lost at the end")
    assert "FOLLOWED" in framework.log.read_text(encoding="utf-8")
    framework.stop()
    assert seen() == sorted(sent)


def test_a_group_of_its_consumers_alone_follows_after_the_temporary_member(
    running: tuple[Cluster, Framework],
) -> None:
    """Nobody in the group can ask: the framework owns the loop that polls."""
    cluster, framework = running
    [topic] = cluster.topics
    wait_until(lambda: "READY" in framework.log.read_text(encoding="utf-8"), what="hints are not read")
    sent = send(cluster, 0)
    plan = dict(zip(sorted(held(cluster)), ([0, 1, 2, 3, 4], [5, 6], [7]), strict=True))
    payload = cluster.payload({key: {topic: tuple(numbers)} for key, numbers in plan.items()})
    cluster.publish(payload)
    settings = ClusterSettings(
        bootstrap_servers=tuple(cluster.bootstrap_servers.split(",")), hint_topic=cluster.hint_topic
    )
    asked = await_followers(cluster.admin, settings, {cluster.group_id: payload}, after_s=1)
    assert asked == {}
    assert held(cluster) == plan
    sent += send(cluster, len(sent))
    wait_until(lambda: len(framework.records()) >= len(sent), what="records are lost")
    assert "FOLLOWED" in framework.log.read_text(encoding="utf-8")
    framework.stop()
    assert sorted(framework.records()) == sorted(sent)
