"""A small real cluster for cycles: a broker, and two groups on 31 partitions with hinted consumers."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

from sandbox.kafka.broker import Broker
from tests.support.faulty_workload import FaultyWorkload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

CLUSTER: Final = "bench"
HINT_TOPIC: Final = "hints"
# Partitions and consumers of each group.
GROUPS: Final = {"orders": (25, 3), "bills": (6, 2)}
RECORDS_PER_S: Final = 200
_POLICY: Final = """\
lake: {lake}
audit_schedule: null
clusters:
  bench: {{bootstrap_servers: "{servers}", hint_topic: {hints}, schedule: null}}
groups:
  - {{match: "*", mode: auto, reset_policy: earliest, min_gain: 0.05, gates: {{cooldown_s: 0}}}}
"""
_SETTLED_S: Final = 2.0
_TIMEOUT_S: Final = 60.0


class CycleWorld:
    """The cluster, and the policy that lets hints move its groups.

    groups: Number of partitions and of consumers by group.
    consumer: Fields of all consumers' specs.
    broker: Options of the broker.
    """

    def __init__(
        self,
        folder: Path,
        groups: Mapping[str, tuple[int, int]] = GROUPS,
        *,
        consumer: Mapping[str, Any] | None = None,
        broker: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.lake = folder / "lake"
        self.config = folder / "evenlag.yaml"
        self.workloads: dict[str, FaultyWorkload] = {}
        self._stack = ExitStack()
        self.groups = dict(groups)
        self._consumer = {"records_per_s": RECORDS_PER_S, **(consumer or {})}
        self._broker_options = dict(broker or {})
        self._filled = dict.fromkeys(groups, 0)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.broker = stack.enter_context(Broker.start(self.folder / "node", **self._broker_options))
            servers = self.broker.bootstrap_servers
            self.config.write_text(
                _POLICY.format(lake=self.lake, servers=servers, hints=HINT_TOPIC), encoding="utf-8"
            )
            for name, (num_partitions, num_consumers) in self.groups.items():
                workload = FaultyWorkload(
                    {"bootstrap_servers": servers},
                    self.folder / name,
                    topic=name,
                    num_partitions=num_partitions,
                    group_id=name,
                    hint_topic=HINT_TOPIC,
                    consumer=self._consumer,
                )
                self.workloads[name] = stack.enter_context(workload)
                workload.start_consumers(num_consumers)
                workload.wait_until_owned()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def skew(self, seconds: float, names: Iterable[str] | None = None) -> None:
        """Give one member of each group a backlog on two partitions that takes so long to process."""
        for name in names or self.groups:
            workload = self.workloads[name]
            heavy = max(sorted(held) for held in workload.owners().values() if len(held) > 1)
            counts = dict.fromkeys(heavy[:2], round(seconds * RECORDS_PER_S / 2))
            workload.fill(counts)
            self._filled[name] += sum(counts.values())

    def wait_until_idle(self) -> None:
        """Wait until every record is processed, and no partition has changed its owner for two seconds."""
        for name, workload in self.workloads.items():
            workload.wait_until_processed(self._filled[name])
        deadline = time.monotonic() + _TIMEOUT_S
        for workload in self.workloads.values():
            seen, since = workload.owners(), time.monotonic()
            while time.monotonic() - since < _SETTLED_S:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the group {workload.group_id} does not settle")
                time.sleep(0.1)
                now = workload.owners()
                if now != seen or sum(map(len, now.values())) < workload.num_partitions:
                    seen, since = now, time.monotonic()
