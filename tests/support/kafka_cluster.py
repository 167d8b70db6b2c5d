"""A Kafka cluster of several KRaft nodes on one machine, each in its own rack, and faults of its nodes.

A partition has three replicas and a write needs two of them, so one node may stop, crash or hang. All nodes
vote as controllers.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from sandbox.kafka.broker import BrokerError, new_cluster_id
from sandbox.processes import free_ports
from tests.support.broker_node import BrokerNode, ClusterPlace
from tests.support.certificates import write_certificates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.support.broker_node import SaslSsl


_Found = TypeVar("_Found")

_TIMEOUT_S: Final = 600.0
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
        from kafka.errors import KafkaError, NodeNotReadyError, UnknownBrokerIdError
        from kafka.protocol.admin.topics import ElectionType

        def ask() -> bool | None:
            try:
                with self.admin() as admin:
                    admin.alter_partition_reassignments({TopicPartition(topic, partition): list(replicas)})
            except (NodeNotReadyError, UnknownBrokerIdError):
                # The node to ask has ended, or its heartbeat is late.
                return None
            return True

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

        self.wait_for(ask, f"no node moves {topic}-{partition}")
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


_SLOW_PERIOD_S: Final = 0.2


class Cluster(ClusterAdmin):
    """A running cluster; the context manager stops it at the end and keeps the folders of its nodes.

    nodes: The nodes by id, from 1 on.

    Examples
    --------
    >>> with Cluster.start("/tmp/sandbox", num_nodes=3) as cluster:  # doctest: +SKIP
    ...     cluster.nodes[cluster.coordinator("orders")].kill()
    """

    def __init__(self, nodes: Mapping[int, BrokerNode]) -> None:
        self.nodes = dict(nodes)
        self._frozen: set[int] = set()

    @classmethod
    def start(
        cls,
        directory: str | Path,
        *,
        num_nodes: int = 3,
        users: Sequence[str] = (),
        has_acls: bool = False,
        properties: Mapping[str, str] | None = None,
        class_path: Sequence[Path] = (),
        jvm_options: Callable[[int], Sequence[str]] = lambda _: (),
    ) -> Self:
        """Format new nodes in folders of `directory`, and start them; returns when the cluster has them all.

        users: Users of a SASL_SSL listener; without any there is none.
        has_acls: Whether these users may only do what an ACL allows. The plain listener may do everything.
        jvm_options: Further options of a node's JVM, by the id of the node.
        """
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise BrokerError(f"{path} is not empty: a sandbox cluster wants a folder of its own")
        cluster_id = new_cluster_id()
        voters = {id_: f"127.0.0.1:{port}" for id_, port in enumerate(free_ports(num_nodes), start=1)}
        passwords = {user: secrets.token_urlsafe(24) for user in users}
        certificates = write_certificates(path) if users else None
        cluster = cls(
            {
                id_: BrokerNode(
                    path / f"node-{id_}",
                    properties=properties,
                    class_path=class_path,
                    jvm_options=jvm_options(id_),
                    place=ClusterPlace(
                        cluster_id, id_, voters, f"rack-{id_}", passwords, certificates, has_acls
                    ),
                )
                for id_ in voters
            }
        )
        try:
            for node in cluster.nodes.values():
                node.prepare()
            for node in cluster.nodes.values():
                node.launch()
            cluster.wait_until_ready()
        except BaseException:
            cluster.kill()
            raise
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def cluster_id(self) -> str:
        """Kafka's 22-character id."""
        return next(iter(self.nodes.values())).cluster_id

    @property
    def bootstrap_servers(self) -> str:
        """The plain listeners of all nodes, ``host:port,host:port``."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    @property
    def running(self) -> list[int]:
        """Ids of the nodes whose process runs and is not frozen."""
        return [id_ for id_, node in self.nodes.items() if node.is_running and id_ not in self._frozen]

    def plain_listeners(self) -> list[str]:
        """Return ``host:port`` of each node that runs and is not frozen."""
        return [self.nodes[id_].bootstrap_servers for id_ in self.running]

    def login(self, user: str) -> SaslSsl:
        """Return the connection of a user to the secure listeners of all nodes."""
        logins = [node.logins[user] for node in self.nodes.values()]
        return replace(logins[0], bootstrap_servers=",".join(one.bootstrap_servers for one in logins))

    @property
    def sasl_ssl(self) -> SaslSsl | None:
        """The first user's connection to the secure listeners; None without users."""
        users = next(iter(self.nodes.values())).logins
        return self.login(next(iter(users))) if users else None

    def stop(self) -> None:
        """Shut down the nodes: cleanly as long as the rest is a majority of the controllers, then at once.

        Without a majority no controller can release a node, and each would wait for its timeout.
        """
        for id_ in sorted(self._frozen):
            self.thaw(id_)
        majority = len(self.nodes) // 2 + 1
        for node in self.nodes.values():
            if len(self.running) > majority:
                node.stop()
        self.kill()

    def kill(self) -> None:
        """Kill all nodes."""
        for node in self.nodes.values():
            node.kill()
        self._frozen.clear()

    def restart(self, node_id: int) -> None:
        """Restart a node, and wait until the cluster has it again."""
        self.thaw(node_id)
        self.nodes[node_id].restart()
        self.wait_until_ready([node_id])

    def freeze(self, node_id: int) -> None:
        """Suspend a node: connections stay open and nothing is answered, as behind a lost network."""
        self._signal(node_id, signal.SIGSTOP)
        self._frozen.add(node_id)

    def thaw(self, node_id: int) -> None:
        """Continue a suspended node; does nothing if it runs."""
        if node_id in self._frozen:
            self._frozen.discard(node_id)
            self._signal(node_id, signal.SIGCONT)

    @contextmanager
    def slowed(self, node_id: int, *, share: float) -> Iterator[None]:
        """Suspend a node for a share of the time, while the ``with`` block runs.

        share: The share of each 200 ms in which it does not run.
        """
        done = threading.Event()

        def alternate() -> None:
            while not done.is_set():
                self._signal(node_id, signal.SIGSTOP)
                done.wait(_SLOW_PERIOD_S * share)
                self._signal(node_id, signal.SIGCONT)
                done.wait(_SLOW_PERIOD_S * (1 - share))

        thread = threading.Thread(target=alternate, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def wait_until_ready(self, node_ids: Sequence[int] = ()) -> None:
        """Wait until nodes answer and each node that runs lists them."""
        wanted = set(node_ids or self.nodes)
        for id_ in sorted(wanted):
            self.nodes[id_].wait_until_ready()

        def are_listed() -> bool | None:
            # By each node itself: a client of one that does not know them all fails.
            return all(self._lists(listener, wanted) for listener in self.plain_listeners()) or None

        self.wait_for(are_listed, f"nodes {sorted(wanted)} are not part of the cluster")

    @staticmethod
    def _lists(listener: str, node_ids: set[int]) -> bool:
        from kafka import KafkaAdminClient

        with closing(KafkaAdminClient(bootstrap_servers=[listener], bootstrap_timeout_ms=30_000)) as admin:
            # As the node answered when the client began: later requests may go to another one.
            known = admin._manager.cluster
            return all(known.broker_metadata(id_) is not None for id_ in node_ids)

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        pid = self.nodes[node_id].pid
        if pid is not None:
            os.kill(pid, number)
