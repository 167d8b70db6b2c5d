"""On three brokers: first in the list, for groups that request no assignor; and removed."""

from __future__ import annotations

import math
import random
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer

from assignor_core.hint import HintPayload, derive_broker_key, encode_hint, fingerprint, hint_key
from assignor_core.record import topic_id_text
from evenlag.doctor.kafka_checks import KafkaView, check_broker_assignors
from evenlag.lake.reader import LakeReader
from evenlag.policy.loader import parse_policy
from evenlag.publishing.rebalance_trigger.await_target import ask_coordinator
from tests.broker_plugin.test_in_a_broker import ASK_AGAIN_S, OTHER_PLAN, PLAN, make_scene
from tests.broker_plugin.test_in_a_broker import Scene as BrokerScene
from tests.support.broker_plugin.fleet import DEFAULT_MEMBER, described_group
from tests.support.broker_plugin.node import HINTS, MASTER, PLUGIN_FIRST, start_node
from tests.support.broker_plugin.problems import Consumer, Scene
from tests.support.consumer.following import draw_placement
from tests.support.faulty_workload import FaultyWorkload
from tests.support.hints import HOUR_MS, now_ms
from tests.support.kafka_cluster import OFFSETS_TOPIC, Cluster, offsets_partition
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tests.support.broker_plugin.harness import Harness
    from tests.support.broker_plugin.node import Node
    from tests.support.consumer.following import Owners

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: it is the extra kip848")
pytestmark = [pytest.mark.extended, pytest.mark.broker]


# A heartbeat of librdkafka times out after the interval, and it does not request what the answer had again.
DEFAULT_HEARTBEAT_MS = 5_000


@pytest.fixture
def first(
    request: pytest.FixtureRequest, plugin_jar: Path, harness: Harness, tmp_path: Path
) -> Iterator[Node]:
    more = getattr(request, "param", {})
    started = start_node(tmp_path, plugin_jar, harness, num_brokers=3, is_first=True, **more)
    yield started
    started.broker.kill()


def move_coordinator(cluster: Cluster, group_id: str, node_id: int, *, spared: int | None = None) -> None:
    """Make a node the coordinator; the `spared` one then stores nothing of the group."""
    partition = offsets_partition(group_id, len(cluster.partitions(OFFSETS_TOPIC)))
    others = [other for other in cluster.nodes if other not in (node_id, spared)]
    cluster.reassign(OFFSETS_TOPIC, partition, [node_id, *others])


def assignor(scene: BrokerScene) -> str:
    """Return the assignor that the coordinator reports for the group."""
    cluster = scene.cluster
    return str(described_group(cluster.bootstrap_servers, cluster.group_id).partition_assignor)


def doctor_finds(cluster: Cluster, folder: Path) -> list[str]:
    """Return what `evenlag doctor` says of the brokers' lists."""
    servers = cluster.bootstrap_servers.split(",")
    text = f"lake: {folder / 'lake'}\nclusters: {{here: {{bootstrap_servers: {servers}}}}}\n"
    reader = LakeReader(str(folder / "lake"))
    view = KafkaView(parse_policy(text, environ={}).policy, "here", reader, timeout_ms=600_000)
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


