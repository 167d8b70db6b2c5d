"""A Kafka cluster of several KRaft nodes on one machine, each in its own rack, and faults of its nodes.

A partition has three replicas and a write needs two of them, so one node may stop, crash or hang. All nodes
vote as controllers.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from sandbox.kafka.broker import Broker, BrokerError
from sandbox.kafka.certificates import write_certificates
from sandbox.kafka.cluster_admin import ClusterAdmin
from sandbox.kafka.node_settings import ClusterPlace, new_cluster_id
from sandbox.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sandbox.kafka.broker import SaslSsl

_SLOW_PERIOD_S: Final = 0.2


class Cluster(ClusterAdmin):
    """A running cluster; the context manager stops it at the end and keeps the folders of its nodes.

    nodes: The nodes by id, from 1 on.

    Examples
    --------
    >>> with Cluster.start("/tmp/sandbox", num_nodes=3) as cluster:  # doctest: +SKIP
    ...     cluster.nodes[cluster.coordinator("orders")].kill()
    """

    def __init__(self, nodes: Mapping[int, Broker]) -> None:
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
                id_: Broker(
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
    def slowed(self, node_id: int, *, share: float = 0.8) -> Iterator[None]:
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
        """Wait until nodes answer and the cluster lists them."""
        wanted = set(node_ids or self.nodes)
        for id_ in sorted(wanted):
            self.nodes[id_].wait_until_ready()

        def are_listed() -> bool | None:
            with self.admin() as admin:
                found = {int(broker["broker_id"]) for broker in admin.describe_cluster()["brokers"]}
            return wanted <= found or None

        self.wait_for(are_listed, f"nodes {sorted(wanted)} are not part of the cluster")

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        pid = self.nodes[node_id].pid
        if pid is not None:
            os.kill(pid, number)
