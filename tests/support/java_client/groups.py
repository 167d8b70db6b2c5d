"""Random groups that leaders in Java and in Python assign, from the same bytes of the members' joins.

``python -m tests.support.java_client.groups --groups 10000`` compares that many.
"""

from __future__ import annotations

import argparse
import base64
import random
import sys
import tempfile
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from kafka.protocol.consumer import JoinGroupResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from assignor_core.hint import HintPayload, encode_hint, fingerprint, hint_key, member_key
from assignor_core.loads import LoadsPayload, encode_loads, loads_key
from assignor_core.record import topic_id_text
from evenlag.consumer import HintAssignor, HintCache
from evenlag.consumer._wire_format import make_subscription
from sandbox.kafka.jvm_jars import build_client
from tests.support.by_load.flows import random_flow
from tests.support.java_client.harness import ClientHarness

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Case", "Joined", "answer_in_python", "answers_in_java", "disagreements", "random_case"]

GROUP_ID = "orders"
NOW_MS = 1_800_000_000_000
_BATCH = 200
# Orders that differ between code points and UTF-16, and between names and ids.
_NAMES = ("t-b", "t-a", "t-\uffee", "t-\U0001f600", "t-c", "a", "t", "t-a.b", "x-1", "x-10", "x-2", "z")


@dataclass(frozen=True)
class Joined:
    """A member as its join describes it."""

    member_id: str
    instance: str | None
    topics: tuple[str, ...]
    owned: tuple[tuple[str, int], ...]
    generation: int
    user_data: bytes = b""

    @property
    def sent(self) -> bytes:
        made = make_subscription(self.topics, self.owned, self.generation, None)
        made.user_data = self.user_data
        return bytes(made.encode())


@dataclass(frozen=True)
class Case:
    """A group, the leader's metadata, and what it knows about hints.

    topics: Partitions and id by name; a missing id is None.
    records: Hint, loads and stop, None without; None in their place if the topic has not been read.
    """

    topics: Mapping[str, tuple[int, uuid.UUID | None]]
    members: tuple[Joined, ...]
    records: tuple[bytes | None, bytes | None, bytes | None] | None


class _Cluster:
    """As much of kafka-python's metadata as an assignor asks for."""

    def __init__(self, case: Case) -> None:
        self._topics = case.topics

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._topics[topic][0])) if topic in self._topics else None

    def topic_id(self, topic: str) -> uuid.UUID | None:
        return self._topics.get(topic, (0, None))[1]


def random_case(chance: np.random.Generator) -> Case:
    """Return a group of up to eight members, every twentieth of up to forty."""
    is_large = chance.random() < 0.05
    names = chance.permutation(_NAMES)[: int(chance.integers(1, 13 if is_large else 5))].tolist()
    topics: dict[str, tuple[int, uuid.UUID | None]] = {
        name: (int(chance.integers(1, 31 if is_large else 8)), uuid.UUID(bytes=chance.bytes(16)))
        for name in names
    }
    if chance.random() < 0.04:
        topics[names[0]] = (topics[names[0]][0], None)
    members = _random_members(chance, topics, int(chance.integers(1, 41 if is_large else 9)))
    if chance.random() < 0.05:
        return Case(topics, members, None)
    hint = _random_hint(chance, topics, members) if chance.random() < 0.5 else None
    loads = _random_loads(chance, topics, members) if chance.random() < 0.5 else None
    return Case(topics, members, (hint, loads, b"stop" if chance.random() < 0.03 else None))


