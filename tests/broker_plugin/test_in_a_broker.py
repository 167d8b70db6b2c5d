"""The plug-in in a real broker, with processes of another client: followed, or as if it were not there."""

from __future__ import annotations

import math
import threading
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError

from assignor_core.hint import HintPayload, derive_broker_key, derive_group_key, encode_hint, hint_key
from evenlag.enums import GroupType
from evenlag.kafka.broker_requests import RequestLimits
from evenlag.kafka.groups import describe_named_groups
from evenlag.publishing.rebalance_trigger.await_target import TRIGGER_RACK, ask_coordinator
from tests.support.broker_plugin.fleet import PYTHON_MEMBER, Fleet
from tests.support.broker_plugin.node import HINTS, MASTER
from tests.support.hints import Cluster, now_ms
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.support.broker_plugin.harness import Harness
    from tests.support.broker_plugin.node import Node

confluent_kafka = pytest.importorskip(
    "confluent_kafka", reason="confluent-kafka is not installed: it is the extra kip848"
)
pytestmark = pytest.mark.broker

INSTANCES = ("pod-0", "pod-1", "pod-2")
NEW_MASTER = b"another master key, as long as it has to be"
PLAN = {"pod-0": [0, 3], "pod-1": [1, 4], "pod-2": [2, 5]}
OTHER_PLAN = {"pod-0": [1, 4], "pod-1": [2, 5], "pod-2": [0, 3]}
# A rebalance of the group is over by then, or nearly.
ASK_AGAIN_S = 10.0
UNEVEN = {"pod-0": [0, 1, 2], "pod-1": [3, 4], "pod-2": [5]}


class Scene:
    """One group on the node: its processes, its records, its hints."""

    def __init__(self, node: Node, cluster: Cluster, fleet: Fleet) -> None:
        self.node, self.cluster, self.fleet = node, cluster, fleet
        self._num_partitions = cluster.topics[fleet.topic]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        while not self._ending.wait(0.1):
            for partition in range(self._num_partitions):
                self.cluster.producer.send(self.fleet.topic, value=b"record", partition=partition)

    def payload(self, plan: Mapping[str, Sequence[int]], **changes: Any) -> HintPayload:
        """Return a payload as the pipeline will make it, with the member ids of this moment."""
        members = self.fleet.members()
        ids = {f"i:{instance}": member_id for instance, member_id in members.items()}
        placement = {f"i:{instance}": {self.fleet.topic: numbers} for instance, numbers in plan.items()}
        return self.cluster.payload(placement, **{"count_slack": 0, "member_ids": ids, **changes})

    def publish(self, payload: HintPayload, *, ttl_ms: int = 3_600_000, key: bytes | None = None) -> None:
        """Publish a hint, signed for brokers unless told otherwise, and wait until the broker has seen it."""
        before = self.node.figures()
        key = derive_broker_key(MASTER, self.cluster.group_id) if key is None else key
        self.cluster.sequence += 1
        issued = now_ms()
        times = {"issued_at_ms": issued, "expires_at_ms": issued + ttl_ms}
        value = encode_hint(payload.encode(), sequence=self.cluster.sequence, group_key=key, **times)
        self.cluster.send(hint_key(self.cluster.group_id), value)
        seen = ("ReceivedTotal", "BadSignatureTotal")
        self.node.wait_for("the hint is seen", lambda now: any(now[name] > before[name] for name in seen))

    def ask(self) -> None:
        """Make the coordinator ask."""
        ask_coordinator({"bootstrap.servers": self.cluster.bootstrap_servers}, self.cluster.group_id, HINTS)

    def ask_until(self, condition: Callable[[], bool], what: str | Callable[[], str]) -> None:
        """Make the coordinator ask until something is so: after its start it may not know the hint yet."""
        asked_at = -math.inf

        def is_so() -> bool:
            nonlocal asked_at
            if time.monotonic() - asked_at > ASK_AGAIN_S:
                self.ask()
                asked_at = time.monotonic()
            return condition()

        wait_until(is_so, what=what)

    def ask_and_see(self) -> None:
        """Make the coordinator ask, and give everybody half a second to hear of another answer."""
        answered = sum(self.node.answers().values())
        self.ask()
        # Once when the guest came, once when it had left.
        self.node.wait_for("both answers", lambda _: sum(self.node.answers().values()) >= answered + 2)
        seen = self.fleet.records()
        wait_until(
            lambda: all(len(now) >= len(seen[n]) + 5 for n, now in self.fleet.records().items()),
            what="five more records of each partition",
        )

    def settle(self, wanted: Mapping[str, Sequence[int]]) -> None:
        """Ask until the processes hold what is wanted."""
        self.ask_until(
            lambda: self.fleet.has(wanted),
            lambda: (
                f"{wanted} is not held: {self.fleet.held()} of {self.fleet.members()}; {self.node.figures()}"
            ),
        )

    def follow(self, plan: Mapping[str, Sequence[int]], *, key: bytes | None = None, **changes: Any) -> None:
        """Publish a plan and have it followed."""
        self.publish(self.payload(plan, **changes), key=key)
        self.settle(plan)

    def stop_sending(self) -> None:
        """Send no more records."""
        self._ending.set()
        self._thread.join()

    def finish(self) -> None:
        """Send no more, wait until all is consumed, and judge the logs."""
        self.stop_sending()
        self.cluster.producer.flush(timeout=600)
        with closing(KafkaConsumer(bootstrap_servers=self.cluster.bootstrap_servers)) as consumer:
            partitions = [TopicPartition(self.fleet.topic, n) for n in range(self._num_partitions)]
            ends = consumer.end_offsets(partitions)
        wanted = {partition.partition: set(range(end)) for partition, end in ends.items() if end}
        wait_until(lambda: self.fleet.records() == wanted, what="records are missing")
        assert self.fleet.double_owners() == []


