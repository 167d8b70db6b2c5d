"""The plug-in's limit of memory: counted as the heap has it, enough for 10,000 hints, and what gives way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from assignor_core.hint import Hint
from assignor_core.loads import LoadFlow, Loads
from evenlag.doctor.kafka_checks import plugin_memory_findings
from evenlag.doctor.model import Verdict
from evenlag.publishing.hint_topic import TopicState
from evenlag.publishing.plugin_memory import groups_without_room, plugin_bytes
from tests.broker_plugin.test_assign import FOLLOWED, PLAN, SCENE
from tests.support.broker_plugin.harness import Harness
from tests.support.broker_plugin.problems import NOW_MS, A, hint, loads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from assignor_core.hint import HintPayload

MIB = 1024 * 1024
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(plugin_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """The plug-in in a JVM with the heap of a small broker, and a broker's collector."""
    classes = tmp_path_factory.mktemp("classes")
    with Harness(
        plugin_jar, classes, options=("-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseG1GC")
    ) as started:
        yield started


def spread(num_members: int, num_partitions: int) -> dict[str, dict[str, list[int]]]:
    """Dynamic members with every tenth partition: as planning by lag leaves them, in single numbers."""
    return {
        f"m:consumer-orders-{number}-0b8a9c1e-5d2f-4e7a-9b3c-{number:012}": {
            A: list(range(number, num_partitions, num_members))
        }
        for number in range(num_members)
    }


def hints(
    number: int, assignment: Mapping[str, Any], member_ids: Mapping[str, str] | None = None
) -> list[list[Any]]:
    payload = SCENE.payload(assignment, member_ids=member_ids or {})
    return [
        hint(replace(payload, group_id=f"group-{each:05}"), expires_in_ms=HOUR_MS) for each in range(number)
    ]


def heap(harness: Harness, records: Sequence[list[Any]], max_bytes: int = 512 * MIB) -> dict[str, Any]:
    return harness.ask("heap", records=list(records), max_bytes=max_bytes, now_ms=NOW_MS)


@pytest.mark.extended
def test_ten_thousand_hints_fit_into_the_default_of_a_broker_with_a_gigabyte(broker: Harness) -> None:
    records = hints(10_000, spread(10, 100))
    default = heap(broker, ())["default"]
    found = heap(broker, records, default)
    assert found["held"] == 10_000
    assert found["counted"] <= default <= 128 * MIB


FLOW = LoadFlow({A: [7] * 300}, {A: [1] * 300}, [5] * 20, per_s=1000, horizon_s=5)
STATIC = {f"i:pod-{number}": {A: [number]} for number in range(40)}


@pytest.mark.parametrize(
    "records",
    [
        hints(1_000, spread(10, 100)),
        hints(100, spread(200, 1_000)),
        hints(2_000, spread(1, 2)),
        hints(200, STATIC, {key: key[2:].ljust(80, "x") for key in STATIC}),
        [
            loads(
                SCENE.loads(
                    {A: list(range(300))},
                    group_id=f"group-{number}",
                    member_ids=[f"{number}-{each:03}".ljust(60, "m") for each in range(20)],
                    capacities={f"i:pod-{each}": 50 for each in range(20)},
                    flow=FLOW if number % 2 else None,
                )
            )
            for number in range(1_000)
        ],
    ],
    ids=["ten members", "many members", "one member", "static members", "loads"],
)
def test_bytes_are_those_of_the_heap(broker: Harness, records: list[list[Any]]) -> None:
    found = heap(broker, records)
    assert found["held"] + found["loads"] == len(records)
    assert found["counted"] == pytest.approx(found["used"], rel=0.25)


def test_expired_hints_give_way_then_loads_then_what_is_new_is_refused(harness: Harness) -> None:
    plan = SCENE.payload(PLAN)
    size = SCENE.read(hint(plan)).ask(harness)["bytes"]
    others = [hint(replace(plan, group_id=f"g-{number}"), expires_in_ms=HOUR_MS) for number in range(8)]
    expired = hint(replace(plan, group_id="expired"), expires_in_ms=-1)
    old = loads(SCENE.loads({A: [1] * 400}, group_id="old"))
    # A byte less than four hints and the loads take.
    scene = replace(SCENE, max_bytes=4 * size + SCENE.read(old).ask(harness)["bytes"] - 1)
    full = scene.read(expired, old, *others[:2])
    answer = full.ask(harness)
    assert (answer["held"], answer["loads"], answer["counts"].get("NO_ROOM", 0)) == (3, 1, 0)
    # The next hint takes the place of the expired one, the one after it that of the loads.
    answer = full.apply(*others[2:3]).ask(harness)
    assert (answer["held"], answer["loads"], answer["counts"].get("NO_ROOM", 0)) == (3, 1, 0)
    answer = full.apply(*others[2:4]).ask(harness)
    assert (answer["held"], answer["loads"], answer["counts"]["NO_ROOM"]) == (4, 0, 1)
    # Then there is no room: what is held stays, and what is new is refused.
    answer = full.apply(*others[2:], hint(plan)).ask(harness)
    assert (answer["held"], answer["loads"]) == (4, 0)
    assert answer["counts"]["NO_ROOM"] == 1 + len(others[4:]) + 1
    assert answer["bytes"] <= scene.max_bytes
    assert answer["assignment"] != FOLLOWED


def test_loads_do_not_take_the_place_of_hints(harness: Harness) -> None:
    plan = SCENE.payload(PLAN)
    size = SCENE.read(hint(plan)).ask(harness)["bytes"]
    scene = replace(SCENE, max_bytes=round(1.5 * size))
    answer = scene.read(hint(plan), loads(SCENE.loads({A: [1] * 400}, group_id="g-2"))).ask(harness)
    assert (answer["held"], answer["loads"], answer["counts"]["NO_ROOM"]) == (1, 0, 1)
    assert answer["assignment"] == FOLLOWED


def test_doctor_counts_the_same_bytes(harness: Harness) -> None:
    """Of each group alone, as Java counts them; over the smallest default it names the largest groups."""
    static = {f"i:pod-{number}": {A: [2 * number, 2 * number + 1]} for number in range(5)}
    wide = SCENE.payload(spread(3, 20), group_id="zahlungen-\u4e2d", member_ids={})
    payloads = {
        "dynamic": SCENE.payload(spread(7, 40), group_id="dynamic", member_ids={}),
        "static": SCENE.payload(static, group_id="static", member_ids={key: f"{key}-id" for key in static}),
        wide.group_id: wide,
    }
    weights = SCENE.loads(
        {A: [1, None, 3]},
        group_id="dynamic",
        member_ids=["a", "b\u00fc"],
        capacities={"i:x": 7, "i:y": 100},
        flow=LoadFlow({A: [1, 2, 3]}, {A: [None, 0, 0]}, [9, 9], per_s=1, horizon_s=0),
    )
    state = TopicState(
        exists=True,
        hints={name: _as_read(payload) for name, payload in payloads.items()},
        unreadable={},
        loads={"dynamic": Loads(weights, b"", signed=False)},
    )
    in_java = {name: SCENE.read(hint(payload)).ask(harness)["bytes"] for name, payload in payloads.items()}
    both = SCENE.read(hint(payloads["dynamic"]), loads(weights)).ask(harness)["bytes"]
    assert plugin_bytes(state) == in_java | {"dynamic": both}
    (fits,) = plugin_memory_findings(state)
    assert fits.verdict == Verdict.OK
    large = replace(payloads["dynamic"], group_id="large", assignment=spread(4_000, 400_000))
    many = {f"large-{number}": _as_read(large) for number in range(20)}
    found, *by_group = plugin_memory_findings(TopicState(exists=True, hints=many, unreadable={}))
    assert found.verdict == Verdict.WARNING
    assert "'large-0'" in found.message
    assert by_group
    assert all("brokers may have no room for its hint" in each.message for each in by_group)


def test_the_groups_without_room_are_those_that_java_has_no_room_for(harness: Harness) -> None:
    """In the order of the topic: hints of one time have the order of their groups."""
    payload = SCENE.payload(spread(7, 40), member_ids={})
    groups = {f"group-{number}": replace(payload, group_id=f"group-{number}") for number in range(9)}
    state = TopicState(
        exists=True, hints={name: _as_read(each) for name, each in groups.items()}, unreadable={}
    )
    total = sum(plugin_bytes(state).values())
    for limit in (total, total - 1, total // 2, 1):
        found = groups_without_room(state, limit)
        records = [hint(each) for each in groups.values()]
        assert heap(harness, records, limit)["held"] == len(groups) - len(found)
        assert list(found) == sorted(groups)[len(groups) - len(found) :]


def test_malformed_records_under_ever_new_keys_are_counted_and_few_of_them_logged(harness: Harness) -> None:
    """Ten one by one, then a line a minute; other reasons are logged as before."""
    answer = harness.ask("flood", records=10_000)
    assert answer["counted"] == 10_000
    assert len(answer["lines"]) == 12
    assert "11 records MALFORMED since the start" in answer["lines"][10]
    assert "RECEIVED" in answer["lines"][11]


def _as_read(payload: HintPayload) -> Hint:
    return Hint(payload.encode(), payload, "a" * 64, 1, NOW_MS, NOW_MS + HOUR_MS, signed=False)
