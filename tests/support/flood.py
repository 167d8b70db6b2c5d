"""Large uncompressed records on the hint topic, each with its own key: they need only the right to write."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from kafka.partitioner.default import murmur2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.hints import Cluster

RECORD_BYTES = 900_000


@dataclass(frozen=True)
class Flood:
    """What was written.

    num_foreign, foreign_bytes: Keys that nobody reads, and the bytes of their keys and values.
    num_unreadable: Records of groups, in the groups' partition, that are no hints.
    """

    num_foreign: int
    foreign_bytes: int
    num_unreadable: int


def flood(cluster: Cluster, num_records: int) -> Flood:
    """Append records of 900 kB to the partition of the group's hints, three of four with foreign keys.

    The kinds in turn: another key; a key of 900 kB; a group's key that belongs to another partition; a
    group's key that belongs there.
    """
    from confluent_kafka import Producer  # kafka-python takes minutes for the checksums of a gigabyte

    partition, value = cluster.hint_partition(), b"x" * RECORD_BYTES
    theirs, others = group_keys("evil", partition), group_keys("evil", partition, is_there=False)
    foreign: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "compression.type": "none",
            "message.max.bytes": RECORD_BYTES + 10_000,
            "queue.buffering.max.kbytes": 64 * 1024,
        }
    )

    def send(key: bytes, content: bytes) -> None:
        while True:
            try:
                return producer.produce(cluster.hint_topic, key=key, value=content, partition=partition)
            except BufferError:
                producer.poll(1)

    for number in range(num_records):
        name = b"%012d" % number
        key, content = (
            (b"evil-" + name, value),
            (name.ljust(RECORD_BYTES, b"k"), b"x"),
            (next(others), value),
            (next(theirs), value),
        )[number % 4]
        send(key, content)
        if number % 4 < 3:
            foreign.append(len(key) + len(content))
    assert producer.flush(600) == 0
    return Flood(len(foreign), sum(foreign), num_records - len(foreign))


def group_keys(name: str, partition: int, *, is_there: bool = True) -> Iterator[bytes]:
    """Yield keys of groups' hints, by the names of groups, that belong to a partition of three, or do not."""
    for number in count():
        key = f"group/{name}-{number}".encode()
        if ((murmur2(key) & 0x7FFFFFFF) % 3 == partition) == is_there:
            yield key