@contextmanager
def make_scene(
    node: Node,
    unique: Callable[[str], str],
    folder: Path,
    *,
    member: Sequence[str] = PYTHON_MEMBER,
    instances: Sequence[str] = INSTANCES,
) -> Iterator[Scene]:
    """Start a group of processes that take two partitions each, and wait until they have them."""
    topic = unique("orders")
    num_partitions = 2 * len(instances)
    with Cluster(
        node.broker,
        group_id=unique("group"),
        topics={topic: num_partitions},
        hint_topic=HINTS,
        make_topics=False,
    ) as cluster:
        cluster.create({topic: num_partitions})
        if HINTS not in cluster.admin.list_topics():
            make_hint_topic(cluster)
        node.wait_for("the hint topic is read", lambda now: now["IsCold"] == 0 and now["LagRecords"] == 0)
        with Fleet(cluster, instances, folder, member) as fleet:
            wait_until(lambda: is_even(fleet), what="not all have joined", progress=fleet.held)
            scene = Scene(node, cluster, fleet)
            try:
                yield scene
            finally:
                scene.stop_sending()


def is_even(fleet: Fleet) -> bool:
    """Whether each process holds two partitions."""
    return {len(held) for held in fleet.held().values()} == {2}


@pytest.fixture
def scene(node: Node, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Scene]:
    with make_scene(node, unique, tmp_path) as made:
        yield made


@pytest.fixture
def java_scene(node: Node, harness: Harness, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Scene]:
    with make_scene(node, unique, tmp_path, member=harness.java_member()) as made:
        yield made


def make_hint_topic(cluster: Cluster) -> None:
    cluster.create({HINTS: 3}, {"cleanup.policy": "compact", "compression.type": "uncompressed"})


def when_connected(call: Callable[[], object]) -> None:
    """Call, again and again while kafka-python has no connection: a broker has just come back."""

    def is_done() -> bool:
        with suppress(KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError):
            call()
            return True
        return False

    wait_until(is_done, what="kafka-python does not connect again")


def test_hint_is_followed_kept_and_withdrawn_and_no_record_is_lost(scene: Scene) -> None:
    for plan in (PLAN, OTHER_PLAN):
        scene.follow(plan)
    calls = scene.fleet.num_callbacks()
    scene.ask_and_see()
    assert scene.fleet.num_callbacks() == calls, "the one who asks moved a partition"
    # Uneven, within its slack; then expired: it is kept, and undone only when it is withdrawn.
    scene.follow(UNEVEN, count_slack=1)
    scene.publish(scene.payload(UNEVEN, count_slack=1, snapshot_id="later"), ttl_ms=0)
    scene.ask_and_see()
    assert scene.fleet.has(UNEVEN)
    before = scene.node.figures()
    scene.cluster.send(hint_key(scene.cluster.group_id), None)
    scene.node.wait_for("withdrawn", lambda now: now["WithdrawnTotal"] > before["WithdrawnTotal"])
    scene.ask_until(lambda: is_even(scene.fleet), "the counts are not even again")
    scene.finish()