class Views:
    """A group under traffic, whose hints are published while nodes of its cluster are frozen."""

    def __init__(self, nodes: Cluster, workload: FaultyWorkload, harness: Harness) -> None:
        self.nodes, self.workload, self.group_id = nodes, workload, workload.group_id
        self._harness, self._sequence = harness, 0
        with nodes.admin() as admin:
            (described,) = admin.describe_topics([workload.topic])
        self._topic_id = topic_id_text(described["topic_id"])

    def payload(self, wanted: Owners) -> bytes:
        """Return a hint's payload for the group's members of now."""
        group = described_group(self.nodes.bootstrap_servers, self.group_id)
        keys = {f"i:{member.group_instance_id}": member.member_id for member in group.members}
        topics = {self._topic_id: self.workload.num_partitions}
        return HintPayload(
            cluster_id=self.nodes.cluster_id,
            group_id=self.group_id,
            snapshot_id="s",
            fingerprint=fingerprint([(key, [self._topic_id]) for key in keys], topics),
            assignment={f"i:{name}": {self._topic_id: sorted(held)} for name, held in wanted.items()},
            count_slack=0,
            max_moves=self.workload.num_partitions,
            member_ids=keys,
        ).encode()

    def publish(self, payload: bytes | None) -> None:
        """Publish a hint, or withdraw it, through the nodes that run."""
        self._sequence += 1
        times = {"issued_at_ms": now_ms(), "expires_at_ms": now_ms() + HOUR_MS}
        key = derive_broker_key(MASTER, self.group_id)
        value = payload and encode_hint(payload, sequence=self._sequence, group_key=key, **times)
        with closing(KafkaProducer(bootstrap_servers=self.nodes.plain_listeners(), acks="all")) as producer:
            producer.send(HINTS, key=hint_key(self.group_id), value=value).get(timeout=600)

    def ask(self) -> None:
        """Trigger the coordinator."""
        servers = ",".join(self.nodes.plain_listeners())
        ask_coordinator({"bootstrap.servers": servers}, self.group_id, HINTS)

    def follow_beside_frozen(self, node_id: int, wanted: Owners) -> None:
        """Publish a hint and have it followed while a node is frozen.

        Nobody needs it by then, as coordinator, its replica or leader: a request on its way waits for a
        minute, heartbeats wait for commits that are not replicated, librdkafka ends static members whose
        heartbeat took 5 s, and a leader that is back lacks the latest records.
        """
        other = next(each for each in self.nodes.nodes if each != node_id)
        move_coordinator(self.nodes, self.group_id, other, spared=node_id)
        for partition in range(self.workload.num_partitions):
            if self.nodes.leader(self.workload.topic, partition) == node_id:
                self.nodes.move_leader(self.workload.topic, partition, other)
        self.workload.wait_until_committing()
        payload = self.payload(wanted)

        def is_free() -> bool | None:
            return all(self.nodes.leader(HINTS, number) != node_id for number in range(3)) or None

        self.nodes.freeze(node_id)
        try:
            self.nodes.wait_for(is_free, f"node {node_id} still leads")
            self.workload.wait_until_committing()
            self.publish(payload)
            self.ask_until(wanted)
        finally:
            self.nodes.thaw(node_id)

    def ask_until(self, wanted: Owners) -> Owners:
        """Trigger the coordinator until the partitions are as wanted."""
        asked_at = -math.inf

        def is_so() -> bool:
            nonlocal asked_at
            if time.monotonic() - asked_at > ASK_AGAIN_S:
                self.ask()
                asked_at = time.monotonic()
            return self.workload.owners() == wanted

        wait_until(is_so, what="the hint is not followed", progress=self.workload.owners)
        return self.workload.wait_until_owned()

    def change_as_uniform(self, change: Callable[[], object], members: Sequence[str]) -> None:
        """Change the group, and compare what it gets with what `uniform` makes of what it had."""
        before = self.workload.owners()
        had = {name: sorted(before.get(name, ())) for name in members}
        consumers = tuple(
            Consumer(name, None, (self._topic_id,), {self._topic_id: had[name]}) for name in members
        )
        scene = Scene(consumers, {self._topic_id: self.workload.num_partitions})
        uniform = {
            name: set(of.get(self._topic_id, ())) for name, of in scene.ask(self._harness)["uniform"].items()
        }
        change()
        after = self.workload.wait_until_owned(condition=lambda now: _counts(now) == _counts(uniform))
        assert _num_moves(had, after) == _num_moves(had, uniform)


def _counts(owners: Owners) -> list[int]:
    return sorted(map(len, owners.values()))


def _num_moves(before: Mapping[str, Collection[int]], after: Owners) -> int:
    return sum(len(set(held) - after[name]) for name, held in before.items())


@pytest.mark.parametrize(
    "first", [{"heartbeat_ms": DEFAULT_HEARTBEAT_MS}], indirect=True, ids=["default-heartbeats"]
)
def test_views_of_hints_that_differ_for_a_while_lose_nothing_and_end_as_with_uniform(
    first: Node, harness: Harness, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Each node once misses a hint that the others follow, and coordinates as soon as it is back."""
    nodes, chance = first.broker, random.Random(38)  # noqa: S311  # repeatable, no secret
    assert isinstance(nodes, Cluster)
    client = {"bootstrap_servers": nodes.bootstrap_servers}
    with FaultyWorkload(
        client, tmp_path / "journals", topic=unique("orders"), num_partitions=12, group_id=unique("group"),
        hint_topic=HINTS, consumer={"protocol": "consumer"},
    ) as workload:  # fmt: skip
        members = workload.start_consumers(4, is_static=True)
        owners = workload.wait_until_owned()
        traffic = workload.start_traffic(records_per_s=200.0, skew=0.0)
        views = Views(nodes, workload, harness)
        for node_id in nodes.nodes:
            wanted = draw_placement(owners, chance, num_moves=range(4, 9))
            views.follow_beside_frozen(node_id, wanted)
            # With the hint that it had before, until it has read the topic.
            move_coordinator(nodes, workload.group_id, node_id)
            workload.wait_until_committing()
            owners = views.ask_until(wanted)
        views.publish(None)
        first.wait_for("the hint is withdrawn", lambda now: now["WithdrawnTotal"] > 0)
        views.change_as_uniform(views.ask, members)
        views.change_as_uniform(lambda: workload.start_consumer("consumer-4"), [*members, "consumer-4"])
        views.change_as_uniform(lambda: workload.stop_process("consumer-4"), members)
        workload.stop_process(traffic)
        wait_until(lambda: workload.evidence().num_waiting == 0, what="not all is processed")
        evidence = workload.evidence()
        assert (evidence.lost, evidence.repeated, evidence.overlaps) == ({}, {}, ())
        assert first.figures()["InternalErrorTotal"] == 0
