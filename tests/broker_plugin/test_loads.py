"""Loads in the plug-in: read as Python reads them, found by member ids, and followed when no hint fits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from assignor_core.algorithms.present_loads import present_loads
from assignor_core.errors import HintFormatError
from assignor_core.loads import LoadFlow, LoadsPayload, decode_loads
from tests.support.broker_plugin.harness import as_base64
from tests.support.broker_plugin.problems import (
    CLUSTER_ID,
    GROUP_ID,
    HINTS,
    NOW_MS,
    A,
    B,
    Consumer,
    Scene,
    hint,
    loads,
    loads_value,
    no_loads,
    stop,
)
from tests.support.by_load.flows import later_times, random_loads
from tests.support.each import for_each

if TYPE_CHECKING:
    from tests.support.broker_plugin.harness import Harness

MASTER = "a master key for tests"
PODS = (Consumer("m-0", held={A: [0, 1, 2]}), Consumer("m-1", held={A: [3, 4, 5]}))
SCENE = Scene(PODS, {A: 6, HINTS: 3})
LOADS = {A: [50, 1, 1, 40, 1, 1]}
"""The heavy partitions are one with each member."""
FLOW = LoadFlow({A: [1, 2, 3, 4, 5, 6]}, {A: [0, 0, None, 1, 1, 1]}, [70, 2**31 - 1], per_s=10, horizon_s=5)
NEWCOMER = Consumer("m-2")
JOINED = replace(SCENE, members=(*PODS, NEWCOMER))


def ask_loads(
    harness: Harness, value: bytes, *master_keys: str, group_id: str = GROUP_ID, **more: int
) -> dict[str, Any]:
    return harness.ask(
        "decode_loads",
        group=group_id,
        value=as_base64(value),
        master_keys=list(master_keys),
        cluster_id=CLUSTER_ID,
        **more,
    )


def test_loads_are_read_as_in_python(harness: Harness) -> None:
    payload = SCENE.loads(
        {A: [1, None, 2**31 - 1], B: [None]},
        capacities={"i:pod-0": 1, "m:\U0001f600": 1000},
        member_ids=["m-1", "\uffee", "\U0001f600"],
    )
    value = loads_value(payload, master_key=MASTER)
    answer = ask_loads(harness, value, "another", MASTER)
    assert answer == {
        "digest": answer["digest"],
        "measured_at_ms": payload.measured_at_ms,
        "valid_until_ms": payload.valid_until_ms,
        "limits": [0, 100, 100],
        "capacities": {"i:pod-0": 1, "m:\U0001f600": 1000},
        "member_ids": ["m-1", "\uffee", "\U0001f600"],
        "loads": {A: [1, -1, 2**31 - 1], B: [-1]},
    }
    assert decode_loads(loads_value(payload), group_id=GROUP_ID).payload.encode() == payload.encode()
    assert ask_loads(harness, value, "another")["reason"] == "BAD_SIGNATURE"
    assert ask_loads(harness, loads_value(payload), MASTER)["reason"] == "BAD_SIGNATURE"
    assert ask_loads(harness, value, MASTER, group_id="other")["reason"] == "BAD_SIGNATURE"
    assert ask_loads(harness, value, group_id="other")["reason"] == "FOREIGN"


@for_each(range(200))
def test_loads_are_brought_to_the_present_as_in_python(seed: int, harness: Harness) -> None:
    measured = replace(random_loads(seed), cluster_id=CLUSTER_ID, group_id=GROUP_ID)
    for now_ms in later_times(seed):
        answer = ask_loads(harness, loads_value(measured), at_ms=now_ms)
        found = {
            topic: [None if load < 0 else load for load in values]
            for topic, values in answer["loads"].items()
        }
        assert found == present_loads(measured, now_ms).loads


def test_newcomer_gets_what_waits_now_and_not_what_waited_at_the_measurement(harness: Harness) -> None:
    """The measurement is a minute old: m-0 has processed its partitions, m-1 none of its own."""
    flow = LoadFlow({A: [0] * 6}, {A: [0, 0, 0, 1, 1, 1]}, [100, 0], per_s=1, horizon_s=0)
    weights = {A: [90, 60, 60, 30, 20, 20]}
    stale = JOINED.read(loads(SCENE.loads(weights))).ask(harness)["assignment"]["m-2"][A]
    assert 3 not in stale
    present = JOINED.read(loads(SCENE.loads(weights, flow=flow))).ask(harness)["assignment"]["m-2"][A]
    assert 3 in present


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (b'"loads":{', b'"loads":{"AA":[1],'),
        (b"[50,1,1,40,1,1]", b"[]"),
        (b"[50,1,1,40,1,1]", b"[2147483648]"),
        (b"[50,1,1,40,1,1]", b"[-1]"),
        (b"[50,1,1,40,1,1]", b"[1.0]"),
        (b"[50,1,1,40,1,1]", b"[1, 2]"),
        (b"[50,1,1,40,1,1]", b"[" + b",".join([b"null"] * 1_500_000) + b"]"),
        (b'"capacities":{}', b'"capacities":{"m:x":100}'),
        (b'"capacities":{}', b'"capacities":{"m:x":1001}'),
        (b'"capacities":{}', b'"capacities":{"x":1}'),
        (b'"default_capacity":100', b'"default_capacity":0'),
        (b'"max_moves":100', b'"max_moves":2147483648'),
        (b'"member_ids":["m-0","m-1"]', b'"member_ids":["m-1","m-0"]'),
        (b'"member_ids":["m-0","m-1"]', b'"member_ids":["m-0","m-0"]'),
        (b'"member_ids":["m-0","m-1"]', b'"member_ids":["","m-0"]'),
        (b'"member_ids":["m-0","m-1"]', b'"member_ids":["\\ud800"]'),
        (b'"kind":"loads"', b'"kind":"hint"'),
        (b'"version":1', b'"version":2'),
        (b'"arrivals":{', b'"arrivals":{"AA":[1],'),
        (b"[1,2,3,4,5,6]", b"[1,2,3,4,5]"),
        (b"[1,2,3,4,5,6]", b"[1,2,3,4,5,null]"),
        (b"[0,0,null,1,1,1]", b"[0,0,null,1,1,2]"),
        (b"[0,0,null,1,1,1]", b"[0,0,null,1,1]"),
        (b'"horizon_s":5', b'"horizon_s":86401'),
        (b'"per_s":10', b'"per_s":0'),
        (b'"per_s":10', b'"per_s":1000001'),
        (b',"speeds":[70,2147483647]', b""),
        (b"[70,2147483647]", b"[70,2147483648]"),
    ],
)
def test_malformed_loads_are_refused_by_both(harness: Harness, right: bytes, wrong: bytes) -> None:
    value = loads_value(SCENE.loads(LOADS, flow=FLOW))
    assert right in value
    assert "reason" not in ask_loads(harness, value)
    if wrong.startswith(b"[null"):
        # In two topics: together more than a record may name, and less than its bytes allow.
        wrong += b',"AgICAgICAgICAgICAgICAg":[' + b",".join([b"0"] * 600_000) + b"]"
    broken = value.replace(right, wrong)
    with pytest.raises(HintFormatError):
        decode_loads(broken, group_id=GROUP_ID, cluster_id=CLUSTER_ID)
    assert ask_loads(harness, broken)["reason"] == "MALFORMED"


def level(answer: dict[str, Any]) -> int:
    """Return the largest load of a member."""
    placed: dict[str, dict[str, list[int]]] = answer["assignment"]
    return max(sum(LOADS[A][n] for n in held.get(A, [])) for held in placed.values())


def test_newcomer_gets_its_share_by_load(harness: Harness) -> None:
    """Two partitions each, the heaviest alone with one that weighs nothing."""
    answer = JOINED.read(loads(SCENE.loads(LOADS))).ask(harness)
    assert answer["counts"] == {"PLACED_BY_LOAD": 1}
    assert {len(held[A]) for held in answer["assignment"].values()} == {2}
    assert level(answer) == 51
    kept = answer["assignment"]
    assert set(kept["m-0"][A]) <= {0, 1, 2}
    assert set(kept["m-1"][A]) <= {3, 4, 5}


def test_hint_that_fits_goes_before_loads_and_one_that_does_not_after(harness: Harness) -> None:
    plan = {"m:m-0": {A: [0, 4, 5]}, "m:m-1": {A: [1, 2, 3]}}
    records = [hint(SCENE.payload(plan)), loads(SCENE.loads(LOADS))]
    answer = SCENE.read(*records).ask(harness)
    assert answer["assignment"]["m-0"] == {A: [0, 4, 5]}
    assert answer["counts"] == {"RECEIVED": 1, "FOLLOWED": 1}
    answer = JOINED.read(*records).ask(harness)
    assert answer["counts"] == {"RECEIVED": 1, "FINGERPRINT": 1, "PLACED_BY_LOAD": 1}


@pytest.mark.parametrize(
    "changes", [{"valid_until_ms": NOW_MS}, {"measured_at_ms": NOW_MS + 300_001}, {"member_ids": None}]
)
def test_loads_that_are_not_fresh_or_not_for_brokers_are_not_used(
    harness: Harness, changes: dict[str, Any]
) -> None:
    answer = JOINED.read(loads(SCENE.loads(LOADS, **changes))).ask(harness)
    assert answer["assignment"] == answer["uniform"]
    assert answer["counts"]["NO_HINT"] == 1


def test_loads_are_found_by_any_member_and_lost_with_the_last(harness: Harness) -> None:
    record = loads(SCENE.loads(LOADS))
    one_left = replace(SCENE, members=(PODS[0], replace(PODS[1], member_id="new")))
    assert one_left.read(record).ask(harness)["counts"] == {"PLACED_BY_LOAD": 1}
    all_new = replace(SCENE, members=tuple(replace(pod, member_id=f"new-{n}") for n, pod in enumerate(PODS)))
    answer = all_new.read(record).ask(harness)
    assert (answer["assignment"], answer["counts"]) == (answer["uniform"], {"NO_HINT": 1})


def test_tombstone_and_stop_end_loads_and_older_ones_do_not_return(harness: Harness) -> None:
    old, new = SCENE.loads(LOADS), SCENE.loads(LOADS, measured_at_ms=NOW_MS - 1)
    read = JOINED.read(loads(new))
    for scene in (read.apply(no_loads()), read.apply(stop()), read.apply(no_loads(), loads(new))):
        answer = scene.ask(harness)
        assert answer["assignment"] == answer["uniform"]
        assert "PLACED_BY_LOAD" not in answer["counts"]
    newer = loads(SCENE.loads(LOADS, measured_at_ms=NOW_MS))
    assert read.apply(no_loads(), newer).ask(harness)["counts"] == {"PLACED_BY_LOAD": 1}
    answer = read.apply(loads(old)).ask(harness)
    assert answer["counts"] == {"REPLAYED": 1, "PLACED_BY_LOAD": 1}
    assert read.apply(loads(new)).ask(harness)["counts"] == {"PLACED_BY_LOAD": 1}


def test_loads_count_in_their_groups_partition_only(harness: Harness) -> None:
    scene = replace(JOINED, num_partitions=4)
    answers = [scene.read(loads(SCENE.loads(LOADS), partition=n)).ask(harness) for n in range(4)]
    assert sorted(answer["loads"] for answer in answers) == [0, 0, 0, 1]
    plan = [scene.read([n, *hint(SCENE.payload({}, member_ids={}))[1:]]).ask(harness) for n in range(4)]
    assert [answer["loads"] for answer in answers] == [answer["counts"].get("RECEIVED", 0) for answer in plan]


def test_loads_of_the_future_wait_for_their_time(harness: Harness) -> None:
    early = loads(SCENE.loads(LOADS, measured_at_ms=NOW_MS))
    past = {"do": "read", "records": [early], "now_ms": NOW_MS - 300_001}
    waiting = JOINED.then(past)
    answer = waiting.ask(harness)
    assert answer["counts"] == {"UNUSABLE": 1, "NO_HINT": 1}
    assert waiting.then({"do": "promote"}).ask(harness)["counts"] == {"UNUSABLE": 1, "PLACED_BY_LOAD": 1}


def test_payload_of_loads_has_no_second_form(harness: Harness) -> None:
    value = loads_value(SCENE.loads(LOADS))
    for broken in (value + b" ", value.replace(b'"max_moves":', b'"max_moves": '), value[:-1]):
        assert ask_loads(harness, broken)["reason"] == "MALFORMED"
    assert LoadsPayload.decode(value.partition(b"\n")[2]) is not None
