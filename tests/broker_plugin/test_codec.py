"""The plug-in reads hints as Python does: the same vectors, and the same verdict on any bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assignor_core.hint import derive_group_key, encode_hint
from assignor_core.record import topic_id_text
from tests.support.broker_plugin.harness import as_base64
from tests.support.broker_plugin.problems import CLUSTER_ID, GROUP_ID, A, B, Consumer, Scene, hint_value
from tests.support.broker_plugin.records import compare
from tests.support.records.mutations import ACCEPTED

if TYPE_CHECKING:
    from assignor_core.hint import HintPayload
    from tests.support.broker_plugin.harness import Harness

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "assignor_core" / "data" / "hint_vectors.json").read_text(encoding="utf-8")
)
MASTER = "a master key for tests"


def names(kind: str) -> list[Any]:
    return [pytest.param(vector, id=vector["name"]) for vector in VECTORS[kind]]


def make_payload(**changes: Any) -> HintPayload:
    scene = Scene((Consumer("m-1", "pod-0", (A, B)), Consumer("m-2", None, (A, B))), {A: 3, B: 2})
    payload = scene.payload({"i:pod-0": {A: [0, 2], B: [0]}, "m:m-2": {A: [1], B: [1]}})
    return replace(payload, **changes)


def read(
    harness: Harness, value: bytes, *master_keys: str, group_id: str = GROUP_ID, length: int = 0
) -> dict[str, Any]:
    return harness.ask(
        "decode",
        length=length,
        group=group_id,
        value=as_base64(value),
        master_keys=list(master_keys),
        cluster_id=CLUSTER_ID,
    )


@pytest.mark.parametrize("vector", names("fingerprints"))
def test_fingerprint_matches_the_vectors(harness: Harness, vector: dict[str, Any]) -> None:
    members = [[key, [topic_id_text(topic) for topic in topics]] for key, topics in vector["members"]]
    topics = {topic_id_text(topic): count for topic, count in vector["topics"].items()}
    answer = harness.ask("fingerprint", members=members, topics=topics)
    assert answer["sha256"] == vector["sha256"]


@pytest.mark.parametrize("vector", names("payloads"))
def test_payload_matches_the_vectors(harness: Harness, vector: dict[str, Any]) -> None:
    value = encode_hint(vector["bytes"].encode(), sequence=7, issued_at_ms=1, expires_at_ms=2)
    answer = read(harness, value)
    assert (answer["plan_id"], answer["sequence"]) == (vector["plan_id"], 7)
    assert answer["member_ids"] == vector["fields"].get("member_ids")
    wanted = {
        key: {topic: sorted(numbers) for topic, numbers in topics.items()}
        for key, topics in vector["fields"]["assignment"].items()
        if topics
    }
    assert answer["assignment"] == wanted


@pytest.mark.parametrize("vector", names("broker_hints"))
def test_signature_matches_the_vectors(harness: Harness, vector: dict[str, Any]) -> None:
    value = vector["value"].encode()
    keys = [vector["master_key"]] if vector["master_key"] else []
    assert read(harness, value, *keys)["plan_id"] == VECTORS["payloads"][1]["plan_id"]
    assert read(harness, value, "another")["reason"] == "BAD_SIGNATURE"


@pytest.mark.parametrize("vector", names("newer_hints"))
def test_newer_hint_matches_the_vectors(harness: Harness, vector: dict[str, Any]) -> None:
    keys = [vector["master_key"]] if vector["master_key"] else []
    answer = read(harness, vector["broker_value"].encode(), *keys)
    assert answer["reason"] == vector["reason"]
    if vector["reason"] == "NEWER_FORMAT":
        assert (answer["plan_id"], answer["sequence"]) == (vector["plan_id"], vector["sequence"])


def test_any_of_several_master_keys_may_have_signed(harness: Harness) -> None:
    value = hint_value(make_payload(), master_key="old")
    assert "plan_id" in read(harness, value, "new", "old")


def test_what_an_application_can_sign_is_not_followed_by_a_broker(harness: Harness) -> None:
    key = derive_group_key(MASTER.encode(), GROUP_ID)
    value = encode_hint(
        make_payload().encode(), sequence=1, issued_at_ms=1, expires_at_ms=2**53, group_key=key
    )
    assert read(harness, value, MASTER)["reason"] == "BAD_SIGNATURE"


@pytest.mark.parametrize(
    ("changes", "group_id"), [({"cluster_id": "other"}, GROUP_ID), ({}, "payments"), ({"group_id": "x"}, "y")]
)
def test_hint_for_somebody_else_is_foreign(harness: Harness, changes: dict[str, str], group_id: str) -> None:
    assert read(harness, hint_value(make_payload(**changes)), group_id=group_id)["reason"] == "FOREIGN"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\n",
        b"{}\n{}",
        b"[" * 100_000 + b"\n",
        b"\xff\n",
        b"\xef\xbb\xbf" + hint_value(make_payload()),
        hint_value(make_payload()).decode().encode("utf-16"),
        hint_value(make_payload()).replace(b'"version":1', b'"version":0'),
        hint_value(make_payload()).replace(b'"version":1', b'"version":true'),
        hint_value(make_payload()).replace(b'"sequence":1', b'"sequence":-1'),
        hint_value(make_payload()).replace(b'"sequence":1', b'"sequence":1.0'),
        hint_value(make_payload()).replace(b'"sequence":1', b'"sequence":' + b"9" * 5000),
        hint_value(make_payload()).replace(b'"sequence":1', b'"sequence":1,"sequence":1'),
        hint_value(make_payload()).replace(b'"hmac":null', b'"hmac":7'),
        hint_value(make_payload()).replace(b'"max_moves":100', b'"max_moves":100,"max_moves":100'),
        hint_value(make_payload()).replace(b'"max_moves":100', b'"max_moves":"100"'),
        hint_value(make_payload()).replace(b'"max_moves":100', b'"max_moves": 100'),
        hint_value(make_payload()).replace(b'"max_moves":100', b'"max_moves":0100'),
        hint_value(make_payload()).replace(b'"0,2"', b'"0,2-2"'),
        hint_value(make_payload()).replace(b'"0,2"', b'"0-2000000000"'),
        hint_value(make_payload()).replace(b'"0,2"', b'"2,0"'),
        hint_value(make_payload()).replace(b'"0,2"', b'"0,1"'),
        hint_value(make_payload()).replace(b'"0,2"', b'"0-1"'),
        hint_value(make_payload()).replace(b'"i:pod-0":"m-1"', b'"m:pod-0":"m-1"'),
        hint_value(make_payload()).replace(b'"i:pod-0":"m-1"', b'"i:pod-0":""'),
        *(
            hint_value(make_payload(together=[[A, B]])).replace(f'[["{A}","{B}"]]'.encode(), other.encode())
            for other in (
                "[]",
                "7",
                "[[]]",
                f'[["{A}"]]',
                f'[["{B}","{A}"]]',
                f'[["{A}","{A}"]]',
                '[["A","B"]]',
            )
        ),
        hint_value(make_payload()) + b" ",
        hint_value(make_payload()) + b"{}",
    ],
)
def test_malformed_bytes_are_refused(harness: Harness, value: bytes) -> None:
    assert read(harness, value)["reason"] == "MALFORMED"


def test_value_beyond_what_a_hint_may_have_is_refused(harness: Harness) -> None:
    answer = read(harness, hint_value(make_payload()), length=8 * 1024 * 1024 + 1)
    assert (answer["reason"], answer["message"][:7]) == ("MALFORMED", "8388609")


def test_python_and_the_plug_in_agree_on_mutated_records(harness: Harness) -> None:
    """A few; ``python -m tests.support.broker_plugin.records`` compares any number."""
    counts, different = compare(harness, 8_000, seed=20)
    assert different == []
    assert set(counts) == {ACCEPTED, "MALFORMED", "BAD_SIGNATURE", "FOREIGN", "NEWER_FORMAT"}
