"""What a storm does to the hint topic: valid hints and loads, and records that readers must not fall for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assignor_core.hint import STOP_KEY, HintPayload, encode_hint, hint_key
from evenlag.enums import GroupType
from evenlag.kafka.live_groups import LiveGroup, read_live_groups
from tests.chaos.storm_hints import deal, payload_of
from tests.chaos.storm_poison import loads_of, poisons, send_bomb, send_loads
from tests.support.hints import HOUR_MS, Cluster, now_ms

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from sandbox.kafka.broker import Broker
    from tests.chaos.storm_hints import Dealt


class RecordFaults:
    """The storm's actions on the hint topic; each returns whether it happened."""

    broker: Broker
    cluster: Cluster
    chance: random.Random
    group_id: str
    key: bytes
    old_values: list[bytes]

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        raise NotImplementedError

    def _hint(self) -> bool:
        live = self._describe()
        if live is None:
            return False
        self._publish(self._payload(live, deal(live, self.chance)))
        ids = {"cluster_id": self.broker.cluster_id, "group_id": self.group_id}
        send_loads(self.cluster, loads_of(live, self.chance, **ids), self.key)
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

    def _poison(self) -> bool:
        valid = self.old_values[-1] if self.old_values else None
        found = poisons(self.cluster, self.key, valid)
        for key, value in self.chance.sample(found, 4):
            self.cluster.send(key, value, partition=self.chance.choice((self.cluster.hint_partition(), 0)))
        return True

    def _compressed(self) -> bool:
        send_bomb(self.cluster)
        return True

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
