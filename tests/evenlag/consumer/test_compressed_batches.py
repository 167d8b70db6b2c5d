"""Compressed batches on the hint topic are skipped with bounded memory, and what follows them is read."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import calc_crc32c, encode_varint

from assignor_core.topic_reading import skip_compressed
from evenlag.consumer import HintCache, HintWatcher, Reason
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.hints import Cluster

MB = 1_000_000
HEADER = DefaultRecordBatch.HEADER_STRUCT
PARTITION = TopicPartition("hints", 0)


def varint(number: int) -> bytes:
    made = bytearray()
    encode_varint(number, made.append)
    return bytes(made)


def bomb(size: int, *, offset: int) -> bytes:
    """Return a gzip batch with one record of `size` zeros."""
    head = b"\x00" + varint(0) + varint(0) + varint(1) + b"k" + varint(size)
    gzip = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = gzip.compress(varint(len(head) + size + 1) + head)
    for _ in range(size // MB):
        packed += gzip.compress(bytes(MB))
    packed += gzip.compress(varint(0)) + gzip.flush()
    tail = struct.pack(">hiqqqhii", DefaultRecordBatch.CODEC_GZIP, 0, 0, 0, -1, -1, -1, 1) + packed
    length = HEADER.size - DefaultRecordBatch.AFTER_LEN_OFFSET + len(packed)
    return struct.pack(">qiibI", offset, length, 0, 2, calc_crc32c(memoryview(tail))) + tail


def batch(value: bytes, *, offset: int, compression: int = 0, magic: int = 2) -> bytes:
    """Return a batch with one record, as a broker stores it."""
    builder = MemoryRecordsBuilder(magic, compression, 10_000)
    builder.append(0, b"k", value)
    builder.close()
    return struct.pack(">q", offset) + bytes(builder.buffer())[8:]


def read(consumer: Any, data: bytes) -> tuple[list[bytes], int]:
    """Return the values that a fetcher makes of fetched bytes, and the offset after them."""
    records = consumer._fetcher.PartitionRecords(0, PARTITION, MemoryRecords(data))
    values = [record.value for record in records.take(100)]
    return values, int(records.next_fetch_offset)


def test_a_bomb_of_300_kb_is_skipped_without_being_unpacked(offline_consumer: Callable[..., Any]) -> None:
    data = batch(b"before", offset=0) + bomb(300 * MB, offset=1) + batch(b"after", offset=2)
    assert 290_000 < len(data) < 310_000
    consumer, skipped = offline_consumer(), list[int]()
    skip_compressed(consumer, lambda _, offset: skipped.append(offset))
    tracemalloc.start()
    try:
        assert read(consumer, data) == ([b"before", b"after"], 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert skipped == [1]
    assert peak < 2 * MB


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_each_compressed_batch_is_skipped_and_others_are_read(
    offline_consumer: Callable[..., Any], magic: int
) -> None:
    packed = batch(b"x" * 100, offset=3, compression=DefaultRecordBatch.CODEC_GZIP, magic=magic)
    consumer, skipped = offline_consumer(), list[int]()
    skip_compressed(consumer, lambda _, offset: skipped.append(offset))
    assert read(consumer, batch(b"a", offset=0) + packed) == ([b"a"], 4)
    assert skipped == [3]
    assert read(consumer, packed + batch(b"b", offset=4)) == ([b"b"], 5)
    assert read(offline_consumer(), packed)[0] == [b"x" * 100], "another consumer is as it was"


@pytest.mark.broker
def test_a_watcher_passes_compressed_records_and_takes_the_last_plain_one(
    cluster: Cluster, topic: str
) -> None:
    from assignor_core.hint import STOP_KEY, hint_key

    # A broker unpacks batches for a topic that is uncompressed: this one was made without the setting.
    cluster.hint_topic += "-packed"
    cluster.create({cluster.hint_topic: 3}, {"cleanup.policy": "compact"})
    cluster.publish(cluster.payload({"m:a": {topic: range(6)}}, snapshot_id="first"))
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, compression_type="gzip", max_request_size=40 * MB
    )
    partition = cluster.hint_partition()
    for key in (hint_key(cluster.group_id), STOP_KEY.encode()):
        producer.send(cluster.hint_topic, key=key, value=bytes(30 * MB), partition=partition).get(timeout=600)
    cache = HintCache(cluster.group_id)
    watcher = HintWatcher(cache, {"bootstrap_servers": cluster.bootstrap_servers}, topic=cluster.hint_topic)
    watcher.start()
    try:
        wait_until(lambda: not cache.view.is_cold)
        once = {Reason.COMPRESSED: 2, Reason.RECEIVED: 1, Reason.READY: 1}
        # Out of reach for a while, the topic is read once more.
        assert cache.counts == once or cache.counts.keys() == once.keys() | {Reason.UNAVAILABLE}
        seen = cache.counts[Reason.COMPRESSED]
        assert cache.view.usable_hint is not None
        producer.send(cluster.hint_topic, key=b"k", value=bytes(9_000), partition=partition).get(timeout=600)
        wait_until(lambda: cache.counts[Reason.COMPRESSED] > seen)
        cluster.publish(cluster.payload({"m:a": {topic: range(6)}}, snapshot_id="second"))
        wait_until(lambda: cache.view.hint and cache.view.hint.payload.snapshot_id == "second")
    finally:
        watcher.stop()
        producer.close()
