"""Reading a real cluster: what is bad stands as a problem or a status, and the rest is read."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from assignor_core.record import topic_id_text
from evenlag.errors import KafkaAuthenticationError, KafkaUnreachableError
from evenlag.kafka.broker_requests import BrokerCalls, RequestLimits
from evenlag.kafka.cluster_reader import ClusterReader, ClusterSnapshot
from evenlag.kafka.connection import admin_client
from evenlag.kafka.offsets import read_ends, read_reset_offsets
from evenlag.kafka.topic_metadata import partitions_of, read_topics
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.writing.topic_settings import read_max_bytes
from tests.support.brokers import settings_of
from tests.support.kafka_python_rejoin_fix import finish_joins
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.broker_node import BrokerNode

pytestmark = pytest.mark.broker

COMMITS_STEP = 3


@pytest.fixture
def cluster(broker: BrokerNode) -> ClusterSettings:
    return settings_of(broker)


@pytest.fixture
def admin(cluster: ClusterSettings) -> Iterator[Any]:
    with admin_client(cluster) as client:
        yield client


def make_topic(admin: Any, name: str, partitions: int) -> None:
    admin.create_topics({name: {"num_partitions": partitions}}, wait_for_metadata=True)


def fill(broker: BrokerNode, topic: str, counts: dict[int, int]) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for partition, count in counts.items():
        for _ in range(count):
            producer.send(topic, b"x", partition=partition)
    producer.flush()
    producer.close()


def consumer(broker: BrokerNode, *topics: str, group: str, **more: Any) -> Any:
    made = KafkaConsumer(
        *topics,
        group_id=group,
        bootstrap_servers=broker.bootstrap_servers,
        enable_auto_commit=False,
        allow_auto_create_topics=False,
        **more,
    )
    return finish_joins(made)


def poll_until_assigned(member: Any) -> None:
    wait_until(lambda: member.poll(200) or member.assignment(), what="the group did not settle")


def of_topic(table: Any, topic: str) -> dict[int, dict[str, Any]]:
    return {row["partition"]: row for row in table.to_pylist() if row["topic"] == topic}


def commits_of(reading: ClusterSnapshot, group: str) -> list[dict[str, Any]]:
    return [row for row in reading.commits.to_pylist() if row["group_id"] == group]


def members_of(reading: ClusterSnapshot, group: str) -> list[dict[str, Any]]:
    return [row for row in reading.members.to_pylist() if row["group_id"] == group]


def test_brokers_tell_when_the_records_of_a_burst_came(
    broker: BrokerNode, admin: Any, unique: Callable[[str], str]
) -> None:
    import pyarrow as pa

    topic = unique("bursts")
    make_topic(admin, topic, 1)
    now = datetime.now(UTC)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    # 100 records 15 minutes ago, then 400 from 5 minutes ago on.
    for age_s, count in ((900, 100), (300, 400)):
        at_ms = round(1_000 * (now.timestamp() - age_s))
        for number in range(count):
            producer.send(topic, b"x", partition=0, timestamp_ms=at_ms + 10 * number)
    producer.flush()
    producer.close()
    found, _ = read_topics(BrokerCalls(admin, RequestLimits()), [topic])
    expected = pa.table(
        {
            "topic_id": [topic_id_text(found[topic].topic_id)],
            "topic": [topic],
            "partition": pa.array([0], pa.int32()),
            "read_at": [now - timedelta(seconds=1_000)],
            "end_offset": [0],
            "last_records_per_s": [0.1],
        }
    )
    reading = ClusterReader(admin, expected=lambda: expected).read()
    points = of_topic(reading.offsets, topic)[0]["interval_points"]
    # The interval ends when the end is read: a moment is between the two bursts, the last after both.
    assert len(points) == 4
    assert points[0]["offset"] == points[1]["offset"] == 100
    assert points[3]["offset"] == 500
    others = [row for row in reading.offsets.to_pylist() if row["topic"] != topic]
    assert all(row["interval_points"] is None for row in others)


def test_offsets_commits_and_members_of_a_live_group(
    broker: BrokerNode, admin: Any, unique: Callable[[str], str]
) -> None:
    topic, group = unique("orders"), unique("billing")
    make_topic(admin, topic, 3)
    fill(broker, topic, {0: 10, 2: 5})
    with_member = consumer(broker, topic, group=group, group_instance_id="pod-0")
    poll_until_assigned(with_member)
    past_end = {
        TopicPartition(topic, 0): OffsetAndMetadata(4, "", -1),
        TopicPartition(topic, 2): OffsetAndMetadata(99, "", -1),
    }
    with_member.commit(past_end)
    reading = ClusterReader(admin).read()
    offsets = of_topic(reading.offsets, topic)
    assert {n: (row["log_start_offset"], row["high_watermark"]) for n, row in offsets.items()} == {
        0: (0, 10),
        1: (0, 0),
        2: (0, 5),
    }
    commits = {row["partition"]: row for row in commits_of(reading, group)}
    assert {n: row["committed_offset"] for n, row in commits.items()} == {0: 4, 2: 99}
    for number, commit in commits.items():
        assert offsets[number]["log_start_read_at"] <= commit["read_at"] <= offsets[number]["end_read_at"]
    (member,) = members_of(reading, group)
    assert (member["group_state"], member["group_type"], member["assignor"]) == ("Stable", "classic", "range")
    assert (member["group_instance_id"], member["subscription"]) == ("pod-0", [topic])
    assert member["assignment"] == [{"topic": topic, "partitions": [0, 1, 2]}]
    times = reading.read_times
    assert times["log_start_read_at"] <= times["commits_read_at"] <= times["end_read_at"]
    with_member.close()


def test_reset_offsets_by_duration_are_those_of_the_records_times(
    broker: BrokerNode, admin: Any, unique: Callable[[str], str]
) -> None:
    """KIP-1106: records of two days ago, of two hours ago, and none; the group has no commits."""
    topic, group = unique("orders"), unique("fresh")
    make_topic(admin, topic, 3)
    now_ms, hour_ms = time.time_ns() // 1_000_000, 3_600_000
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for partition, ages in ((0, (48, 48, 2, 2, 2)), (1, (48, 48))):
        for age in ages:
            # One at a time: a batch that is not sent yet would be read by its own times alone.
            producer.send(topic, b"x", partition=partition, timestamp_ms=now_ms - age * hour_ms).get(600)
    producer.close()
    member = consumer(broker, topic, group=group)
    poll_until_assigned(member)
    six_hours, three_days, no_time = (f"by_duration:{text}" for text in ("PT6H", "P3D", "PT0S"))
    policies = {group: six_hours, "another": "earliest"}
    reading = ClusterReader(admin, reset_policy_of=policies.get).read()
    found = {n: row["reset_offsets"] for n, row in of_topic(reading.offsets, topic).items()}
    member.close()
    # From offset 2 on, the records are young enough; without such a record the consumer starts at the end.
    assert found == {
        0: [{"reset_policy": six_hours, "offset": 2}],
        1: [{"reset_policy": six_hours, "offset": 2}],
        2: [{"reset_policy": six_hours, "offset": 0}],
    }
    calls = BrokerCalls(admin, RequestLimits())
    partitions = partitions_of(list(read_topics(calls, [topic])[0].values()))
    _, ends = read_ends(calls, partitions)
    both = read_reset_offsets(calls, partitions, {three_days, no_time, "latest"}, ends)
    assert {policy: offsets.tolist() for policy, offsets in both.items()} == {
        three_days: [0, 0, 0],
        no_time: [5, 2, 0],
    }
    assert "reset_offsets" in reading.offsets.column_names
    assert ClusterReader(admin).read().offsets["reset_offsets"].null_count == len(reading.offsets)


def test_an_empty_group_and_one_without_commits_have_their_rows(
    broker: BrokerNode, admin: Any, unique: Callable[[str], str]
) -> None:
    topic, empty, fresh = unique("orders"), unique("empty"), unique("fresh")
    make_topic(admin, topic, 1)
    gone = consumer(broker, group=empty)
    gone.assign([TopicPartition(topic, 0)])
    gone.commit({TopicPartition(topic, 0): OffsetAndMetadata(0, "", -1)})
    gone.close()
    member = consumer(broker, topic, group=fresh)
    poll_until_assigned(member)
    reading = ClusterReader(admin).read()
    (row,) = members_of(reading, empty)
    assert (row.get("member_id"), row["group_state"]) == (None, "Empty")
    assert [row["committed_offset"] for row in commits_of(reading, empty)] == [0]
    assert commits_of(reading, fresh) == []
    assert members_of(reading, fresh)[0]["assignment"] == [{"topic": topic, "partitions": [0]}]
    member.close()


def test_a_group_that_rebalances_shows_members_without_subscriptions(
    broker: BrokerNode, admin: Any, unique: Callable[[str], str]
) -> None:
    """One member does not come back to the join while another waits in it."""
    topic, group = unique("orders"), unique("slow")
    make_topic(admin, topic, 2)
    slow = consumer(broker, topic, group=group, max_poll_interval_ms=600_000)
    poll_until_assigned(slow)
    joining = consumer(broker, topic, group=group)
    stop = threading.Event()

    def join() -> None:
        while not stop.is_set():
            joining.poll(100)

    thread = threading.Thread(target=join)
    thread.start()
    try:

        def rows_while_it_rebalances() -> list[dict[str, Any]]:
            rows = members_of(ClusterReader(admin).read(), group)
            return rows if rows[0]["group_state"] == "PreparingRebalance" else []

        rows = wait_until(rows_while_it_rebalances)
        # Members still show what they held before; what they take does not show.
        assert [(row["assignor"], row["subscription"]) for row in rows] == [(None, None)] * len(rows)
    finally:
        stop.set()
        slow.close()
        thread.join()
        joining.close()


def interfering(interfere: Callable[[], None]) -> Callable[[str, int, int], None]:
    """Return a `progress` callback that acts between the snapshot's log start offsets and its commits."""

    def report(_step: str, done: int, _total: int) -> None:
        if done == COMMITS_STEP:
            interfere()

    return report


