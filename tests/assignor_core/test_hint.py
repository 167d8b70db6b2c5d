"""Hints: the same vectors for every implementation, and nothing but hint errors from any bytes."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.errors import (
    HintError,
    HintForeignError,
    HintFormatError,
    HintSignatureError,
    HintVersionError,
)
from assignor_core.hint import (
    HintPayload,
    decode_hint,
    derive_broker_key,
    derive_group_key,
    encode_hint,
    fingerprint,
    hint_key,
    member_key,
    plan_id,
)
from assignor_core.record import topic_id_text

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "hint_vectors.json").read_text(encoding="utf-8")
)
TOPIC, OTHER = "AAAAAAAAAAAAAAAAAAAAAQ", "BAAAAAAAAAAAAAAAAAAAAA"


def names(kind: str) -> list[Any]:
    return [pytest.param(vector, id=vector["name"]) for vector in VECTORS[kind]]


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


def make_value(payload: HintPayload | None = None, key: bytes | None = None) -> bytes:
    data = (payload or make_payload()).encode()
    return encode_hint(data, sequence=1, issued_at_ms=10, expires_at_ms=20, group_key=key)


@pytest.mark.parametrize("vector", names("fingerprints"))
def test_fingerprint_matches_the_vectors(vector: dict[str, Any]) -> None:
    assert fingerprint(vector["members"], vector["topics"]) == vector["sha256"]


@pytest.mark.parametrize("vector", names("payloads"))
def test_payload_matches_the_vectors(vector: dict[str, Any]) -> None:
    data = HintPayload(**vector["fields"]).encode()
    assert data == vector["bytes"].encode("ascii")
    assert plan_id(data) == vector["plan_id"]
    assert HintPayload.decode(data).encode() == data


@pytest.mark.parametrize("vector", names("hints"))
def test_hint_matches_the_vectors(vector: dict[str, Any]) -> None:
    payload = VECTORS["payloads"][0]
    key = derive_group_key(vector["master_key"].encode(), "orders") if vector["master_key"] else None
    times = {name: vector[name] for name in ("sequence", "issued_at_ms", "expires_at_ms")}
    value = encode_hint(payload["bytes"].encode(), **times, group_key=key)
    assert value == vector["value"].encode()
    hint = decode_hint(value, group_id="orders", group_key=key, cluster_id="q1Sh-9_ISia_zwGINzRvyQ")
    assert hint.plan_id == payload["plan_id"]
    assert (hint.sequence, hint.signed) == (7, key is not None)


@pytest.mark.parametrize("vector", names("broker_hints"))
def test_broker_hint_matches_the_vectors(vector: dict[str, Any]) -> None:
    payload = VECTORS["payloads"][1]
    key = derive_broker_key(vector["master_key"].encode(), "orders") if vector["master_key"] else None
    times = {name: vector[name] for name in ("sequence", "issued_at_ms", "expires_at_ms")}
    value = encode_hint(payload["bytes"].encode(), **times, group_key=key)
    assert value == vector["value"].encode()
    hint = decode_hint(value, group_id="orders", group_key=key)
    assert hint.payload.member_ids == payload["fields"]["member_ids"]
    if vector["master_key"]:
        with pytest.raises(HintSignatureError):
            decode_hint(
                value, group_id="orders", group_key=derive_group_key(vector["master_key"].encode(), "orders")
            )


@pytest.mark.parametrize("vector", names("newer_hints"))
@pytest.mark.parametrize("derive", [derive_group_key, derive_broker_key])
def test_newer_hint_matches_the_vectors(vector: dict[str, Any], derive: Any) -> None:
    key = derive(vector["master_key"].encode(), "orders") if vector["master_key"] else None
    value = vector["value" if derive is derive_group_key else "broker_value"].encode()
    with pytest.raises(HintError) as raised:
        decode_hint(value, group_id="orders", group_key=key)
    assert raised.value.reason == vector["reason"]
    if isinstance(raised.value, HintVersionError):
        hint = raised.value
        assert (hint.plan_id, hint.sequence) == (vector["plan_id"], vector["sequence"])
        assert hint.issued_at_ms == vector["issued_at_ms"]


def test_keys_for_broker_and_application_differ_and_need_a_master_key() -> None:
    assert derive_broker_key(b"master", "orders") != derive_group_key(b"master", "orders")
    with pytest.raises(ValueError, match="empty"):
        derive_broker_key(b"", "orders")


@pytest.mark.parametrize(
    "member_ids", [{"m:a": "a"}, {"pod-0": "a"}, {"i:pod-0": ""}, {"i:pod-0": 7}, {"i:pod-0": None}]
)
def test_member_ids_are_of_static_members(member_ids: Any) -> None:
    with pytest.raises(HintFormatError):
        make_payload(member_ids=member_ids).encode()
    assert_is_refused(member_ids)


@pytest.mark.parametrize("content", [None, [], 7, "i:pod-0"])
def test_member_ids_are_an_object(content: Any) -> None:
    assert_is_refused(content)


@pytest.mark.parametrize(
    "together",
    [None, [], 7, {}, [[]], [[TOPIC]], [[TOPIC, 7]], [[TOPIC, TOPIC]], [[OTHER, TOPIC]], [[TOPIC, "t"]],
     [[OTHER, "CAAAAAAAAAAAAAAAAAAAAA"], [TOPIC, "DAAAAAAAAAAAAAAAAAAAAA"]], [[TOPIC, OTHER]] * 2],
)  # fmt: skip
def test_topics_that_stay_together_are_in_lists_that_ascend(together: Any) -> None:
    assert_is_refused(together, "together")


def test_a_hint_without_topics_that_stay_together_does_not_speak_of_them() -> None:
    assert b"together" not in make_payload().encode()
    payload = make_payload(together=[[OTHER, TOPIC]])
    assert HintPayload.decode(payload.encode()).together == [[TOPIC, OTHER]]


def assert_is_refused(value: Any, name: str = "member_ids") -> None:
    content = json.loads(make_payload().encode()) | {name: value}
    with pytest.raises(HintFormatError):
        HintPayload.decode(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def test_a_hint_for_the_classic_protocol_does_not_speak_of_member_ids() -> None:
    assert b"member_ids" not in make_payload().encode()
    assert HintPayload.decode(make_payload().encode()).member_ids is None


def test_topic_id_has_one_text_form() -> None:
    number = uuid.UUID("bcf78e09-6ca9-a943-927a-912fc7471ba2")
    texts = {topic_id_text(form) for form in (number, number.bytes, str(number), "vPeOCWypqUOSepEvx0cbog")}
    assert texts == {"vPeOCWypqUOSepEvx0cbog"}
    with pytest.raises(HintFormatError, match="no topic id"):
        topic_id_text("orders")


def test_member_key_prefers_what_survives_a_restart() -> None:
    assert member_key("m-1", None) == "m:m-1"
    assert member_key("m-1", "pod-0") == "i:pod-0"
    assert hint_key("orders") == b"group/orders"


def test_hint_is_expired_from_its_last_millisecond_on() -> None:
    hint = decode_hint(make_value(), group_id="orders")
    assert [hint.is_expired(now) for now in (19, 20, 21)] == [False, True, True]


@pytest.mark.parametrize(
    ("group_id", "cluster_id"), [("payments", None), ("payments", "cluster"), ("orders", "other")]
)
def test_hint_for_somebody_else_is_refused(group_id: str, cluster_id: str | None) -> None:
    with pytest.raises(HintForeignError):
        decode_hint(make_value(), group_id=group_id, cluster_id=cluster_id)


def test_signature_is_asked_for_and_covers_everything() -> None:
    key = derive_group_key(b"master", "orders")
    with pytest.raises(HintSignatureError, match="not signed"):
        decode_hint(make_value(), group_id="orders", group_key=key)
    value = make_value(key=key)
    assert decode_hint(value, group_id="orders", group_key=key).signed
    for old, new in [
        (b'"sequence":1', b'"sequence":2'),
        (b'"expires_at_ms":20', b'"expires_at_ms":99'),
        (b"0-1", b"0-2"),
    ]:
        with pytest.raises(HintSignatureError, match="does not hold"):
            decode_hint(value.replace(old, new), group_id="orders", group_key=key)
    with pytest.raises(HintSignatureError):
        decode_hint(value, group_id="orders", group_key=derive_group_key(b"master", "payments"))


@pytest.mark.parametrize(
    "text",
    ["0-2000000000", "3-1", "", "0,0", "1,0", "0,1", "-1", "0-1,1-2", "00", "99999999999", "٣"],
)
def test_ranges_that_encode_would_not_write_are_refused(text: str) -> None:
    data = make_payload().encode().replace(b'"0-1"', json.dumps(text).encode())
    with pytest.raises(HintFormatError):
        HintPayload.decode(data)


def test_partition_for_two_members_is_refused() -> None:
    with pytest.raises(HintFormatError, match="is repeated"):
        make_payload(assignment={"m:a": {TOPIC: [1]}, "m:b": {TOPIC: [1]}}).encode()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\n",
        b"{}\n{}",
        b"[" * 100_000 + b"\n",
        b"\xff\n",
        make_value().replace(b'"version":1', b'"version":0'),
        make_value().replace(b'"version":1', b'"version":true'),
        make_value().replace(b'"sequence":1', b'"sequence":-1'),
        make_value().replace(b'"sequence":1', b'"sequence":1.0'),
        make_value().replace(b'"hmac":null', b'"hmac":7'),
        make_value().replace(b'"max_moves":2', b'"max_moves":2,"max_moves":2'),
        make_value().replace(b'"max_moves":2', b'"max_moves":"2"'),
        make_value().replace(b'"group_id":"orders"', b'"group_id":null'),
        make_value().replace(b'{"m:a":', b'{"m:b":7,"m:a":'),
        make_value() + b" ",
    ],
)
def test_malformed_bytes_are_refused(value: bytes) -> None:
    with pytest.raises(HintFormatError):
        decode_hint(value, group_id="orders")


@given(st.binary(max_size=200), st.integers(0, 400), st.booleans())
def test_any_bytes_give_a_hint_or_a_hint_error(noise: bytes, position: int, signed: bool) -> None:
    key = derive_group_key(b"master", "orders") if signed else None
    value = make_value(key=key)
    broken = value[:position] + noise + value[position + len(noise) :]
    with suppress(HintError):
        hint = decode_hint(broken, group_id="orders", group_key=key)
        assert hint.payload.encode() == hint.payload_bytes


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.dictionaries(st.uuids().map(topic_id_text), st.sets(st.integers(0, 2**31 - 1), max_size=9)),
        max_size=4,
    )
)
def test_payload_survives_the_way_there_and_back(raw: dict[str, dict[str, set[int]]]) -> None:
    taken: dict[str, set[int]] = {}
    assignment: dict[str, dict[str, list[int]]] = {}
    for key, by_topic in raw.items():
        for topic, numbers in by_topic.items():
            fresh = numbers - taken.setdefault(topic, set())
            taken[topic] |= fresh
            if fresh:
                assignment.setdefault(key, {})[topic] = sorted(fresh)
    decoded = HintPayload.decode(make_payload(assignment=assignment).encode())
    read = {
        key: {topic: list(numbers) for topic, numbers in m.items()} for key, m in decoded.assignment.items()
    }
    assert read == assignment
