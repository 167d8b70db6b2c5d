"""Consumer groups of the classic protocol by the thousand: members that have joined, and have no process.

All requests are written out, so that many groups join at once on a few connections. What a group commits, and
what its topic has, is computed from the group's number: nobody has to ask the broker for it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.protocol.consumer import JoinGroupRequest, OffsetCommitRequest, SyncGroupRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.protocol.parser import KafkaProtocol

from evenlag.enums import EVENLAG_ASSIGNOR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NUM_TOPICS: Final = 20
# Members send no heartbeat.
_SESSION_TIMEOUT_MS: Final = 3_600_000
BROKER_PROPERTIES: Final = {
    "group.max.session.timeout.ms": str(_SESSION_TIMEOUT_MS),
    # So that all members of a group are in its first generation.
    "group.initial.rebalance.delay.ms": "50",
}
"""What a broker needs for such groups."""
# Groups that join at the same time: a join occupies its connection until the rebalance is over.
_LANES: Final = 32
_GROUP_TIMEOUT_S: Final = 120.0
# The last version by which a member joins without an id that the coordinator has given it before.
_JOIN_VERSION: Final = 3
_SYNC_VERSION: Final = 3
# The last version with topics by name that is not flexible.
_COMMIT_VERSION: Final = 7
_REBALANCE_IN_PROGRESS: Final = 27
_REJOIN_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class ClassicGroups:
    """Groups, and by how many records they are behind: the first three to six partitions of each by many.

    A group consumes one topic, and has two members, or more up to `most_members`.

    has_lag: Whether it is behind at all.
    """

    groups: int
    partitions: int
    most_members: int
    has_lag: bool = True

    @property
    def rows(self) -> int:
        """Rows of lag."""
        return self.groups * self.partitions

    @property
    def topics(self) -> list[str]:
        """Names of the topics."""
        return [f"topic-{number:02}" for number in range(min(NUM_TOPICS, self.groups))]

    def topic_of(self, number: int) -> str:
        """Return the topic of a group."""
        return self.topics[number % NUM_TOPICS]

    def members_of(self, number: int) -> int:
        """Return how many members a group has."""
        return 2 + number % (self.most_members - 1)

    def ends(self) -> NDArray[np.int64]:
        """Return the number of records of each partition: [topics, partitions]."""
        return np.random.default_rng(1).integers(100, 200, (len(self.topics), self.partitions))

    def lags(self) -> NDArray[np.int64]:
        """Return the lag of each partition: [groups, partitions]."""
        random, shape = np.random.default_rng(2), (self.groups, self.partitions)
        if not self.has_lag:
            return np.zeros(shape, dtype=np.int64)
        num_hot = 3 + np.arange(self.groups) % 4
        is_hot = np.arange(self.partitions) < num_hot[:, None]
        return np.where(is_hot, random.integers(60, 100, shape), random.integers(0, 4, shape))

    def commits(self) -> NDArray[np.int64]:
        """Return the committed offset of each partition: [groups, partitions]."""
        return self.ends()[np.arange(self.groups) % NUM_TOPICS] - self.lags()


def group_id(number: int) -> str:
    """Return the id of a group."""
    return f"group-{number:05}"


def fill(servers: str, wanted: ClassicGroups) -> None:
    """Create the topics and their records, and let the members join and commit."""
    _produce(servers, wanted)
    asyncio.run(_join_all(servers, wanted))


def _produce(servers: str, wanted: ClassicGroups) -> None:
    from confluent_kafka import Producer  # kafka-python takes a minute for as many records

    ends = wanted.ends()
    places = [TopicPartition(topic, part) for topic in wanted.topics for part in range(wanted.partitions)]
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        for topic in wanted.topics:
            admin.create_topics({topic: {"num_partitions": wanted.partitions}}, wait_for_metadata=True)
        _say(f"{len(wanted.topics)} topics, {ends.sum():,} records")
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 10_000_000,
            }
        )
        for place, end in zip(places, ends.ravel().tolist(), strict=True):
            for number in range(end):
                producer.produce(place.topic, b"%d" % number, partition=place.partition)
            producer.poll(0)
        producer.flush(300)
        found = admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    if [found[place].offset for place in places] != ends.ravel().tolist():
        sys.exit("the topics do not have the records that were produced")


async def _join_all(servers: str, wanted: ClassicGroups) -> None:
    commits, numbers, began = wanted.commits(), iter(range(wanted.groups)), time.perf_counter()

    async def join_some() -> None:
        wires = [await _Wire.open(servers) for _ in range(wanted.most_members)]
        for number in numbers:
            async with asyncio.timeout(_GROUP_TIMEOUT_S):
                await _join_group(wires, wanted, number, commits[number].tolist())
            if (number + 1) % 500 == 0:
                _say(f"{number + 1:,} groups in {time.perf_counter() - began:.0f} s")

    async with asyncio.TaskGroup() as lanes:
        for _ in range(min(_LANES, wanted.groups)):
            lanes.create_task(join_some())


class _Wire:
    """A connection to the broker, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._protocol = KafkaProtocol(client_id="bench")

    @classmethod
    async def open(cls, servers: str) -> Self:
        """Connect."""
        host, _, port = servers.partition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, request: Any) -> Any:
        """Send a request, and return its response."""
        self._protocol.send_request(request)
        self._writer.write(self._protocol.send_bytes())
        answers: list[tuple[int, Any]] = []
        while not answers:
            if not (data := await self._reader.read(65_536)):
                raise ConnectionError("the broker has closed a connection: see its log")
            answers = self._protocol.receive_bytes(data)
        return answers[0][1]


