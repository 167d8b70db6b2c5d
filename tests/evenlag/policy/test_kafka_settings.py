"""Settings that a policy passes to kafka-python: by name, and no secret among the literals."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient

from evenlag.errors import PolicyError
from evenlag.policy.kafka_settings import (
    CHOICES,
    LITERAL_KAFKA_SETTINGS,
    SASL_MECHANISMS,
    SECRET_KAFKA_SETTINGS,
    SECURITY_PROTOCOLS,
    UNUSABLE_KAFKA_SETTINGS,
)
from evenlag.policy.loader import parse_policy

_HEAD = "lake: /data\nclusters:\n  c:\n    bootstrap_servers: b1:9092\n    kafka:\n      "
_PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "secured-cluster.md"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "sasl_plain_pasword: hunter2",
            "'sasl_plain_pasword' is no setting of a connection; did you mean 'sasl_plain_password'?",
        ),
        ("Sasl_Plain_Password: hunter2", "did you mean 'sasl_plain_password'?"),
        ("zzz: hunter2", "'zzz' is no setting of a connection; docs/how-to/secured-cluster.md lists them"),
        ("proxy_url: 'http://user:hunter2@proxy:3128'", "proxy_url is a secret: give it as {env: NAME}"),
        ("socks5_proxy: 'socks5://user:hunter2@proxy:1080'", "socks5_proxy is a secret"),
        ("selector: hunter2", "selector takes an object, which a policy file cannot hold"),
        ("sasl_plain_username: {env: HUNTER2}", "sasl_plain_username is no secret, so it is no reference"),
        ("ssl_check_hostname: hunter2", "ssl_check_hostname must be true or false"),
        ("receive_buffer_bytes: hunter2", "receive_buffer_bytes must be a whole number, above 0"),
        ("retry_backoff_ms: hunter2", "retry_backoff_ms is a time in milliseconds, above 0"),
        ("ssl_cafile: 12", "ssl_cafile must be text, and not empty"),
        ("api_version: 3", "api_version is found out from the brokers: remove it"),
        ("ssl_crlfile: /hunter2", "ssl_crlfile cannot be used"),
        # Without a protocol, kafka-python ignores these and connects in plain text.
        ("ssl_cafile: /ca.pem", "ssl_cafile needs a security_protocol, e.g. SSL"),
        ("sasl_mechanism: PLAIN", "sasl_mechanism needs a security_protocol, e.g. SASL_SSL"),
        ("security_protocol: SASL_SSL", "security_protocol: SASL_SSL needs sasl_mechanism"),
    ],
)
def test_what_may_hold_a_secret_is_refused_without_telling_it(line: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(_HEAD + line + "\n", name="p.yaml", environ={})
    (only,) = str(caught.value).splitlines()
    assert only.startswith("p.yaml, line 5: clusters.c.kafka: ")
    assert message in only
    assert "hunter2" not in only


def test_a_proxy_from_the_environment_is_stored_as_the_name_of_its_variable() -> None:
    variable = "EVENLAG_CLUSTER__C__KAFKA__PROXY_URL"
    loaded = parse_policy(
        _HEAD.removesuffix("    kafka:\n      "), name="p.yaml", environ={variable: "http://u:hunter2@p:1"}
    )
    assert "hunter2" not in loaded.text
    assert loaded.policy.clusters["c"].kafka["proxy_url"].env == variable  # type: ignore[union-attr]  # a reference


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("security_protocol: TLS", "SSL"),
        ("security_protocol: SASL", "SASL_SSL"),
        ("security_protocol: sasl_ssl", "SASL_SSL"),
        ("security_protocol: ssl", "SSL"),
        ("security_protocol: SASL-SSL", "SASL_SSL"),
        ("security_protocol: SASL_TLS", "SASL_SSL"),
        ("security_protocol: plaintext", "PLAINTEXT"),
        ("security_protocol: SASL_PLAIN", "SASL_PLAINTEXT"),
        ("security_protocol: xyz", None),
        ("security_protocol: true", None),
        ("sasl_mechanism: plain", "PLAIN"),
        ("sasl_mechanism: SCRAM-SHA512", "SCRAM-SHA-512"),
        ("sasl_mechanism: scram_sha_256", "SCRAM-SHA-256"),
        ("sasl_mechanism: OAUTHBEARER", None),
        ("client_dns_lookup: use_all_dns", "use_all_dns_ips"),
    ],
)
def test_a_value_that_kafka_python_would_not_take_is_refused_with_the_nearest(
    given: str, nearest: str | None
) -> None:
    """In the file and in the environment, which goes through the same check."""
    name, _, value = given.partition(": ")
    message = f"did you mean '{nearest}'?" if nearest else "is none of"
    for text, environ in (
        (_HEAD + given + "\n", {}),
        (_HEAD.removesuffix("    kafka:\n      "), {f"EVENLAG_CLUSTER__C__KAFKA__{name.upper()}": value}),
    ):
        with pytest.raises(PolicyError) as caught:
            parse_policy(text, name="p.yaml", environ=environ)
        [line] = str(caught.value).splitlines()
        assert f"{name}: '{'True' if value == 'true' else value}' is none of " in line
        assert message in line
        assert nearest is not None or "did you mean" not in line


def test_the_values_are_those_of_kafka_python() -> None:
    from kafka.net import sasl
    from kafka.net.manager import KafkaConnectionManager

    assert {*SASL_MECHANISMS, "OAUTHBEARER"} == set(sasl.SASL_MECHANISMS)
    for protocol in SECURITY_PROTOCOLS:
        assert protocol in (KafkaAdminClient.__doc__ or "")
    modes = KafkaConnectionManager._VALID_DNS_LOOKUP_MODES
    assert set(CHOICES["client_dns_lookup"]) == set(modes)


def test_every_setting_is_one_of_all_clients_and_the_page_lists_it() -> None:
    clients = (KafkaConsumer, KafkaProducer, KafkaAdminClient)
    known = set.intersection(*(set(client.DEFAULT_CONFIG) for client in clients))
    named = LITERAL_KAFKA_SETTINGS | SECRET_KAFKA_SETTINGS
    assert known >= UNUSABLE_KAFKA_SETTINGS.keys()
    assert named <= known
    # The others are objects, or set by evenlag.
    assert known - named - UNUSABLE_KAFKA_SETTINGS.keys() == {
        "bootstrap_servers", "client_id", "kafka_client", "metric_reporters", "sasl_oauth_token_provider",
        "selector", "socket_options", "ssl_context",
    }  # fmt: skip
    page = _PAGE.read_text(encoding="utf-8")
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []
