"""Faults at random, from a seed, on a group of consumer processes with traffic running."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from assignor_core.hint import STOP_KEY, HintPayload, derive_group_key, encode_hint, hint_key
from evenlag.enums import GroupType
from evenlag.kafka.live_groups import LiveGroup, read_live_groups
from sandbox.kafka.topic_admin import create_topic, read_offsets
from sandbox.workload.workload import Workload
from tests.chaos.storm_hints import deal, is_same, payload_of, wait_until_consumed, wait_until_whole
from tests.chaos.verdict import Verdict, judge
from tests.support.hints import HOUR_MS, Cluster, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sandbox.kafka.broker import Broker
    from tests.chaos.storm_hints import Dealt

_SESSION_MS = 3000
_MAX_PARTITIONS = 24


@dataclass
class Storm:
    """A group of processes that things happen to.

    Parameters
    ----------
    broker
        Its own broker: it is killed and restarted.
    directory
        For journals.
    seed
        Of all chance.
    num_consumers
        Half of them static members; one in four has a slow listener.
    auto_create
        Whether the clients ask for topics to be made (the broker has to allow it).
    """

    broker: Broker
    directory: Path
    seed: int = 1
    num_consumers: int = 8
    auto_create: bool = False
    workload: Workload = field(init=False)
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

    def run(self, seconds: float) -> Verdict:
        """Start all, let it storm for so long, calm down, prove that the group follows a last hint, judge."""
        self.workload = Workload(
            self.client,
            self.directory,
            topic=self.main,
            num_partitions=self.num_partitions[self.main],
            group_id=self.group_id,
            hint_topic="hints",
            consumer={
                "topics": (self.main, self.side),
                "records_per_s": 400.0,
                "session_timeout_ms": _SESSION_MS,
                "hint_key_hex": self.key.hex(),
                "extra": {
                    "metadata_max_age_ms": 2000,
                    "reconnect_backoff_max_ms": 1000,
                    "allow_auto_create_topics": self.auto_create,
                },
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
        for _ in range(self.num_consumers):
            self._add()
        self._wait_until_whole()
        self.workload.start_traffic(records_per_s=300, skew=1.2, shift_every_s=2.0, seed=self.seed)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            name, action = self._choose()
            try:
                if action():
                    self.workload.note("action", action=name)
            except KafkaError as error:
                self.workload.note("action_failed", action=name, error=repr(error))
            self._rest(self.chance.uniform(0.3, 2.0))
        self._calm()
        placement = self._settle_on_a_last_hint()
        self.workload.stop_process("producer-0")
        partitions = [(self.main, number) for number in range(self.num_partitions[self.main])]
        wait_until_consumed(self.client, self.group_id, partitions)
        self.workload.stop()
        verdict = judge(
            self.workload.journals,
            read_offsets(self.client, self.group_id, partitions),
            ignored_topics=[self.side],
        )
        verdict.figures["members_at_the_end"] = len(placement)
        return verdict

    def _choose(self) -> tuple[str, Callable[[], bool]]:
        actions: dict[str, tuple[int, Callable[[], bool]]] = {
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
        }
        name = self.chance.choices(list(actions), [weight for weight, _ in actions.values()])[0]
        return name, actions[name][1]

    def _rest(self, seconds: float) -> None:
        """Wait, and do what has become due meanwhile."""
        end = time.monotonic() + seconds
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
        self.workload.start_consumer(name, is_static=self._number % 2 == 0, listener_delay_s=delay)
        self._number += 1
        return True

    def _remove(self) -> bool:
        name = self._pick()
        if name is not None:
            self.workload.stop_process(name)
        return name is not None

    def _kill(self) -> bool:
        name = self._pick()
        if name is None:
            return False
        self.workload.kill(name)
        if self.chance.random() < 0.7:  # most come back, as under a supervisor
            number = int(name.rpartition("-")[2])
            self._later(
                self.chance.uniform(0.0, 2.0),
                lambda: self.workload.start_consumer(name, is_static=number % 2 == 0),
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

        self._later(_SESSION_MS / 1000 + self.chance.uniform(0.5, 3.0), resume)
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

    def _hint(self) -> bool:
        live = self._describe()
        if live is None:
            return False
        self._publish(self._payload(live, deal(live, self.chance)))
        return True

    def _bad_hint(self) -> bool:
        key = hint_key(self.group_id)
        live = self._describe()
        kinds = (
            ["garbage", "huge"] if live is None else ["garbage", "unsigned", "stranger", "expired", "huge"]
        )
        kind = self.chance.choice(kinds)
        if kind == "garbage":
            self.cluster.send(key, self.chance.randbytes(self.chance.randrange(200)))
            return True
        if kind == "huge" or live is None:
            self.cluster.send(key, b"x" * 900_000)
            return True
        dealt = deal(live, self.chance)
        if kind == "stranger":
            dealt["m:stranger"] = {}
        payload = self._payload(live, dealt)
        self.cluster.publish(
            payload,
            key=None if kind == "unsigned" else self.key,
            ttl_ms=-1 if kind == "expired" else HOUR_MS,
        )
        return True

    def _replay(self) -> bool:
        if self.old_values:
            self.cluster.send(hint_key(self.group_id), self.chance.choice(self.old_values))
        return bool(self.old_values)

    def _withdraw(self) -> bool:
        self.cluster.send(hint_key(self.group_id), None)
        return True

    def _stop_all(self) -> bool:
        partition = self.cluster.hint_partition()
        self.cluster.send(STOP_KEY.encode(), b"{}", partition=partition)
        self._later(
            self.chance.uniform(1.0, 3.0),
            lambda: self.cluster.send(STOP_KEY.encode(), None, partition=partition),
        )
        return True

    # Hints.

    def _describe(self) -> LiveGroup | None:
        live = read_live_groups(self.cluster.admin, {self.group_id: GroupType.CLASSIC})[self.group_id]
        return live if live.state == "Stable" and live.fingerprint is not None else None

    def _payload(self, live: LiveGroup, dealt: Dealt) -> HintPayload:
        return payload_of(dealt, live, cluster_id=self.broker.cluster_id, group_id=self.group_id)

    def _publish(self, payload: HintPayload) -> None:
        self.cluster.sequence += 1
        issued = now_ms()
        value = encode_hint(
            payload.encode(),
            sequence=self.cluster.sequence,
            issued_at_ms=issued,
            expires_at_ms=issued + HOUR_MS,
            group_key=self.key,
        )
        self.cluster.send(hint_key(self.group_id), value)
        self.old_values.append(value)

    # The end.

    def _calm(self) -> None:
        self._do_due(all_of_it=True)
        self._renew_clients()
        self._wait_until_whole()
        self.workload.note("calm")

    def _wait_until_whole(self) -> None:
        wait_until_whole(self.workload, self._describe, lambda: self.num_partitions[self.main])

    def _settle_on_a_last_hint(self, timeout_s: float = 240.0) -> Dealt:
        """Publish a hint after the last change of members and wait until the group is on it."""
        deadline = time.monotonic() + timeout_s
        live = self._describe()
        while live is None:
            time.sleep(0.2)
            live = self._describe()
        wanted = deal(live, self.chance)
        self._publish(self._payload(live, wanted))
        while time.monotonic() < deadline:
            now = self._describe()
            if now is not None and now.fingerprint != live.fingerprint:
                # A topic or a member changed late: the hint was for another group.
                live, wanted = now, deal(now, self.chance)
                self._publish(self._payload(live, wanted))
            elif now is not None and is_same(now.held, wanted):
                return wanted
            time.sleep(0.2)
        raise AssertionError(f"after {timeout_s:.0f} s the group is on {now}, not on {wanted}")
