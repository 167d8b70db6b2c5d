"""Topics and their partitions as arrays, one row per partition."""

from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import kafka.errors
import numpy as np
from kafka.protocol.metadata import MetadataRequest

from assignor_core.record import topic_id_text
from evenlag.kafka.broker_requests import Answer, BrokerCalls, Call
from evenlag.lag.arrays import Int32s, Int64s

_TOPICS_A_REQUEST: Final = 500
# Leader of a partition without a leader.
NO_LEADER: Final = -1
# As a leader: no replica of the partition is online, so none can become its leader.
NO_REPLICA: Final = -2
TOPIC_DENIED: Final = 29
_GROUP_DENIED: Final = "GroupAuthorizationFailed"
_MISSING_ACLS: Final = {
    TOPIC_DENIED: "evenlag lacks the ACL Describe on the topic",
    30: "evenlag lacks the ACL Describe on the group",
    31: "evenlag lacks the ACL Describe on the cluster",
}


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions of topics, which are ordered by name.

    topic, number, leader: Row → index of its topic, ascending; its number, ascending within a topic; the
        broker id of its leader, -1: none.
    rack_sets, rack_set: Row → index of the racks in which it can be read, -1: unknown.
    """

    names: tuple[str, ...]
    ids: tuple[str, ...]
    topic: Int32s
    number: Int32s
    leader: Int32s
    rack_sets: tuple[tuple[str, ...], ...]
    rack_set: Int32s

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self.topic)

    def rows_by_topic(self, rows: Int64s) -> list[tuple[str, Int32s]]:
        """Return the partition numbers of rows by topic, as requests need them."""
        topic = self.topic[rows]
        starts = np.flatnonzero(np.diff(topic, prepend=-1))
        numbers = np.split(self.number[rows], starts[1:])
        return [
            (self.names[which], part) for which, part in zip(topic[starts].tolist(), numbers, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Metadata:
    """Brokers and topics of a cluster; for a topic that could not be read, why."""

    cluster_id: str
    brokers: frozenset[int]
    partitions: Partitions
    failed: dict[str, str]


def read_metadata(
    calls: BrokerCalls, ignored: frozenset[str] = frozenset(), *, from_followers: bool = False
) -> Metadata:
    """Read the partitions of all topics, without Kafka's internal topics.

    from_followers: Whether consumers read from replicas in their rack (KIP-392), not from leaders only.
    """
    response = calls.ask_any(lambda: MetadataRequest(topics=None, allow_auto_topic_creation=False))
    topics = [row for row in response.topics if not row.is_internal and row.name not in ignored]
    good = sorted((row for row in topics if not row.error_code), key=lambda row: str(row.name))
    return Metadata(
        cluster_id=str(response.cluster_id),
        brokers=frozenset(broker.node_id for broker in response.brokers),
        partitions=partitions_of(
            good, {broker.node_id: broker.rack for broker in response.brokers}, from_followers=from_followers
        ),
        failed={row.name: error_name(row.error_code) for row in topics if row.error_code},
    )


def read_topics(calls: BrokerCalls, names: Sequence[str]) -> tuple[dict[str, Any], str | None]:
    """Read topics by name, as kafka-python decodes them; and the error if a request failed.

    Without an error, a topic that is missing does not exist.
    """
    answers = _ask_by_name(calls, names)
    found = {
        row.name: row
        for answer in answers
        if answer.response is not None
        for row in answer.response.topics
        if not row.error_code
    }
    return found, next((answer.error for answer in answers if answer.error is not None), None)


def find_denied_topics(calls: BrokerCalls, names: Sequence[str]) -> list[str]:
    """Return the topics that evenlag may not describe: a broker says so only when it is asked by name."""
    return [
        row.name
        for answer in _ask_by_name(calls, names)
        if answer.response is not None
        for row in answer.response.topics
        if row.error_code == TOPIC_DENIED
    ]


def _ask_by_name(calls: BrokerCalls, names: Sequence[str]) -> list[Answer]:
    topic = MetadataRequest.MetadataRequestTopic

    def make(part: Sequence[str]) -> Callable[[], Any]:
        return lambda: MetadataRequest(
            topics=[topic(name=name) for name in part], allow_auto_topic_creation=False
        )

    parts = [names[first : first + _TOPICS_A_REQUEST] for first in range(0, len(names), _TOPICS_A_REQUEST)]
    return calls.run([Call(None, make(part)) for part in parts])


def leaders_of(partitions: Partitions, rows: Int64s, found: Mapping[str, Any]) -> Int32s:
    """Return the leaders of rows by newer metadata, or as before: -1: none; -2: and no replica is online."""
    leaders = partitions.leader[rows]
    for which in np.unique(partitions.topic[rows]).tolist():
        topic = found.get(partitions.names[which])
        if topic is None:
            continue
        by_number = {
            part.partition_index: NO_REPLICA
            if part.leader_id == NO_LEADER and set(part.replica_nodes) <= set(part.offline_replicas or ())
            else part.leader_id
            for part in topic.partitions
        }
        mine = np.flatnonzero(partitions.topic[rows] == which)
        leaders[mine] = [
            by_number.get(number, NO_LEADER) for number in partitions.number[rows[mine]].tolist()
        ]
    return leaders


def partitions_of(
    topics: Sequence[Any], racks: Mapping[int, str | None] | None = None, *, from_followers: bool = False
) -> Partitions:
    """Collect the partitions of topics of a Metadata response, ordered by name and without errors.

    racks: By broker id; without them no rack is known.
    """
    sizes = [len(row.partitions) for row in topics]
    topic = np.repeat(np.arange(len(topics), dtype=np.int32), sizes)
    number = np.array([part.partition_index for row in topics for part in row.partitions], dtype=np.int32)
    leader = np.array([part.leader_id for row in topics for part in row.partitions], dtype=np.int32)
    order = np.lexsort((number, topic))
    rack_sets, rack_set = _rack_sets(topics, racks or {}, from_followers=from_followers)
    return Partitions(
        names=tuple(row.name for row in topics),
        ids=tuple(topic_id_text(row.topic_id) for row in topics),
        topic=topic,
        number=number[order],
        leader=leader[order],
        rack_sets=rack_sets,
        rack_set=rack_set[order],
    )


def _rack_sets(
    topics: Sequence[Any], racks: Mapping[int, str | None], *, from_followers: bool
) -> tuple[tuple[tuple[str, ...], ...], Int32s]:
    """Return the different sets of racks of partitions, and the index of each partition's; -1: unknown."""
    if not any(racks.values()):
        return (), np.full(sum(len(row.partitions) for row in topics), -1, dtype=np.int32)
    replicas = (
        tuple(part.replica_nodes) if from_followers else (part.leader_id,)
        for row in topics
        for part in row.partitions
    )
    number: dict[tuple[int, ...], int] = {}
    of_row = np.array([number.setdefault(nodes, len(number)) for nodes in replicas], dtype=np.int32)
    found = [{racks.get(node) for node in nodes} for nodes in number]
    sets = tuple(tuple(sorted(filter(None, names))) for names in found)
    is_known = np.array([bool(names) and None not in names for names in found], dtype=np.bool_)
    return sets, np.where(is_known[of_row], of_row, np.int32(-1)) if len(of_row) else of_row


def read_topic_names(client: Any, topic_ids: Sequence[str]) -> dict[str, str]:
    """Return names by topic id, as Uuid.toString() prints it, of topics that may be described."""
    found = {}
    for first in range(0, len(topic_ids), _TOPICS_A_REQUEST):
        some = topic_ids[first : first + _TOPICS_A_REQUEST]
        for row in client.describe_topics([UUID(bytes=urlsafe_b64decode(f"{text}==")) for text in some]):
            if row["name"] and not row.get("error_code"):
                found[topic_id_text(row["topic_id"])] = row["name"]
    return found


def error_name(code: int) -> str:
    """Return kafka-python's name of an error of a request that reads, with the ACL that is missing."""
    name = str(kafka.errors.for_code(code).__name__)
    return f"{name}: {_MISSING_ACLS[code]}" if code in _MISSING_ACLS else name


def is_not_authorized(error: str) -> bool:
    """Return whether an error of a group says that evenlag lacks ``Describe`` on it."""
    return error.startswith(_GROUP_DENIED)