def test_a_topic_deleted_while_it_is_read_spoils_nothing_else(
    broker: BrokerNode, admin: Any, unique: Callable[[str], str]
) -> None:
    doomed, kept = unique("doomed"), unique("kept")
    for topic in (doomed, kept):
        make_topic(admin, topic, 2)
    fill(broker, kept, {1: 7})

    def delete() -> None:
        admin.delete_topics([doomed])
        wait_until(lambda: doomed not in admin.list_topics())

    reading = ClusterReader(admin).read(progress=interfering(delete))
    assert all(row["error"] for row in of_topic(reading.offsets, doomed).values())
    good = of_topic(reading.offsets, kept)
    assert {n: (row["high_watermark"], row["error"]) for n, row in good.items()} == {
        0: (0, None),
        1: (7, None),
    }
    assert reading.num_unread_partitions >= 2
    assert reading.num_unread_partitions < len(reading.offsets)
    assert any(problem.name.startswith(doomed) for problem in reading.problems if problem.kind == "offsets")


def test_a_topic_recreated_with_fewer_partitions_while_it_is_read_is_not_one_history(
    broker: BrokerNode, admin: Any, unique: Callable[[str], str]
) -> None:
    topic = unique("recreated")
    make_topic(admin, topic, 4)
    fill(broker, topic, {0: 3, 3: 3})

    def recreate() -> None:
        admin.delete_topics([topic])
        wait_until(lambda: topic not in admin.list_topics())
        make_topic(admin, topic, 2)

    reading = ClusterReader(admin).read(progress=interfering(recreate))
    rows = of_topic(reading.offsets, topic)
    assert len(rows) == 4
    assert all("created again" in row["error"] or "Unknown" in row["error"] for row in rows.values())


