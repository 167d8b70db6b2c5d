"""A group's coordinator and its members in simulated time; assignors and requests are those of the consumer.

What is simulated: heartbeats, joins, syncs that come late, two phases, watchers that read after a while,
members that leave and come. What is real: `HintAssignor` on the wire format, `HintCache`, `RejoinRequests`.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import JoinGroupResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from assignor_core.hint import HintPayload, encode_hint, fingerprint, member_key
from assignor_core.loads import LoadsPayload, encode_loads
from assignor_core.record import topic_id_text
from evenlag.consumer import HintAssignor, HintCache
from evenlag.consumer.rejoin_requests import RejoinRequests

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TICK_S = 0.1
START_MS = 1_800_000_000_000
HEARTBEAT_S = 3.0
SETTLE_S = 0.05
TOPIC = "t"
TOPIC_UUID = uuid.UUID(int=11)
TOPIC_ID = topic_id_text(TOPIC_UUID)
Pair = tuple[str, int]


@dataclass
class SimCluster:
    """As much of kafka-python's metadata as an assignor asks for."""

    num_partitions: int

    def topics(self) -> set[str]:
        return {TOPIC}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.num_partitions)) if topic == TOPIC else None

    def topic_id(self, topic: str) -> uuid.UUID | None:
        return TOPIC_UUID if topic == TOPIC else None


@dataclass
class SimMember:
    """A consumer between its broker and its application; the port that assignor and requests see."""

    group: SimGroup
    member_id: str
    instance_id: str | None
    cache: HintCache
    heartbeat_interval_s: float = HEARTBEAT_S
    metadata_max_age_s: float = 300.0
    metadata_time_s: float = 0.0
    is_leader: bool = False
    is_eager: bool = False
    owned: set[Pair] = field(default_factory=set)
    assigned_generation: int = -1
    wants_join: bool = True
    is_waiting: bool = False
    due_heartbeat_s: float = 0.0
    sent: Any = None

    def __post_init__(self) -> None:
        self.assignor = HintAssignor(self.cache, now_ms=lambda: self.group.now_ms)
        self.assignor.attach(self)  # type: ignore[arg-type]  # as much of a port as is asked for
        self.requests = RejoinRequests(self.cache, self.assignor, self, self.group.chance.uniform)  # type: ignore[arg-type]

    def held(self) -> list[Pair]:
        return sorted(self.owned)

    def claims(self) -> tuple[list[Pair], int]:
        return self.held(), self.assigned_generation

    def stable_generation(self) -> int | None:
        is_stable = not (self.is_waiting or self.wants_join) and self.assigned_generation >= 0
        return self.assigned_generation if is_stable else None

    def ask_from_io_thread(self) -> None:
        self.wants_join = True

    def ask_if_still(self, generation: int) -> None:
        if self.stable_generation() == generation:
            self.wants_join = True

    def subscribed_counts(self) -> dict[str, int]:
        return {TOPIC: self.group.cluster.num_partitions}

    def topic_ids(self, _topics: Any) -> dict[str, str]:
        return {TOPIC: TOPIC_ID}

    def join(self) -> None:
        self.requests.note_join()
        self.sent = self.assignor.metadata([TOPIC]).encode()
        self.is_waiting, self.wants_join = True, False

    def as_joined(self) -> Any:
        made = JoinGroupResponse.JoinGroupResponseMember(
            member_id=self.member_id, group_instance_id=self.instance_id, metadata=self.sent
        )
        made.metadata = ConsumerProtocolSubscription.decode(made.metadata)
        return made

    def take(self, assignment: Any, generation: int) -> None:
        """Apply an assignment; ask for the next round if something was revoked."""
        decoded = ConsumerProtocolAssignment.decode(assignment.encode())
        given = {(tp.topic, tp.partition) for tp in decoded.partitions()}
        revoked, self.owned = self.owned - given, given
        self.assigned_generation, self.is_waiting = generation, False
        self.assignor.on_assignment(decoded, generation)
        self.wants_join = self.wants_join or bool(revoked)


