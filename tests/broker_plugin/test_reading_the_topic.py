"""How the plug-in reads the hint topic of a real broker: committed records only, none decompressed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer

from assignor_core.hint import hint_key
from tests.support.broker_plugin.harness import Harness
from tests.support.flood import flood
from tests.support.hints import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.broker_plugin.node import Node

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: it is the extra kip848")
pytestmark = pytest.mark.broker

MEGABYTE = 1_000_000


@pytest.fixture
def topic(node: Node, unique: Callable[[str], str]) -> Iterator[Cluster]:
    """Return a cluster with a hint topic of this test's own, which the node's plug-in does not read."""
    hints = unique("hints")
    with Cluster(
        node.broker,
        group_id=unique("group"),
        topics={unique("orders"): 2},
        hint_topic=hints,
        make_topics=False,
    ) as cluster:
        # As a topic that was made before compression was ruled out.
        cluster.create({**cluster.topics})
        cluster.create({hints: 3}, {"cleanup.policy": "compact"})
        yield cluster


@pytest.fixture
def reader(plugin_jar: Path, tmp_path: Path) -> Iterator[Harness]:
    """Return the plug-in in a JVM with little memory."""
    folder = tmp_path / "classes"
    folder.mkdir()
    with Harness(plugin_jar, folder, options=("-Xmx48m", "-XX:+UseSerialGC")) as running:
        yield running


def watch(reader: Harness, cluster: Cluster, reason: str, count: int) -> tuple[int, dict[str, int]]:
    """Return how many hints are held and what became of the records, when `reason` was counted that often."""
    configs = {
        "evenlag.bootstrap.servers": cluster.bootstrap_servers,
        "evenlag.hint.topic": cluster.hint_topic,
        "evenlag.check.interval.ms": "200",
    }
    answer: dict[str, Any] = reader.ask("watch", configs=configs, reason=reason, count=count)
    # On a busy machine, a broker may be out of reach for a while.
    records = {name: n for name, n in answer["counts"].items() if name not in {"READY", "UNAVAILABLE"}}
    return answer["held"], records


def publish(cluster: Cluster, snapshot: str) -> None:
    name = next(iter(cluster.topics))
    cluster.publish(cluster.payload({"m:a": {name: [0, 1]}}, snapshot_id=snapshot, member_ids={}))


def test_bomb_in_the_log_is_skipped_by_a_jvm_with_little_memory(reader: Harness, topic: Cluster) -> None:
    """100 kB that would become 100 MB, in 48 MB of heap; before and after it, hints are read."""
    publish(topic, "first")
    with_bomb = KafkaProducer(
        bootstrap_servers=topic.bootstrap_servers, compression_type="gzip", max_request_size=200 * MEGABYTE
    )
    partition = topic.hint_partition()

    def throw(key: bytes) -> None:
        with_bomb.send(
            topic.hint_topic, key=key, value=bytes(100 * MEGABYTE), partition=partition
        ).get(timeout=600)  # fmt: skip

    throw(hint_key(topic.group_id))
    assert watch(reader, topic, "READY", 1) == (1, {"COMPRESSED": 1, "RECEIVED": 1})
    throw(b"another")
    with_bomb.close()
    publish(topic, "second")
    assert watch(reader, topic, "RECEIVED", 2) == (1, {"COMPRESSED": 2, "RECEIVED": 2})


@pytest.mark.extended
def test_a_flood_larger_than_the_heap_delays_no_hint(reader: Harness, topic: Cluster) -> None:
    """81 MB in 48 MB of heap, before the first reading and again while hints are followed."""
    publish(topic, "first")
    malformed = flood(topic, 90).num_unreadable
    assert watch(reader, topic, "READY", 1) == (1, {"MALFORMED": malformed, "RECEIVED": 1})
    malformed += flood(topic, 90).num_unreadable
    publish(topic, "second")
    assert watch(reader, topic, "RECEIVED", 2) == (1, {"MALFORMED": malformed, "RECEIVED": 2})


def test_records_of_an_aborted_transaction_do_not_count(reader: Harness, topic: Cluster) -> None:
    from confluent_kafka import Producer

    publish(topic, "first")
    producer = Producer(
        {"bootstrap.servers": topic.bootstrap_servers, "transactional.id": topic.group_id, "linger.ms": 0}
    )
    producer.init_transactions(600)
    partition = topic.hint_partition()

    def tombstone(*, commit: bool) -> None:
        producer.begin_transaction()
        producer.produce(topic.hint_topic, key=hint_key(topic.group_id), value=None, partition=partition)
        producer.flush(600)
        end = producer.commit_transaction if commit else producer.abort_transaction
        end(600)

    tombstone(commit=False)
    assert watch(reader, topic, "READY", 1) == (1, {"RECEIVED": 1})
    tombstone(commit=False)
    publish(topic, "second")
    assert watch(reader, topic, "RECEIVED", 2) == (1, {"RECEIVED": 2})
    tombstone(commit=True)
    assert watch(reader, topic, "WITHDRAWN", 1) == (0, {"RECEIVED": 2, "WITHDRAWN": 1})
