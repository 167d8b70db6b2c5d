"""After a loss a member shows its last membership: no transaction commits for partitions of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import MemberToRemove
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.base import Generation
from kafka.errors import CommitFailedError
from kafka.protocol.consumer import HeartbeatResponse
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata

from evenlag.consumer import HintAssignor, HintCache
from tests.support.consumer.coordinator_member import Member
from tests.support.hints import NUM_PARTITIONS
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.hints import Cluster, Runner

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION = 25, 22


@pytest.fixture
def member(offline_consumer: Callable[..., Any]) -> Member:
    return Member(offline_consumer, [HintAssignor(HintCache("g")), RangePartitionAssignor], None)


def shown(member: Member) -> tuple[int, str]:
    data = member.consumer.group_metadata()
    return data.generation_id, data.member_id


def test_before_the_first_join_there_is_nothing_to_show(member: Member) -> None:
    assert shown(member) == (-1, "")


@pytest.mark.parametrize("error_code", [UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION])
def test_a_member_that_is_removed_shows_its_last_generation_until_it_is_assigned_again(
    member: Member, error_code: int
) -> None:
    member.join("evenlag", P0)
    member.join("evenlag", P0, P1)
    assert shown(member) == (2, "me")
    with pytest.raises(Exception, match=r".*"):
        member.coordinator._handle_heartbeat_response(HeartbeatResponse[0](error_code), 0.0)
    assert member.coordinator._generation.is_lost()
    assert shown(member) == (2, "me")
    member.prepare()
    assert shown(member) == (2, "me")
    member.coordinator.reset_generation("a new id")  # MEMBER_ID_REQUIRED: the id for the next try
    assert shown(member) == (2, "me")
    member.generation = 6
    member.answer_join("evenlag")
    assert shown(member) == (2, "me"), "joined, and not assigned yet"
    member.complete("evenlag", P1)
    assert shown(member) == (7, "me")


def test_a_member_that_lost_all_to_an_eager_assignor_shows_the_generation_before(member: Member) -> None:
    member.join("evenlag", P0, P1)
    member.prepare()
    assert shown(member) == (1, "me")
    member.answer_join("range")
    assert member.membership.held() == set()
    assert shown(member) == (1, "me")
    member.complete("range", P1)
    assert shown(member) == (2, "me")


def test_a_member_that_left_shows_what_it_was_and_one_without_a_group_does_not(member: Member) -> None:
    member.join("evenlag", P0)
    member.coordinator._generation = Generation(1, "me", "evenlag")
    member.coordinator.reset_generation()
    member.consumer._subscription.unsubscribe()
    assert shown(member) == (1, "me")
    member.consumer._subscription.assign_from_user([P0])
    assert shown(member) == (-1, ""), "partitions that the application assigns itself are in no group"


def test_the_other_fields_stay_as_they_are(member: Member) -> None:
    member.join("evenlag", P0)
    member.coordinator.reset_generation()
    data = member.consumer.group_metadata()
    assert isinstance(data, ConsumerGroupMetadata)
    assert (data.group_id, data.group_instance_id) == ("g", None)
    assert data.state is member.coordinator.state


@pytest.mark.broker
def test_a_transaction_of_a_removed_member_commits_nothing_for_what_another_owns(
    cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    removed = start(start=False, enable_auto_commit=False)
    wait_until(lambda: removed.consumer.poll(timeout_ms=100) or len(removed.held) == NUM_PARTITIONS)
    before = removed.consumer.group_metadata()
    assert before.generation_id > 0
    cluster.admin.remove_group_members(cluster.group_id, [MemberToRemove(member_id=before.member_id)])
    # Its heartbeats, which need no poll, learn of the removal.
    wait_until(lambda: removed.consumer._coordinator._generation == Generation.NO_GENERATION)
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"work-{cluster.group_id}"
    )
    producer.init_transactions()
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(41, "", -1)}

    def commit(data: Any) -> None:
        producer.begin_transaction()
        try:
            producer.send_offsets_to_transaction(offsets, data)
        except CommitFailedError:
            producer.abort_transaction()
            raise
        producer.commit_transaction()

    def committed() -> int | None:
        found = cluster.admin.list_group_offsets(cluster.group_id)[cluster.group_id]
        return next((o.offset for tp, o in found.items() if tp.partition == 0 and o.offset >= 0), None)

    # Without members, and with another that owns the partitions now.
    shown_to_broker = removed.consumer.group_metadata()
    assert shown_to_broker[:3] == before[:3]
    with pytest.raises(CommitFailedError):
        commit(shown_to_broker)
    other = start(enable_auto_commit=False)
    wait_until(lambda: len(other.held) == NUM_PARTITIONS)
    with pytest.raises(CommitFailedError):
        commit(removed.consumer.group_metadata())
    assert committed() is None
    # What kafka-python shows by itself, the broker takes.
    commit(ConsumerGroupMetadata(group_id=cluster.group_id))
    wait_until(lambda: committed() == 41)
    producer.close()
    other.close()
    # Back in the group, it may commit again.
    wait_until(lambda: removed.consumer.poll(timeout_ms=100) or len(removed.held) == NUM_PARTITIONS)
    assert removed.consumer.group_metadata().generation_id > before.generation_id
