"""What the plug-in answers the coordinator: by the consumers' rules, else as Kafka's uniform assignor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.broker_plugin.problems import (
    HINTS,
    NOW_MS,
    A,
    B,
    Consumer,
    Scene,
    hint,
    hint_value,
    loads,
    record,
    stop,
)

if TYPE_CHECKING:
    from tests.support.broker_plugin.harness import Harness

Placed = dict[str, dict[str, list[int]]]

PODS = (
    Consumer("m-0", "pod-0", held={A: [0, 1]}),
    Consumer("m-1", "pod-1", held={A: [2, 3]}),
)
SCENE = Scene(PODS, {A: 4, HINTS: 3})
PLAN: Placed = {"i:pod-0": {A: [0, 3]}, "i:pod-1": {A: [1, 2]}}
FOLLOWED = {"m-0": {A: [0, 3]}, "m-1": {A: [1, 2]}}
AS_IT_WAS = {"m-0": {A: [0, 1]}, "m-1": {A: [2, 3]}}
UNEVEN: Placed = {"i:pod-0": {A: [0, 1, 2]}, "i:pod-1": {A: [3]}}


def with_held(scene: Scene, assignment: Placed) -> Scene:
    """Return the scene after the coordinator has taken an assignment, by member key."""
    members = tuple(replace(member, held=assignment.get(member.key, {})) for member in scene.members)
    return replace(scene, members=members)


def assert_falls_back(answer: dict[str, Any], **counts: int) -> None:
    assert answer["assignment"] == answer["uniform"]
    assert answer["counts"] == counts


def test_hint_is_followed(harness: Harness) -> None:
    answer = SCENE.read(hint(SCENE.payload(PLAN))).ask(harness)
    assert answer["assignment"] == FOLLOWED
    assert answer["counts"] == {"RECEIVED": 1, "FOLLOWED": 1}


def test_without_hints_it_is_kafkas_uniform_assignor(harness: Harness) -> None:
    assert_falls_back(SCENE.read().ask(harness), NO_HINT=1)


def test_group_that_only_looks_alike_does_not_follow(harness: Harness) -> None:
    """Same instance ids, same topic, other member ids: the fingerprint is the same, the group is not."""
    other = replace(SCENE, members=tuple(replace(pod, member_id=f"other-{pod.member_id}") for pod in PODS))
    assert other.fingerprint() == SCENE.fingerprint()
    assert_falls_back(other.read(hint(SCENE.payload(PLAN))).ask(harness), RECEIVED=1, NO_HINT=1)


def test_each_of_two_groups_that_look_alike_follows_its_own(harness: Harness) -> None:
    other = replace(SCENE, members=tuple(replace(pod, member_id=f"other-{pod.member_id}") for pod in PODS))
    swapped = {"i:pod-0": {A: [1, 2]}, "i:pod-1": {A: [0, 3]}}
    records = [hint(SCENE.payload(PLAN)), hint(other.payload(swapped, group_id="payments"))]
    assert SCENE.read(*records).ask(harness)["assignment"] == FOLLOWED
    assert other.read(*records).ask(harness)["assignment"]["other-m-0"] == {A: [1, 2]}


def test_one_restarted_pod_does_not_lose_the_hint(harness: Harness) -> None:
    restarted = replace(SCENE, members=(replace(PODS[0], member_id="new"), PODS[1]))
    answer = restarted.read(hint(SCENE.payload(PLAN))).ask(harness)
    assert answer["assignment"] == {"new": {A: [0, 3]}, "m-1": {A: [1, 2]}}


def test_all_pods_restarted_lose_it(harness: Harness) -> None:
    """Static or dynamic: when no member of the snapshot is left, nothing tells the broker the group."""
    dynamic = replace(SCENE, members=tuple(replace(pod, instance=None) for pod in PODS))
    value = hint(dynamic.payload({"m:m-0": PLAN["i:pod-0"], "m:m-1": PLAN["i:pod-1"]}))
    new = tuple(replace(pod, member_id=f"new-{pod.member_id}", instance=None) for pod in PODS)
    assert_falls_back(replace(dynamic, members=new).read(value).ask(harness), RECEIVED=1, NO_HINT=1)
    restarted = replace(SCENE, members=tuple(replace(p, member_id=f"new-{p.member_id}") for p in PODS))
    assert_falls_back(restarted.read(hint(SCENE.payload(PLAN))).ask(harness), RECEIVED=1, NO_HINT=1)


def test_dynamic_members_are_known_by_their_keys(harness: Harness) -> None:
    scene = replace(SCENE, members=tuple(replace(pod, instance=None) for pod in PODS))
    payload = scene.payload({"m:m-0": PLAN["i:pod-0"], "m:m-1": PLAN["i:pod-1"]})
    assert payload.member_ids == {}
    assert scene.read(hint(payload)).ask(harness)["assignment"] == FOLLOWED


def test_hint_for_the_classic_protocol_is_not_for_the_broker(harness: Harness) -> None:
    payload = SCENE.payload(PLAN, member_ids=None)
    assert_falls_back(SCENE.read().apply(hint(payload)).ask(harness), CLASSIC=1, NO_HINT=1)


def test_member_of_two_groups_hints_follows_the_one_that_fits(harness: Harness) -> None:
    """A client chooses its member id: one that is in another group's hint changes nothing."""
    mine = hint(SCENE.payload(PLAN, member_ids={"i:pod-0": "m-0"}))
    other = SCENE.payload(AS_KEYS, group_id="y", fingerprint="0" * 64, member_ids={"i:pod-0": "m-0"})
    for records in ([mine, hint(other)], [hint(other), mine]):
        answer = SCENE.read(*records).ask(harness)
        assert answer["assignment"] == FOLLOWED
        assert answer["counts"] == {"RECEIVED": 2, "FOLLOWED": 1}