def test_ignored_and_internal_topics_are_not_read(admin: Any, unique: Callable[[str], str]) -> None:
    hints = unique("hints")
    make_topic(admin, hints, 1)
    reading = ClusterReader(admin, ignored_topics=frozenset({hints})).read()
    assert hints not in reading.inventory.partitions.names
    assert "__consumer_offsets" not in reading.inventory.partitions.names


def test_a_broker_that_does_not_answer_is_named_with_what_to_check() -> None:
    settings = ClusterSettings(bootstrap_servers=("127.0.0.1:1",), request_timeout_ms=2_000)
    with (
        pytest.raises(
            KafkaUnreachableError, match=r"127\.0\.0\.1:1 refuses connections: .*: correct bootstrap_servers"
        ),
        admin_client(settings),
    ):
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sasl_plain_password": {"env": "WRONG_PASSWORD"}}, "refuses the login of .*sasl_plain_password"),
        ({"ssl_cafile": None}, "no authority of this machine signed: set ssl_cafile"),
    ],
)
def test_wrong_credentials_and_an_unknown_authority_are_refused_clearly(
    broker: BrokerNode, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
) -> None:
    monkeypatch.setenv("WRONG_PASSWORD", "not-the-password")
    assert broker.sasl_ssl is not None
    monkeypatch.setenv("RIGHT_PASSWORD", broker.sasl_ssl.password)
    kafka = {**broker.sasl_ssl.client_config(), "sasl_plain_password": {"env": "RIGHT_PASSWORD"}, **change}
    servers = kafka.pop("bootstrap_servers")
    settings = ClusterSettings.model_validate(
        {
            "bootstrap_servers": servers,
            "kafka": {name: value for name, value in kafka.items() if value is not None},
            "request_timeout_ms": 4_000,
        }
    )
    with (
        pytest.raises(KafkaAuthenticationError, match=message) as caught,
        admin_client(settings) as client,
    ):
        client.describe_cluster()
    assert servers.replace(",", ", ") in str(caught.value)
    assert "not-the-password" not in str(caught.value)
    assert broker.sasl_ssl.password not in str(caught.value)


def test_the_size_of_a_record_is_read_from_the_hint_topic_when_it_is_there(
    admin: Any, unique: Callable[[str], str]
) -> None:
    name = unique("hints")
    assert read_max_bytes(admin, name) is None
    configs = {"cleanup.policy": "compact", "max.message.bytes": "54321"}
    admin.create_topics({name: {"num_partitions": 1, "configs": configs}}, wait_for_metadata=True)
    assert read_max_bytes(admin, name) == 54_321
