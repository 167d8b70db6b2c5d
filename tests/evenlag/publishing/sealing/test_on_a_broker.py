"""Sealed plans on a real broker: the publisher writes the hint of a sound plan, and none of an edited one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from assignor_core.errors import HintSignatureError
from assignor_core.hint import decode_hint, derive_group_key, hint_key
from evenlag.lake.tables import PLAN_EVENTS, PLANS
from evenlag.publishing.hint_topic import own_partition
from evenlag.publishing.publish import publish_hints
from evenlag.publishing.sealing.row_seal import key_id
from tests.support.live_plan import LiveGroup
from tests.support.sealing.attacker import edit
from tests.support.sealing.forgeries import BY_COLUMN, BY_FILE, Forgery, add_row, prepare, write_checkpoint

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
    assert decode_hint(value, group_id=group.group_id, group_key=_own_key(group)).plan_id == plan
    assert json.loads(value.partition(b"\n")[0])["hmac"]
    with pytest.raises(HintSignatureError):
        decode_hint(value, group_id=group.group_id, group_key=b"another key")
    # Which key signed is on record, and is no secret.
    event = group.events(plan)["PUBLISHED"]["signing_key_id"]
    assert event == key_id(MASTER.encode())
    assert MASTER not in str(event)


@pytest.mark.extended
def test_one_forgery_of_each_kind_publishes_nothing_but_what_was_approved(group: LiveGroup) -> None:
    """What changes nothing that is read of the plan changes nothing."""
    harmless = {"added copy", "added unreadable file", "broken statistics"}
    # A checkpoint ends the log that the others edit.
    kinds = sorted((*BY_COLUMN, *BY_FILE), key=lambda kind: kind == "checkpoint")
    for age_s, kind in zip(range(30, 0, -2), kinds, strict=False):
        plan = group.plan(mode="auto", approved=True, age_s=age_s)
        forged = Forgery(kind, PLANS, 0, "moves" if kind in BY_COLUMN else None)
        prepare(group.lake, forged, plan).apply(group.lake)
        if kind == "checkpoint":
            write_checkpoint(group.lake / PLANS.name)
        report = publish_hints(group.loaded, group.name, datetime.now(UTC), "r")
        assert [one for _, one, _ in report.published] == ([plan] if kind in harmless else []), kind
        assert [one for _, one, _ in report.expired] == ([] if kind in harmless else [plan]), kind
        if kind in harmless:
            value = raw_hint(group)
            assert value is not None
            assert decode_hint(value, group_id=group.group_id, group_key=_own_key(group)).plan_id == plan
            group.wait_until_followed(plan)


def test_an_approval_behind_false_statistics_publishes_nothing(group: LiveGroup) -> None:
    group.set_mode("approve")
    plan = group.plan()
    (event,) = group.events(plan).values()
    forged = event | {"event": "APPROVED", "actor": "ada", "channel": "page", "seal": None}
    add_row(group.lake, PLAN_EVENTS, forged, is_hidden=True)
    report = publish_hints(group.loaded, group.name, datetime.now(UTC), "r")
    assert (report.published, [one for _, one, _ in report.expired]) == ([], [plan])
    assert raw_hint(group) is None


def _own_key(group: LiveGroup) -> bytes:
    return derive_group_key(MASTER.encode(), group.group_id)
