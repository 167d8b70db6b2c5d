"""The bounds of hints: what encoder and decoder refuse, and how much memory a few bytes can cost."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.errors import HintFormatError, HintSignatureError
from assignor_core.hint import HintPayload, decode_hint, encode_hint, hint_key
from assignor_core.partition_spans import PartitionSpans

TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"


def make_payload(**changes: Any) -> HintPayload:
    payload = HintPayload(
        cluster_id="cluster",
        group_id="orders",
        snapshot_id="s-1",
        fingerprint="f" * 64,
        assignment={"m:a": {TOPIC: (0, 1)}},
        count_slack=0,
        max_moves=2,
    )
    return replace(payload, **changes)


def make_value(payload: HintPayload | None = None) -> bytes:
    return encode_hint((payload or make_payload()).encode(), sequence=1, issued_at_ms=10, expires_at_ms=20)


@pytest.mark.parametrize(
    ("changes", "envelope"),
    [
        ({"cluster_id": "x" * 128, "snapshot_id": "s" * 256}, {}),
        ({"group_id": "\U0001f600" * 512}, {}),
        ({"count_slack": 2**31 - 1, "max_moves": 2**31 - 1}, {}),
        ({"assignment": {"m:" + "x" * 1022: {TOPIC: range(2_000_000)}}}, {}),
        ({"assignment": {"m:a": {TOPIC: [2**31 - 1]}}}, {}),
        ({"member_ids": {"i:" + "x" * 1022: "y" * 1024}}, {}),
        ({}, {"sequence": 2**53, "issued_at_ms": 2**53, "expires_at_ms": 2**53}),
    ],
)
def test_values_at_their_bounds_are_taken(changes: dict[str, Any], envelope: dict[str, int]) -> None:
    payload = make_payload(**changes)
    times: dict[str, Any] = {"sequence": 1, "issued_at_ms": 10, "expires_at_ms": 20, **envelope}
    hint = decode_hint(encode_hint(payload.encode(), **times), group_id=payload.group_id)
    assert hint.payload == replace(payload, assignment=hint.payload.assignment)
    assert hint.sequence == times["sequence"]


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster_id": "x" * 129},
        {"snapshot_id": "x" * 257},
        {"group_id": "\U0001f600" * 512 + "x"},
        {"group_id": "\udc00"},
        {"fingerprint": "f" * 63},
        {"fingerprint": "F" * 64},
        {"fingerprint": "f" * 64 + "\n"},
        {"fingerprint": "٣" * 64},
        {"count_slack": 2**31},
        {"max_moves": 2**63 - 1},
        {"max_moves": True},
        {"assignment": {"m:" + "x" * 1023: {TOPIC: [0]}}},
        {"assignment": {"m:\ud800": {TOPIC: [0]}}},
        {"assignment": {"m:a": {TOPIC: range(2_000_001)}}},
        {"assignment": {"m:a": {TOPIC: range(1_000_001)}, "m:b": {"A" * 21 + "g": range(1_000_000)}}},
        {"assignment": {"m:a": {TOPIC: [2**31]}}},
        {"assignment": {"m:a": {TOPIC: [0, 0]}}},
        {"assignment": {"m:a": {TOPIC: [3, 4, 5]}, "m:b": {TOPIC: [1, 5]}}},
        {"member_ids": {"i:" + "x" * 1023: "y"}},
        {"member_ids": {"i:x": "y" * 1025}},
        {"member_ids": {"i:x": "\ud800"}},
        {"member_ids": {"i:\udfff": "y"}},
    ],
)
def test_values_beyond_their_bounds_are_refused_by_encoder_and_decoder(changes: dict[str, Any]) -> None:
    with pytest.raises(HintFormatError):
        make_payload(**changes).encode()
    content = json.loads(make_payload().encode()) | changes
    if "assignment" in changes:
        content["assignment"] = {
            key: {topic: as_ranges(numbers) for topic, numbers in by_topic.items()}
            for key, by_topic in changes["assignment"].items()
        }
    with pytest.raises(HintFormatError):
        HintPayload.decode(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def as_ranges(numbers: Any) -> str:
    if isinstance(numbers, range):
        return f"{numbers[0]}-{numbers[-1]}"
    return "3-5" if numbers == [3, 4, 5] else ",".join(map(str, numbers))


@pytest.mark.parametrize("name", ["sequence", "issued_at_ms", "expires_at_ms"])
@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 2, 2**63, -1])
def test_implausible_numbers_of_an_envelope_are_refused(name: str, number: int) -> None:
    times: dict[str, Any] = {"sequence": 1, "issued_at_ms": 10, "expires_at_ms": 20, name: number}
    with pytest.raises(HintFormatError, match=name):
        encode_hint(make_payload().encode(), **times)
    value = re.sub(rf'"{name}":\d+'.encode(), f'"{name}":{number}'.encode(), make_value())
    with pytest.raises(HintFormatError, match=name):
        decode_hint(value, group_id="orders")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"hmac":null', b'"hmac":"\\ud800"'),
        (b'"snapshot_id":"s-1"', b'"snapshot_id":"\\udfff"'),
        (b'"snapshot_id":"s-1"', b'"snapshot_id":"\\ude00\\ud83d"'),
        (b'{"m:a"', b'{"\\ud83d"'),
    ],
)
def test_lone_surrogates_are_refused_before_the_signature_is_asked(old: bytes, new: bytes) -> None:
    value = make_value().replace(old, new)
    assert value != make_value()
    with pytest.raises(HintFormatError, match="surrogate"):
        decode_hint(value, group_id="orders")
    with pytest.raises(HintFormatError if b"hmac" in old else HintSignatureError):
        decode_hint(value, group_id="orders", group_key=b"key")


def test_group_ids_that_no_broker_has_have_no_key() -> None:
    with pytest.raises(HintFormatError, match="surrogate"):
        hint_key("orders-\ud800")
    assert hint_key("\U0001f600") == b"group/\xf0\x9f\x98\x80"


def test_a_value_may_have_8_mib() -> None:
    with pytest.raises(HintFormatError, match="more than the 8388608"):
        decode_hint(make_value() + b" " * 2**23, group_id="orders")
    many = {f"i:{number}": "y" * 1024 for number in range(8192)}
    with pytest.raises(HintFormatError, match="more than a record may have"):
        make_payload(member_ids=many).encode()


def test_twenty_records_of_huge_ranges_stay_as_small_as_their_bytes() -> None:
    """A value of 4,690 bytes names 1,999,999 partitions; 20 of them cost 1.7 GB when they were expanded."""
    long_id = {"snapshot_id": "s" * 256, "member_ids": {f"i:{n:04}": "y" * 1000 for n in range(4)}}
    value = make_value(make_payload(assignment={"m:a": {TOPIC: range(1_999_999)}}, **long_id))
    assert 4_000 < len(value) < 5_000
    assert b'"0-1999998"' in value
    tracemalloc.start()
    hints = [decode_hint(value, group_id="orders") for _ in range(20)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * 20 * len(value)
    assert all(len(hint.payload.assignment["m:a"][TOPIC]) == 1_999_999 for hint in hints)


# What is loaded and cached by the first call is not the record's.
MEASURED = """
import json, sys, tracemalloc
from assignor_core.hint import decode_hint

value = sys.stdin.buffer.read()
decode_hint(value, group_id="orders")
tracemalloc.start()
hint = decode_hint(value, group_id="orders")
print(json.dumps(tracemalloc.get_traced_memory()))
"""


def test_decoding_many_ranges_costs_memory_in_proportion_to_their_bytes() -> None:
    numbers = PartitionSpans.of(range(0, 20_000, 2))
    value = make_value(make_payload(assignment={"m:a": {TOPIC: numbers}}))
    # In a process of its own: threads of other tests allocate meanwhile.
    ran = subprocess.run([sys.executable, "-c", MEASURED], input=value, capture_output=True, check=True)
    kept, peak = json.loads(ran.stdout)
    assert len(value) < kept < 6 * len(value)
    assert peak < 20 * len(value)
    hint = decode_hint(value, group_id="orders")
    assert hint.payload.assignment["m:a"][TOPIC] == numbers


@given(st.sets(st.integers(0, 60), max_size=40))
def test_ranges_are_a_sequence_of_their_numbers(numbers: set[int]) -> None:
    wanted = sorted(numbers)
    spans = PartitionSpans.of(numbers)
    assert list(spans) == wanted == [spans[i] for i in range(len(spans))]
    assert [n for n in range(-2, 63) if n in spans] == wanted
    assert (spans[1:4], list(reversed(spans)), spans == tuple(wanted)) == (
        tuple(wanted[1:4]),
        wanted[::-1],
        True,
    )
    assert [n for first, last in spans.spans for n in range(first, last + 1)] == wanted
    assert spans.as_array().tolist() == [list(span) for span in spans.spans]
    if numbers:
        assert PartitionSpans.parse(str(spans)) == spans
        assert spans[-1] == wanted[-1]
        with pytest.raises(IndexError):
            spans[len(wanted)]
