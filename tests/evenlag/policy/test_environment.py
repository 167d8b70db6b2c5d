"""What the environment overrides: named by variable, never a secret's value, part of the policy's hash."""

from __future__ import annotations

import pytest

from evenlag.enums import Mode
from evenlag.errors import PolicyError
from evenlag.policy.loader import cluster_variable, parse_policy, parse_recorded
from evenlag.policy.secrets import SecretRef
from tests.evenlag.policy.test_loader import POLICY

ENVIRON = {
    "EVENLAG_MAX_MODE": "SHADOW",
    "EVENLAG_CLUSTER__ORDERS__BOOTSTRAP_SERVERS": "p1:9092,p2:9092",
    "EVENLAG_CLUSTER__ORDERS__HINT_SIGNING_KEY": "sign-s3cret",
    "EVENLAG_CLUSTER__ORDERS__KAFKA__SASL_PLAIN_PASSWORD": "pass-s3cret",
    "EVENLAG_CLUSTER__ORDERS__KAFKA__RETRY_BACKOFF_MS": "250",
    "EVENLAG_CLUSTER__ORDERS__SCHEDULE": "",
}


def test_variables_override_keys_of_clusters_and_lower_every_mode() -> None:
    loaded = parse_policy(POLICY, environ=ENVIRON)
    orders = loaded.policy.clusters["orders"]
    assert orders.bootstrap_servers == ("p1:9092", "p2:9092")
    assert orders.schedule == "*/5 * * * *"
    assert orders.kafka["retry_backoff_ms"] == 250
    assert orders.kafka["security_protocol"] == "SASL_SSL"
    assert orders.kafka["sasl_plain_password"] == SecretRef(
        env="EVENLAG_CLUSTER__ORDERS__KAFKA__SASL_PLAIN_PASSWORD"
    )
    assert orders.hint_signing_key == SecretRef(env="EVENLAG_CLUSTER__ORDERS__HINT_SIGNING_KEY")
    modes = [loaded.policy.group_settings("orders", group).mode for group in ("payments-eu", "audit-1")]
    assert modes == [Mode.SHADOW, Mode.OBSERVE]


def test_overrides_are_kept_with_the_text_and_change_its_hash_but_hold_no_secret() -> None:
    plain, loaded = parse_policy(POLICY, environ={}), parse_policy(POLICY, environ=ENVIRON)
    assert plain.text == POLICY
    assert loaded.policy_hash != plain.policy_hash
    assert "# EVENLAG_MAX_MODE gives max_mode: shadow\n" in loaded.text
    assert "s3cret" not in repr(loaded) + loaded.text
    elsewhere = parse_policy(POLICY, environ={"EVENLAG_LAKE": "/elsewhere"})
    assert (elsewhere.policy.lake, elsewhere.policy_hash) == ("/elsewhere", plain.policy_hash)
    # What is kept is a policy: read again, with the same environment or without it.
    assert parse_policy(loaded.text, environ=ENVIRON).policy == loaded.policy


def test_a_kept_text_gives_the_policy_of_its_run_whatever_the_environment_is_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = {"EVENLAG_CLUSTER__ORDERS__BOOTSTRAP_SERVERS": "[p1:9092, p2:9092]"}
    monkeypatch.setenv("EVENLAG_MAX_MODE", "observe")
    for environ in ({}, ENVIRON, ENVIRON | listed):
        loaded = parse_policy(POLICY, environ=environ)
        assert parse_recorded(loaded.text) == loaded.policy
    assert parse_recorded(loaded.text) != parse_policy(POLICY).policy


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("EVENLAG_CLUSTER__ORDRES__SCHEDULE", "x", r"names a cluster that the policy does not have.*ORDERS"),
        ("EVENLAG_CLUSTER__ORDERS__SHEDULE", "x", r"did you mean EVENLAG_CLUSTER__ORDERS__SCHEDULE\?"),
        ("EVENLAG_CLUSTER__ORDERS__KAFKA", "{}", r"names no key of a cluster"),
        ("EVENLAG_MAX_MODE", "all", r"^the variable EVENLAG_MAX_MODE: Input should be 'observe'"),
        ("EVENLAG_CLUSTER__ORDERS__RATE_WINDOW_S", "0", r"^the variable EVENLAG_CLUSTER__ORDERS__RATE_WI"),
        ("EVENLAG_CLUSTER__ORDERS__SCHEDULE", "{", r"the value of the variable \S+ cannot be read"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, value: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_policy(POLICY, environ={variable: value})


def test_two_clusters_that_one_variable_could_mean_are_named() -> None:
    text = POLICY.replace("  other:", "  o.rders:\n    bootstrap_servers: x:1\n  o-rders:")
    with pytest.raises(PolicyError, match=r"could mean each of these clusters: o\.rders, o-rders"):
        parse_policy(text, environ={"EVENLAG_CLUSTER__O_RDERS__SCHEDULE": "x"})


@pytest.mark.parametrize("name", ["o__ther", "o_", "o-.ther"])
def test_the_name_of_a_cluster_may_have_what_ends_names_in_variables(name: str) -> None:
    text = POLICY.replace("  other:", f"  o:\n    bootstrap_servers: x:1\n  {name}:")
    environ = {cluster_variable(cluster, "bootstrap_servers"): f"{cluster}x:1" for cluster in ("o", name)}
    environ[cluster_variable(name, "kafka", "retry_backoff_ms")] = "250"
    clusters = parse_policy(text, environ=environ).policy.clusters
    assert [clusters[cluster].bootstrap_servers for cluster in ("o", name)] == [("ox:1",), (f"{name}x:1",)]
    assert clusters[name].kafka["retry_backoff_ms"] == 250
