"""Loads on the real broker: written at the end of a cycle, in the group's partition, and taken back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from assignor_core.errors import HintSignatureError
from assignor_core.hint import derive_group_key
from assignor_core.loads import decode_loads, loads_key
from assignor_core.record import topic_id_text
from evenlag.kafka.topic_metadata import read_topic_names
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, MEMBERS, SNAPSHOTS
from evenlag.publishing import revocation
from evenlag.publishing.hint_topic import own_partition
from evenlag.publishing.publish import publish_hints
from tests.support.live_plan import NUM_PARTITIONS, LiveGroup
from tests.support.spark_tables import together
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from evenlag.publishing.loads import LoadsReport
    from tests.support.fixtures.command import Evenlag

pytestmark = pytest.mark.broker


class Lake:
    """Snapshots of the group and of another one, as a cycle writes them."""

    def __init__(self, group: LiveGroup, spark: SparkSession) -> None:
        self.group, self._spark = group, spark
        self.at = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=100)

    def snapshot(self, lags: Sequence[int]) -> int:
        """Write a snapshot ten seconds after the last one; return its time in milliseconds."""
        self.at += timedelta(seconds=10)
        snapshot_id = f"{self.at:%Y%m%dT%H%M%S}000Z-0badcafe"
        with together(self._spark):
            head = self.group.snapshot(self.at, snapshot_id)
            common = head | {"topic_id": next(iter(self.group.kafka.topic_ids().values()))}
            topic = next(iter(self.group.kafka.topics))
            groups = (self.group.group_id, "watched")
            lag = [
                common
                | {
                    "slot": self.at,
                    "group_id": name,
                    "topic": topic,
                    "partition": number,
                    "owner_member_id": "a",
                    "status": "OK",
                    "lag_records": value,
                }
                for name in groups
                for number, value in enumerate(lags)
            ]
            about = {"group_state": "Stable", "group_type": "classic", "assignor": "evenlag"}
            members = [
                head
                | about
                | {"group_id": name, "member_id": "a", "subscription": [topic], "read_at": self.at}
                for name in groups
            ]
            self.group.write(LAG, lag)
            self.group.write(MEMBERS, members)
        return round(self.at.timestamp() * 1000)


def refresh(group: LiveGroup) -> LoadsReport:
    return publish_hints(group.loaded, group.name, datetime.now(UTC), "r").loads


def test_loads_live_beside_hints(evenlag: Evenlag, group: LiveGroup, spark: SparkSession) -> None:
    lake, mine = Lake(group, spark), (group.group_id,)
    plan = group.plan(mode="auto", approved=True, age_s=150)
    measured_at = lake.snapshot([300, 100, 100, 100])
    report = publish_hints(group.loaded, group.name, datetime.now(UTC), "r")
    assert report.published == [(group.group_id, plan, 1)]
    assert (report.loads.refreshed, report.loads.removed, report.loads.error) == (mine, (), None)
    loads = group.topic_state.loads[group.group_id].payload
    topic_id = next(iter(group.kafka.topic_ids().values()))
    assert loads.loads == {topic_id: [1_000_000, 333_000, 333_000, 333_000]}
    assert (loads.measured_at_ms, loads.valid_until_ms) == (measured_at, measured_at + 30 * 60_000)
    assert len(loads.loads[topic_id]) == NUM_PARTITIONS
    # Nothing for a group in mode shadow; nothing twice; nothing for a small change.
    assert set(group.topic_state.loads) == set(mine)
    assert refresh(group).refreshed == ()
    lake.snapshot([301, 100, 101, 99])
    assert refresh(group).refreshed == ()
    moved_at = lake.snapshot([100, 300, 100, 100])
    assert refresh(group).refreshed == mine
    assert group.topic_state.loads[group.group_id].payload.measured_at_ms == moved_at

    shown = json.loads(evenlag("hints", "--config", group.config, "--json").stdout)
    (one,) = shown["loads"]
    assert (one["group_id"], one["fresh"], one["for"]) == (group.group_id, True, "consumers")
    assert one["loads"] == {topic_id: [333_000, 1_000_000, 333_000, 333_000]}
    page = evenlag("hints", group.group_id, "--config", group.config).stdout
    assert "Loads, for when members change" in page
    assert "50.0%" in page
    # Names of topics beside their ids: those that the cluster has.
    ((topic, kafka_id),) = group.kafka.topic_ids().items()
    assert topic in page
    (hint,) = json.loads(evenlag("hints", group.group_id, "--config", group.config, "--json").stdout)["hints"]
    assert hint["topic_names"] == {kafka_id: topic}
    nowhere = topic_id_text("00000000-0000-0000-0000-00000badcafe")
    assert read_topic_names(group.kafka.admin, [nowhere, kafka_id]) == {kafka_id: topic}


@pytest.mark.extended
def test_loads_are_taken_back_with_the_hint_by_the_kill_switch_and_by_the_policy(
    group: LiveGroup, spark: SparkSession
) -> None:
    lake, mine = Lake(group, spark), (group.group_id,)
    plan = group.plan(mode="auto", approved=True, age_s=150)
    lake.snapshot([100, 300, 100, 100])
    assert refresh(group).refreshed == mine
    # A withdrawal takes them back, and the snapshot from before it brings them back no more.
    gone = revocation.withdraw_hint(group.loaded, group.name, group.group_id, actor="ada", reason="x")
    assert (gone.plan_id, gone.had_loads) == (plan, True)
    assert not group.topic_state.has_record_of(group.group_id)
    assert refresh(group).refreshed == ()
    lake.at = datetime.now(UTC)
    lake.snapshot([100, 300, 100, 100])
    assert refresh(group).refreshed == mine

    # While all hints are stopped nothing is written.
    revocation.stop_all(group.loaded, group.name, actor="ada", reason="x")
    lake.snapshot([500, 1, 1, 1])
    assert refresh(group).refreshed == ()
    revocation.resume(group.loaded, group.name, actor="ada", reason="x")
    assert refresh(group).refreshed == mine

    # A policy that places by counts takes them back, once.
    text = group.config.read_text(encoding="utf-8")
    group.config.write_text(text.replace("mode: auto", "mode: auto, on_change: counts"), encoding="utf-8")
    assert (refresh(group).removed, refresh(group).removed) == (mine, ())
    assert group.group_id not in group.topic_state.loads


def test_loads_are_signed_by_the_groups_own_key_and_unsigned_ones_replaced(
    group: LiveGroup, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lake(group, spark).snapshot([300, 100, 100, 100])
    assert refresh(group).refreshed == (group.group_id,)
    unsigned = raw_loads(group)
    monkeypatch.setenv("LOADS_TEST_KEY", "a master key of as many bytes as it needs")
    key = "hint_signing_key: {env: LOADS_TEST_KEY}, schedule: null}\ngroups"
    text = group.config.read_text(encoding="utf-8").replace("schedule: null}\ngroups", key)
    group.config.write_text(text, encoding="utf-8")
    assert "not signed" in group.topic_state.unreadable_loads[group.group_id]
    assert refresh(group).refreshed == (group.group_id,)
    value = raw_loads(group)
    assert value.partition(b"\n")[2] == unsigned.partition(b"\n")[2]
    group_key = derive_group_key(b"a master key of as many bytes as it needs", group.group_id)
    assert decode_loads(
        value, group_id=group.group_id, group_key=group_key, cluster_id=group.kafka.cluster_id
    ).signed
    with pytest.raises(HintSignatureError):
        decode_loads(value, group_id=group.group_id, group_key=b"another key")
    assert b"a master key" not in value


def own(group: LiveGroup) -> int:
    return own_partition(group.group_id, 3)


def raw_loads(group: LiveGroup) -> bytes:
    """Read the newest value of the loads' key from the group's partition, by another client."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=group.kafka.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    partition = TopicPartition(group.kafka.hint_topic, own(group))
    consumer.assign([partition])
    (end,) = consumer.end_offsets([partition]).values()
    values: list[Any] = []

    def is_read() -> bool:
        records = consumer.poll(200).get(partition, [])
        values.extend(record.value for record in records if record.key == loads_key(group.group_id))
        return bool(consumer.position(partition) >= end)

    wait_until(is_read)
    consumer.close()
    value: Any = values[-1]
    return bytes(value)


def test_a_cycle_whose_loads_cannot_be_written_publishes_its_plans_all_the_same(
    group: LiveGroup, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenlag.errors import PublishError
    from evenlag.publishing.writing.hint_publisher import HintPublisher

    def fail(*_: Any) -> None:
        raise PublishError("no")

    monkeypatch.setattr(HintPublisher, "write_loads", fail)
    plan = group.plan(mode="auto", approved=True, age_s=150)
    Lake(group, spark).snapshot([1, 2, 3, 4])
    report = publish_hints(group.loaded, group.name, datetime.now(UTC), "r")
    assert report.published == [(group.group_id, plan, 1)]
    assert report.loads.error == "no"
    assert LakeReader(str(group.lake)).read(SNAPSHOTS).num_rows
