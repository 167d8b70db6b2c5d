"""What a cluster knows about itself: leaders, replicas, coordinators; and where its partitions lie."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sandbox.kafka.broker import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_Found = TypeVar("_Found")

_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.1
OFFSETS_TOPIC: Final = "__consumer_offsets"


def offsets_partition(group_id: str, num_partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` that holds a group, as Kafka's coordinators compute it.

    Examples
    --------
    >>> offsets_partition("orders", 50)
    17
    """
    # Java's String.hashCode, over UTF-16.
    data = group_id.encode("utf-16-be", "surrogatepass")
    code = 0
    for unit in range(0, len(data), 2):
        code = (31 * code + int.from_bytes(data[unit : unit + 2], "big")) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % num_partitions


class ClusterAdmin:
    """Asks and changes a cluster through the plain listeners of its nodes."""

    def plain_listeners(self) -> list[str]:
        """Return ``host:port`` of each node that runs."""
        raise NotImplementedError

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of a partition's leader; -1 if it has none."""
        return int(self._partition(topic, partition)["leader_id"])

    def replicas(self, topic: str, partition: int) -> list[int]:
        """Return the ids of the nodes that are to hold a partition, the preferred leader first."""
        return [int(id_) for id_ in self._partition(topic, partition)["replica_nodes"]]

    def in_sync(self, topic: str, partition: int) -> list[int]:
        """Return the ids of the nodes whose replica is in sync, sorted."""
        return sorted(int(id_) for id_ in self._partition(topic, partition)["isr_nodes"])

    def coordinator(self, group_id: str) -> int:
        """Return the id of a group's coordinator: the leader of its partition of ``__consumer_offsets``."""
        return self.leader(OFFSETS_TOPIC, offsets_partition(group_id, len(self.partitions(OFFSETS_TOPIC))))

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Move a partition to other nodes, and wait until it is there and its first node leads."""
        from kafka import TopicPartition
        from kafka.errors import KafkaError
        from kafka.protocol.admin.topics import ElectionType

        which = TopicPartition(topic, partition)
        with self.admin() as admin:
            admin.alter_partition_reassignments({which: list(replicas)})

        def is_done() -> bool | None:
            state = self._partition(topic, partition)
            if [int(id_) for id_ in state["replica_nodes"]] != list(replicas):
                return None
            if set(map(int, state["isr_nodes"])) != set(replicas):
                return None
            if int(state["leader_id"]) != replicas[0]:
                with self.admin() as admin:
                    try:
                        admin.elect_leaders(ElectionType.PREFERRED, {topic: [partition]}, raise_errors=False)
                    except KafkaError:
                        return None
                return None
            return True

        self.wait_for(is_done, f"{topic}-{partition} is not on nodes {list(replicas)}")

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make a node that holds a replica the leader of a partition."""
        others = [id_ for id_ in self.replicas(topic, partition) if id_ != node_id]
        self.reassign(topic, partition, [node_id, *others])

    @contextmanager
    def admin(self) -> Iterator[Any]:
        """Open an admin client that may do everything, through a node that runs."""
        from kafka import KafkaAdminClient

        running = self.plain_listeners()
        if not running:
            raise BrokerError("no node of the cluster runs")
        client = KafkaAdminClient(bootstrap_servers=running, bootstrap_timeout_ms=30_000)
        try:
            yield client
        finally:
            client.close()

    def partitions(self, topic: str) -> list[Mapping[str, Any]]:
        """Return what the cluster tells about each partition of a topic: leader, replicas, those in sync."""
        from kafka.errors import KafkaError

        def look() -> list[Mapping[str, Any]] | None:
            try:
                with self.admin() as admin:
                    (described,) = admin.describe_topics([topic])
            except KafkaError:
                # The client asked a node that has just ended.
                return None
            return list(described["partitions"]) or None

        return self.wait_for(look, f"topic {topic} is not described")

    def _partition(self, topic: str, partition: int) -> Mapping[str, Any]:
        for found in self.partitions(topic):
            if int(found["partition_index"]) == partition:
                return found
        raise BrokerError(f"topic {topic} has no partition {partition}")

    def wait_for(self, look: Callable[[], _Found | None], problem: str) -> _Found:
        """Return what a look finds, as soon as it finds something.

        problem: The error's message, without the time.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while (found := look()) is None:
            if time.monotonic() > deadline:
                raise BrokerError(f"{problem} after {_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)
        return found
