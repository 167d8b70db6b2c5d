"""Settings that a policy passes to kafka-python: by name, and no secret among the literals."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient

from evenlag.errors import PolicyError
from evenlag.policy.kafka_settings import LITERAL_KAFKA_SETTINGS, SECRET_KAFKA_SETTINGS
from evenlag.policy.loader import parse_policy

_HEAD = "lake: /data\nclusters:\n  c:\n    bootstrap_servers: b1:9092\n    kafka:\n      "
_PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "secured-cluster.md"


@pytest.mark.parametrize(
    ("line", "told"),
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
    ],
)
def test_what_may_hold_a_secret_is_refused_without_telling_it(line: str, told: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(_HEAD + line + "\n", name="p.yaml", environ={})
    (only,) = str(caught.value).splitlines()
    assert only.startswith("p.yaml, line 5: clusters.c.kafka: ")
    assert told in only
    assert "hunter2" not in only


def test_a_proxy_from_the_environment_is_stored_as_the_name_of_its_variable() -> None:
    variable = "EVENLAG_CLUSTER__C__KAFKA__PROXY_URL"
    loaded = parse_policy(
        _HEAD.removesuffix("    kafka:\n      "), name="p.yaml", environ={variable: "http://u:hunter2@p:1"}
    )
    assert "hunter2" not in loaded.text
    assert loaded.policy.clusters["c"].kafka["proxy_url"].env == variable  # type: ignore[union-attr]  # a reference


def test_every_setting_is_one_of_all_clients_and_the_page_lists_it() -> None:
    clients = (KafkaConsumer, KafkaProducer, KafkaAdminClient)
    known = set.intersection(*(set(client.DEFAULT_CONFIG) for client in clients))
    named = LITERAL_KAFKA_SETTINGS | SECRET_KAFKA_SETTINGS
    assert named <= known
    # The others are objects, or set by evenlag.
    assert known - named == {
        "bootstrap_servers", "client_id", "kafka_client", "metric_reporters", "sasl_oauth_token_provider",
        "selector", "socket_options", "ssl_context",
    }  # fmt: skip
    page = _PAGE.read_text(encoding="utf-8")
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []
