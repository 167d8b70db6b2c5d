"""What the plug-in makes of the records on the hint topic: order, replays, the future, and memory."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker_plugin.test_assign import AS_KEYS, FOLLOWED, PLAN, SCENE, assert_falls_back
from tests.support.broker_plugin.harness import as_base64
from tests.support.broker_plugin.problems import NOW_MS, A, Scene, hint, hint_value, loads, record
from tests.support.each import for_each
from tests.support.records.newer_formats import ORDERS, Step, as_format

if TYPE_CHECKING:
    from tests.support.broker_plugin.harness import Harness

LAST = 2**53
FORGED = hint(SCENE.payload(AS_KEYS), sequence=LAST, issued_at_ms=NOW_MS)
VALID = hint(SCENE.payload(PLAN), sequence=1)


def test_first_pass_applies_only_the_last_record_of_a_key(harness: Harness) -> None:
    """As a broker that restarts before the compaction: a forged hint and its tombstone are superseded."""
    answer = SCENE.read(FORGED, record(None), VALID).ask(harness)
    assert answer["assignment"] == FOLLOWED
    assert (answer["held"], answer["counts"]) == (1, {"RECEIVED": 1, "FOLLOWED": 1})


@pytest.mark.parametrize("last", [record(None), record(b"malformed")])
def test_last_record_counts_whatever_it_is(harness: Harness, last: list[Any]) -> None:
    answer = SCENE.read(VALID, last).ask(harness)
    assert (answer["held"], answer["bytes"], answer["counts"]["NO_HINT"]) == (0, 0, 1)


def test_marks_of_a_running_broker_outlive_another_pass(harness: Harness) -> None:
    scene = SCENE.read(VALID).apply(FORGED).read(VALID)
    assert_falls_back(scene.ask(harness), RECEIVED=2, REPLAYED=1, NO_HINT=1)


def test_two_records_of_a_slower_clock_are_accepted_once_each(harness: Harness) -> None:
    """Signed by the publisher, sequence up and time down; replayed in turn without the key."""
    one = hint(SCENE.payload(AS_KEYS), sequence=1, issued_at_ms=NOW_MS - 1, master_key="k")
    two = hint(SCENE.payload(PLAN), sequence=2, issued_at_ms=NOW_MS - 2, master_key="k")
    signed = replace(SCENE, master_keys=("k",))
    answer = signed.read(one).apply(two, *[one, two] * 10).ask(harness)
    assert answer["assignment"] == FOLLOWED
    assert answer["counts"] == {"RECEIVED": 2, "REPLAYED": 10, "FOLLOWED": 1}


def test_hint_of_the_future_waits_and_raises_no_mark(harness: Harness) -> None:
    early = hint(SCENE.payload(AS_KEYS), sequence=LAST, issued_at_ms=NOW_MS + 300_001)
    scene = SCENE.read(VALID).apply(early)
    answer = scene.then({"do": "promote"}).ask(harness)
    assert answer["assignment"] == FOLLOWED
    assert answer["counts"] == {"RECEIVED": 1, "UNUSABLE": 1, "FOLLOWED": 1}
    newer = scene.apply(hint(SCENE.payload(AS_KEYS), sequence=2)).ask(harness)
    assert newer["counts"]["RECEIVED"] == 2
    assert newer["assignment"]["m-0"] == {A: [0, 1]}


def test_hint_of_the_future_counts_when_its_time_has_come(harness: Harness) -> None:
    early = {"do": "read", "records": [VALID], "now_ms": NOW_MS - 1_000_000 - 300_000}
    waiting = SCENE.then(early)
    assert waiting.ask(harness)["counts"] == {"UNUSABLE": 1, "NO_HINT": 1}
    answer = waiting.then({"do": "promote"}).ask(harness)
    assert answer["assignment"] == FOLLOWED


def test_hint_is_not_used_while_the_clock_is_back(harness: Harness) -> None:
    now = NOW_MS - 1_000_000 - 400_000
    answer = replace(SCENE.then({"do": "read", "records": [VALID], "now_ms": NOW_MS}), now_ms=now).ask(
        harness
    )
    assert_falls_back(answer, RECEIVED=1, NO_HINT=1)


@for_each(ORDERS, name=lambda case: case[0])
def test_hint_in_a_newer_format_withdraws_older_ones_and_blocks_no_later_one(
    case: tuple[str, tuple[Step, ...], Step | None], harness: Harness
) -> None:
    """The first record is read in the first pass, the others one by one."""
    _, steps, wanted = case
    records = []
    for step in steps:
        at_ms = NOW_MS - 1_000 + step.at_ms
        value = hint_value(SCENE.payload(PLAN), sequence=step.sequence, issued_at_ms=at_ms)
        records.append(record(as_format(value, step.version)))
    answer = SCENE.read(records[0]).apply(*records[1:]).ask(harness)
    num_held = int(wanted is not None)
    assert (answer["assignment"] == FOLLOWED, answer["held"]) == (bool(num_held), num_held)


def largest(number: int, kind: str) -> list[Any]:
    """Return a record with the longest names."""
    group_id = f"{number:04}".rjust(1024, "g")
    if kind == "hint":
        key = "m:".ljust(1020, "k") + f"{number:04}"
        return hint(SCENE.payload({key: {A: [0]}}, group_id=group_id, snapshot_id="s" * 256))
    ids = [f"{number:04}-{n:02}".ljust(1024, "m") for n in range(20)]
    early = {"measured_at_ms": NOW_MS + 400_000} if kind == "early" else {}
    return loads(SCENE.loads({A: [1]}, group_id=group_id, member_ids=ids, **early))


@pytest.mark.parametrize("kind", ["hint", "loads", "early", "withdrawn"])
def test_limit_of_memory_counts_everything(harness: Harness, kind: str) -> None:
    scene = replace(SCENE, max_bytes=100_000)
    records = [largest(number, "hint" if kind == "withdrawn" else kind) for number in range(100)]
    read: Scene = scene.read()
    if kind == "withdrawn":  # the marks stay
        read = read.apply(*(each for value in records for each in (value, [0, value[1], None])))
    else:
        read = read.apply(*records)
    answer = read.ask(harness)
    assert 50_000 < answer["bytes"] <= 100_000
    assert answer["counts"]["NO_ROOM"] >= 30
    again = read.read(*records).ask(harness)
    assert again["bytes"] <= 100_000


def test_fingerprint_of_a_megabyte_is_refused(harness: Harness) -> None:
    payload = replace(SCENE.payload(PLAN), fingerprint="f" * 64)
    value = hint(payload)
    bloated = as_base64(_value(value).replace(b"f" * 64, b"f" * 1_000_000))
    answer = SCENE.read([0, value[1], bloated]).ask(harness)
    assert (answer["bytes"], answer["counts"]["MALFORMED"]) == (0, 1)


def _value(record_of_hint: list[Any]) -> bytes:
    return base64.b64decode(record_of_hint[2])


def test_ranges_stay_ranges(harness: Harness) -> None:
    """The most partitions that a hint may name take no more memory than a few."""
    pods = {f"i:pod-{n}": {A: range(n * 1_000_000, (n + 1) * 1_000_000)} for n in range(2)}
    answer = SCENE.read(hint(SCENE.payload(pods))).ask(harness)
    assert (answer["held"], answer["counts"]["MISMATCH"]) == (1, 1)
    assert answer["bytes"] < 10_000
