"""A consumer that loses the right to read hints goes on without, and takes them up when it is back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from evenlag.doctor.runner import Request, gather_lanes, run_lanes, select_lanes
from evenlag.kafka.connection import admin_client
from evenlag.policy.cluster_settings import ClusterSettings, SnapshotSettings
from evenlag.publishing.rebalance_trigger.temporary_member import NotAskedError, ask_group
from tests.support.broker_node import BrokerNode
from tests.support.hints import Cluster, Runner, is_settled
from tests.support.raw_member import RawMember
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.extended, pytest.mark.broker]
WHO = "User:sandbox"


def allow(kind: ResourceType, name: str, operation: ACLOperation) -> ACL:
    return ACL(WHO, "*", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, name))


def test_the_acls_that_are_documented_suffice_and_without_them_the_group_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenlag.consumer.hint_reader._MAX_BACKOFF_S", 2.0)
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "group.max.size": "2",
        "group.min.session.timeout.ms": "10000",
    }
    with BrokerNode.start(tmp_path / "node", sasl_ssl=True, properties=properties) as broker:
        assert broker.sasl_ssl is not None
        secure: dict[str, Any] = dict(broker.sasl_ssl.client_config())
        with Cluster(broker, group_id="g", topics={"t": 4}, hint_topic="hints") as cluster:
            cluster.admin.create_acls(
                [
                    allow(ResourceType.TOPIC, "t", ACLOperation.READ),
                    allow(ResourceType.GROUP, "g", ACLOperation.READ),
                    allow(ResourceType.TOPIC, "hints", ACLOperation.READ),
                ]
            )
            _doctor_names_what_is_missing(broker, cluster, tmp_path)
            runners = [Runner(cluster, **{"group_instance_id": f"pod-{i}", **secure}) for i in range(2)]
            for runner in runners:
                runner.consumer.hint_watcher._group.forget_after_s = 3.0
            try:
                wait_until(lambda: is_settled(runners, 4))
                _the_temporary_member_needs_a_place_and_read(broker, cluster)
                wait_until(lambda: is_settled(runners, 4))
                cluster.publish(cluster.payload({"i:pod-0": {"t": [0]}, "i:pod-1": {"t": [1, 2, 3]}}))
                wait_until(lambda: [len(r.held) for r in runners] == [1, 3])
                cluster.admin.delete_acls(
                    [
                        ACLFilter(
                            WHO,
                            "*",
                            ACLOperation.READ,
                            ACLPermissionType.ALLOW,
                            ResourcePatternFilter(
                                ResourceType.TOPIC, "hints", ACLResourcePatternType.LITERAL
                            ),
                        )
                    ]
                )
                views = [runner.consumer.hint_cache for runner in runners]
                wait_until(lambda: all(view.view.hint is None for view in views))
                assert all(not view.view.is_cold for view in views)
                cluster.producer.send("t", b"x", partition=3)
                wait_until(lambda: ("t", 3, 0) in runners[1].records)
                cluster.admin.create_acls([allow(ResourceType.TOPIC, "hints", ACLOperation.READ)])
                wait_until(lambda: all(view.view.hint is not None for view in views))
                wait_until(lambda: is_settled(runners, 4))
            finally:
                for runner in runners:
                    runner.close()


def _the_temporary_member_needs_a_place_and_read(broker: BrokerNode, cluster: Cluster) -> None:
    """Read on the group suffices; a full group, and a group without that right, are left as they are."""
    secure = broker.sasl_ssl
    assert secure is not None
    kafka = dict(secure.client_config())
    settings = ClusterSettings.model_construct(
        bootstrap_servers=(kafka.pop("bootstrap_servers"),),
        kafka=kafka,
        request_timeout_ms=300_000,
        snapshot=SnapshotSettings(),
    )
    with RawMember(broker.bootstrap_servers, "other") as other, admin_client(settings) as client:
        other.join()
        other.sync()
        with pytest.raises(NotAskedError, match=r"group\.max\.size"):
            ask_group(client, settings, "g")
        cluster.admin.create_acls([allow(ResourceType.GROUP, "other", ACLOperation.DESCRIBE)])
        # The broker takes a right up a moment after it is granted.
        wait_until(lambda: "evenlag lacks Read on the group" in _why_not_asked(client, settings))
        assert other.heartbeat() == 0
        cluster.admin.create_acls([allow(ResourceType.GROUP, "other", ACLOperation.READ)])
        # Its first session timeout is refused here.
        wait_until(lambda: not _why_not_asked(client, settings))
        assert len(other.join().members) == 1


def _why_not_asked(client: Any, settings: ClusterSettings) -> str:
    try:
        ask_group(client, settings, "other", timeout_s=300)
    except NotAskedError as error:
        return str(error)
    return ""


def _doctor_names_what_is_missing(broker: BrokerNode, cluster: Cluster, folder: Path) -> None:
    """What evenlag lacks is named with the line that grants it; granted by that line, nothing is missing."""
    secure = broker.sasl_ssl
    assert secure is not None
    secret = folder / "password"
    secret.write_text(secure.password, encoding="utf-8")
    secret.chmod(0o600)
    text = f"""\
lake: {folder / "lake"}
clusters:
  acl:
    bootstrap_servers: "{secure.bootstrap_servers}"
    hint_topic: hints
    kafka: {{security_protocol: SASL_SSL, ssl_cafile: "{secure.ca_file}", sasl_mechanism: PLAIN,
      sasl_plain_username: {secure.username}, sasl_plain_password: {{file: "{secret}"}}}}
groups: [{{match: "*", mode: auto}}]
"""
    (folder / "policy.yaml").write_text(text, encoding="utf-8")

    def todos() -> dict[str, str]:
        lanes = gather_lanes(Request(config=folder / "policy.yaml", check_timeout_s=300))
        wanted = select_lanes(lanes, ["permissions"], [])
        results = run_lanes(wanted, check_timeout_s=300, timeout_s=900)
        return {result.check: one.remedy for result in results for one in result.findings if one.remedy}

    line = f"kafka-acls.sh --bootstrap-server {secure.bootstrap_servers} --add --allow-principal '{WHO}' "
    name = f"evenlag-publisher-{broker.cluster_id}-hints"
    expected = {
        "permissions.cluster": f"{line}--operation Describe --cluster",
        # Read, as every consumer has it, includes Describe.
        "permissions.hint_topic": f"{line}--operation Write --operation DescribeConfigs --topic hints",
        "permissions.transactional_id": (
            f"{line}--operation Write --operation Describe --transactional-id {name}"
        ),
    }
    wait_until(lambda: todos() == expected, what=todos)
    cluster.admin.create_acls(
        [
            allow(ResourceType.CLUSTER, "kafka-cluster", ACLOperation.DESCRIBE),
            allow(ResourceType.TOPIC, "hints", ACLOperation.WRITE),
            allow(ResourceType.TOPIC, "hints", ACLOperation.DESCRIBE_CONFIGS),
            allow(ResourceType.TRANSACTIONAL_ID, name, ACLOperation.WRITE),
            allow(ResourceType.TRANSACTIONAL_ID, name, ACLOperation.DESCRIBE),
        ]
    )
    wait_until(lambda: todos() == {})
