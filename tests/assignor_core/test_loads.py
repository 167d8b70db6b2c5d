"""Records of loads: exact bytes, bounds, freshness, and nothing but hint errors from any bytes."""

from __future__ import annotations

import hashlib
import hmac
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.errors import HintError, HintForeignError, HintFormatError, HintSignatureError
from assignor_core.hint import derive_broker_key, derive_group_key
from assignor_core.loads import LoadFlow, LoadsPayload, decode_loads, encode_loads, loads_key

TOPIC, OTHER = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
BYTES = (
    '{"capacities":{"i:pod-0":250,"m:\\u00e4":1000},"cluster_id":"cluster","count_slack":1,'
    '"default_capacity":100,"group_id":"orders","loads":{"AAAAAAAAAAAAAAAAAAAAAQ":[7,null,0]},'
    '"max_moves":4,"measured_at_ms":1000000,"snapshot_id":"s-1","valid_until_ms":2000000}'
)

FLOW = LoadFlow({TOPIC: [3, 0, 9]}, {TOPIC: [1, None, 0]}, [70, 0], per_s=10, horizon_s=5)
FLOW_BYTES = (
    '"flow":{"arrivals":{"AAAAAAAAAAAAAAAAAAAAAQ":[3,0,9]},"horizon_s":5,'
    '"owners":{"AAAAAAAAAAAAAAAAAAAAAQ":[1,null,0]},"per_s":10,"speeds":[70,0]},'
)


def make_payload(**changes: Any) -> LoadsPayload:
    payload = LoadsPayload(
        cluster_id="cluster",
        group_id="orders",
        snapshot_id="s-1",
        measured_at_ms=1_000_000,
        valid_until_ms=2_000_000,
        loads={TOPIC: [7, None, 0]},
        capacities={"m:ä": 1000, "i:pod-0": 250, "i:pod-1": 100},
        default_capacity=100,
        count_slack=1,
        max_moves=4,
    )
    return replace(payload, **changes)


def make_value(key: bytes | None = None, **changes: Any) -> bytes:
    return encode_loads(make_payload(**changes).encode(), group_key=key)


def test_loads_have_these_bytes() -> None:
    assert make_payload().encode().decode() == BYTES
    assert make_value().decode() == '{"hmac":null,"kind":"loads","version":1}\n' + BYTES
    assert loads_key("orders") == b"loads/orders"
    with_ids = make_payload(member_ids=["b", "a"]).encode().decode()
    assert with_ids == BYTES.replace('"snapshot_id"', '"member_ids":["a","b"],"snapshot_id"')
    together = make_payload(together=[[OTHER, TOPIC]]).encode()
    assert together.decode() == BYTES.replace('"valid', f'"together":[["{TOPIC}","{OTHER}"]],"valid')
    assert LoadsPayload.decode(together).together == [[TOPIC, OTHER]]
    with_flow = make_payload(flow=FLOW).encode()
    assert with_flow.decode() == BYTES.replace('"group_id"', FLOW_BYTES + '"group_id"')
    assert LoadsPayload.decode(with_flow).flow == FLOW
    with pytest.raises(HintFormatError, match="together does not ascend"):
        LoadsPayload.decode(
            together.replace(f'"{TOPIC}","{OTHER}"'.encode(), f'"{OTHER}","{TOPIC}"'.encode())
        )


def test_loads_survive_the_way_there_and_back() -> None:
    loads = decode_loads(make_value(member_ids=["b", "a"]), group_id="orders", cluster_id="cluster")
    assert loads.payload.loads == {TOPIC: [7, None, 0]}
    assert loads.payload.capacities == {"m:ä": 1000, "i:pod-0": 250}
    assert loads.payload.member_ids == ["a", "b"]
    assert loads.payload.encode() == loads.payload_bytes
    assert not loads.signed


def test_signature_is_of_the_head_and_the_payload() -> None:
    key = derive_group_key(b"master", "orders")
    wanted = hmac.new(key, b'{"kind":"loads","version":1}\n' + BYTES.encode(), hashlib.sha256).hexdigest()
    value = make_value(key)
    assert value.decode() == f'{{"hmac":"{wanted}","kind":"loads","version":1}}\n' + BYTES
    assert decode_loads(value, group_id="orders", group_key=key).signed
    for other in (derive_broker_key(b"master", "orders"), derive_group_key(b"master", "payments")):
        with pytest.raises(HintSignatureError, match="does not hold"):
            decode_loads(value, group_id="orders", group_key=other)
    with pytest.raises(HintSignatureError, match="not signed"):
        decode_loads(make_value(), group_id="orders", group_key=key)
    with pytest.raises(HintSignatureError, match="does not hold"):
        decode_loads(value.replace(b"[7,", b"[8,"), group_id="orders", group_key=key)


@pytest.mark.parametrize(
    ("now_ms", "is_fresh"),
    [(699_999, False), (700_000, True), (1_000_000, True), (1_999_999, True), (2_000_000, False)],
)
def test_loads_are_fresh_from_measurement_to_end(now_ms: int, is_fresh: bool) -> None:
    assert decode_loads(make_value(), group_id="orders").is_fresh(now_ms) is is_fresh


@pytest.mark.parametrize(
    ("group_id", "cluster_id"), [("payments", None), ("payments", "cluster"), ("orders", "other")]
)
def test_loads_for_somebody_else_are_refused(group_id: str, cluster_id: str | None) -> None:
    with pytest.raises(HintForeignError):
        decode_loads(make_value(), group_id=group_id, cluster_id=cluster_id)


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster_id": "x" * 128},
        {"group_id": "\U0001f600" * 512},
        {"snapshot_id": "x" * 256},
        {"measured_at_ms": 2**53, "valid_until_ms": 2**53},
        {"loads": {TOPIC: [2**31 - 1] * 2 + [None]}},
        {"loads": {}},
        {"capacities": {"m:" + "x" * 1022: 1}},
        {"default_capacity": 1000},
        {"count_slack": 2**31 - 1, "max_moves": 2**31 - 1},
        {"member_ids": []},
        {"member_ids": ["x" * 1024]},
    ],
)
def test_values_at_their_bounds_are_taken(changes: dict[str, Any]) -> None:
    payload = make_payload(**changes)
    assert LoadsPayload.decode(payload.encode()).encode() == payload.encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster_id": "x" * 129},
        {"group_id": "\U0001f600" * 512 + "x"},
        {"group_id": "\ud800"},
        {"snapshot_id": "x" * 257},
        {"snapshot_id": None},
        {"measured_at_ms": 2**53 + 1},
        {"measured_at_ms": -1},
        {"valid_until_ms": 1.0},
        {"valid_until_ms": True},
        {"loads": {TOPIC: [2**31]}},
        {"loads": {TOPIC: [-1]}},
        {"loads": {TOPIC: [1.0]}},
        {"loads": {TOPIC: [True]}},
        {"loads": {TOPIC: [0] * 2_000_001}},
        {"loads": {"orders": [1]}},
        {"capacities": {"m:a": 0}},
        {"capacities": {"m:a": 1001}},
        {"capacities": {"a": 1}},
        {"capacities": {"m:\udfff": 1}},
        {"capacities": {"m:" + "x" * 1023: 1}},
        {"default_capacity": 0},
        {"default_capacity": 1001},
        {"count_slack": -1},
        {"max_moves": 2**31},
        {"member_ids": [""]},
        {"member_ids": ["a", "a"]},
        {"member_ids": ["x" * 1025]},
        {"member_ids": ["\ud83d"]},
    ],
)
def test_values_beyond_their_bounds_are_refused_by_encoder_and_decoder(changes: dict[str, Any]) -> None:
    with pytest.raises(HintFormatError):
        make_payload(**changes).encode()
    content = json.loads(BYTES) | changes
    with pytest.raises(HintFormatError):
        LoadsPayload.decode(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"kind":"loads"', b'"kind":"hint"'),
        (b'"version":1}', b'"version":2}'),
        (b'"version":1}', b'"version":true}'),
        (b'"hmac":null', b'"hmac":7'),
        (b'"hmac":null', b'"hmac":"\\ud800"'),
        (b'"hmac":null,', b""),
        (b'"count_slack":1', b'"count_slack": 1'),
        (b"[7,null,0]", b"[]"),
        (b"[7,null,0]", b"[7,null,-0]"),
        (b"[7,null,0]", b'"7"'),
        (b'"i:pod-0":250', b'"i:pod-0":100'),
        (b"AAAAQ", b"AAAAR"),
        (b'"snapshot_id":"s-1",', b""),
        (b'"snapshot_id"', b'"member_ids":["b","a"],"snapshot_id"'),
        (b'"snapshot_id"', b'"member_ids":null,"snapshot_id"'),
        (b'"snapshot_id"', b'"other":1,"snapshot_id"'),
        (b"2000000}", b"2000000} "),
        (b"\n", b""),
    ],
)
def test_other_bytes_are_refused(old: bytes, new: bytes) -> None:
    assert old in make_value()
    with pytest.raises(HintFormatError):
        decode_loads(make_value().replace(old, new), group_id="orders")


@pytest.mark.parametrize(
    "changes",
    [
        {"arrivals": {TOPIC: [2**31 - 1] * 3}, "owners": {TOPIC: [None] * 3}, "speeds": []},
        {"speeds": [2**31 - 1, 0], "per_s": 1_000_000, "horizon_s": 86_400},
    ],
)
def test_a_flow_at_its_bounds_is_taken(changes: dict[str, Any]) -> None:
    payload = make_payload(flow=replace(FLOW, **changes))
    assert LoadsPayload.decode(payload.encode()).flow == payload.flow


@pytest.mark.parametrize(
    "changes",
    [
        {"arrivals": {TOPIC: [3, 0]}},
        {"arrivals": {TOPIC: [3, None, 9]}},
        {"arrivals": {TOPIC: [3, 0, 2**31]}},
        {"arrivals": {TOPIC: [3, 0, -1]}},
        {"arrivals": {TOPIC: [3, 0, True]}},
        {"arrivals": {OTHER: [3, 0, 9]}},
        {"arrivals": {}},
        {"owners": {TOPIC: [2, None, 0]}},
        {"owners": {TOPIC: [-1, None, 0]}},
        {"owners": {TOPIC: [1, 0]}},
        {"owners": {TOPIC: [1, None, 0], OTHER: [0]}},
        {"speeds": [70]},
        {"speeds": [70, None]},
        {"speeds": [70, 2**31]},
        {"speeds": [70, 1.0]},
        {"per_s": 0},
        {"per_s": 1_000_001},
        {"horizon_s": -1},
        {"horizon_s": 86_401},
        {"horizon_s": None},
    ],
)
def test_a_flow_beyond_its_bounds_is_refused_by_encoder_and_decoder(changes: dict[str, Any]) -> None:
    with pytest.raises(HintFormatError):
        make_payload(flow=replace(FLOW, **changes)).encode()
    content = json.loads("{" + FLOW_BYTES.rstrip(",") + "}")
    content = json.loads(BYTES) | {"flow": content["flow"] | changes}
    with pytest.raises(HintFormatError):
        LoadsPayload.decode(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (',"per_s":10', ""),
        ('"per_s"', '"other":1,"per_s"'),
        ('{"arrivals', '[]}{"arrivals'),
        ("[70,0]", "70"),
    ],
)
def test_other_fields_of_a_flow_are_refused(old: str, new: str) -> None:
    data = BYTES.replace('"group_id"', FLOW_BYTES.replace(old, new) + '"group_id"')
    with pytest.raises(HintFormatError):
        LoadsPayload.decode(data.encode())


@pytest.mark.parametrize(
    "numbers", [[[0]], [{}], [1, True], [0, False], [1, 1.0], ["0"], [2], [-1], 0], ids=json.dumps
)
def test_what_is_no_number_of_a_set_of_racks_is_refused(numbers: object) -> None:
    racks = {"sets": [["a"], ["b"]], "tolerance": 0, "topics": {TOPIC: numbers}}
    content = json.loads(BYTES) | {"racks": racks}
    with pytest.raises(HintFormatError):
        LoadsPayload.decode(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def test_a_value_may_have_8_mib() -> None:
    with pytest.raises(HintFormatError, match="more than the 8388608"):
        decode_loads(make_value() + b" " * 2**23, group_id="orders")


@given(st.binary(max_size=60), st.integers(0, 400), st.booleans())
def test_any_bytes_give_loads_or_a_hint_error(noise: bytes, position: int, signed: bool) -> None:
    key = derive_group_key(b"master", "orders") if signed else None
    value = make_value(key)
    broken = value[:position] + noise + value[position + len(noise) :]
    with suppress(HintError):
        loads = decode_loads(broken, group_id="orders", group_key=key)
        assert loads.payload.encode() == loads.payload_bytes
