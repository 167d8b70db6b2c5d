"""`evenlag doctor` on a real broker: what is well, what is missing, and that looking changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from kafka.admin import KafkaAdminClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.broker_node import BrokerNode
    from tests.support.fixtures.command import Evenlag

pytestmark = pytest.mark.broker
KAFKA_AREAS = ("brokers", "permissions", "topics", "groups")


def call(evenlag: Evenlag, policy: Path, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    only = [part for area in KAFKA_AREAS for part in ("--only", area)]
    # The whole time is generous: on a busy machine a TLS handshake takes its time.
    answer = evenlag("doctor", "--config", policy, "--json", "--timeout", "900", *only, *arguments)
    assert answer.exit_code in {0, 1}, answer.output
    content = json.loads(answer.stdout)
    assert content["well"] is (answer.exit_code == 0)
    return answer.exit_code, {check["check"]: check for check in content["checks"]}


def finding(check: dict[str, Any]) -> str:
    return " ".join(str(one["finding"]) for one in check["findings"])


def test_a_cluster_over_tls_is_well_and_stays_as_it_is(
    evenlag: Evenlag, broker: BrokerNode, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    assert broker.sasl_ssl is not None
    topic, password = unique("hints"), tmp_path / "password"
    password.write_text(broker.sasl_ssl.password, encoding="utf-8")
    password.chmod(0o600)
    policy = tmp_path / "policy.yaml"
    servers = [*broker.sasl_ssl.bootstrap_servers.split(","), "127.0.0.1:1"]
    policy.write_text(
        f"""\
lake: {tmp_path / "lake"}
clusters:
  orders:
    bootstrap_servers: {servers}
    hint_topic: {topic}
    hint_topic_replication_factor: 1
    kafka:
      security_protocol: SASL_SSL
      ssl_cafile: {broker.sasl_ssl.ca_file}
      sasl_mechanism: PLAIN
      sasl_plain_username: {broker.sasl_ssl.username}
      sasl_plain_password: {{file: {password}}}
groups:
- {{match: "*", mode: auto}}
""",
        encoding="utf-8",
    )
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        before = set(admin.list_topics())
        exit_code, checks = call(evenlag, policy)
        assert exit_code == 0, checks
        assert checks["brokers.answer"]["result"] == "warning"
        assert "127.0.0.1:1: Connection refused" in finding(checks["brokers.answer"])
        assert f"{len(servers) - 1} of {len(servers)} bootstrap servers" in finding(checks["brokers.answer"])
        for name in ("brokers.login", "brokers.versions", "permissions.cluster", "permissions.hint_topic"):
            assert checks[name]["result"] == "ok", checks[name]
        assert broker.cluster_id in finding(checks["brokers.cluster_id"])
        assert "lasts until" in finding(checks["brokers.certificate"])
        assert "the first publishing may create it" in finding(checks["permissions.hint_topic"])
        assert checks["topics.auto_create"]["result"] == "ok"
        assert checks["brokers.clock"]["result"] in {"ok", "warning"}, checks["brokers.clock"]
        assert set(admin.list_topics()) == before, "looking makes no topic"

        config = {"cleanup.policy": "delete", "max.message.bytes": "2000"}
        made = {"num_partitions": 2, "replication_factor": 1, "configs": config}
        admin.create_topics({topic: made}, wait_for_metadata=True)
        exit_code, checks = call(evenlag, policy, "--probe-writes")
        assert exit_code == 1
        assert "cleanup.policy=delete, not compact" in finding(checks["topics.hint_topic"])
        assert "compression.type=producer, not uncompressed" in finding(checks["topics.hint_topic"])
        assert checks["topics.publish"]["result"] == "ok", checks["topics.publish"]
        assert finding(checks["topics.stop"]) == "0 hints stand, nothing is stopped"
        assert checks["topics.records"]["result"] == "ok", checks["topics.records"]
    finally:
        admin.close()


def test_a_wrong_password_is_told_and_the_rest_is_skipped(
    evenlag: Evenlag, broker: BrokerNode, tmp_path: Path
) -> None:
    assert broker.sasl_ssl is not None
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        f"""\
lake: {tmp_path / "lake"}
clusters:
  orders:
    bootstrap_servers: "{broker.sasl_ssl.bootstrap_servers}"
    request_timeout_ms: 5000
    kafka:
      security_protocol: SASL_SSL
      sasl_mechanism: PLAIN
      sasl_plain_username: {broker.sasl_ssl.username}
      sasl_plain_password: {{env: WRONG_PASSWORD}}
""",
        encoding="utf-8",
    )
    only = [part for name in ("brokers.certificate", "topics.stop") for part in ("--only", name)]
    answer = evenlag(
        *("doctor", "--config", policy, "--json", "--timeout", "900", *only), WRONG_PASSWORD="wrong-password"
    )
    assert answer.exit_code == 1
    assert "wrong-password" not in answer.output
    checks = {check["check"]: check for check in json.loads(answer.stdout)["checks"]}
    # The policy names no authority, so the certificate of a broker of our own is refused first.
    assert checks["brokers.certificate"]["result"] == "failed"
    assert "ssl_cafile" in checks["brokers.certificate"]["findings"][0]["todo"]
    assert checks["brokers.login"]["result"] == "failed"
    assert checks["topics.stop"]["result"] == "skipped"


def test_a_policy_that_is_not_valid_is_one_finding_among_others(evenlag: Evenlag, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("lake: /lake\nclusterz: {}\n", encoding="utf-8")
    answer = evenlag("doctor", "--config", policy, "--only", "policy", "--only", "spark.packages")
    assert answer.exit_code == 1
    assert "clusterz" in answer.stdout
    assert "delta-spark" in answer.stdout
    assert evenlag("doctor", "--only", "brokerz").exit_code == 2
