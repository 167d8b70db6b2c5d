"""A group of consumer processes and, from their logs, who had which partition when."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sandbox.processes import kill_process, start_process, stop_process
from tests.support.double_owners import OWNERSHIP_EVENTS, find_double_owners
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.hints import Cluster

_MEMBER = (sys.executable, str(Path(__file__).with_name("member.py")))
PYTHON_MEMBER = (*_MEMBER, "--requested")
"""A consumer of confluent-kafka that requests evenlag's assignor."""
DEFAULT_MEMBER = (*_MEMBER, "--default-assignor")
"""One that requests no assignor."""


def described_group(bootstrap_servers: str, group_id: str) -> Any:
    """Return a group as librdkafka's admin client describes it, once its coordinator has loaded it."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    while_it_moves = {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }

    def group() -> Any:
        try:
            return admin.describe_consumer_groups([group_id])[group_id].result(timeout=600)
        except KafkaException as error:
            if error.args[0].code() not in while_it_moves:
                raise
            return None

    return wait_until(group, what=f"no coordinator has loaded {group_id}")


class Fleet:
    """Processes of one group, an instance each.

    instances: The static members' names.
    member: The command, to which servers, group, topic and instance are added; it tells what it does as
        ``member.py`` does.
    """

    def __init__(
        self, cluster: Cluster, instances: Sequence[str], folder: Path, member: Sequence[str] = PYTHON_MEMBER
    ) -> None:
        self.cluster = cluster
        self.topic = next(iter(cluster.topics))
        self.instances = tuple(instances)
        self._folder = folder
        self._member = [*member, cluster.bootstrap_servers, cluster.group_id]
        self._stack = ExitStack()
        self._processes = {instance: self._start(instance) for instance in instances}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def restart(self, instance: str) -> None:
        """Stop a member and start it again: under KIP-848 it then has another member id."""
        stop_process(self._processes[instance], timeout_s=600)
        self._processes[instance] = self._start(instance)

    def add(self, instance: str) -> None:
        """Start one more member."""
        self.instances = (*self.instances, instance)
        self._processes[instance] = self._start(instance)

    def _start(self, instance: str) -> Any:
        log = self._stack.enter_context((self._folder / f"{instance}.log").open("ab"))
        process = start_process([*self._member, self.topic, instance], log=log)
        self._stack.callback(kill_process, process)
        return process

    def members(self) -> dict[str, str]:
        """Return the member ids by instance, as the coordinator knows them."""
        group = described_group(self.cluster.bootstrap_servers, self.cluster.group_id)
        return {member.group_instance_id: member.member_id for member in group.members}

    def _lines(self, instance: str, *kinds: str) -> list[tuple[str, Any, int]]:
        lines = []
        for line in (self._folder / f"{instance}.log").read_text(encoding="utf-8").splitlines(keepends=True):
            kind, _, rest = line.partition(" ")
            if line.endswith("]\n") and kind in kinds:
                content, at = json.loads(rest)
                lines.append((kind, content, at))
        return lines

    def held(self) -> dict[str, list[int]]:
        """Return what each process holds now, by its own account; none may have ended."""
        ended = {name: each.returncode for name, each in self._processes.items() if each.poll() is not None}
        assert not ended, f"ended with a status, negative: by a signal: {ended}"
        held: dict[str, list[int]] = {}
        for instance in self.instances:
            mine: set[int] = set()
            for kind, content, _ in self._lines(instance, *OWNERSHIP_EVENTS):
                mine = mine | set(content) if kind == "assigned" else mine - set(content)
            held[instance] = sorted(mine)
        return held

    def has(self, wanted: Mapping[str, Sequence[int]]) -> bool:
        """Return whether all hold exactly that."""
        return self.held() == {instance: sorted(numbers) for instance, numbers in wanted.items()}

    def num_callbacks(self) -> int:
        """Return how often something was given to a process or taken from it."""
        calls = [self._lines(instance, *OWNERSHIP_EVENTS) for instance in self.instances]
        return sum(bool(content) for of_one in calls for _, content, _ in of_one)

    def records(self) -> dict[int, set[int]]:
        """Return the offsets that somebody has seen, by partition."""
        seen: dict[int, set[int]] = {}
        for instance in self.instances:
            for _, (partition, offset), _ in self._lines(instance, "record"):
                seen.setdefault(partition, set()).add(offset)
        return seen

    def double_owners(self) -> list[str]:
        """Return where a partition was with two processes at once, by their own accounts."""
        return find_double_owners(
            (instance, kind, number, at)
            for instance in self.instances
            for kind, content, at in self._lines(instance, *OWNERSHIP_EVENTS)
            for number in content
        )
