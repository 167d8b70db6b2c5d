"""Consumers of Kafka's Java client on a real broker: they follow, keep and fall back, also beside Python."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from assignor_core.hint import derive_group_key, hint_key
from evenlag.enums import GroupType
from evenlag.kafka.live_groups import read_live_groups
from sandbox.kafka.jvm_jars import CLIENT_ASSIGNOR_CLASS
from tests.support.flood import flood
from tests.support.hints import Cluster
from tests.support.java_client.group import JavaGroup
from tests.support.java_client.harness import ClientHarness
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.brokers import Brokers, SecureBrokers

pytestmark = pytest.mark.broker
NUM_PARTITIONS = 8
MASTER = b"the master key of these tests, long enough"


@pytest.fixture
def group(
    broker: Brokers, client_harness: ClientHarness, unique: Callable[[str], str]
) -> Iterator[JavaGroup]:
    with (
        Cluster(
            broker,
            group_id=unique("group"),
            topics={unique("orders"): NUM_PARTITIONS},
            hint_topic=unique("hints"),
        ) as cluster,
        JavaGroup(client_harness, cluster) as made,
    ):
        yield made


@contextmanager
def traffic(group: JavaGroup) -> Iterator[None]:
    """Write records to all partitions; afterwards, by the journals, each has been processed once."""
    ending = threading.Event()
    sent: list[object] = []

    def send() -> None:
        while not ending.wait(0.02):
            number = len(sent) % NUM_PARTITIONS
            sent.append(group.cluster.producer.send(group.topic, b"x", partition=number))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        group.cluster.producer.flush()
    wait_until(lambda: len(set(group.records())) >= len(sent), what="records are lost")
    repeated = [record for record, times in Counter(group.records()).items() if times > 1]
    assert not repeated
    assert group.double_owners() == []


def owned_by(group: JavaGroup) -> set[tuple[str, str]]:
    """Return which consumer noted that it owned a partition, or gave it up."""
    return {
        (name.rpartition("/")[2], kind)
        for name, kind, *_ in group.journal()
        if kind in {"assigned", "revoked"}
    }


def test_a_group_in_java_follows_keeps_and_goes_on_without(group: JavaGroup) -> None:
    names = ("a", "b", "c", "d")
    group.start_java(*names)
    group.settle()
    group.wait_for_count("ReadyTotal", 1)
    even = group.held()
    assert sorted(map(len, even.values())) == [2, 2, 2, 2]
    plan = {"a": [0, 1, 2, 3], "b": [4, 5], "c": [6], "d": [7]}
    with traffic(group):
        group.publish(plan)
        group.wait_for_count("ReceivedTotal", 1)
        group.rebalance("c")
        group.wait_for(plan)
        generation = group.settle()
        followed = group.counts()["FollowedTotal"]
        # Any further rebalance keeps it.
        group.rebalance("b")
        wait_until(lambda: min(group.generations()) > generation, what="there is no further rebalance")
        group.wait_for_count("FollowedTotal", followed + 1)
        group.settle()
        assert group.held() == plan
        # Without d the hint is of another membership: the group is even again, and nobody waits.
        group.stop("d")
        group.wait_for_count("FingerprintTotal", 1)
        group.settle()
        assert sorted(map(len, group.held().values())) == [2, 3, 3]
    assert group.counts()["InternalErrorTotal"] == 0


@pytest.mark.extended
def test_a_flood_larger_than_the_heap_delays_no_hint(
    broker: Brokers, client_jar: Path, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """81 MB in the group's partition, in 64 MB of heap: before the first reading and while hints come."""
    topics = {unique("orders"): NUM_PARTITIONS}
    with (
        ClientHarness(client_jar, tmp_path, options=("-Xmx64m", "-XX:+UseSerialGC")) as harness,
        Cluster(broker, group_id=unique("group"), topics=topics, hint_topic=unique("hints")) as cluster,
        JavaGroup(harness, cluster) as group,
    ):
        flood(cluster, 90)
        group.start_java("a", "b", asks=True)
        group.settle()
        group.wait_for_count("ReadyTotal", 1)
        for plan in ({"a": [0, 1, 2], "b": [3, 4, 5, 6, 7]}, {"a": [0, 1, 2, 3, 4, 5], "b": [6, 7]}):
            flood(cluster, 90)
            group.publish(plan)
            group.wait_for(plan)
        assert group.counts()["InternalErrorTotal"] == 0


