"""A group with consumers of Kafka's Java client, and of evenlag's in Python beside them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from assignor_core.hint import member_key
from sandbox.kafka.jvm_jars import CLIENT_ASSIGNOR_CLASS
from tests.support.double_owners import find_double_owners
from tests.support.hints import Cluster, Listener, Runner, is_settled
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assignor_core.hint import HintPayload
    from tests.support.java_client.harness import ClientHarness

__all__ = ["JavaGroup"]


class _TimedListener(Listener):
    """Notes what a consumer in Python owns, by the clock that the consumers in Java read."""

    def __init__(self, name: str, journal: list[list[Any]]) -> None:
        super().__init__()
        self._name, self._journal = name, journal

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._note("assigned", assigned)
        super().on_partitions_assigned(assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        super().on_partitions_revoked(revoked)
        self._note("revoked", revoked)

    def on_partitions_lost(self, lost: Any) -> None:
        super().on_partitions_lost(lost)
        self._note("lost", lost)

    def _note(self, kind: str, partitions: Any) -> None:
        at = time.monotonic_ns()
        self._journal += [[self._name, kind, topic, number, -1, at] for topic, number in partitions]


class JavaGroup:
    """The consumers of one group, by name; those in Java share the process of the harness."""

    def __init__(self, harness: ClientHarness, cluster: Cluster) -> None:
        self.harness, self.cluster = harness, cluster
        self.topic, self.num_partitions = next(iter(cluster.topics.items()))
        self.python: dict[str, Runner] = {}
        self._java: list[str] = []
        self._ended: list[Runner] = []
        self._python_journal: list[list[Any]] = []
        self._from = len(harness.ask("journal", **{"from": 0})["entries"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for name in [*self._java, *self.python]:
            self.stop(name)

    def start_java(
        self,
        *names: str,
        strategy: Sequence[str] = (CLIENT_ASSIGNOR_CLASS,),
        asks: bool = False,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Start consumers in Java; with `asks` they ask for the rebalance of a hint."""
        settings = {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "group.id": self.cluster.group_id,
            "partition.assignment.strategy": ",".join(strategy),
            "evenlag.hint.topic": self.cluster.hint_topic,
            "heartbeat.interval.ms": "300",
            "session.timeout.ms": "60000",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "allow.auto.create.topics": "false",
            **(configs or {}),
        }
        for name in names:
            self.harness.ask("start", name=self._id(name), configs=settings, topics=[self.topic], asks=asks)
            self._java.append(name)

    def start_python(self, *names: str) -> None:
        """Start consumers in Python."""
        for name in names:
            self.python[name] = Runner(self.cluster, listener=_TimedListener(name, self._python_journal))

    def stop(self, name: str) -> None:
        """Stop a consumer in good order."""
        if name in self.python:
            runner = self.python.pop(name)
            runner.close()
            self._ended.append(runner)
        else:
            self._java.remove(name)
            self.harness.ask("stop", name=self._id(name))

    def rebalance(self, name: str) -> None:
        """Make a consumer in Java ask for a rebalance, as an application can."""
        self.harness.ask("rebalance", name=self._id(name))

    def _id(self, name: str) -> str:
        return f"{self.cluster.group_id}/{name}"

    def _look(self) -> dict[str, Any]:
        found = self.harness.ask("look")
        seen = {name: found[self._id(name)] for name in self._java}
        for name, state in seen.items():
            assert not state["error"], (name, state)
        return seen

    def _owned(self) -> tuple[dict[str, list[int]], set[int]]:
        """Return each consumer's partitions, and the generations in which they own them."""
        look = self._look()
        held = {name: sorted(number for _, number in state["held"]) for name, state in look.items()}
        generations = {int(state["generation"]) for state in look.values()}
        for name, runner in self.python.items():
            # A rebalance between the two looks shows as a second generation.
            generations.add(runner.generation)
            held[name] = sorted(number for _, number in runner.held)
            generations.add(runner.generation)
        return held, generations

    def held(self) -> dict[str, list[int]]:
        """Return the partitions of each consumer."""
        return self._owned()[0]

    def generations(self) -> set[int]:
        """Return the generations that the consumers are in."""
        return self._owned()[1]

    def _settled_in(self) -> int | None:
        """Return the one generation in which every partition has one owner; None while there is none."""
        held, generations = self._owned()
        numbers = sorted(number for owned in held.values() for number in owned)
        if numbers != list(range(self.num_partitions)) or len(generations) != 1:
            return None
        runners = list(self.python.values())
        if runners and not is_settled(runners, sum(len(runner.held) for runner in runners)):
            return None
        return generations.pop()

    def is_settled(self) -> bool:
        """Return whether every partition has one owner, and all are in one generation."""
        return self._settled_in() is not None

    def settle(self) -> int:
        """Wait until the group is settled; return the generation of that moment: another may follow."""
        found: list[int | None] = []

        def is_settled() -> bool:
            found[:] = [self._settled_in()]
            return found[0] is not None

        wait_until(is_settled, what="the group did not settle")
        [generation] = found
        assert generation is not None
        return generation

    def keys(self) -> dict[str, str]:
        """Return the consumers' keys in hints."""
        java = {
            name: member_key(state["member_id"], state["instance"] or None)
            for name, state in self._look().items()
        }
        return java | {name: runner.key for name, runner in self.python.items()}

    def publish(self, plan: Mapping[str, Sequence[int]], **more: Any) -> HintPayload:
        """Publish a hint that gives these partitions to the consumers; return its payload."""
        keys = self.keys()
        placement = {keys[name]: {self.topic: tuple(numbers)} for name, numbers in plan.items() if numbers}
        payload = self.cluster.payload(placement)
        self.cluster.publish(payload, **more)
        return payload

    def wait_for(self, plan: Mapping[str, Sequence[int]]) -> None:
        """Wait until each consumer owns just these partitions."""
        wanted = {name: sorted(numbers) for name, numbers in plan.items()}
        wait_until(lambda: self.held() == wanted, what=f"{wanted} was wanted, {self.held()} is held")

    def counts(self) -> dict[str, float]:
        """Return the numbers of the group's MBean."""
        return self.harness.ask("counts", group=self.cluster.group_id)

    def wait_for_count(self, name: str, least: float) -> None:
        """Wait until a number of the MBean is at least this."""
        wait_until(lambda: self.counts()[name] >= least, what=f"{name} stays below {least}")

    def journal(self) -> list[list[Any]]:
        """Return what the group's consumers noted: [name, kind, topic, number, offset, time], by time.

        Of consumers in Python, only what they owned.
        """
        entries = self.harness.ask("journal", **{"from": self._from})["entries"]
        mine = f"{self.cluster.group_id}/"
        java = [entry for entry in entries if entry[0].startswith(mine)]
        return sorted([*java, *self._python_journal], key=lambda entry: int(entry[5]))

    def records(self) -> list[tuple[int, int]]:
        """Return (partition, offset) of all records that any consumer has processed."""
        runners = [*self._ended, *self.python.values()]
        python = [(number, offset) for runner in runners for _, number, offset in runner.records]
        return python + [(entry[3], entry[4]) for entry in self.journal() if entry[1] == "record"]

    def double_owners(self) -> list[str]:
        """Return where a partition was with two consumers at once, in any language, by their own accounts."""
        return find_double_owners((name, kind, number, at) for name, kind, _, number, _, at in self.journal())