@pytest.mark.parametrize("changes", [{}, {"fingerprint": "0" * 64}])
def test_member_of_two_groups_hints_stays_if_both_or_none_fit(
    harness: Harness, changes: dict[str, str]
) -> None:
    uneven = with_held(SCENE, UNEVEN)
    records = [
        hint(SCENE.payload(PLAN, group_id=name, member_ids={"i:pod-0": f"m-{i}"}, **changes))
        for i, name in enumerate(("x", "y"))
    ]
    answer = uneven.read(*records).ask(harness)
    assert answer["assignment"] == {"m-0": {A: [0, 1, 2]}, "m-1": {A: [3]}} != answer["uniform"]
    assert answer["counts"] == {"RECEIVED": 2, "MISMATCH": 1}
    joined = replace(uneven, members=(*uneven.members, Consumer("m-2")))
    answer = joined.read(*records).ask(harness)["assignment"]
    assert len(answer["m-2"][A]) == 1
    assert answer["m-1"] == {A: [3]}


@pytest.mark.parametrize(
    ("changes", "plan", "reason"),
    [
        ({"fingerprint": "0" * 64}, PLAN, "FINGERPRINT"),
        ({"max_moves": 1}, PLAN, "MAX_MOVES"),
        ({}, UNEVEN, "COUNT_SLACK"),
        ({"max_moves": 0}, UNEVEN, "INVALID"),
        ({}, {"i:pod-0": {A: [0, 3]}, "i:pod-1": {A: [1]}}, "INVALID"),
        ({}, {"i:pod-0": {A: [0, 3]}, "i:pod-1": {A: [1, 2, 4]}}, "MISMATCH"),
        ({}, {"i:pod-0": {A: [0, 3]}, "i:pod-2": {A: [1, 2]}}, "MISMATCH"),
        ({}, {**PLAN, "i:pod-1": {A: [1, 2], B: [0]}}, "MISMATCH"),
        ({}, {"i:pod-0": {A: [0, 3]}, "i:pod-1": {A: [1, 2, 2_000_000_000]}}, "MISMATCH"),
    ],
)
def test_hint_that_does_not_fit_is_not_followed(
    harness: Harness, changes: dict[str, Any], plan: Placed, reason: str
) -> None:
    answer = SCENE.read(hint(SCENE.payload(plan, **changes))).ask(harness)
    assert_falls_back(answer, RECEIVED=1, **{reason: 1})


def test_stop_and_resume(harness: Harness) -> None:
    scene = SCENE.read(hint(SCENE.payload(PLAN))).apply(stop())
    assert_falls_back(scene.ask(harness), RECEIVED=1, STOPPED=1, NO_HINT=1)
    resumed = scene.apply(stop(None)).ask(harness)
    assert resumed["assignment"] == FOLLOWED
    assert resumed["counts"]["RESUMED"] == 1