def _random_members(
    chance: np.random.Generator, topics: Mapping[str, tuple[int, uuid.UUID | None]], size: int
) -> tuple[Joined, ...]:
    is_equal, has_conflicts = chance.random() < 0.5, chance.random() < 0.3
    is_new, is_skewed = chance.random() < 0.1, chance.random() < 0.3
    owned: dict[int, list[tuple[str, int]]] = {}
    for name, count in [*((name, count) for name, (count, _) in topics.items()), ("gone", 1)]:
        for number in range(count + (chance.random() < 0.05)):
            for _ in range(1 + (has_conflicts and chance.random() < 0.3)):
                holder = int(chance.integers(-1, max(1, size // 3) if is_skewed else size))
                if holder >= 0 and not is_new and chance.random() < (0.1 if name == "gone" else 0.9):
                    owned.setdefault(holder, []).append((name, number))
    members = []
    for index in range(size):
        name = ["m-", "m-\uffee", "m-\U0001f600", "M"][int(chance.integers(4))] + str(index)
        taken = [*topics, *(["gone"] if chance.random() < 0.1 else [])]
        members.append(
            Joined(
                member_id=name,
                instance=f"pod-{size - index}" if chance.random() < 0.5 else None,
                topics=tuple(topics if is_equal else (t for t in taken if chance.random() < 0.6)),
                owned=tuple(dict.fromkeys(owned.get(index, ()))),
                generation=int(chance.integers(-1, 7)) if has_conflicts and chance.random() < 0.5 else 5,
            )
        )
    return tuple(members[index] for index in chance.permutation(size))


def _keys(members: Sequence[Joined]) -> dict[str, str]:
    return {member.member_id: member_key(member.member_id, member.instance) for member in members}


def _random_hint(
    chance: np.random.Generator,
    topics: Mapping[str, tuple[int, uuid.UUID | None]],
    members: Sequence[Joined],
) -> bytes:
    """Return a plan that is mostly right: what is owned, a few moves, sometimes a partition too few."""
    keys = _keys(members)
    taken = [name for name in topics if any(name in member.topics for member in members)]
    ids = {name: topic_id_text(topics[name][1] or uuid.UUID(int=7)) for name in taken}
    assignment: dict[str, dict[str, list[int]]] = {}
    is_followed = chance.random() < 0.6
    for name in taken:
        takers = [member for member in members if name in member.topics]
        for number in range(topics[name][0]):
            holders = [m for m in takers if (name, number) in m.owned]
            pool = holders if holders and (is_followed or chance.random() < 0.8) else takers
            if chance.random() < 0.99:
                chosen = pool[int(chance.integers(len(pool)))]
                assignment.setdefault(keys[chosen.member_id], {}).setdefault(ids[name], []).append(number)
    identity = fingerprint(
        [(keys[m.member_id], [ids[t] for t in m.topics if t in ids]) for m in members],
        {ids[name]: topics[name][0] for name in taken},
    )
    payload = HintPayload(
        cluster_id="c",
        group_id=GROUP_ID,
        snapshot_id="s",
        fingerprint=identity if chance.random() < 0.95 else "0" * 64,
        assignment=assignment,
        count_slack=int(chance.choice([0, 1, 3, 1000])),
        max_moves=int(chance.choice([0, 2, 5, 1000])),
    )
    expires_in_ms = -1 if chance.random() < 0.3 else 1
    ahead_ms = 1_000_000 if chance.random() < 0.03 else 0
    return encode_hint(
        payload.encode(),
        sequence=1,
        issued_at_ms=NOW_MS - 1000 + ahead_ms,
        expires_at_ms=NOW_MS + expires_in_ms + ahead_ms,
    )


def _random_loads(
    chance: np.random.Generator,
    topics: Mapping[str, tuple[int, uuid.UUID | None]],
    members: Sequence[Joined],
) -> bytes:
    largest = int(chance.choice([3, 20, 1000, 2**31 - 1]))
    values: dict[str, list[int | None]] = {}
    for count, topic_id in topics.values():
        if topic_id is not None and chance.random() < 0.9:
            known = int(chance.integers(1, count + 2))
            values[topic_id_text(topic_id)] = [
                None if chance.random() < 0.1 else int(chance.integers(0, largest + 1)) for _ in range(known)
            ]
    chance_of_flow = random.Random(int(chance.integers(2**32)))  # noqa: S311  # repeatable on purpose
    flow = random_flow(chance_of_flow, values) if chance.random() < 0.5 else None
    keys = _keys(members).values()
    age_ms = 1_000_000 if chance.random() < 0.15 else 1000
    payload = LoadsPayload(
        cluster_id="c",
        group_id=GROUP_ID,
        snapshot_id="s",
        measured_at_ms=NOW_MS - age_ms,
        valid_until_ms=NOW_MS - age_ms + 600_000,
        loads=values,
        capacities={key: int(chance.integers(101, 1001)) for key in keys if chance.random() < 0.3},
        default_capacity=100,
        count_slack=int(chance.choice([0, 1, 5])),
        max_moves=int(chance.choice([0, 1, 3, 10, 1000])),
        flow=flow,
    )
    return encode_loads(payload.encode())


def answer_in_python(case: Case) -> dict[str, Any]:
    """Return what a leader of kafka-python hands out, its target, and why."""
    cache = HintCache(GROUP_ID, now_ms=lambda: NOW_MS)
    if case.records is not None:
        hint, loads, stop = case.records
        cache.apply_hint(hint)
        cache.apply_loads(loads)
        cache.apply_stop(stop)
        cache.mark_ready()
    assignor = HintAssignor(cache, now_ms=lambda: NOW_MS)
    joined = []
    for member in case.members:
        made = JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id, group_instance_id=member.instance, metadata=member.sent
        )
        made.metadata = ConsumerProtocolSubscription.decode(made.metadata)
        joined.append(made)
    assigned = {
        member_id: ConsumerProtocolAssignment.decode(assignment.encode()).partitions()
        for member_id, assignment in assignor.assign(_Cluster(case), joined).items()
    }
    decision = assignor.last_decision
    assert decision is not None
    return {
        "assigned": {m: sorted((tp.topic, tp.partition) for tp in given) for m, given in assigned.items()},
        "target": decision.target.tolist(),
        "reason": decision.reason.value,
        "hint_reason": decision.hint_reason.value,
        "plan_id": decision.plan_id,
    }


def as_question(case: Case, **more: Any) -> dict[str, Any]:
    """Return a case as the harness takes it."""
    records = None
    if case.records is not None:
        keys = (hint_key(GROUP_ID), loads_key(GROUP_ID), b"control/stop")
        records = [
            [_as_text(key), _as_text(value)] for key, value in zip(keys, case.records, strict=True) if value
        ]
    return {
        "group": GROUP_ID,
        "now_ms": NOW_MS,
        "topics": [
            [name, count, None if topic_id is None else topic_id_text(topic_id)]
            for name, (count, topic_id) in case.topics.items()
        ],
        "members": [
            {"id": member.member_id, "instance": member.instance, "sent": _as_text(member.sent)}
            for member in case.members
        ],
        "records": records,
        **more,
    }


def answers_in_java(harness: ClientHarness, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Return what a leader of Kafka's own client hands out, its target, and why."""
    answers: list[dict[str, Any]] = harness.ask("assign", groups=[as_question(case) for case in cases])[
        "groups"
    ]
    return [_sorted(answer) for answer in answers]


def _sorted(answer: dict[str, Any]) -> dict[str, Any]:
    assigned = {
        member_id: sorted((topic, number) for topic, number in pairs)
        for member_id, pairs in answer["assigned"].items()
    }
    return {**answer, "assigned": assigned}


def disagreements(
    harness: ClientHarness, number: int, seed: int, reasons: Counter[str]
) -> Iterator[tuple[Case, dict[str, Any], dict[str, Any]]]:
    """Yield the groups, of so many random ones, that the two assign differently, and count the reasons."""
    chance = np.random.default_rng(seed)
    for start in range(0, number, _BATCH):
        cases = [random_case(chance) for _ in range(min(_BATCH, number - start))]
        for case, in_java in zip(cases, answers_in_java(harness, cases), strict=True):
            in_python = answer_in_python(case)
            reasons[in_python["reason"]] += 1
            if in_python != in_java:
                yield case, in_python, in_java


def _as_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def main() -> int:
    """Compare, and return 1 if there is a difference."""
    parser = argparse.ArgumentParser(description="Compare leaders in Java and in Python.")
    parser.add_argument("--groups", type=int, default=10_000, help="number of random groups")
    parser.add_argument("--seed", type=int, default=24, help="of the random groups")
    options = parser.parse_args()
    reasons: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "classes").mkdir()
        with ClientHarness(build_client(folder), folder / "classes") as harness:
            found = list(disagreements(harness, options.groups, options.seed, reasons))
    for case, in_python, in_java in found[:3]:
        sys.stdout.write(f"{case}\n{in_python}\n{in_java}\n")
    sys.stdout.write(f"{options.groups} groups, {len(found)} assigned differently; {dict(reasons)}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
