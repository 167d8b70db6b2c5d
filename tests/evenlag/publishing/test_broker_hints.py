"""Hints that brokers follow: signed for brokers, and taken up without ever failing a publishing."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from assignor_core.errors import HintSignatureError
from assignor_core.hint import HintPayload, derive_broker_key, derive_group_key, encode_hint
from evenlag.enums import GroupType
from evenlag.errors import JobError, KafkaUnreachableError, SecretError
from evenlag.kafka.connection import kafka_client_settings, to_librdkafka
from evenlag.kafka.live_groups import LiveGroup
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.policy.secrets import SecretRef
from evenlag.publishing.rebalance_trigger import await_target, follow_wait
from evenlag.publishing.rebalance_trigger.await_target import ask_coordinator, await_target_assignment
from evenlag.publishing.rebalance_trigger.follow_wait import is_taken_up
from evenlag.publishing.sealing.signed_records import decode_group_hint, group_signing_key
from tests.support.certificates import CertificateAuthority

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MASTER = "a master key of as many bytes as it needs"
TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"
CLASSIC = HintPayload("c", "g", "s", "f" * 64, {"i:a": {TOPIC: [0, 1]}}, count_slack=0, max_moves=9)
BROKERS = replace(CLASSIC, member_ids={"i:a": "id-of-a"})


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ClusterSettings:
    monkeypatch.setenv("TEST_KEY", MASTER)
    return ClusterSettings(bootstrap_servers=("b:9092",), hint_signing_key=SecretRef(env="TEST_KEY"))


@pytest.mark.parametrize("payload", [CLASSIC, BROKERS], ids=["classic", "brokers"])
def test_a_hint_is_read_only_by_the_key_of_its_group_s_protocol(
    cluster: ClusterSettings, payload: HintPayload
) -> None:
    is_for_brokers = payload is BROKERS
    for derive in (derive_group_key, derive_broker_key):
        key = derive(MASTER.encode(), "g")
        value = encode_hint(payload.encode(), sequence=1, issued_at_ms=1, expires_at_ms=2, group_key=key)
        if (derive is derive_broker_key) is is_for_brokers:
            hint = decode_group_hint(value, "g", cluster)
            assert (hint.signed, hint.payload.member_ids) == (True, payload.member_ids)
        else:
            with pytest.raises(HintSignatureError, match="not for the group's protocol"):
                decode_group_hint(value, "g", cluster)
    for other in (None, b"somebody's"):
        value = encode_hint(payload.encode(), sequence=1, issued_at_ms=1, expires_at_ms=2, group_key=other)
        with pytest.raises(HintSignatureError):
            decode_group_hint(value, "g", cluster)


def test_without_keys_either_is_read() -> None:
    for payload in (CLASSIC, BROKERS):
        value = encode_hint(payload.encode(), sequence=1, issued_at_ms=1, expires_at_ms=2)
        assert decode_group_hint(value, "g", ClusterSettings(bootstrap_servers=("b:9092",))).payload


def test_a_short_master_key_signs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ClusterSettings(bootstrap_servers=("b:9092",), hint_signing_key=SecretRef(env="TEST_KEY"))
    monkeypatch.setenv("TEST_KEY", "hunter2")
    with pytest.raises(SecretError, match="variable TEST_KEY has 7 bytes: give at least 32") as caught:
        group_signing_key(cluster, "orders")
    assert "hunter2" not in str(caught.value)


def test_the_connection_is_the_same_for_both_clients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = str(CertificateAuthority(tmp_path / "ca.pem").ca_file)
    monkeypatch.setenv("PASSWORD", "p")
    given: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "evenlag",
        "sasl_plain_password": SecretRef(env="PASSWORD"),
        "ssl_cafile": authority,
        "ssl_check_hostname": False,
        "retry_backoff_ms": 250,
    }
    cluster = ClusterSettings(bootstrap_servers=("a:1", "b:2"), kafka=given)
    assert to_librdkafka(kafka_client_settings(cluster)) == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "evenlag",
        "sasl.password": "p",
        "ssl.ca.location": authority,
        "ssl.endpoint.identification.algorithm": "none",
    }
    monkeypatch.setenv("EVENLAG_TEST_PROXY", "socks5://p:1")
    proxy = SecretRef(env="EVENLAG_TEST_PROXY")
    tunnelled = ClusterSettings(bootstrap_servers=("a:1",), kafka={"socks5_proxy": proxy})
    with pytest.raises(JobError, match=r"nothing like these settings: socks5_proxy"):
        to_librdkafka(kafka_client_settings(tunnelled))


def group(held: Mapping[str, Mapping[str, list[int]]]) -> LiveGroup:
    return LiveGroup("Stable", "evenlag", "f", held=held)


def test_a_hint_is_taken_up_when_the_target_is_as_hinted() -> None:
    payload = replace(BROKERS, assignment={"i:a": {TOPIC: [1, 0]}, "m:b": {TOPIC: [2]}, "m:idle": {}})
    as_hinted: dict[str, dict[str, list[int]]] = {"i:a": {TOPIC: [0, 1]}, "m:b": {TOPIC: [2]}, "m:idle": {}}
    assert is_taken_up(payload, group(as_hinted))
    assert not is_taken_up(payload, group({**as_hinted, "m:b": {}}))
    assert not is_taken_up(payload, group({**as_hinted, "i:a": {TOPIC: [0, 1, 3]}}))
    assert not is_taken_up(payload, LiveGroup("Dead", None, None))


class Coordinators:
    """Stands for brokers and the clock: none refuses, or is slow with a target, at a chosen moment."""

    def __init__(self, *, takes_up_after: int) -> None:
        self.asked: list[str] = []
        self._takes_up_after = takes_up_after
        self._now = 0.0

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def monotonic(self) -> float:
        return self._now

    def ask(self, _settings: object, group_id: str, _topic: str, *, timeout_s: float) -> str:
        assert timeout_s > 0
        self.asked.append(group_id)
        if group_id == "shut":
            raise KafkaUnreachableError("nobody is let in")
        return "id"

    def look(self, _client: object, group_types: Any, limits: object, _ignored: object) -> Any:
        assert limits
        assert set(group_types.values()) == {GroupType.CONSUMER}
        taken: Any = BROKERS.assignment
        return {
            name: group(taken if self.asked.count(name) >= self._takes_up_after else {"i:a": {}})
            if name != "gone"
            else LiveGroup("Dead", None, None)
            for name in group_types
        }


@pytest.fixture
def coordinators(monkeypatch: pytest.MonkeyPatch) -> Coordinators:
    made = Coordinators(takes_up_after=2)
    monkeypatch.setattr(await_target, "ask_coordinator", made.ask)
    monkeypatch.setattr(await_target, "time", made)
    monkeypatch.setattr(follow_wait, "read_live_groups", made.look)
    monkeypatch.setattr(follow_wait, "time", made)
    return made


def test_a_coordinator_is_asked_until_its_target_is_as_hinted_and_three_times_at_most(
    coordinators: Coordinators, cluster: ClusterSettings
) -> None:
    coordinators._takes_up_after = 2
    assert await_target_assignment(None, cluster, {"a": BROKERS, "b": BROKERS}) == {}
    assert sorted(coordinators.asked) == ["a", "a", "b", "b"]
    coordinators._takes_up_after, coordinators.asked = 9, []
    assert await_target_assignment(None, cluster, {"a": BROKERS, "shut": BROKERS}) == {
        "a": "its coordinator was asked, and its target is not as hinted",
        "shut": "nobody is let in",
    }
    assert sorted(coordinators.asked) == ["a"] * 3 + ["shut"] * 3


def test_a_group_that_has_taken_its_hint_up_is_not_asked_again(
    coordinators: Coordinators, cluster: ClusterSettings
) -> None:
    coordinators._takes_up_after = 0
    assert await_target_assignment(None, cluster, {"a": BROKERS}) == {}
    assert coordinators.asked == []


def test_nobody_joins_a_group_that_is_not_there_any_more(
    coordinators: Coordinators, cluster: ClusterSettings
) -> None:
    """Joining would make it, or take a group that went back to the classic protocol over again."""
    shown = await_target_assignment(None, cluster, {"gone": BROKERS, "a": BROKERS})
    assert shown == {"gone": "the group is Dead by now, or does not show its members"}
    assert coordinators.asked == ["a", "a"]


def test_whatever_goes_wrong_is_a_reason_and_no_error(
    monkeypatch: pytest.MonkeyPatch, coordinators: Coordinators, cluster: ClusterSettings
) -> None:
    monkeypatch.setattr(follow_wait, "read_live_groups", lambda *_, **__: {})
    shown = await_target_assignment(None, cluster, {"a": BROKERS})
    assert shown == {"a": "unexpected KeyError: 'a'"}
    assert coordinators.asked == []


def test_no_group_is_asked_when_there_is_none_or_no_time(
    coordinators: Coordinators, cluster: ClusterSettings
) -> None:
    assert await_target_assignment(None, cluster, {}) == {}
    shown = await_target_assignment(None, cluster, {"a": BROKERS}, timeout_s=0)
    assert shown == {"a": "its coordinator was not asked in time"}
    assert coordinators.asked == []


@pytest.mark.usefixtures("coordinators")
def test_without_the_extra_a_hint_waits_for_the_group_to_change(
    monkeypatch: pytest.MonkeyPatch, cluster: ClusterSettings
) -> None:
    monkeypatch.setattr(await_target, "ask_coordinator", ask_coordinator)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    shown = await_target_assignment(None, cluster, {"a": BROKERS})
    assert shown == {"a": "confluent-kafka is not installed: install evenlag[kip848]"}
