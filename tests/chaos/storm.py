"""Faults at random, from a seed, on a group of consumer processes with traffic running."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from assignor_core.hint import derive_group_key
from sandbox.kafka.topic_admin import create_topic, read_offsets
from tests.chaos.storm_hints import (
    deal,
    is_same,
    sent_by_producer,
    wait_until_consumed,
    wait_until_whole,
)
from tests.chaos.storm_java import figures_of_java, is_java, java_fields
from tests.chaos.storm_poison import peak_mb
from tests.chaos.storm_records import RecordFaults
from tests.chaos.verdict import Verdict, judge
from tests.support.faulty_workload import FaultyWorkload
from tests.support.hints import Cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sandbox.kafka.broker import Broker
    from tests.chaos.storm_hints import Dealt

_MAX_PARTITIONS = 24


@dataclass
class Storm(RecordFaults):
    """A group of processes that things happen to.

    broker: Its own broker: it is killed and restarted. For a cluster there is
        `tests.chaos.cluster_storm.ClusterStorm`.
    num_consumers: Half of them static members; one in four has a slow listener.
    auto_create: Whether the clients ask for topics to be made (the broker has to allow it).
    session_ms: The members' session timeout.
    has_java: Whether half of the consumers are of Kafka's Java client; half of these ask for a hint's
        rebalance.
    """

    broker: Broker
    directory: Path
    seed: int = 1
    num_consumers: int = 8
    auto_create: bool = False
    session_ms: int = 3000
    has_java: bool = False
    workload: FaultyWorkload = field(init=False)
    cluster: Cluster = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311  # repeatable, no secret
        self.main, self.side, self.group_id = "orders", "side", "billing"
        self.num_partitions = {self.main: 12, self.side: 3}
        self.client = {"bootstrap_servers": self.broker.bootstrap_servers}
        self.key = derive_group_key(b"storm", self.group_id)
        self.old_values: list[bytes] = []
        self.side_was_deleted = False
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._paused: set[str] = set()
        self._down = False
        self._number = 0
        # However short the storm is, these happen.
        self._owed = ["hint", "compressed", "burst", "poison"]
        self._peak_mb = {"python": 0.0, "java": 0.0}
        self._extra = {
            "metadata_max_age_ms": 2000,
            "reconnect_backoff_max_ms": 1000,
            "allow_auto_create_topics": self.auto_create,
        }

    def run(self, seconds: float) -> Verdict:
        """Start all, let it storm for so long, calm down, prove that the group follows a last hint, judge."""
        self.workload = FaultyWorkload(
            self.client,
            self.directory,
            topic=self.main,
            num_partitions=self.num_partitions[self.main],
            group_id=self.group_id,
            hint_topic="hints",
            consumer={
                "topics": (self.main, self.side),
                "records_per_s": 400.0,
                "session_timeout_ms": self.session_ms,
                "hint_key_hex": self.key.hex(),
                "extra": self._extra,
            },
        )
        create_topic(self.client, self.side, self.num_partitions[self.side])
        with self.workload:
            self.cluster = Cluster(
                self.broker, group_id=self.group_id, topics=self.num_partitions, hint_topic="hints",
                make_topics=False,
            )  # fmt: skip
            try:
                return self._run(seconds)
            finally:
                self.cluster.close()

    def _run(self, seconds: float) -> Verdict:
        self._add()
        if self.has_java:
            self.workload.wait_until_owned()  # before the others join: who joins first leads
        for _ in range(self.num_consumers - 1):
            self._add()
        self._start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            name, action = self._choose()
            try:
                if action():
                    self.workload.note("action", action=name)
            except KafkaError as error:
                self.workload.note("action_failed", action=name, error=repr(error))
                self._recover()
            self._rest(self.chance.uniform(0.3, 2.0))
        self._calm()
        placement = self._settle_on_a_last_hint()
        self.workload.stop_process("producer-0")
        num_sent, num_acknowledged = sent_by_producer(self.directory / "producer-0.out")
        partitions = [(self.main, number) for number in range(self.num_partitions[self.main])]
        wait_until_consumed(self.client, self.group_id, partitions)
        self.workload.stop()
        offsets = read_offsets(self.client, self.group_id, partitions)
        verdict = judge(self.workload.journals, offsets, ignored_topics=[self.side])
        num_kept = sum(end for _, end, _ in offsets.values())
        if num_kept < num_acknowledged:
            verdict.lost.append(f"lost: the brokers acknowledged {num_acknowledged} and kept {num_kept}")
        verdict.figures["records_sent"] = num_sent
        verdict.figures["records_acknowledged"] = num_acknowledged
        verdict.figures["records_in_the_log"] = num_kept
        verdict.figures["consumers"] = self.num_consumers
        verdict.figures["members_at_the_end"] = len(placement)
        verdict.figures["consumer_peak_mb"] = round(self._peak_mb["python"], 1)
        if self.has_java:
            verdict.figures["java_consumer_peak_mb"] = round(self._peak_mb["java"], 1)
            verdict.figures.update(figures_of_java(self.directory, self._is_java))
        return verdict

    def _actions(self) -> dict[str, tuple[int, Callable[[], bool]]]:
        """Return what may happen, with its weight, by name."""
        return {
            "hint": (8, self._hint),
            "bad_hint": (3, self._bad_hint),
            "replay": (2, self._replay),
            "withdraw": (1, self._withdraw),
            "stop_all": (1, self._stop_all),
            "kill": (3, self._kill),
            "pause": (2, self._pause),
            "add": (2, self._add),
            "remove": (2, self._remove),
            "restart_broker": (1, self._restart_broker),
            "add_partitions": (1, self._add_partitions),
            "delete_topic": (1, self._delete_topic),
            "burst": (1, self._burst),
            "poison": (2, self._poison),
            "compressed": (1, self._compressed),
        }

    def _start(self) -> None:
        self._wait_until_whole()
        self.workload.start_traffic(records_per_s=300, skew=1.2, shift_every_s=2.0, seed=self.seed)

    def _recover(self) -> None:
        """Do what is needed after an action that failed."""

    def _choose(self) -> tuple[str, Callable[[], bool]]:
        actions = self._actions()
        if self._owed:
            return (name := self._owed.pop(0)), actions[name][1]
        name = self.chance.choices(list(actions), [weight for weight, _ in actions.values()])[0]
        return name, actions[name][1]

    def _rest(self, seconds: float) -> None:
        """Wait, and do what has become due meanwhile."""
        end = time.monotonic() + seconds
        for language, most in self._peak_mb.items():
            names = [n for n in self.workload.consumers if self._is_java(n) == (language == "java")]
            self._peak_mb[language] = max(most, peak_mb(map(self.workload.pid, names)))
        while time.monotonic() < end:
            self._do_due()
            time.sleep(0.05)

    def _do_due(self, *, all_of_it: bool = False) -> None:
        now = time.monotonic()
        due = [each for each in self._due if all_of_it or each[0] <= now]
        self._due = [each for each in self._due if each not in due]
        for _, undo in due:
            undo()

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + seconds, undo))

    def _live(self) -> list[str]:
        return [name for name in self.workload.consumers if name not in self._paused]

    def _pick(self) -> str | None:
        live = self._live()
        return self.chance.choice(live) if len(live) > self.num_consumers // 2 else None

    # What happens; each returns whether it did.

    def _add(self) -> bool:
        if len(self.workload.consumers) >= self.num_consumers + 3:
            return False
        name = f"consumer-{self._number}"
        delay = 0.7 if self._number % 4 == 3 else 0.0  # one in four
        self._start_consumer(name, is_static=self._number % 2 == 0, listener_delay_s=delay)
        self._number += 1
        return True

    def _is_java(self, name: str) -> bool:
        return self.has_java and is_java(name)

    def _start_consumer(self, name: str, **fields: Any) -> None:
        if self._is_java(name):
            fields |= java_fields(name, self._extra)
        self.workload.start_consumer(name, **fields)

    def _remove(self) -> bool:
        name = self._pick()
        if name is not None:
            self.workload.stop_process(name)
        return name is not None

    def _burst(self) -> bool:
        """Add members all at once, as an autoscaler does, and take them away again."""
        size = self.chance.randrange(3, 5)
        names = [f"consumer-{self._number + number}" for number in range(size)]
        self._number += size
        for name in names:
            self._start_consumer(name)

        def remove() -> None:
            for name in names:
                if name in self.workload.consumers and name not in self._paused:
                    self.workload.stop_process(name)

        self._later(self.chance.uniform(3.0, 6.0), remove)
        return True

    def _kill(self) -> bool:
        name = self._pick()
        if name is None:
            return False
        self.workload.kill(name)
        if self.chance.random() < 0.7:  # most come back, as under a supervisor
            number = int(name.rpartition("-")[2])
            self._later(
                self.chance.uniform(0.0, 2.0),
                lambda: self._start_consumer(name, is_static=number % 2 == 0),
            )
        return True

    def _pause(self) -> bool:
        name = self._pick()
        if name is None:
            return False
        self.workload.pause(name)
        self._paused.add(name)

        def resume() -> None:
            self.workload.resume(name)
            self._paused.discard(name)

        self._later(self.session_ms / 1000 + self.chance.uniform(0.5, 3.0), resume)
        return True

    def _restart_broker(self) -> bool:
        self.workload.note("broker_down")
        self.broker.kill()
        time.sleep(self.chance.uniform(0.0, 2.0))
        self.broker.restart()
        self.workload.note("broker_up")
        self._renew_clients()
        return True

    def _renew_clients(self) -> None:
        self.cluster.renew_publisher()
        self.cluster.admin.close()
        self.cluster.admin = KafkaAdminClient(**self.client)

    def _add_partitions(self) -> bool:
        count = self.num_partitions[self.main] + 2
        if count > _MAX_PARTITIONS:
            return False
        self.cluster.admin.create_partitions({self.main: count})
        self.num_partitions[self.main] = count
        self.workload.fill({count - 2: 40, count - 1: 40})
        return True

    def _delete_topic(self) -> bool:
        if self.side_was_deleted:
            return False
        self.cluster.admin.delete_topics([self.side])
        self.side_was_deleted = True
        return True

    # The end.

    def _calm(self) -> None:
        self._do_due(all_of_it=True)
        self._renew_clients()
        self._wait_until_whole()
        self.workload.note("calm")

    def _wait_until_whole(self) -> None:
        wait_until_whole(self.workload, self._describe, lambda: self.num_partitions[self.main])

    def _settle_on_a_last_hint(self) -> Dealt:
        """Publish a hint after the last change of members and wait until the group is on it."""
        fingerprint: str | None = "none yet"
        wanted: Dealt = {}

        def is_on_it() -> bool:
            nonlocal fingerprint, wanted
            now = self._describe()
            if now is not None and now.fingerprint != fingerprint:
                # The first hint; or a topic or a member changed late, and the hint was for another group.
                fingerprint, wanted = now.fingerprint, deal(now, self.chance)
                self._publish(self._payload(now, wanted))
                return False
            return now is not None and is_same(now.held, wanted)

        wait_until(is_on_it, timeout_s=240, what=lambda: f"{self._describe()} is not on {wanted}")
        return wanted
