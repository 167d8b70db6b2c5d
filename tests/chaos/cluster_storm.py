"""The storm on a cluster of three nodes: to what happens to members and hints it adds faults of the nodes."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka.errors import KafkaError

from tests.chaos.node_faults import NodeFaults
from tests.chaos.storm import Storm
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlag.kafka.live_groups import LiveGroup
    from tests.chaos.verdict import Verdict
    from tests.support.kafka_cluster import Cluster as Nodes

_RECOVER_S = 120.0
# A transaction whose coordinator has ended may wait permanently: a new publisher goes on.
_SEND_TIMEOUT_S = 15.0
# For each kind of fault once, on a busy machine.
_ALL_KINDS_S = 600.0


@dataclass
class ClusterStorm(Storm):
    """A group of processes on a cluster whose nodes fail one after the other."""

    # Five times that of the brokers, as with Kafka's defaults (45 s and 9 s). A heartbeat is answered when
    # what the coordinator wrote before is replicated: with a shorter one, a group whose follower hangs loses
    # all its members at once.
    session_ms: int = 15_000
    broker: Nodes  # type: ignore[assignment]  # what the storm asks of a broker, a cluster has too
    faults: NodeFaults = field(init=False)
    _stack: ExitStack = field(init=False)

    def _run(self, seconds: float) -> Verdict:
        self.faults = NodeFaults(
            self.broker,
            random.Random(self.seed + 1),  # noqa: S311  # repeatable, no secret
            group_id=self.group_id,
            topic=self.main,
            hint_topic="hints",
            note=self.workload.note,
        )
        with ExitStack() as self._stack:
            return super()._run(seconds)

    def _start(self) -> None:
        super()._start()
        self.cluster.send_timeout_s = _SEND_TIMEOUT_S
        self._stack.enter_context(self.faults)

    def _actions(self) -> dict[str, tuple[int, Callable[[], bool]]]:
        actions = super()._actions()
        del actions["restart_broker"]
        return actions

    def _recover(self) -> None:
        """Connect again: a publisher that lost a transaction is of no use any more."""
        deadline = time.monotonic() + _RECOVER_S
        while True:
            try:
                self._renew_clients()
            except KafkaError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    def _describe(self) -> LiveGroup | None:
        try:
            return super()._describe()
        except KafkaError:
            return None

    def _calm(self) -> None:
        wait_until(self._has_had_all, timeout_s=_ALL_KINDS_S, what="not every kind of fault has happened")
        self.faults.stop()
        super()._calm()

    def _has_had_all(self) -> bool:
        self.faults.check()
        return self.faults.has_had_all
