"""What the client's watcher takes from the application's settings, and how long it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.java_client.harness import ClientHarness

APPLICATION: dict[str, Any] = {
    "bootstrap.servers": ["kafka-1:9093", "kafka-2:9093"],
    "group.id": "billing",
    "group.instance.id": "pod-0",
    "client.id": "billing-app",
    "partition.assignment.strategy": "evenlag.client.EvenlagAssignor",
    "interceptor.classes": "com.example.Interceptor",
    "key.deserializer": "com.example.Deserializer",
    "value.deserializer": "com.example.Deserializer",
    "metric.reporters": "com.example.Reporter",
    "auto.offset.reset": "earliest",
    "max.poll.records": "10",
    "isolation.level": "read_committed",
    "client.rack": "a",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": "a secret",
    "ssl.truststore.location": "/etc/ssl/ca.pem",
    "our.callback.setting": "known to a callback handler",
}


def settings(harness: ClientHarness, **more: str) -> dict[str, Any]:
    configs = APPLICATION | {name.replace("_", "."): value for name, value in more.items()}
    return harness.ask("settings", configs=configs)


def test_the_watcher_copies_connections_and_nothing_else(client_harness: ClientHarness) -> None:
    found = settings(client_harness)
    assert found["client"] == {
        "bootstrap.servers": "kafka-1:9093,kafka-2:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "a secret",
        "ssl.truststore.location": "/etc/ssl/ca.pem",
        "our.callback.setting": "known to a callback handler",
    }
    assert found["topic"] == "evenlag-hints"
    assert found["text"] == "topic evenlag-hints at kafka-1:9093,kafka-2:9093, unsigned"


def test_evenlags_own_settings_are_read(client_harness: ClientHarness) -> None:
    more = {
        "evenlag_hint_topic": "hints",
        "evenlag_hint_key_file": "/run/a.key, /run/b.key",
        "evenlag_required_signing": "true",
    }
    found = settings(client_harness, **more)
    assert found["topic"] == "hints"
    assert found["key_files"] == ["/run/a.key", "/run/b.key"]
    assert found["text"].endswith(", signed")
    assert not any(name.startswith("evenlag") for name in found["client"])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("evenlag_required_signing", "true", "evenlag.required.signing is true: set evenlag.hint.key.file"),
        ("evenlag_required_signing", "yes", "evenlag.required.signing is neither true nor false: yes"),
        ("evenlag_max_bytes", "-1", "evenlag.max.bytes is no whole number from 1 on: -1"),
    ],
)
def test_a_wrong_setting_is_named(client_harness: ClientHarness, name: str, value: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        settings(client_harness, **{name: value})


def test_consumers_of_a_process_share_a_watcher_that_ends_with_the_last(
    client_harness: ClientHarness,
) -> None:
    """Nobody listens at these addresses: the watchers keep trying until nobody needs them."""
    wait_until(lambda: client_harness.ask("watchers") == {"watchers": 0, "threads": 0})
    # As Kafka Connect configures the tasks of a sink.
    for task in (0, 1):
        here = {
            "bootstrap.servers": "127.0.0.1:9",
            "group.id": "connect-billing",
            "client.id": f"connector-consumer-billing-{task}",
            "metrics.context.connect.kafka.cluster.id": "a cluster",
            "metrics.context.connect.group.id": "connect",
        }
        assert client_harness.ask("join", configs=here, keep=True)["watchers"] == 1
    other = {"bootstrap.servers": "127.0.0.1:10", "group.id": "billing"}
    assert client_harness.ask("join", configs=other, keep=True)["watchers"] == 2
    assert client_harness.ask("watchers")["threads"] == 2
    client_harness.ask("forget")
    wait_until(lambda: client_harness.ask("watchers") == {"watchers": 0, "threads": 0})


def test_wrong_settings_turn_hints_off_and_no_consumer(client_harness: ClientHarness) -> None:
    """Kafka lets a consumer fail whose assignor throws while it is configured."""
    without_servers = {"group.id": "billing"}
    assert client_harness.ask("join", configs=without_servers)["watchers"] == 0
