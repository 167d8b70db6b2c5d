"""Sealed plans on a real broker: the publisher writes the hint of a sound plan, and none of an edited one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from assignor_core.errors import HintSignatureError
from assignor_core.hint import decode_hint, derive_group_key, hint_key
from evenlag.lake.tables import PLANS
from evenlag.publishing.hint_topic import own_partition
from evenlag.publishing.publish import publish_hints
from evenlag.publishing.sealing.row_seal import key_id
from tests.support.live_plan import LiveGroup
from tests.support.sealing.attacker import edit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.jvm]

MASTER = "the master key of this test, which is long enough"


@pytest.fixture
def group(
    broker: Broker,
    spark: SparkSession,
    tmp_path: Path,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[LiveGroup]:
    monkeypatch.setenv("SEAL_TEST_MASTER", MASTER)
    live = LiveGroup(broker, spark, tmp_path, unique, mode="auto")
    live.cluster_keys = "hint_signing_key: {env: SEAL_TEST_MASTER}, required_signing: true"
    live.set_mode("auto")
    yield live
    live.close()


def raw_hint(group: LiveGroup) -> bytes | None:
    """Read the newest value under the group's key, by another client."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=group.kafka.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    place = TopicPartition(group.kafka.hint_topic, own_partition(group.group_id, 3))
    consumer.assign([place])
    end, values = consumer.end_offsets([place])[place], []
    while consumer.position(place) < end:
        for records in consumer.poll(timeout_ms=200).values():
            values += [record.value for record in records if record.key == hint_key(group.group_id)]
    consumer.close()
    return values[-1] if values else None


def test_a_sealed_plan_is_published_and_signed_and_an_edited_one_is_not(
    group: LiveGroup, caplog: pytest.LogCaptureFixture
) -> None:
    edited = group.plan(mode="auto", approved=True, age_s=8)

    def allow_more(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        # What a limit of the gates was, as the plan shows it: nothing that the hint contains.
        return [row | {"moves": 0} for row in rows]

    edit(group.lake, PLANS, allow_more)
    report = publish_hints(group.loaded, group.name, datetime.now(UTC), "r")
    reason = "not as it was sealed: its row of plans was edited, or is sealed by a key that is not accepted"
    assert report.published == []
    assert report.expired == [(group.group_id, edited, reason)]
    assert raw_hint(group) is None
    assert group.events(edited)["EXPIRED"]["reason"] == reason
    assert [record.levelname for record in caplog.records if reason in record.getMessage()] == ["ERROR"]

    plan = group.plan(mode="auto", approved=True, age_s=3)
    report = publish_hints(group.loaded, group.name, datetime.now(UTC), "r")
    assert report.published == [(group.group_id, plan, 1)]
    value = raw_hint(group)
    assert value is not None
    own_key = derive_group_key(MASTER.encode(), group.group_id)
    assert decode_hint(value, group_id=group.group_id, group_key=own_key).plan_id == plan
    assert json.loads(value.partition(b"\n")[0])["hmac"]
    with pytest.raises(HintSignatureError):
        decode_hint(value, group_id=group.group_id, group_key=b"another key")
    # Which key signed is on record, and is no secret.
    told = group.events(plan)["PUBLISHED"]["signing_key_id"]
    assert told == key_id(MASTER.encode())
    assert MASTER not in str(told)