def test_an_application_asks_for_the_rebalance_of_a_hint(group: JavaGroup) -> None:
    """With one call before each poll, and only where the hint changes something."""
    group.start_java("a", "b", "c", asks=True)
    group.settle()
    group.wait_for_count("ReadyTotal", 1)
    generation = group.settle()
    before = group.held()
    group.publish(before)
    group.wait_for_count("ReceivedTotal", 1)
    plan = {"a": before["b"], "b": before["c"], "c": before["a"]}
    with traffic(group):
        group.publish(plan)
        group.wait_for(plan)
    # For the hint that changes nothing none; for the other two rounds, and more if syncs are late.
    assert group.settle() >= generation + 2
    assert group.counts()["FollowedTotal"] > 0


def quiet_generation(group: JavaGroup) -> int:
    """Return the generation in which no consumer asks for a rebalance, which it may before each poll."""
    while True:
        generation = group.settle()
        for _ in range(5):
            known = len(group.records())
            for number in range(NUM_PARTITIONS):
                group.cluster.producer.send(group.topic, b"x", partition=number)
            group.cluster.producer.flush()
            wait_until(lambda known=known: len(group.records()) >= known + NUM_PARTITIONS)  # type: ignore[misc]
        # What was asked for has begun with the next poll.
        name = group.cluster.group_id
        live = read_live_groups(group.cluster.admin, {name: GroupType.CLASSIC})[name]
        if live.state == "Stable" and group.settle() == generation:
            return generation


@pytest.mark.extended
def test_restarts_of_static_members_beside_a_refused_hint_cost_no_rebalance(group: JavaGroup) -> None:
    """As without a hint (KIP-345), whoever restarts; the members' first request is refused."""

    def start(name: str) -> None:
        group.start_java(name, asks=True, configs={"group.instance.id": name})

    for name in ("a", "b", "c"):
        start(name)
    group.settle()
    group.wait_for_count("ReadyTotal", 1)
    before, first = group.held(), group.settle()
    plan = {"a": before["b"], "b": before["c"], "c": before["a"]}
    placement = {f"i:{name}": {group.topic: tuple(numbers)} for name, numbers in plan.items()}
    group.cluster.publish(group.cluster.payload(placement, max_moves=0))
    group.wait_for_count("MaxMovesTotal", 1)
    generation, costs = quiet_generation(group), []
    assert generation > first
    for name in ("a", "b", "c", "a"):
        group.stop(name)
        start(name)
        before_it, generation = generation, quiet_generation(group)
        costs.append(generation - before_it)
    # Of the leader, and of the others: one that a busy machine makes is none of a restart.
    assert (min(costs[0], costs[3]), min(costs[1:3])) == (0, 0), costs
    assert group.held() == before


@pytest.mark.parametrize("leader", ["java", "python"])
def test_members_in_both_languages_follow_a_hint(group: JavaGroup, leader: str) -> None:
    """Python's members ask for the rebalance, whoever leads; then the leader goes, and another one leads."""
    start = {"java": group.start_java, "python": group.start_python}
    start[leader]("a")
    group.settle()
    other = "python" if leader == "java" else "java"
    start[other]("b")
    start[leader]("c")
    start[other]("d")
    group.settle()
    group.wait_for_count("ReadyTotal", 1)
    plan = {"a": [0, 7], "b": [1, 6, 5], "c": [2], "d": [3, 4]}
    with traffic(group):
        group.publish(plan)
        group.wait_for(plan)
        group.settle()
        group.stop("a")
        group.settle()
        rest = group.held()
        assert sorted(map(len, rest.values())) == [2, 3, 3]
        plan = {"b": rest["c"], "c": rest["d"], "d": rest["b"]}
        group.publish(plan)
        group.wait_for(plan)
    # The check of owners in `traffic` saw members in both languages own and give up partitions.
    shown = {(name in {"a", "c"}, kind) for name, kind in owned_by(group)}
    assert shown == {(who, kind) for who in (True, False) for kind in ("assigned", "revoked")}
    assert (group.counts()["FollowedTotal"] > 0) or leader == "python"
    assert group.counts()["InternalErrorTotal"] == 0


