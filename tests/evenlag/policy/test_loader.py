"""The policy: what holds for a group, and mistakes named by line with what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.enums import Mode
from evenlag.errors import PolicyError, SecretError
from evenlag.kafka.connection import kafka_client_settings
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.policy.loader import kafka_settings_from_environment, load_policy, parse_policy

if TYPE_CHECKING:
    from pathlib import Path

POLICY = """
lake: /data/lake
clusters:
  orders:
    bootstrap_servers: "b1:9092, b2:9092"
    kafka: {
      security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_plain_username: evenlag,
      sasl_plain_password: {env: ORDERS_PASSWORD}}
  other:
    bootstrap_servers: [c1:9092]
groups:
  - {match: payments-eu, mode: approve}
  - {match: "payments-*", mode: auto, clusters: orders}
  - {match: "/audit-[0-9]+/", mode: observe}
"""


def test_the_first_rule_that_matches_holds_and_the_default_is_shadow() -> None:
    policy = parse_policy(POLICY, environ={}).policy
    modes = {
        (cluster, group): policy.group_settings(cluster, group).mode
        for cluster in ("orders", "other")
        for group in ("payments-eu", "payments-us", "audit-12", "audit-x", "else")
    }
    assert modes["orders", "payments-eu"] is Mode.APPROVE
    assert modes["orders", "payments-us"] is Mode.AUTO
    assert modes["other", "payments-us"] is Mode.SHADOW
    assert modes["orders", "audit-12"] is Mode.OBSERVE
    assert modes["orders", "audit-x"] is Mode.SHADOW
    assert modes["orders", "else"] is Mode.SHADOW
    assert policy.clusters["orders"].bootstrap_servers == ("b1:9092", "b2:9092")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            POLICY.replace("mode: approve", "mod: approve"),
            r"policy, line 12: groups.0.mod: there is no such key; did you mean 'mode'",
        ),
        (
            POLICY.replace("mode: approve", "mode: aprove"),
            r"line 12: groups.0.mode: Input should be 'observe', 'shadow'",
        ),
        (
            POLICY.replace("{env: ORDERS_PASSWORD}", "hunter2"),
            r"line 6: clusters.orders.kafka: sasl_plain_password is a secret",
        ),
        (
            POLICY.replace("SASL_SSL,", "SASL_SSL, bootstrap_servers: x,"),
            r"bootstrap_servers is set by evenlag",
        ),
        (POLICY.replace("[0-9]+", "[0-9"), r"groups.2.match: /audit-\[0-9/ is not a regular expression"),
        (
            POLICY.replace("clusters: orders}", "clusters: ordres}"),
            r"names clusters that are not there: \['ordres'\]",
        ),
        (
            POLICY.replace("mode: approve", "assignor: lag-awaer"),
            r"groups.0.assignor: no assignor 'lag-awaer'; did you mean 'lag-aware'",
        ),
        (
            POLICY.replace("[c1:9092]", "[c1:9092]\n    rate_window_s: 7200"),
            r"rate_window_s \(7200\) looks further",
        ),
        (POLICY.replace("security_protocol: SASL_SSL", "ssl_context: x"), r"ssl_context takes an object"),
        ("lake: [", "policy, line 1, column 8: is not YAML"),
        ("just text", "holds no mapping"),
        ("lake: x", r"clusters: Field required"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_policy(text, environ={})


def test_a_secret_is_resolved_where_it_is_used_and_nowhere_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loaded = parse_policy(POLICY, environ={})
    cluster = loaded.policy.clusters["orders"]
    with pytest.raises(SecretError, match="ORDERS_PASSWORD is not set"):
        kafka_client_settings(cluster)
    monkeypatch.setenv("ORDERS_PASSWORD", "s3cret")
    assert kafka_client_settings(cluster)["sasl_plain_password"] == "s3cret"
    assert "s3cret" not in repr(loaded) + loaded.policy.model_dump_json()
    secret_file = tmp_path / "password"
    secret_file.write_text("from-a-file\n")
    by_file = ClusterSettings.model_validate(
        {"bootstrap_servers": "b:1", "kafka": {"proxy_url": {"file": str(secret_file)}}}
    )
    assert kafka_client_settings(by_file)["proxy_url"] == "from-a-file"
    secret_file.unlink()
    with pytest.raises(SecretError, match="cannot be read"):
        kafka_client_settings(by_file)


def test_the_environment_overrides_the_lake_and_gives_kafka_settings() -> None:
    assert parse_policy(POLICY, environ={"EVENLAG_LAKE": "/elsewhere"}).policy.lake == "/elsewhere"
    environ = {
        "EVENLAG_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "EVENLAG_KAFKA_SASL_MECHANISM": "GSSAPI",
        "EVENLAG_KAFKA_SASL_PLAIN_PASSWORD": "s3cret",
        "EVENLAG_KAFKA_RETRY_BACKOFF_MS": "250",
        "OTHER": "x",
    }
    assert kafka_settings_from_environment(environ) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "GSSAPI",
        "sasl_plain_password": {"env": "EVENLAG_KAFKA_SASL_PLAIN_PASSWORD"},
        "retry_backoff_ms": 250,
    }


def test_a_missing_policy_file_says_how_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"cannot be read.*--config or EVENLAG_CONFIG"):
        load_policy(tmp_path / "none.yaml")
