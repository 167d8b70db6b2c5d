"""The specification of a consumer in Java: Kafka's names for settings, no secret that others can read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandbox.workload.consumer import ConsumerSpec
from sandbox.workload.java_consumer import write_spec

if TYPE_CHECKING:
    from pathlib import Path

SPEC = ConsumerSpec(
    name="consumer-0",
    client={"bootstrap_servers": ["a:9092", "b:9092"]},
    topics=("orders",),
    group_id="billing",
    log_file="consumer-0.jsonl",
    records_per_s=60.0,
    instance_id="consumer-0",
    hint_key_hex="ab" * 32,
    language="java",
    extra={"metadata_max_age_ms": 2000, "allow_auto_create_topics": True},
)


def test_settings_have_the_names_of_kafkas_java_client(tmp_path: Path) -> None:
    path = tmp_path / "consumer-0.json"
    write_spec(SPEC, path)
    key_file = tmp_path / "consumer-0.key"
    assert json.loads(path.read_text(encoding="utf-8"))["configs"] == {
        "bootstrap.servers": "a:9092,b:9092",
        "client.id": "consumer-0",
        "group.id": "billing",
        "group.instance.id": "consumer-0",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": True,
        "heartbeat.interval.ms": 500,
        "session.timeout.ms": 20_000,
        "max.poll.records": 6,
        "metadata.max.age.ms": 2_000,
        "partition.assignment.strategy": "evenlag.client.EvenlagAssignor",
        "evenlag.hint.topic": "evenlag-hints",
        "evenlag.hint.key.file": str(key_file),
    }
    assert key_file.read_text(encoding="ascii") == "ab" * 32 + "\n"
    assert [each.stat().st_mode & 0o777 for each in (path, key_file)] == [0o600, 0o600]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (replace(SPEC, client={"bootstrap_servers": "a:9093", "security_protocol": "SSL"}), "without TLS"),
        (replace(SPEC, assignor="range"), "not range"),
    ],
)
def test_what_a_consumer_in_java_cannot_do_here_is_said(
    tmp_path: Path, spec: ConsumerSpec, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write_spec(spec, tmp_path / "spec.json")