@pytest.mark.parametrize(
    "theirs", [pytest.param("RangeAssignor", marks=pytest.mark.extended), "CooperativeStickyAssignor"]
)
def test_a_group_in_java_goes_over_from_kafkas_assignor_and_back(group: JavaGroup, theirs: str) -> None:
    """Two rolling bounces each way: both assignors beside each other, then the new one alone."""
    kafka = f"org.apache.kafka.clients.consumer.{theirs}"
    both, ours = (CLIENT_ASSIGNOR_CLASS, kafka), (CLIENT_ASSIGNOR_CLASS,)
    group.start_java("a", "b", strategy=(kafka,))
    group.settle()
    with traffic(group):
        for strategy in (both, ours, both, (kafka,)):
            for name in ("a", "b"):
                group.stop(name)
                group.start_java(name, strategy=strategy)
                group.settle()
            if strategy != (kafka,):
                group.wait_for_count("ReadyTotal", 1)
                received = group.counts()["ReceivedTotal"]
                plan = {"a": [0, 1, 2, 3, 4, 5], "b": [6, 7]}
                group.publish(plan)
                group.wait_for_count("ReceivedTotal", received + 1)
                group.rebalance("a")
                group.wait_for(plan)


def test_a_group_in_java_follows_signed_hints_only(group: JavaGroup, tmp_path: Path) -> None:
    key = derive_group_key(MASTER, group.cluster.group_id)
    file = tmp_path / "group.key"
    file.write_text(key.hex() + "\n", encoding="ascii")
    configs = {"evenlag.hint.key.file": str(file), "evenlag.required.signing": "true"}
    group.start_java("a", "b", configs=configs)
    group.settle()
    group.wait_for_count("ReadyTotal", 1)
    before = group.held()
    plan = {"a": before["b"], "b": before["a"]}
    group.publish(plan)
    group.wait_for_count("BadSignatureTotal", 1)
    group.publish(plan, key=b"another key of another group, as long")
    group.wait_for_count("BadSignatureTotal", 2)
    unhinted = group.counts()["NoHintTotal"]
    group.rebalance("a")
    group.wait_for_count("NoHintTotal", unhinted + 1)
    group.settle()
    assert group.held() == before
    group.publish(plan, key=key)
    group.wait_for_count("ReceivedTotal", 1)
    group.rebalance("a")
    group.wait_for(plan)


def test_a_withdrawn_hint_is_not_followed(group: JavaGroup) -> None:
    group.start_java("a", "b")
    group.settle()
    group.wait_for_count("ReadyTotal", 1)
    before = group.held()
    group.publish({"a": before["b"], "b": before["a"]})
    group.wait_for_count("ReceivedTotal", 1)
    group.cluster.send(hint_key(group.cluster.group_id), None)
    group.wait_for_count("WithdrawnTotal", 1)
    unhinted = group.counts()["NoHintTotal"]
    group.rebalance("a")
    group.wait_for_count("NoHintTotal", unhinted + 1)
    group.settle()
    assert group.held() == before


def test_a_group_in_java_works_without_a_hint_topic(group: JavaGroup) -> None:
    """It is even, and takes hints as soon as the topic exists."""
    group.start_java("a", "b", configs={"evenlag.hint.topic": f"{group.cluster.hint_topic}-none"})
    group.settle()
    group.wait_for_count("UnavailableTotal", 1)
    unhinted = group.counts()["NoHintTotal"]
    group.rebalance("a")
    group.wait_for_count("NoHintTotal", unhinted + 1)
    group.settle()
    assert sorted(map(len, group.held().values())) == [4, 4]


def test_the_watcher_connects_as_the_application_does(group: JavaGroup, broker: SecureBrokers) -> None:
    """On a listener with TLS and SASL, by a login that only the application's settings have."""
    secure = broker.sasl_ssl
    assert secure is not None
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    configs = {
        "bootstrap.servers": secure.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{login} username="{secure.username}" password="{secure.password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secure.ca_file),
    }
    group.start_java("a", "b", configs=configs)
    group.settle()
    group.wait_for_count("ReadyTotal", 1)
    plan = {"a": [0, 2, 4, 6, 7], "b": [1, 3, 5]}
    group.publish(plan)
    group.wait_for_count("ReceivedTotal", 1)
    group.rebalance("b")
    group.wait_for(plan)
