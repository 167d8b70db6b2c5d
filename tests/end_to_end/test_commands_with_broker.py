"""The commands that talk to Kafka, against the real broker."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from assignor_core.hint import HintPayload, encode_hint, hint_key
from sandbox.workload.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.broker_node import BrokerNode
    from tests.support.fixtures.command import Evenlag

pytestmark = [pytest.mark.extended, pytest.mark.broker]

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def _publish(broker: BrokerNode, topic: str, values: dict[bytes, bytes | None]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.create_topics(
        [
            NewTopic(
                topic,
                num_partitions=3,
                replication_factor=-1,
                topic_configs={"cleanup.policy": "compact", "compression.type": "uncompressed"},
            )
        ]
    )
    admin.close()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for key, value in values.items():
        producer.send(topic, key=key, value=value)
    producer.flush()
    producer.close()


def _hint(broker: BrokerNode, group_id: str, *, expires_in_s: int) -> bytes:
    payload = HintPayload(
        cluster_id=broker.cluster_id,
        group_id=group_id,
        snapshot_id="20261121T130000000Z-aaaaaaaa",
        fingerprint="f" * 64,
        assignment={"m:c0": {TOPIC_ID: [0, 1, 2]}, "m:c1": {TOPIC_ID: [3]}},
        count_slack=0,
        max_moves=10,
    )
    now_ms = time.time_ns() // 1_000_000
    return encode_hint(
        payload.encode(), sequence=3, issued_at_ms=now_ms, expires_at_ms=now_ms + 1000 * expires_in_s
    )


def test_hints_shows_what_stands_and_what_cannot_be_read(
    evenlag: Evenlag, broker: BrokerNode, unique: Callable[[str], str]
) -> None:
    topic = unique("hints")
    _publish(
        broker,
        topic,
        {
            hint_key("payments"): _hint(broker, "payments", expires_in_s=7_200),
            hint_key("late"): _hint(broker, "late", expires_in_s=-5_400),
            hint_key("withdrawn"): None,
            hint_key("garbage"): b"no hint",
            b"control/stop": b"1",
        },
    )
    call = ("hints", "-b", broker.bootstrap_servers, "--hint-topic", topic)

    content = json.loads(evenlag(*call, "--json").stdout)
    assert [(hint["group_id"], hint["expired"]) for hint in content["hints"]] == [
        ("late", True),
        ("payments", False),
    ]
    assert list(content["unreadable"]) == ["garbage"]
    assert content["stopped"] is True
    assert content["hints"][1]["assignment"]["m:c0"] == {TOPIC_ID: [0, 1, 2]}
    assert content["hints"][1]["for"] == "consumers"

    shown = evenlag(*call)
    assert re.search(r"1 h \d+ min ago", shown.stdout)
    assert "cannot be read" in shown.stdout
    assert "control/stop is in 1 of 3 partitions" in shown.stderr

    one = evenlag(*call, "payments")
    assert re.search(r"m:c0 .* 0-2 ", one.stdout)
    unknown = evenlag(*call, "payment")
    assert unknown.exit_code == 4
    assert "did you mean 'payments'?" in unknown.stderr


def test_without_a_hint_topic_there_is_nothing_and_none_is_made(
    evenlag: Evenlag, broker: BrokerNode, unique: Callable[[str], str]
) -> None:
    topic = unique("no-hints")
    answer = evenlag("hints", "-b", broker.bootstrap_servers, "--hint-topic", topic)
    assert answer.exit_code == 4
    assert "nothing has been published there yet" in answer.stderr
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    assert topic not in admin.list_topics()
    admin.close()


def test_wrong_credentials_are_told_as_such_and_the_password_is_not(
    evenlag: Evenlag, broker: BrokerNode
) -> None:
    assert broker.sasl_ssl is not None
    settings = broker.sasl_ssl.client_config() | {"sasl_plain_password": "wr0ng-password"}
    servers = settings.pop("bootstrap_servers")
    environment = {f"EVENLAG_KAFKA_{name.upper()}": value for name, value in settings.items()}
    environment["EVENLAG_KAFKA_BOOTSTRAP_TIMEOUT_MS"] = "2000"
    answer = evenlag("hints", "-b", servers, **environment)
    assert answer.exit_code == 3
    assert "correct sasl_plain_username and sasl_plain_password" in answer.stderr
    assert "wr0ng-password" not in answer.output


def test_right_credentials_from_the_environment_go_through(evenlag: Evenlag, broker: BrokerNode) -> None:
    assert broker.sasl_ssl is not None
    settings = broker.sasl_ssl.client_config()
    servers = settings.pop("bootstrap_servers")
    environment = {f"EVENLAG_KAFKA_{name.upper()}": value for name, value in settings.items()}
    answer = evenlag("hints", "-b", servers, "--hint-topic", "nobody-made-this", **environment)
    assert answer.exit_code == 4, answer.output


def test_a_broker_that_does_not_answer_is_told_in_one_line(evenlag: Evenlag) -> None:
    answer = evenlag("hints", "-b", "127.0.0.1:1", EVENLAG_KAFKA_BOOTSTRAP_TIMEOUT_MS="500")
    assert answer.exit_code == 3
    [line] = answer.stderr.splitlines()
    assert line.startswith("error: 127.0.0.1:1 refuses connections: nothing listens on this port")


@pytest.mark.jvm
def test_run_plans_by_itself_and_publishes_only_for_the_named_group(
    broker: BrokerNode, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """One cycle without a policy file, in a process of its own, as a person runs it."""
    named, other = unique("named"), unique("other")
    client = {"bootstrap_servers": broker.bootstrap_servers}
    hint_topic = "evenlag-hints"
    settings: dict[str, Any] = {
        "num_partitions": 4,
        "hint_topic": hint_topic,
        "consumer": {"records_per_s": 1.0, "session_timeout_ms": 120_000},
    }
    with (
        Workload(client, tmp_path / "a", topic=unique("t"), group_id=named, **settings) as first,
        Workload(client, tmp_path / "b", topic=unique("t"), group_id=other, **settings) as second,
    ):
        for workload in (first, second):
            workload.start_consumers(2)
            owners = workload.wait_until_owned()
            heavy = min(owners.values(), key=min)
            workload.fill(dict.fromkeys(heavy, 2000))
        lake = tmp_path / "lake"
        answer = _run(
            *("run", "-b", broker.bootstrap_servers, "--cluster", "mine", "--lake", str(lake)),
            *("--group", named, "--reset-policy", "earliest", "--publish", "--json"),
            folder=tmp_path,
        )
    assert [plan["group_id"] for plan in answer["plans"]] == [named], answer
    assert answer["publish"]["published"] == 1
    assert answer["plans"][0]["status"] == "PUBLISHED"
    assert answer["observe"]["num_groups"] >= 2

    hints = _run("hints", "-b", broker.bootstrap_servers, "--json", folder=tmp_path)
    assert named in {hint["group_id"] for hint in hints["hints"]}
    assert other not in {hint["group_id"] for hint in hints["hints"]}


def _run(*arguments: str, folder: Path) -> dict[str, Any]:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "evenlag", *arguments], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
