"""Groups and hints for the plug-in's tests: made here, judged by consumers' rules, asked of the plug-in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from assignor_core.hint import HintPayload, derive_broker_key, encode_hint, fingerprint, hint_key, member_key
from assignor_core.loads import LoadsPayload, encode_loads, loads_key
from assignor_core.record import topic_id_text
from tests.support.broker_plugin.harness import as_base64

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.broker_plugin.harness import Harness

CLUSTER_ID = "q1Sh-9_ISia_zwGINzRvyQ"
GROUP_ID = "orders"
NOW_MS = 1_800_000_000_000
A, B, HINTS = (topic_id_text(bytes([number] * 16)) for number in (1, 2, 9))


@dataclass(frozen=True)
class Consumer:
    """A member of a group, and what the coordinator has given it."""

    member_id: str
    instance: str | None = None
    topics: tuple[str, ...] = (A,)
    held: Mapping[str, Sequence[int]] = field(default_factory=dict)
    rack: str | None = None

    @property
    def key(self) -> str:
        return member_key(self.member_id, self.instance)


@dataclass(frozen=True)
class Scene:
    """A group and what happened to the hint topic before the coordinator asks."""

    members: tuple[Consumer, ...]
    topics: Mapping[str, int]
    steps: tuple[dict[str, Any], ...] = ()
    num_partitions: int = 1
    master_keys: tuple[str, ...] = ()
    now_ms: int = NOW_MS
    hint_topic: str | None = HINTS
    max_bytes: int = 64 * 1024 * 1024
    broken: bool = False

    def fingerprint(self) -> str:
        return fingerprint([(member.key, member.topics) for member in self.members], self.topics)

    def payload(self, assignment: Mapping[str, Mapping[str, Sequence[int]]], **changes: Any) -> HintPayload:
        """Return a hint's payload for this group as it is."""
        payload = HintPayload(
            cluster_id=CLUSTER_ID,
            group_id=GROUP_ID,
            snapshot_id="s-1",
            fingerprint=self.fingerprint(),
            assignment=assignment,
            count_slack=0,
            max_moves=100,
            member_ids={member.key: member.member_id for member in self.members if member.instance},
        )
        return replace(payload, **changes)

    def loads(self, values: Mapping[str, Sequence[int | None]], **changes: Any) -> LoadsPayload:
        """Return loads for this group as it is."""
        payload = LoadsPayload(
            cluster_id=CLUSTER_ID,
            group_id=GROUP_ID,
            snapshot_id="s-1",
            measured_at_ms=NOW_MS - 60_000,
            valid_until_ms=NOW_MS + 600_000,
            loads=values,
            capacities={},
            default_capacity=100,
            count_slack=0,
            max_moves=100,
            member_ids=[member.member_id for member in self.members],
        )
        return replace(payload, **changes)

    def read(self, *records: Any) -> Scene:
        """Return the scene after the hint topic has been read from its beginning."""
        return self.then({"do": "read", "records": list(records)})

    def apply(self, *records: Any) -> Scene:
        """Return the scene after further records."""
        return self.then({"do": "apply", "records": list(records)})

    def then(self, step: dict[str, Any]) -> Scene:
        return replace(self, steps=(*self.steps, step))

    def ask(self, harness: Harness) -> dict[str, Any]:
        """Return what the plug-in answers, what Kafka's assignor would, and what was counted."""
        return harness.ask("assign", **self.question())

    def question(self) -> dict[str, Any]:
        """Return the scene as the harness takes it."""
        return {
            "topics": dict(self.topics),
            "members": [
                {
                    "id": member.member_id,
                    "instance": member.instance,
                    "rack": member.rack,
                    "topics": list(member.topics),
                    "held": {topic: list(numbers) for topic, numbers in member.held.items()},
                }
                for member in self.members
            ],
            "steps": list(self.steps),
            "num_partitions": self.num_partitions,
            "master_keys": list(self.master_keys),
            "cluster_id": CLUSTER_ID,
            "now_ms": self.now_ms,
            "hint_topic": self.hint_topic,
            "max_bytes": self.max_bytes,
            "broken": self.broken,
        }


def hint_value(
    payload: HintPayload,
    *,
    sequence: int = 1,
    issued_at_ms: int | None = None,
    expires_in_ms: int = 60_000,
    master_key: str | None = None,
) -> bytes:
    """Return a hint's record's value; unless told otherwise, a later sequence is issued later."""
    return encode_hint(
        payload.encode(),
        sequence=sequence,
        issued_at_ms=NOW_MS - 1_000_000 + sequence if issued_at_ms is None else issued_at_ms,
        expires_at_ms=NOW_MS + expires_in_ms,
        group_key=None if master_key is None else derive_broker_key(master_key.encode(), payload.group_id),
    )


def record(value: bytes | None, *, group_id: str = GROUP_ID, partition: int = 0) -> list[Any]:
    """Return a record as scenes take it; None is a tombstone."""
    return [partition, as_base64(hint_key(group_id)), as_base64(value)]


def hint(payload: HintPayload, **envelope: Any) -> list[Any]:
    """Return a record with a hint."""
    return record(hint_value(payload, **envelope), group_id=payload.group_id)


def loads_value(payload: LoadsPayload, *, master_key: str | None = None) -> bytes:
    """Return the value of a record of loads."""
    key = None if master_key is None else derive_broker_key(master_key.encode(), payload.group_id)
    return encode_loads(payload.encode(), group_key=key)


def loads(payload: LoadsPayload, *, partition: int = 0, **envelope: Any) -> list[Any]:
    """Return a record with loads."""
    return [partition, as_base64(loads_key(payload.group_id)), as_base64(loads_value(payload, **envelope))]


def no_loads() -> list[Any]:
    """Return the tombstone of a record of loads."""
    return [0, as_base64(loads_key(GROUP_ID)), None]


def stop(value: bytes | None = b"stop") -> list[Any]:
    """Return a record under ``control/stop``."""
    return [0, as_base64(b"control/stop"), as_base64(value)]
