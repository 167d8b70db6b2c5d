"""The plug-in judges random hints as a consumer does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from assignor_core.group import Group
from assignor_core.hint import Hint, fingerprint
from assignor_core.members import Member
from assignor_core.record import topic_id_text
from evenlag.consumer.cache import HintView
from evenlag.consumer.events import Reason
from evenlag.consumer.target_selection import choose_target
from tests.support.broker_plugin.problems import (
    NOW_MS,
    Consumer,
    Scene,
    hint,
)

if TYPE_CHECKING:
    from tests.broker_plugin.test_assign import Placed
    from tests.support.broker_plugin.harness import Harness


def random_scene(chance: np.random.Generator) -> Scene:
    ids = [topic_id_text(bytes([10 + number] * 16)) for number in range(3)]
    topics = {topic: int(chance.integers(0, 7)) for topic in ids[: chance.integers(1, 4)]}
    size = int(chance.integers(1, 6))
    owner = {
        (topic, n): int(chance.integers(-1, size)) for topic, count in topics.items() for n in range(count)
    }
    is_equal = chance.random() < 0.5
    members = []
    for i in range(size):
        held: dict[str, list[int]] = {}
        for (topic, number), who in owner.items():
            if who == i:
                held.setdefault(topic, []).append(number)
        taken = tuple(topic for topic in topics if is_equal or chance.random() < 0.6)
        # Exotic instance ids try the order of the canonical text.
        instance = (
            ["pod-0", "pod-\uffee", "pod-\U0001f600", 'p"\\', "\x7f"][i] if chance.random() < 0.7 else None
        )
        members.append(Consumer(f"m-{i}", instance, taken, held))
    return Scene(tuple(members), topics)


def random_plan(scene: Scene, chance: np.random.Generator) -> Placed:
    """Return a plan that is mostly right: what is held, a few moves, sometimes a partition too few."""
    plan: Placed = {}
    for topic, count in scene.topics.items():
        takers = [member for member in scene.members if topic in member.topics]
        for number in range(count):
            holders = [m for m in takers if number in m.held.get(topic, ()) and chance.random() < 0.8]
            pool = holders or (list(scene.members) if chance.random() < 0.03 else takers)
            if pool and chance.random() < 0.98:
                chosen = pool[int(chance.integers(len(pool)))]
                plan.setdefault(chosen.key, {}).setdefault(topic, []).append(number)
    return plan


def judge(scene: Scene, value: Hint) -> tuple[str, Placed]:
    """Return what a consumer of ours that leads the group would say: the reason, and the target."""
    members = [
        Member(
            member.member_id,
            member.topics,
            instance_id=member.instance,
            owned=tuple((topic, n) for topic, numbers in member.held.items() for n in numbers),
            generation=1,
        )
        for member in scene.members
    ]
    # A leader's group has the topics that somebody takes.
    taken = {topic for member in scene.members for topic in member.topics}
    counts = {topic: count for topic, count in scene.topics.items() if topic in taken}
    group = Group.from_members(counts, members)
    decision = choose_target(
        group, HintView(is_cold=False, hint=value), {topic: topic for topic in scene.topics}, now_ms=NOW_MS
    )
    placed: Placed = {}
    for member, pairs in group.to_mapping(decision.target).items():
        placed[member] = {}
        for topic, number in pairs:
            placed[member].setdefault(topic, []).append(number)
    return decision.reason.value, placed


def test_the_plug_in_judges_as_a_consumer_does(harness: Harness) -> None:
    """600 random groups and hints: the same reason, and the same target when the hint is followed."""
    chance = np.random.default_rng(848)
    reasons: Counter[str] = Counter()
    for _ in range(600):
        scene = random_scene(chance)
        payload = scene.payload(
            random_plan(scene, chance),
            count_slack=int(chance.integers(0, 4)),
            max_moves=int(chance.integers(0, 9)),
        )
        if chance.random() < 0.05:
            payload = replace(payload, fingerprint=fingerprint([], {}))
        if len(scene.topics) > 1 and chance.random() < 0.3:
            payload = replace(payload, together=[list(scene.topics)[:2]])
        # Known by a static member that none of them is: what is compared are the rules.
        members = {"i:nobody": scene.members[0].member_id}
        payload = replace(payload, member_ids=members)
        expires_in_ms = -1 if chance.random() < 0.2 else 1
        value = Hint(payload.encode(), payload, "p", 1, NOW_MS, NOW_MS + expires_in_ms, signed=False)
        reason, placed = judge(scene, value)
        answer = scene.read(hint(payload, expires_in_ms=expires_in_ms)).ask(harness)
        assert answer["counts"] == {"RECEIVED": 1, reason: 1}, payload
        if reason == Reason.FOLLOWED:
            assert answer["assignment"] == placed
        elif payload.count_slack == 0:
            assert answer["assignment"] == answer["uniform"]
        assert_is_sound(scene, answer["assignment"])
        reasons[reason] += 1
    assert min(reasons[name] for name in ("FOLLOWED", "EXPIRED", "MAX_MOVES", "COUNT_SLACK", "INVALID")) > 10
    assert reasons["FINGERPRINT"] > 10


def assert_is_sound(scene: Scene, assignment: Placed) -> None:
    """Every partition that somebody takes is with exactly one member, who takes it."""
    takes = {member.member_id: member.topics for member in scene.members}
    given = [
        (topic, n) for who, topics in assignment.items() for topic, numbers in topics.items() for n in numbers
    ]
    assert len(given) == len(set(given))
    assert all(topic in takes[who] for who, topics in assignment.items() for topic in topics)
    wanted = {
        (t, n)
        for t, count in scene.topics.items()
        for n in range(count)
        if any(t in x for x in takes.values())
    }
    assert set(given) == wanted
