"""Seals of rows: an HMAC that other code computes as well, over every value, by keys that are long enough."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import SecretError
from evenlag.lake.tables import GATE_RESULTS, PLANS
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.policy.secrets import SecretRef
from evenlag.publishing.sealing.row_seal import Sealer, as_stored

if TYPE_CHECKING:
    from collections.abc import Mapping

OLD, NEW = b"the first key, of more than 32 bytes", b"the second key, of more than 32 bytes"
ROW = {
    "cluster": "c",
    "day": date(2026, 3, 1),
    "snapshot_id": "s",
    "plan_id": "p",
    "group_id": "grüße",
    "gate": "moves",
    "passed": True,
    "message": "it passed",
}


@pytest.fixture
def verdict() -> dict[str, Any]:
    (row,) = as_stored(GATE_RESULTS, [ROW])
    return row


def sealed(sealer: Sealer, row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "seal": sealer.seal(GATE_RESULTS, row)}


def settings(monkeypatch: pytest.MonkeyPatch, **keys: bytes) -> ClusterSettings:
    refs = {}
    for name, value in keys.items():
        monkeypatch.setenv(name.upper(), value.decode())
        refs[name] = SecretRef(env=name.upper())
    return ClusterSettings.model_validate({"bootstrap_servers": "b:9092", **refs})


def test_a_seal_is_the_hmac_of_the_table_and_all_values(verdict: dict[str, Any]) -> None:
    # Written out, as another program would compute it.
    text = (
        '{"row":{"cluster":"c","day":"2026-03-01","gate":"moves","group_id":"gr\\u00fc\\u00dfe",'
        '"message":"it passed","passed":true,"plan_id":"p","snapshot_id":"s"},"table":"gate_results"}'
    )
    wanted = hmac.new(NEW, b"evenlag row seal v1\x00" + text.encode(), hashlib.sha256).hexdigest()
    key_id = hmac.new(NEW, b"evenlag key id v1\x00", hashlib.sha256).hexdigest()[:16]
    sealer = Sealer(lambda: [NEW])
    assert sealer.seal(GATE_RESULTS, verdict) == f"1:{key_id}:{wanted}"
    assert json.loads(text)["table"] == GATE_RESULTS.name


def test_times_numbers_and_nested_values_are_sealed_exactly() -> None:
    sealer = Sealer(lambda: [NEW])
    row = {
        "slot": datetime(2026, 3, 1, 12, tzinfo=UTC),
        "gain": 0.1,
        "moves": 3,
        "metrics_before": {"max_member_lag_records": 2**62},
        "violations": [],
    }
    (stored,) = as_stored(PLANS, [row])
    stored["seal"] = sealer.seal(PLANS, stored)
    assert sealer.holds(PLANS, stored)
    others: list[dict[str, Any]] = [
        {"slot": datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)},
        {"gain": 0.1 + 2**-56},
        {"moves": None},
        {"metrics_before": {"max_member_lag_records": 2**62 + 1}},
        {"metrics_before": None},
        {"violations": None},
        {"violations": [""]},
        {"group_id": ""},
    ]
    for change in others:
        assert not sealer.holds(PLANS, stored | change), change
    # A column that a later version adds is null in older rows.
    assert sealer.holds(PLANS, stored | {"later": None})


def test_a_seal_holds_for_its_table_its_key_and_its_evidence_only(verdict: dict[str, Any]) -> None:
    sealer = Sealer(lambda: [NEW])
    row = sealed(sealer, verdict)
    assert sealer.holds(GATE_RESULTS, row)
    assert not sealer.holds(PLANS, row)
    assert not Sealer(lambda: [OLD]).holds(GATE_RESULTS, row)
    with_evidence = {**verdict, "seal": sealer.seal(GATE_RESULTS, verdict, ["a", "b"])}
    assert sealer.holds(GATE_RESULTS, with_evidence, ["b", "a"])
    for other in (None, [], ["a"], ["a", "b", "b"], ["ab"]):
        assert not sealer.holds(GATE_RESULTS, with_evidence, other)
    for nonsense in (None, "", "1", "1:", "1::", f"2{row['seal'][1:]}", row["seal"][:-1], f"{row['seal']}é"):
        assert not sealer.holds(GATE_RESULTS, row | {"seal": nonsense})


def test_while_a_key_is_changed_the_previous_one_still_counts(
    verdict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Sealer.of(settings(monkeypatch, approval_key=OLD))
    during = Sealer.of(settings(monkeypatch, approval_key=NEW, previous_approval_key=OLD))
    after = Sealer.of(settings(monkeypatch, approval_key=NEW))
    assert before is not None
    assert during is not None
    assert after is not None
    # Keys are read when they are needed.
    monkeypatch.setenv("APPROVAL_KEY", OLD.decode())
    old = sealed(before, verdict)
    monkeypatch.setenv("APPROVAL_KEY", NEW.decode())
    assert during.holds(GATE_RESULTS, old)
    assert not after.holds(GATE_RESULTS, old)
    assert sealed(during, verdict)["seal"] == sealed(after, verdict)["seal"] != old["seal"]


def test_without_an_approval_key_the_key_is_derived_from_the_signing_key(
    verdict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sealer = Sealer.of(settings(monkeypatch, hint_signing_key=OLD))
    assert sealer is not None
    derived = hmac.new(OLD, b"evenlag approval key v1\x00", hashlib.sha256).digest()
    assert sealed(sealer, verdict) == sealed(Sealer(lambda: [derived]), verdict)
    # Whoever decides needs no key that signs hints.
    both = Sealer.of(settings(monkeypatch, hint_signing_key=OLD, approval_key=NEW))
    monkeypatch.delenv("HINT_SIGNING_KEY")
    assert both is not None
    assert sealed(both, verdict) == sealed(Sealer(lambda: [NEW]), verdict)
    assert Sealer.of(settings(monkeypatch)) is None


def test_a_short_or_missing_key_seals_nothing(
    verdict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Sealer.of(settings(monkeypatch, approval_key=b"31 bytes are not enough for one"))
    assert short is not None
    with pytest.raises(SecretError, match="has 31 bytes: give at least 32"):
        short.seal(GATE_RESULTS, verdict)
    missing = Sealer.of(settings(monkeypatch, approval_key=NEW))
    monkeypatch.delenv("APPROVAL_KEY")
    assert missing is not None
    with pytest.raises(SecretError, match="APPROVAL_KEY is not set"):
        missing.holds(GATE_RESULTS, verdict)