class SimGroup:
    """A coordinator and its members.

    seed: Decides the phases of heartbeats and all waits.
    """

    def __init__(self, num_partitions: int, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311  # repeatable
        self.cluster = SimCluster(num_partitions)
        self.members: dict[str, SimMember] = {}
        self.records: dict[str, bytes | None] = {}
        self.generation = 0
        self.now_s = 0.0
        self.is_rebalancing = False
        self._leader = ""
        self._num_made = 0
        self._due: list[tuple[float, Callable[[], None]]] = []

    @property
    def now_ms(self) -> int:
        return START_MS + int(self.now_s * 1000)

    def add(self, instance_id: str | None = None, *, reads_after_s: float = 0.3) -> SimMember:
        """Start a process; its watcher has read the hint topic after a while."""
        self._num_made += 1
        name = f"{self.chance.randrange(16**8):08x}-{self._num_made}"
        cache = HintCache("g", now_ms=lambda: self.now_ms)
        member = SimMember(self, name, instance_id, cache)
        member.due_heartbeat_s = self.now_s + self.chance.uniform(0, HEARTBEAT_S)
        self.members[name] = member
        self._later(reads_after_s, lambda: self._read_all(member))
        return member

    def remove(self, name: str) -> None:
        """Stop a process in good order."""
        del self.members[name]
        self.is_rebalancing = bool(self.members)

    def restart(self, name: str) -> SimMember:
        """Restart a static member: it has another id and what it had, there is no rebalance (KIP-345)."""
        old = self.members.pop(name)
        new = self.add(old.instance_id)
        new.requests.note_join()
        new.owned, new.assigned_generation, new.wants_join = old.owned, old.assigned_generation, False
        # The coordinator knows who leads; kafka-python's join does not ask for it (KIP-814).
        self._leader = new.member_id if self._leader == name else self._leader
        return new

    def publish(self, placement: Mapping[str, Sequence[int]], *, sequence: int = 1, **changes: Any) -> None:
        """Publish a hint for the present members: partitions by member id."""
        keys = {m.member_id: member_key(m.member_id, m.instance_id) for m in self.members.values()}
        identity = fingerprint(
            [(key, [TOPIC_ID]) for key in keys.values()], {TOPIC_ID: self.cluster.num_partitions}
        )
        fields: dict[str, Any] = {
            "cluster_id": "c", "group_id": "g", "snapshot_id": "s", "fingerprint": identity,
            "assignment": {keys[name]: {TOPIC_ID: tuple(parts)} for name, parts in placement.items()},
            "count_slack": 4, "max_moves": 1000,
        }  # fmt: skip
        payload = HintPayload(**{**fields, **changes})
        times = {"issued_at_ms": self.now_ms, "expires_at_ms": self.now_ms + 3_600_000}
        self._send("hint", encode_hint(payload.encode(), sequence=sequence, group_key=None, **times))

    def publish_loads(self, loads: Sequence[int], **changes: Any) -> None:
        """Publish the load of each partition."""
        fields: dict[str, Any] = {
            "cluster_id": "c", "group_id": "g", "snapshot_id": "s", "measured_at_ms": self.now_ms,
            "valid_until_ms": self.now_ms + 3_600_000, "loads": {TOPIC_ID: list(loads)}, "capacities": {},
            "default_capacity": 1, "count_slack": 4, "max_moves": 6,
        }  # fmt: skip
        self._send("loads", encode_loads(LoadsPayload(**{**fields, **changes}).encode()))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += TICK_S
            due, self._due = (
                [d for d in self._due if d[0] <= self.now_s],
                [d for d in self._due if d[0] > self.now_s],
            )
            for _, act in due:
                act()
            for member in list(self.members.values()):
                self._step(member)
            if self.is_rebalancing and all(m.is_waiting for m in self.members.values()):
                self._complete()

    def parts(self) -> dict[str, list[int]]:
        """Return the partition numbers of each member."""
        return {name: sorted(n for _, n in member.owned) for name, member in self.members.items()}

    def _step(self, member: SimMember) -> None:
        if self.now_s >= member.due_heartbeat_s:
            member.due_heartbeat_s += HEARTBEAT_S
            if self.is_rebalancing and not member.is_waiting:
                member.wants_join = True
        if round(self.now_s / TICK_S) % 4 == 0:
            member.requests.step(self.now_s, self.now_ms)
        if member.wants_join and not member.is_waiting:
            member.join()
            self.is_rebalancing = True

    def _complete(self) -> None:
        self.is_rebalancing = False
        self.generation += 1
        if self._leader not in self.members:
            self._leader = self.chance.choice(sorted(self.members))
        for name, member in self.members.items():
            member.is_leader = name == self._leader
        joined = [member.as_joined() for member in self.members.values()]
        answer = self.members[self._leader].assignor.assign(self.cluster, joined)
        generation = self.generation
        for member in self.members.values():
            self._sync(member, answer[member.member_id], generation)

    def _sync(self, member: SimMember, assignment: Any, generation: int) -> None:
        def take() -> None:
            if generation == self.generation and member.is_waiting and not self.is_rebalancing:
                member.take(assignment, generation)
            elif member.is_waiting and self.is_rebalancing:
                member.is_waiting = False  # refused: a rebalance has begun, and it joins again
                member.wants_join = True

        self._later(self.chance.uniform(0.0, SETTLE_S), take)

    def _read_all(self, member: SimMember) -> None:
        member.cache.apply_hint(self.records.get("hint"))
        member.cache.apply_loads(self.records.get("loads"))
        member.cache.mark_ready()

    def _send(self, kind: str, value: bytes) -> None:
        self.records[kind] = value
        for member in self.members.values():
            apply = member.cache.apply_hint if kind == "hint" else member.cache.apply_loads
            self._later(self.chance.uniform(0.0, 0.3), lambda apply=apply: apply(value))  # type: ignore[misc]

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._due.append((self.now_s + seconds, act))
