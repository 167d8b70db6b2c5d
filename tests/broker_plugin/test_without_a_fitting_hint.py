"""What the plug-in answers without a hint that fits: expired, for another membership, not read yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from evenlag.publishing.rebalance_trigger.await_target import TRIGGER_RACK
from tests.broker_plugin.test_assign import (
    FOLLOWED,
    PLAN,
    PODS,
    SCENE,
    UNEVEN,
    assert_falls_back,
    with_held,
)
from tests.support.broker_plugin.problems import HINTS, A, B, Consumer, Scene, hint, record

if TYPE_CHECKING:
    from tests.broker_plugin.test_assign import Placed
    from tests.support.broker_plugin.harness import Harness


def test_expired_hint_is_not_started_but_kept(harness: Harness) -> None:
    expired = hint(SCENE.payload(PLAN), expires_in_ms=0)
    assert_falls_back(SCENE.read(expired).ask(harness), RECEIVED=1, EXPIRED=1)
    answer = with_held(SCENE, PLAN).read(expired).ask(harness)
    assert (answer["assignment"], answer["counts"]["FOLLOWED"]) == (FOLLOWED, 1)


def test_expired_hint_is_kept_where_uniform_would_undo_it(harness: Harness) -> None:
    payload = SCENE.payload(UNEVEN, count_slack=1)
    done = with_held(SCENE, UNEVEN)
    answer = done.read(hint(payload, expires_in_ms=0)).ask(harness)
    assert answer["assignment"] == {"m-0": {A: [0, 1, 2]}, "m-1": {A: [3]}} != answer["uniform"]


def test_expired_hint_is_not_started_by_placing_free_partitions(harness: Harness) -> None:
    """Fresh members claim nothing: no move is needed, and yet the plan would begin."""
    plan: Placed = {"i:pod-0": {A: list(range(9))}, "i:pod-1": {A: [9]}}
    fresh = replace(with_held(SCENE, {}), topics={A: 10, HINTS: 3}, master_keys=("key",))
    expired = hint(fresh.payload(plan, count_slack=9), expires_in_ms=0, master_key="key")
    assert_falls_back(fresh.read(expired).ask(harness), RECEIVED=1, EXPIRED=1)


@pytest.mark.parametrize(("max_moves", "reason"), [(2, "FOLLOWED"), (1, "EXPIRED")])
def test_expired_hint_is_completed_if_few_partitions_are_free(
    harness: Harness, max_moves: int, reason: str
) -> None:
    begun = with_held(SCENE, {"i:pod-0": {A: [0]}, "i:pod-1": {A: [2]}})
    answer = begun.read(hint(begun.payload(PLAN, max_moves=max_moves), expires_in_ms=0)).ask(harness)
    assert answer["counts"] == {"RECEIVED": 1, reason: 1}
    assert (answer["assignment"] == FOLLOWED) == (reason == "FOLLOWED")


@pytest.mark.parametrize("slack", [1, 2, 4])
@pytest.mark.parametrize("expires_in_ms", [60_000, -90 * 86_400_000])
def test_slack_of_a_hint_that_does_not_fit_does_not_steer(
    harness: Harness, slack: int, expires_in_ms: int
) -> None:
    """Four members with two partitions each, and four that join: nobody is left without partitions."""
    pods = [Consumer(f"m-{n}", None, held={A: [2 * n, 2 * n + 1]}) for n in range(4)]
    four = Scene(tuple(pods), {A: 8, HINTS: 3})
    payload = four.payload({pod.key: pod.held for pod in pods}, count_slack=slack)
    eight = replace(four, members=(*pods, *(Consumer(f"n-{n}") for n in range(4))))
    answer = eight.read(hint(payload, expires_in_ms=expires_in_ms)).ask(harness)
    assert_falls_back(answer, RECEIVED=1, FINGERPRINT=1)
    assert {len(held[A]) for held in answer["assignment"].values()} == {1}


def test_largest_slack_of_a_hint_of_another_membership_does_not_steer(harness: Harness) -> None:
    payload = SCENE.payload(UNEVEN, count_slack=2**31 - 1, fingerprint="0" * 64)
    assert_falls_back(with_held(SCENE, UNEVEN).read(hint(payload)).ask(harness), RECEIVED=1, FINGERPRINT=1)


def test_withdrawn_hint_has_no_effect(harness: Harness) -> None:
    payload = SCENE.payload(UNEVEN, count_slack=1)
    scene = with_held(SCENE, UNEVEN).read(hint(payload)).apply(record(None))
    assert_falls_back(scene.ask(harness), RECEIVED=1, WITHDRAWN=1, NO_HINT=1)


def test_new_member_gets_a_share_whatever_the_slack(harness: Harness) -> None:
    payload = SCENE.payload(UNEVEN, count_slack=1)
    joined = with_held(SCENE, UNEVEN)
    joined = replace(joined, members=(*joined.members, Consumer("m-2", "pod-2")))
    answer = joined.read(hint(payload)).ask(harness)
    assert_falls_back(answer, RECEIVED=1, FINGERPRINT=1)
    assert answer["assignment"]["m-2"]


def test_while_hints_are_not_read_nothing_moves(harness: Harness) -> None:
    answer = with_held(SCENE, UNEVEN).ask(harness)
    assert answer["assignment"] == {"m-0": {A: [0, 1, 2]}, "m-1": {A: [3]}}
    assert answer["counts"] == {"COLD": 1}
    free = replace(SCENE, members=(PODS[0], replace(PODS[1], held={A: [3]})))
    assert free.ask(harness)["assignment"] == {"m-0": {A: [0, 1]}, "m-1": {A: [2, 3]}}


def test_while_hints_are_not_read_new_members_get_the_smallest_share(harness: Harness) -> None:
    """Ten partitions of three members: the newcomer gets two, the others keep theirs."""
    uneven = (range(6), range(6, 9), [9])
    pods = [Consumer(f"m-{n}", None, held={A: list(held)}) for n, held in enumerate(uneven)]
    joined = Scene((*pods, Consumer("m-3")), {A: 10, HINTS: 3})
    answer = joined.ask(harness)
    assert answer["counts"] == {"COLD": 1}
    assert {who: len(held[A]) for who, held in answer["assignment"].items()} == {
        "m-0": 4, "m-1": 3, "m-2": 1, "m-3": 2,
    }  # fmt: skip
    assert answer["assignment"]["m-1"] == {A: [6, 7, 8]}


@pytest.mark.parametrize("known", [None, B], ids=["after-a-start", "after-a-recreation"])
def test_who_triggers_changes_nothing_while_the_hint_topic_is_unknown(
    harness: Harness, known: str | None
) -> None:
    guest = Consumer("guest", None, (HINTS,), rack=TRIGGER_RACK)
    for members in (PODS, with_held(SCENE, UNEVEN).members, (*PODS, Consumer("m-2"))):
        for steps in ((), SCENE.read().steps):
            alone = replace(SCENE, members=members, hint_topic=known, steps=steps)
            with_guest = replace(alone, members=(*members, guest))
            wanted = {**alone.ask(harness)["assignment"], "guest": {HINTS: [0, 1, 2]}}
            assert with_guest.ask(harness)["assignment"] == wanted
            # It leaves, and the others keep what they have.
            placed = {member.key: wanted[member.member_id] for member in members}
            settled = with_held(alone, placed)
            assert settled.ask(harness)["assignment"] == {m.member_id: placed[m.key] for m in members}


def test_a_member_in_the_rack_of_who_triggers_counts_unless_it_takes_one_topic_alone(
    harness: Harness,
) -> None:
    scene = replace(SCENE, hint_topic=None, topics={A: 4, B: 1})
    for topics in ((A,), (A, B)):
        guest = Consumer("guest", None, topics, rack=TRIGGER_RACK)
        others = (PODS[0], replace(PODS[1], topics=(A, B)))
        answer = replace(scene, members=(*others, guest)).read().ask(harness)
        assert answer["assignment"] == answer["uniform"]
