"""Faults of the nodes of a cluster, one after the other in a thread, while a storm or cycles go on.

One node at a time is away: the next fault begins when every replica is in sync again. A fault of the node
that coordinates the group is noted as ``broker_down`` and ``broker_up``, any other as ``fault_begun`` and
``fault_ended``.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from kafka.errors import KafkaError

from tests.support.kafka_cluster import OFFSETS_TOPIC

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.kafka_cluster import Cluster

_TRANSACTIONS: Final = "__transaction_state"
# Longer than a broker's session (3 s), so that others take over; or shorter, so that nobody does.
_AWAY_S: Final = (0.5, 8.0)
_REST_S: Final = (0.5, 3.0)
_SLOW_S: Final = (4.0, 10.0)
_SLOW_SHARE: Final = 0.8


class NodeFaults:
    """Causes faults until it is stopped; each kind once, in random order, and then at random.

    chance: Of the order, the times and the nodes.
    group_id, topic, hint_topic: What the faults are aimed at.
    note: Writes an event to a journal.
    counts: How often each kind has happened.
    """

    def __init__(
        self,
        nodes: Cluster,
        chance: random.Random,
        *,
        group_id: str,
        topic: str,
        hint_topic: str,
        note: Callable[..., None],
    ) -> None:
        self._nodes, self._chance, self._note = nodes, chance, note
        self._group_id, self._topic, self._hint_topic = group_id, topic, hint_topic
        self.counts: Counter[str] = Counter()
        self._error: BaseException | None = None
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopping.set()
        self._ended.wait()

    @property
    def kinds(self) -> dict[str, Callable[[], None]]:
        """The faults by name."""
        return {
            "kill_coordinator": self._kill_coordinator,
            "kill_partition_leader": self._kill_leader,
            "rolling_restart": self._rolling_restart,
            "reassign_hint_topic": lambda: self._reassign(self._hint_topic),
            "reassign_consumer_offsets": lambda: self._reassign(OFFSETS_TOPIC),
            "slow_node": self._slow,
            "isolated_node": self._isolate,
        }

    @property
    def has_had_all(self) -> bool:
        """Whether each kind has happened."""
        return self.counts.keys() == self.kinds.keys()

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Finish the current fault, wait until all replicas are in sync, and end."""
        self.__exit__()
        self.check()

    def _run(self) -> None:
        try:
            owed = list(self.kinds)
            self._chance.shuffle(owed)
            while not self._stopping.is_set():
                kind = owed.pop(0) if owed else self._chance.choice(list(self.kinds))
                self.kinds[kind]()
                self._wait_until_in_sync()
                self.counts[kind] += 1
                self._note("action", action=kind)
                self._stopping.wait(self._chance.uniform(*_REST_S))
        except BaseException as error:  # noqa: BLE001  # raised again by check()
            self._error = error
        self._ended.set()
        # Processes of the sandbox die with the thread that started them: it stays for the restarted nodes.
        threading.Event().wait()

    # The faults.

    def _kill_coordinator(self) -> None:
        self._kill(self._nodes.coordinator(self._group_id))

    def _kill_leader(self) -> None:
        num_partitions = len(self._nodes.partitions(self._topic))
        self._kill(self._nodes.leader(self._topic, self._chance.randrange(num_partitions)))

    def _kill(self, node_id: int) -> None:
        with self._away(node_id):
            self._nodes.nodes[node_id].kill()
            self._stopping.wait(self._chance.uniform(*_AWAY_S))
            self._nodes.restart(node_id)

    def _rolling_restart(self) -> None:
        for node_id in self._nodes.nodes:
            with self._away(node_id):
                self._nodes.restart(node_id)
                self._wait_until_in_sync()

    def _slow(self) -> None:
        node_id = self._any_node()
        with self._away(node_id), self._nodes.slowed(node_id, share=_SLOW_SHARE):
            self._stopping.wait(self._chance.uniform(*_SLOW_S))

    def _isolate(self) -> None:
        node_id = self._any_node()
        with self._away(node_id):
            self._nodes.freeze(node_id)
            try:
                self._stopping.wait(self._chance.uniform(*_AWAY_S))
            finally:
                self._nodes.thaw(node_id)

    def _reassign(self, topic: str) -> None:
        """Take a replica of each partition away, and make the node that gets it back the leader."""
        for number in range(len(self._nodes.partitions(topic))):
            replicas = self._nodes.replicas(topic, number)
            removed = self._chance.choice(replicas)
            others = [node_id for node_id in replicas if node_id != removed]
            with self._away(self._nodes.leader(topic, number)):
                self._nodes.reassign(topic, number, others)
                self._nodes.reassign(topic, number, [removed, *others])

    # What they need.

    @contextmanager
    def _away(self, node_id: int) -> Iterator[None]:
        is_coordinator = node_id == self._nodes.coordinator(self._group_id)
        begun, ended = ("broker_down", "broker_up") if is_coordinator else ("fault_begun", "fault_ended")
        self._note(begun, node=node_id)
        try:
            yield
        finally:
            self._note(ended, node=node_id)

    def _any_node(self) -> int:
        return self._chance.choice(list(self._nodes.nodes))

    def _wait_until_in_sync(self) -> None:
        def are_in_sync() -> bool | None:
            try:
                with self._nodes.admin() as admin:
                    existing = set(admin.list_topics())
            except KafkaError:
                return None
            topics = {self._topic, self._hint_topic, OFFSETS_TOPIC, _TRANSACTIONS} & existing
            return all(_is_in_sync(self._nodes.partitions(topic)) for topic in topics) or None

        self._nodes.wait_for(are_in_sync, "not every replica is in sync")


def _is_in_sync(partitions: Sequence[Any]) -> bool:
    return all(len(found["isr_nodes"]) == len(found["replica_nodes"]) for found in partitions)