async def _join_group(
    wires: Sequence[_Wire], wanted: ClassicGroups, number: int, commits: Sequence[int]
) -> None:
    """Let all members of a group join, and one of them commit."""
    own = wires[: wanted.members_of(number)]
    joins = [asyncio.create_task(_join(wire, wanted, number)) for wire in own]
    (member_id, generation), *_ = await asyncio.gather(*joins)
    answer = await own[0].ask(
        OffsetCommitRequest(
            version=_COMMIT_VERSION,
            group_id=group_id(number),
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            # Of a partition: number, offset, leader epoch, metadata.
            topics=[(wanted.topic_of(number), [(part, at, -1, "") for part, at in enumerate(commits)])],
        )
    )
    codes = {part.error_code for topic in answer.topics for part in topic.partitions}
    if codes != {0}:
        raise RuntimeError(f"{group_id(number)} could not commit: errors {sorted(codes)}")


async def _join(wire: _Wire, wanted: ClassicGroups, number: int) -> tuple[str, int]:
    """Join until the group has all its members; return the member's id and the generation."""
    member_id, topic, num_members = "", wanted.topic_of(number), wanted.members_of(number)
    while True:
        joined = await wire.ask(
            JoinGroupRequest(
                version=_JOIN_VERSION,
                group_id=group_id(number),
                session_timeout_ms=_SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=60_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[(EVENLAG_ASSIGNOR, _subscription(topic))],
            )
        )
        if joined.error_code:
            raise RuntimeError(f"{group_id(number)} could not be joined: error {joined.error_code}")
        member_id = joined.member_id
        assignments: list[tuple[str, bytes]] = []
        if joined.leader == member_id:
            if len(joined.members) < num_members:
                await asyncio.sleep(_REJOIN_S)
                continue
            shares = _shares(topic, wanted.partitions, num_members)
            member_ids = [each.member_id for each in joined.members]
            assignments = list(zip(member_ids, shares, strict=True))
        synced = await wire.ask(
            SyncGroupRequest(
                version=_SYNC_VERSION,
                group_id=group_id(number),
                generation_id=joined.generation_id,
                member_id=member_id,
                assignments=assignments,
            )
        )
        if not synced.error_code:
            return member_id, joined.generation_id
        if synced.error_code != _REBALANCE_IN_PROGRESS:
            raise RuntimeError(f"{group_id(number)} could not sync: error {synced.error_code}")


@cache
def _subscription(topic: str) -> bytes:
    subscription = ConsumerProtocolSubscription(version=1, topics=[topic], user_data=b"", owned_partitions=[])
    return bytes(subscription.encode())


@cache
def _shares(topic: str, num_partitions: int, num_members: int) -> list[bytes]:
    """Return the assignments of members, each of consecutive partitions."""
    parts = np.array_split(np.arange(num_partitions), num_members)
    return [bytes(ConsumerProtocolAssignment(0, [(topic, part.tolist())], b"").encode()) for part in parts]


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()