def test_older_hint_does_not_come_back(harness: Harness) -> None:
    old, new = SCENE.payload(AS_KEYS), SCENE.payload(PLAN)
    scene = SCENE.read(hint(new, sequence=5)).apply(hint(old, sequence=4))
    answer = scene.ask(harness)
    assert (answer["assignment"], answer["counts"]["REPLAYED"]) == (FOLLOWED, 1)
    withdrawn = SCENE.read(hint(new, sequence=5)).apply(record(None), hint(new, sequence=5))
    assert withdrawn.ask(harness)["counts"] == {"RECEIVED": 1, "WITHDRAWN": 1, "REPLAYED": 1, "NO_HINT": 1}


AS_KEYS: Placed = {"i:pod-0": {A: [0, 1]}, "i:pod-1": {A: [2, 3]}}


def test_reading_the_topic_again_changes_nothing(harness: Harness) -> None:
    """Neither its older records nor tombstones in between count, if the newest record is what it was."""
    log = [hint(SCENE.payload(AS_KEYS), sequence=1), record(None), hint(SCENE.payload(PLAN), sequence=2)]
    answer = SCENE.read(*log).read(*log).ask(harness)
    assert answer["assignment"] == FOLLOWED
    assert answer["counts"] == {"RECEIVED": 1, "FOLLOWED": 1}


def test_topic_made_anew_is_withdrawn_and_brings_nothing_old_back(harness: Harness) -> None:
    new = hint(SCENE.payload(PLAN), sequence=2)
    assert_falls_back(SCENE.read(new).read().ask(harness), RECEIVED=1, NO_HINT=1)
    old = SCENE.read(new).read(hint(SCENE.payload(AS_KEYS), sequence=1)).ask(harness)
    assert_falls_back(old, RECEIVED=1, REPLAYED=1, NO_HINT=1)


def test_hint_is_there_again_after_the_topic_was_out_of_reach(harness: Harness) -> None:
    new = hint(SCENE.payload(PLAN), sequence=2)
    gone = SCENE.read(new).then({"do": "forget"})
    assert_falls_back(gone.ask(harness), RECEIVED=1, NO_HINT=1)
    assert gone.read(new).ask(harness)["assignment"] == FOLLOWED


def test_record_in_another_partition_than_its_groups_is_a_leftover(harness: Harness) -> None:
    scene = replace(SCENE, num_partitions=4)
    values = [record(hint_value(SCENE.payload(PLAN)), partition=number) for number in range(4)]
    followed = [scene.read(value).ask(harness)["assignment"] == FOLLOWED for value in values]
    assert sum(followed) == 1


def test_forged_hint_is_not_followed(harness: Harness) -> None:
    scene = replace(SCENE, master_keys=("right",))
    payload = SCENE.payload(PLAN)
    for key in (None, "wrong"):
        answer = scene.read(hint(payload, master_key=key)).ask(harness)
        assert_falls_back(answer, BAD_SIGNATURE=1, NO_HINT=1)
    assert scene.read(hint(payload, master_key="right")).ask(harness)["assignment"] == FOLLOWED


def test_memory_is_bounded(harness: Harness) -> None:
    payload = SCENE.payload(PLAN)
    records = [hint(replace(payload, group_id=f"g-{number}")) for number in range(50)]
    scene = replace(SCENE, max_bytes=10_000)
    answer = scene.read(*records).ask(harness)
    assert 0 < answer["held"] < 50
    assert answer["bytes"] <= 10_000
    assert answer["counts"]["NO_ROOM"] + answer["held"] == 50


def test_member_that_takes_the_hint_topic_only_does_not_count(harness: Harness) -> None:
    """It is how the coordinator is made to ask: neither the hint nor the fallback may see it."""
    guest = Consumer("guest", None, (HINTS,))
    asked = replace(SCENE, members=(*PODS, guest))
    answer = asked.read(hint(SCENE.payload(PLAN))).ask(harness)
    assert answer["assignment"] == {**FOLLOWED, "guest": {HINTS: [0, 1, 2]}}
    answer = replace(asked, members=(*asked.members, replace(guest, member_id="z"))).read().ask(harness)
    assert answer["assignment"] == {**AS_IT_WAS, "guest": {HINTS: [0, 2]}, "z": {HINTS: [1]}}


