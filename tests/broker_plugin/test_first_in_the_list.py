"""On three brokers: first in the list, for groups that request no assignor; and removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenlag.doctor.kafka_checks import KafkaView, check_broker_assignors
from evenlag.lake.reader import LakeReader
from evenlag.policy.loader import parse_policy
from tests.broker_plugin.test_in_a_broker import OTHER_PLAN, PLAN, Scene, make_scene
from tests.support.broker_plugin.fleet import DEFAULT_MEMBER
from tests.support.broker_plugin.node import PLUGIN_FIRST, start_node
from tests.support.kafka_cluster import OFFSETS_TOPIC, Cluster, offsets_partition
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.broker_plugin.harness import Harness
    from tests.support.broker_plugin.node import Node

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: it is the extra kip848")
pytestmark = [pytest.mark.extended, pytest.mark.broker]


@pytest.fixture
def first(plugin_jar: Path, harness: Harness, tmp_path: Path) -> Iterator[Node]:
    started = start_node(tmp_path, plugin_jar, harness, num_brokers=3, is_first=True)
    yield started
    started.broker.kill()


def move_coordinator(cluster: Cluster, group_id: str, node_id: int) -> None:
    partition = offsets_partition(group_id, len(cluster.partitions(OFFSETS_TOPIC)))
    cluster.move_leader(OFFSETS_TOPIC, partition, node_id)


def assignor(scene: Scene) -> str:
    """Return the assignor that the coordinator reports for the group."""
    from confluent_kafka.admin import AdminClient

    group_id = scene.cluster.group_id
    admin = AdminClient({"bootstrap.servers": scene.cluster.bootstrap_servers})
    return str(admin.describe_consumer_groups([group_id])[group_id].result(timeout=60).partition_assignor)


def doctor_finds(cluster: Cluster, folder: Path) -> list[str]:
    """Return what `evenlag doctor` says of the brokers' lists."""
    servers = cluster.bootstrap_servers.split(",")
    text = f"lake: {folder / 'lake'}\nclusters: {{here: {{bootstrap_servers: {servers}}}}}\n"
    reader = LakeReader(str(folder / "lake"))
    view = KafkaView(parse_policy(text, environ={}).policy, "here", reader, timeout_ms=30_000)
    try:
        view.connect()
        return [f"{one.verdict.value} {one.message}" for one in check_broker_assignors(view.broker_settings)]
    finally:
        view.close()


def test_groups_that_request_no_assignor_follow_on_every_broker_and_go_on_without_the_plug_in(
    first: Node, unique: Callable[[str], str], tmp_path: Path
) -> None:
    cluster = first.broker
    assert isinstance(cluster, Cluster)
    with make_scene(first, unique, tmp_path, member=DEFAULT_MEMBER) as scene:
        group_id = scene.cluster.group_id
        assert doctor_finds(cluster, tmp_path)[0].startswith("ok evenlag is first")
        scene.follow(PLAN)
        assert assignor(scene) == "evenlag"
        for node_id in cluster.nodes:
            move_coordinator(cluster, group_id, node_id)
            scene.ask_and_see()
            scene.settle(PLAN)
        # A coordinator that has just started has not read the hints, which the other two follow.
        started = cluster.coordinator(group_id)
        cluster.restart(started)
        move_coordinator(cluster, group_id, started)
        scene.settle(PLAN)
        scene.cluster.renew_admin()
        scene.cluster.renew_publisher()
        scene.follow(OTHER_PLAN)
        assert first.figures()["InternalErrorTotal"] == 0
        for number, (node_id, broker) in enumerate(cluster.nodes.items(), start=1):
            config = Path(broker.directory) / "server.properties"
            text = config.read_text(encoding="utf-8")
            config.write_text(text.replace(PLUGIN_FIRST, "uniform,range"), encoding="utf-8")
            cluster.restart(node_id)
            wanted = (
                "ok no broker has" if number == len(cluster.nodes) else "warning group.consumer.assignors"
            )
            assert doctor_finds(cluster, tmp_path)[0].startswith(wanted)
        scene.fleet.add("pod-3")
        wait_until(
            lambda: sorted(map(len, scene.fleet.held().values())) == [1, 1, 2, 2],
            what="the fourth member gets no share",
            progress=scene.fleet.held,
        )
        assert assignor(scene) == "uniform"
        scene.finish()
