"""The watcher reads its group's partition of the hint topic, and knows the topic by its id."""

from __future__ import annotations

import os
import threading
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaConsumer
from kafka.future import Future
from kafka.record.default_records import DefaultRecordBatch

from assignor_core.hint import STOP_KEY, hint_key
from assignor_core.loads import LoadsPayload, encode_loads, loads_key
from evenlag.consumer import HintCache, HintWatcher, Reason
from evenlag.consumer._kafka_consumer import fetch_partition_count
from tests.support.flood import flood
from tests.support.hints import HOUR_MS, Cluster, now_ms
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.kafka.broker import Broker

pytestmark = pytest.mark.broker


def test_the_watcher_survives_a_missing_topic_and_a_topic_made_anew(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    group, topic, hints = unique("group"), unique("orders"), unique("hints")
    config = {"bootstrap_servers": broker.bootstrap_servers}
    cache = HintCache(group)
    watcher = HintWatcher(cache, config, topic=hints, check_every_s=3600.0)
    watcher.start()
    try:
        wait_until(lambda: not cache.view.is_cold)
        assert cache.counts.keys() == {"UNAVAILABLE"}
        with Cluster(broker, group_id=group, topics={topic: 1}, hint_topic=hints) as cluster:
            payload = cluster.payload({"m:a": {topic: [0]}})
            cluster.publish(payload)
            wait_until(lambda: cache.view.hint is not None)
            cluster.admin.delete_topics([hints])
            wait_until(lambda: cache.view.hint is None)
            wait_until(lambda: hints not in cluster.admin.list_topics())
            cluster.create({hints: 5}, {"cleanup.policy": "compact", "compression.type": "uncompressed"})
            cluster.renew_publisher()
            cluster.publish(payload, sequence=1)
            wait_until(lambda: cache.view.hint is not None)
    finally:
        watcher.stop()
    assert cache.cluster_id == broker.cluster_id


def test_a_topic_that_is_made_anew_between_two_checks_ends_the_hint_of_the_old_one(
    cluster: Cluster, topic: str
) -> None:
    """As many partitions and more records than before: only the topic's id tells, and no check is due."""
    cluster.publish(cluster.payload({"m:a": {topic: [0]}}))
    cluster.send(STOP_KEY.encode(), b"{}", partition=cluster.hint_partition())
    cache = HintCache(cluster.group_id)
    config = {"bootstrap_servers": cluster.bootstrap_servers}
    watcher = HintWatcher(cache, config, topic=cluster.hint_topic, check_every_s=3600.0)
    watcher.start()
    try:
        wait_until(lambda: cache.view.hint is not None and cache.view.is_stopped)
        cluster.admin.delete_topics([cluster.hint_topic])
        wait_until(lambda: cluster.hint_topic not in cluster.admin.list_topics())
        cluster.create({cluster.hint_topic: 3}, {"cleanup.policy": "compact"})
        cluster.renew_publisher()
        partition = cluster.hint_partition()
        for _ in range(9):
            cluster.send(b"group/another", b"x", partition=partition)
        wait_until(lambda: cache.view.hint is None and not cache.view.is_cold)
        assert not cache.view.is_stopped
    finally:
        watcher.stop()


def test_a_flood_of_foreign_records_costs_a_watcher_no_memory_and_no_checksum_in_python(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 MB in the group's partition before the first reading, and again while the watcher follows."""
    checked: list[object] = []
    monkeypatch.setattr(DefaultRecordBatch, "validate_crc", checked.append)
    cluster.publish(cluster.payload({"m:a": {topic: [0]}}))
    flood(cluster, 45)
    cache = HintCache(cluster.group_id)
    watcher = HintWatcher(cache, {"bootstrap_servers": cluster.bootstrap_servers}, topic=cluster.hint_topic)
    tracemalloc.start()
    watcher.start()
    try:
        wait_until(lambda: not cache.view.is_cold)
        assert cache.view.hint is not None
        flood(cluster, 45)
        wanted = cluster.payload({"m:a": {topic: [1]}})
        cluster.publish(wanted)
        wait_until(lambda: cache.view.hint is not None and cache.view.hint.payload == wanted)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        watcher.stop()
    # On a busy machine, a broker may be out of reach for a while.
    assert cache.counts.keys() - {Reason.UNAVAILABLE} == {Reason.RECEIVED, Reason.READY}
    assert (checked, peak < 20_000_000) == ([], True), peak


def test_a_watcher_takes_hint_and_loads_from_the_groups_partition_and_the_last_of_each(
    cluster: Cluster, topic: str
) -> None:
    """A forged hint with the greatest sequence, its withdrawal, a hint: the first pass sees the last only."""
    partition, forged = cluster.hint_partition(), cluster.payload({"m:a": {topic: [0]}}, snapshot_id="forged")
    wanted, elsewhere = cluster.payload({"m:a": {topic: [0]}}), (partition + 1) % 3
    cluster.publish(forged, sequence=2**53)
    cluster.send(hint_key(cluster.group_id), None)
    cluster.publish(wanted, sequence=1)
    moment = now_ms()

    def loads(measured_at_ms: int) -> bytes:
        ids = cluster.topic_ids()
        payload = LoadsPayload(
            cluster_id=cluster.cluster_id, group_id=cluster.group_id, snapshot_id="s", capacities={},
            measured_at_ms=measured_at_ms, valid_until_ms=moment + HOUR_MS, default_capacity=1,
            loads={ids[topic]: [1, 2]}, count_slack=0, max_moves=1,
        )  # fmt: skip
        return encode_loads(payload.encode())

    cluster.send(loads_key(cluster.group_id), loads(moment), partition=partition)
    cluster.send(loads_key(cluster.group_id), loads(moment + 9), partition=elsewhere)
    cluster.send(hint_key(cluster.group_id), None, partition=elsewhere)
    cache = HintCache(cluster.group_id)
    watcher = HintWatcher(cache, {"bootstrap_servers": cluster.bootstrap_servers}, topic=cluster.hint_topic)
    watcher.start()
    try:
        wait_until(lambda: not cache.view.is_cold)
        assert cache.view.hint is not None
        assert cache.view.loads is not None
        assert cache.view.hint.payload == wanted
        assert cache.view.loads.payload.measured_at_ms == moment
        once = {"RECEIVED": 1, "LOADS_RECEIVED": 1, "READY": 1}
        # Out of reach for a while, the topic is read once more.
        assert cache.counts == once or cache.counts.keys() == once.keys() | {"UNAVAILABLE"}
        cluster.send(loads_key(cluster.group_id), loads(moment + 1), partition=partition)
        wait_until(lambda: cache.view.loads and cache.view.loads.payload.measured_at_ms == moment + 1)
        cluster.send(loads_key(cluster.group_id), None, partition=partition)
        wait_until(lambda: cache.view.loads is None)
    finally:
        watcher.stop()


class ReaderThreads:
    """Counts threads of readers, without those that still end from before."""

    def __init__(self) -> None:
        self._before = frozenset(threading.enumerate())

    def count(self, *names: str) -> int:
        started = set(threading.enumerate()) - self._before
        wanted = names or ("evenlag-", "kafka-io-evenlag-")
        return sum(thread.name.startswith(wanted) for thread in started)

    def wait_for(self, count: int) -> None:
        """Wait until there are so many: the thread of a reader's client ends a little later."""
        wait_until(lambda: self.count() == count, what=lambda: f"{self.count()} threads")


def test_the_answer_to_an_earlier_metadata_request_hides_no_topic(
    broker: Broker, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-python answers by a request for other topics if one is on its way: here a finished one."""
    hints, orders, earlier = unique("hints"), unique("orders"), Future()
    earlier.success(None)
    with Cluster(broker, group_id=unique("group"), topics={orders: 2}, hint_topic=hints):
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
        try:
            metadata = consumer._cluster
            ask, answers = metadata.request_update, [earlier]
            monkeypatch.setattr(metadata, "request_update", lambda: answers.pop() if answers else ask())
            assert fetch_partition_count(consumer, orders, timeout_ms=60_000) == 2
            answers.append(earlier)
            assert fetch_partition_count(consumer, unique("missing"), timeout_ms=60_000) == 0
        finally:
            consumer.close()


def test_watchers_share_one_thread_and_one_reading_and_a_fault_stays_with_its_group(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    """Groups of all partitions, come while the first one is read and later; two are broken."""
    config, threads = {"bootstrap_servers": broker.bootstrap_servers}, ReaderThreads()
    hints, groups = unique("hints"), [unique("group") for _ in range(12)]
    with Cluster(broker, group_id=groups[0], topics={unique("orders"): 2}, hint_topic=hints) as cluster:
        topic = next(iter(cluster.topics))

        def publish() -> None:
            for group in groups:
                cluster.group_id = group
                cluster.publish(cluster.payload({"m:a": {topic: [0]}}, snapshot_id=f"{cluster.sequence}"))

        def sequences() -> list[int]:
            return [
                watcher.cache.view.hint.sequence if watcher.cache.view.hint else 0 for watcher in watchers
            ]

        publish()
        watchers = [HintWatcher(HintCache(group), config, topic=hints) for group in [*groups, groups[3]]]
        broken = watchers[5]
        broken.cache.mark_ready = raise_error  # type: ignore[method-assign]
        watchers[6]._group._on_tick = raise_error
        for watcher in watchers[:9]:
            watcher.start()
        try:
            assert threads.count("evenlag-") == 1, "the reader's; those of its clients end a little later"
            wait_until(lambda: all(not w.cache.view.is_cold for w in watchers[:9] if w is not broken))
            for watcher in watchers[9:]:
                watcher.start()
            wait_until(lambda: sequences() == [*range(1, 13), 4])
            threads.wait_for(1)
            publish()
            wait_until(lambda: sequences() == [*range(13, 25), 16])
            threads.wait_for(1)
            # A topic that was out of reach for a while is read once more.
            counts = [w.cache.counts for w in watchers]
            assert all(each[Reason.RECEIVED] == 2 or Reason.UNAVAILABLE in each for each in counts)
            watchers[0].stop()
            publish()
            wait_until(lambda: sequences()[1:] == [*range(26, 37), 28])
            assert sequences()[0] == 13
        finally:
            for watcher in watchers:
                watcher.stop()
        threads.wait_for(0)


def raise_error() -> None:
    raise RuntimeError("an error of this group alone")


def test_watchers_of_other_settings_do_not_share_and_a_forked_process_reads_by_itself(
    cluster: Cluster, topic: str
) -> None:
    config, threads = {"bootstrap_servers": cluster.bootstrap_servers}, ReaderThreads()
    made = [
        HintWatcher(HintCache(cluster.group_id), {**config, **more}, topic=cluster.hint_topic)
        for more in ({}, {"sasl_plain_username": "other"}, {})
    ]
    for watcher in made[:2]:
        watcher.start()
    try:
        wait_until(lambda: all(not watcher.cache.view.is_cold for watcher in made[:2]))
        threads.wait_for(2)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                made[0].stop()
                made[2].start()
                wait_until(lambda: not made[2].cache.view.is_cold)
                threads.wait_for(1)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        cluster.publish(cluster.payload({"m:a": {topic: [0]}}))
        wait_until(lambda: all(watcher.cache.view.hint is not None for watcher in made[:2]))
    finally:
        for watcher in made:
            watcher.stop()