SWAPPED_PLAN: Placed = {"i:pod-0": {A: [2, 3]}, "i:pod-1": {A: [0, 1]}}
SWAPPED = {"m-0": {A: [2, 3]}, "m-1": {A: [0, 1]}}
PLANS = [hint(SCENE.payload(PLAN if n % 3 else SWAPPED_PLAN), sequence=2 + n) for n in range(2_000)]
STALE_LOADS = loads(SCENE.loads({A: [1, 1, 1, 1]}, valid_until_ms=NOW_MS))


def ask_in_a_storm(harness: Harness, known: list[Any], records: list[Any]) -> dict[str, Any]:
    scene = SCENE.read(*known)
    return harness.ask("storm", **scene.question(), threads=4, asks=2_000, storm={"records": records})


@pytest.mark.parametrize("others", [[], [STALE_LOADS]], ids=["alone", "beside-stale-loads"])
def test_many_threads_may_ask_while_hints_come_and_go(harness: Harness, others: list[Any]) -> None:
    """Each answer is one of a state that there was, whole: a plan, another plan, or none."""
    records = [each for plan in PLANS for each in (plan, record(None))]
    answer = ask_in_a_storm(harness, [PLANS[0], *others], records)
    assert (answer["errors"], answer["followed"] + answer["no_hint"]) == (0, 8_000)
    assert all(each in (FOLLOWED, SWAPPED, AS_IT_WAS) for each in answer["answers"])


def test_group_has_a_hint_at_each_moment_while_others_replace_it(harness: Harness) -> None:
    answer = ask_in_a_storm(harness, [PLANS[0]], PLANS)
    assert (answer["errors"], answer["followed"]) == (0, 8_000)
    assert all(each in (FOLLOWED, SWAPPED) for each in answer["answers"])


def test_group_that_reads_the_hint_topic_itself_is_a_group_like_any(harness: Harness) -> None:
    both = (replace(PODS[0], topics=(A, HINTS)), Consumer("reader", None, (HINTS,)))
    assert_falls_back(replace(SCENE, members=both).read().ask(harness), NO_HINT=1)
    alone = (Consumer("reader", None, (HINTS,)),)
    assert_falls_back(replace(SCENE, members=alone).read().ask(harness), NO_HINT=1)


def test_no_fault_of_kafkas_own_assignor_fails_a_rebalance(harness: Harness) -> None:
    answer = replace(SCENE, broken=True).read().ask(harness)
    assert answer["assignment"] == AS_IT_WAS
    assert answer["counts"]["INTERNAL_ERROR"] == 1


def test_settings_come_from_the_brokers(harness: Harness) -> None:
    own = {
        "listeners": "INTERNAL://0.0.0.0:9092,PUBLIC://:9093",
        "advertised.listeners": "PUBLIC://kafka.example:9093",
        "listener.security.protocol.map": "INTERNAL:SASL_SSL,PUBLIC:SSL",
        "inter.broker.listener.name": "INTERNAL",
    }
    answer = harness.ask("settings", configs=own)
    assert answer["client"] == {"bootstrap.servers": "localhost:9092", "security.protocol": "SASL_SSL"}
    assert (answer["topic"], answer["key_files"]) == ("evenlag-hints", [])
    given = {
        "evenlag.hint.topic": "plans",
        "evenlag.bootstrap.servers": "a:1,b:2",
        "evenlag.consumer.sasl.jaas.config": "a secret",
        "evenlag.signing.key.file": "/keys/new, /keys/old",
        "evenlag.required.signing": "true",
    }
    answer = harness.ask("settings", configs=given)
    assert answer["client"] == {"bootstrap.servers": "a:1,b:2", "sasl.jaas.config": "a secret"}
    assert (answer["topic"], answer["key_files"]) == ("plans", ["/keys/new", "/keys/old"])
    assert "secret" not in answer["text"]


@pytest.mark.parametrize(
    "configs",
    [
        {"evenlag.max.bytes": "many"},
        {"inter.broker.listener.name": "X"},
        {"evenlag.required.signing": "true"},
        {"evenlag.required.signing": "yes"},
    ],
)
def test_wrong_settings_are_named(harness: Harness, configs: dict[str, str]) -> None:
    with pytest.raises(RuntimeError, match=next(iter(configs)).replace("inter.broker.listener.name", "X")):
        harness.ask("settings", configs=configs)