def test_coordinator_sees_the_rack_by_which_the_plug_in_knows_who_triggers(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    racks: list[set[str | None]] = []
    Consumer: Any = confluent_kafka.Consumer  # noqa: N806  # a class

    class Observed(Consumer):  # type: ignore[misc]  # confluent-kafka ships no types
        def close(self) -> None:
            group_id = scene.cluster.group_id
            group = {group_id: GroupType.CONSUMER}
            rows = describe_named_groups(scene.cluster.admin, group, RequestLimits(), frozenset({HINTS}))
            racks.append({row["rack_id"] for row in rows})
            super().close()

    monkeypatch.setattr(confluent_kafka, "Consumer", Observed)
    scene.ask()
    assert racks == [{None, TRIGGER_RACK}]


def test_hint_that_is_not_for_this_group_as_it_is_is_ignored(
    scene: Scene, unique: Callable[[str], str]
) -> None:
    scene.follow(PLAN)
    ids = {f"i:{instance}": unique("somebody") for instance in INSTANCES}
    application_key = derive_group_key(MASTER, scene.cluster.group_id)
    cases: list[tuple[str, HintPayload, dict[str, Any]]] = [
        ("BadSignatureTotal", scene.payload(OTHER_PLAN), {"key": b"wrong"}),
        ("BadSignatureTotal", scene.payload(OTHER_PLAN), {"key": application_key}),
        ("ExpiredTotal", scene.payload(OTHER_PLAN), {"ttl_ms": 0}),
        ("FingerprintTotal", scene.payload(OTHER_PLAN, fingerprint="0" * 64), {}),
        ("MaxMovesTotal", scene.payload(OTHER_PLAN, max_moves=1), {}),
        ("NoHintTotal", scene.payload(OTHER_PLAN, member_ids=ids), {}),
    ]
    calls = scene.fleet.num_callbacks()
    for reason, payload, how in cases:
        before = scene.node.figures()[reason]
        scene.publish(payload, **how)
        scene.ask_and_see()
        assert scene.node.figures()[reason] > before, reason
        assert scene.fleet.has(PLAN), reason
    assert scene.fleet.num_callbacks() == calls
    scene.finish()


def test_javas_own_consumer_follows_too(java_scene: Scene) -> None:
    java_scene.follow(PLAN)
    java_scene.follow(UNEVEN, count_slack=1)
    java_scene.finish()


def test_signing_keys_change_without_a_restart(scene: Scene) -> None:
    scene.follow(PLAN)
    new = derive_broker_key(NEW_MASTER, scene.cluster.group_id)
    read = scene.node.figures()["ReadyTotal"]
    scene.node.key_file.write_bytes(NEW_MASTER + b"\n")
    scene.node.wait_for("the keys are read", lambda now: now["ReadyTotal"] > read)
    scene.follow(OTHER_PLAN, key=new)
    scene.node.key_file.write_bytes(MASTER)
    scene.node.wait_for("the old one again", lambda now: now["ReadyTotal"] > read + 1)
    scene.finish()


@pytest.mark.extended
def test_it_outlives_a_broker_and_a_topic_and_a_pod(java_scene: Scene) -> None:
    # librdkafka's static members are fenced if a heartbeat is lost while their epoch changes (`start_node`).
    scene = java_scene
    scene.follow(UNEVEN, count_slack=1)
    members = scene.fleet.members
    old = members()["pod-1"]
    scene.fleet.restart("pod-1")
    wait_until(lambda: members().get("pod-1", old) != old, what="pod-1 is back")
    scene.settle(UNEVEN)
    scene.node.restart()
    scene.node.wait_for("hints are read", lambda now: now["IsCold"] == 0 and now["HintsHeld"] > 0)
    followed = scene.node.figures()["FollowedTotal"]
    scene.ask_until(lambda: scene.node.figures()["FollowedTotal"] > followed, "the hint is not followed")
    scene.settle(UNEVEN)
    # kafka-python's admin client asks only the broker that it has taken for the controller.
    scene.cluster.renew_admin()
    when_connected(lambda: scene.cluster.admin.delete_topics([HINTS]))
    scene.node.wait_for("hints are gone", lambda now: now["HintsHeld"] == 0)
    make_hint_topic(scene.cluster)
    scene.node.wait_for("it is read anew", lambda now: now["LagRecords"] == 0)
    scene.cluster.renew_publisher()
    scene.follow(PLAN)
    assert scene.node.figures()["InternalErrorTotal"] == 0
    scene.finish()


@pytest.mark.soak
def test_fifty_members_follow_plan_after_plan(
    node: Node, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Each plan gives nearly every partition to another process."""
    names = [f"pod-{number:02d}" for number in range(50)]
    with make_scene(node, unique, tmp_path, instances=names) as scene:
        for turn in range(1, 6):
            scene.follow(
                {
                    name: [(2 * i + 7 * turn) % 100, (2 * i + 1 + 7 * turn) % 100]
                    for i, name in enumerate(names)
                }
            )
        scene.finish()
