"""What is changed in kafka-python's coordinator, step by step and without a broker."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kafka import TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.base import Generation
from kafka.errors import (
    FencedInstanceIdError,
    KafkaConnectionError,
    KafkaError,
    OffsetMetadataTooLargeError,
)
from kafka.protocol.consumer import HeartbeatResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.structs import OffsetAndMetadata

from evenlag.consumer import HintAssignor, HintCache
from tests.support.consumer.coordinator_member import Member
from tests.support.hints import AsyncListener, Listener
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def make_member(offline_consumer: Callable[..., Any]) -> Callable[..., Member]:
    def make(*strategy: Any, listener: Any = None) -> Member:
        return Member(offline_consumer, [HintAssignor(HintCache("g")), *strategy], listener)

    return make


@pytest.mark.parametrize("listener_class", [Listener, AsyncListener])
def test_a_cooperative_member_keeps_and_an_eager_one_gives_up_first(
    make_member: Callable[..., Member], listener_class: type[Any]
) -> None:
    listener = listener_class()
    member = make_member(RangePartitionAssignor, listener=listener)
    member.join("evenlag", P0, P1)
    assert listener.calls == [("assigned", {P0, P1})]
    member.prepare()
    assert member.held() == {P0, P1}
    member.answer_join("evenlag")
    member.complete("evenlag", P1, P2)
    assert listener.calls[1:] == [("revoked", {P0}), ("assigned", {P2})]
    listener.calls.clear()
    # Kept, and then an assignor is selected that knows of no claims.
    member.prepare()
    member.answer_join("range")
    assert member.membership.claims() == ([], 2)
    assert not member.consumer._subscription.fetchable_partitions()
    member.complete("range", P1)
    assert listener.calls == [("lost", {P1, P2}), ("assigned", {P1})]
    listener.calls.clear()
    # Now given up before, in order, and really.
    member.prepare()
    assert listener.calls == [("revoked", {P1})]
    assert member.held() == set()
    member.answer_join("evenlag")
    member.complete("evenlag", P2)
    assert listener.calls == [("revoked", {P1}), ("assigned", {P2})]


@pytest.mark.parametrize("listener_class", [Listener, AsyncListener])
def test_after_a_loss_the_mode_is_eager_and_the_listener_knows_of_the_loss(
    make_member: Callable[..., Member], listener_class: type[Any]
) -> None:
    listener = listener_class()
    member = make_member(listener=listener)
    member.join("evenlag", P0)
    member.coordinator.rejoining = True
    member.coordinator.reset_generation()
    assert not member.coordinator.rejoining, "in the middle of a join it is prepared again"
    assert member.membership.claims() == ([("t", 0)], -1)
    member.prepare()
    assert listener.calls == [("assigned", {P0}), ("lost", {P0})]
    assert member.held() == set()
    assert member.membership.claims() == ([], -1)


def test_a_sync_that_fails_after_an_eager_selection_leaves_nothing_to_claim(
    make_member: Callable[..., Member],
) -> None:
    listener = Listener()
    member = make_member(RangePartitionAssignor, listener=listener)
    member.join("evenlag", P0, P1)
    member.prepare()
    member.answer_join("range")  # and its sync fails: the next attempt is not prepared
    claims = dict(member.coordinator.group_protocols())["evenlag"]
    assert not claims.owned_partitions
    member.answer_join("evenlag")
    member.complete("evenlag", P1)
    assert listener.calls[1:] == [("lost", {P0, P1}), ("assigned", {P1})]


def test_what_was_fetched_is_dropped_with_what_is_given_up(make_member: Callable[..., Member]) -> None:
    member = make_member(RangePartitionAssignor)
    member.join("range", P0)
    fetcher = member.consumer._fetcher
    fetcher._completed_fetches.append(SimpleNamespace(topic_partition=P0))
    fetcher._paused_completed_fetches[P0] = SimpleNamespace(topic_partition=P0)
    fetcher._next_partition_records = SimpleNamespace(topic_partition=P0, drain=lambda: None)
    member.prepare()
    assert not fetcher._completed_fetches
    assert not fetcher._paused_completed_fetches
    assert fetcher._next_partition_records is None


def test_an_assignment_that_is_refused_does_not_make_old_claims_look_new(
    make_member: Callable[..., Member],
) -> None:
    member = make_member()
    member.membership._settle_s = lambda: 9.0
    member.join("evenlag", P0)
    member.prepare()
    member.answer_join("evenlag")
    content = ConsumerProtocolAssignment(1, [("gone", [0])], b"").encode()
    member.consumer._net.run(member.coordinator._on_join_complete_async, 2, "me", "evenlag", content)
    assert member.membership.claims() == ([("t", 0)], 1)
    assert member.coordinator.rejoin_needed, "and it is tried again at once"


def test_kafkas_own_cooperative_assignor_claims_what_is_held_and_eager_ones_stay_as_they_are(
    make_member: Callable[..., Member],
) -> None:
    member = make_member(CooperativeStickyAssignor)
    member.join("cooperative-sticky", P0)
    member.join("evenlag", P1)
    for metadata in dict(member.coordinator.group_protocols()).values():
        assert [(o.topic, list(o.partitions)) for o in metadata.owned_partitions] == [("t", [1])]
        assert metadata.generation_id == 2
    member = make_member(StickyPartitionAssignor)
    member.join("sticky", P0)
    assert not getattr(dict(member.coordinator.group_protocols())["sticky"], "owned_partitions", None)


def test_who_led_an_attempt_that_failed_does_not_lead_the_next(make_member: Callable[..., Member]) -> None:
    member = make_member()
    member.prepare()
    member.coordinator._is_leader = True
    member.answer_join("evenlag", leader="me")
    assert member.coordinator._is_leader
    member.answer_join("evenlag", leader="other")
    assert not member.coordinator._is_leader


class _FailsAtALoss(Listener):
    def on_partitions_lost(self, lost: Any) -> None:
        raise ValueError(str(lost))


def test_a_listener_that_fails_when_all_is_lost_is_heard_and_the_join_goes_on(
    make_member: Callable[..., Member],
) -> None:
    member = make_member(RangePartitionAssignor, listener=_FailsAtALoss())
    member.join("evenlag", P0)
    member.prepare()
    member.answer_join("range")
    with pytest.raises(KafkaError, match="on_partitions_lost"):
        member.complete("range", P1)
    assert member.held() == {P1}


def test_closing_with_everything_lost_says_so(make_member: Callable[..., Member]) -> None:
    listener = Listener()
    member = make_member(RangePartitionAssignor, listener=listener)
    member.join("evenlag", P0)
    member.prepare()
    member.answer_join("range")
    member.consumer._net.run(member.coordinator._on_close_prepare_async)
    assert listener.calls[1:] == [("lost", {P0})]
    assert member.held() == set()


def test_offsets_are_kept_back_from_the_moment_that_partitions_may_be_anothers(
    make_member: Callable[..., Member],
) -> None:
    member = make_member(RangePartitionAssignor, listener=Listener())
    sent: list[set[Any]] = []

    async def send(_: Any, offsets: Any) -> None:
        sent.append(set(offsets))

    def commit(*partitions: Any) -> None:
        offsets = {tp: OffsetAndMetadata(1, "", -1) for tp in partitions}
        membership = member.membership
        member.consumer._net.run(membership._send_commit, lambda o: send(None, o), offsets)

    member.join("evenlag", P0, P1)
    member.join("evenlag", P1)
    commit(P0, P1, P2)  # P0 is revoked, and nobody's before this member joins again
    assert sent == [{P0, P1}]
    assert member.refused == [("t", 2)]
    member.prepare()
    member.coordinator.group_protocols()
    commit(P0, P1)
    assert sent[1:] == [{P1}]
    member.answer_join("range")
    with pytest.raises(KafkaError, match="t-1"):
        commit(P1)
    member.complete("range", P2)
    commit(P1, P2)
    assert sent[2:] == [{P2}]


def test_a_report_replaces_no_metadata_of_the_application_and_gives_way_to_small_limits(
    make_member: Callable[..., Member],
) -> None:
    """A position that was fetched with an earlier report has the present one; what is large is left out."""
    member = make_member()
    member.join("evenlag", P0, P1, P2)
    membership, limit = member.membership, 100
    sent: list[list[str]] = []

    async def send(offsets: Any) -> None:
        sent.append([offset.metadata for offset in offsets.values()])
        if any(len(text) > limit for text in sent[-1]):
            raise OffsetMetadataTooLargeError

    def commit(own: str) -> None:
        texts = zip((P0, P1, P2), ("", own, "evenlag:busy_ms=1 since_ms=2"), strict=True)
        offsets = {tp: OffsetAndMetadata(1, text, -1) for tp, text in texts}
        member.consumer._net.run(membership._send_commit, send, offsets)

    commit("own")
    membership._commit_text = lambda: "evenlag:busy_ms=3 since_ms=2"
    commit("own")
    limit = 20
    commit("own")
    commit("own")
    with pytest.raises(OffsetMetadataTooLargeError):
        commit("more than twenty letters")
    now, without = ["evenlag:busy_ms=3 since_ms=2", "own", "evenlag:busy_ms=3 since_ms=2"], ["", "own", ""]
    assert sent[:5] == [without, now, now, without, without]


def test_a_fenced_heartbeat_ends_the_next_poll(make_member: Callable[..., Member]) -> None:
    member = make_member()
    member.join("evenlag", P0)
    with pytest.raises(FencedInstanceIdError):
        member.coordinator._handle_heartbeat_response(HeartbeatResponse[0](FencedInstanceIdError.errno), 0.0)
    with pytest.raises(FencedInstanceIdError):
        member.coordinator.poll(timeout_ms=0)


def test_heartbeats_that_died_are_started_anew_by_a_join(make_member: Callable[..., Member]) -> None:
    member = make_member()
    member.join("evenlag", P0)
    assert not member.coordinator.need_rejoin()
    member.coordinator._heartbeat_loop_future = SimpleNamespace(
        is_done=True, failed=lambda: True, exception=OSError("died")
    )
    with pytest.raises(OSError, match="died"):
        member.coordinator.poll_heartbeat()
    assert member.coordinator.need_rejoin()


def test_a_lost_member_is_known_by_its_generation(make_member: Callable[..., Member]) -> None:
    assert Generation.NO_GENERATION.is_lost()
    assert make_member().membership.claims() == ([], -1)


def test_a_broker_that_refuses_connections_does_not_end_a_poll(make_member: Callable[..., Member]) -> None:
    member = make_member()
    answers: list[Any] = [KafkaConnectionError("refused"), KafkaConnectionError("refused"), True]

    async def ready(*, timeout_ms: float | None) -> bool:
        assert timeout_ms is None or timeout_ms >= 0
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    ensure = member.membership._ensure_coordinator_ready
    assert member.consumer._net.run(lambda: ensure(ready, 5000))
    assert not answers
    answers += [KafkaConnectionError("refused")] * 9
    assert not member.consumer._net.run(lambda: ensure(ready, 150))

    def poll(*, timeout_ms: float | None) -> bool:
        raise KafkaConnectionError(str(timeout_ms))

    assert not member.membership._poll(poll, 10)


@pytest.mark.parametrize("pause_s", [10_250.0, 10_700.0, 30 * 86_400.0])
def test_a_pause_between_two_polls_may_last_hours(make_member: Callable[..., Member], pause_s: float) -> None:
    membership = make_member().membership
    membership._processing_s = 1.0
    membership._last_poll_s = time.monotonic() - pause_s
    assert membership._poll(lambda **_: True, 10)
    assert membership._processing_s == pytest.approx(pause_s, abs=60)


def test_a_round_that_is_asked_for_waits_until_others_had_time_to_sync(
    make_member: Callable[..., Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    member = make_member()
    member.membership._settle_s = lambda: 0.2
    due: list[Callable[[], None]] = []

    def call_later(delay_s: float, call: Callable[[], None]) -> None:
        if delay_s == 0.2:  # the other is the look for the next round
            due.append(call)

    monkeypatch.setattr(member.coordinator._net, "call_later", call_later)
    member.join("evenlag", P0, P1)
    assert not member.coordinator.need_rejoin()
    member.join("evenlag", P0)
    assert not member.coordinator.rejoin_needed
    assert member.membership.postponed_generation == 2  # nobody is to ask for it on the side
    due.pop()()
    assert member.coordinator.rejoin_needed
    assert member.membership.postponed_generation == -1
    member.join("evenlag", P1)
    member.join("evenlag", P1)  # the round came by another's request: nothing is asked for any more
    due.pop()()
    assert not member.coordinator.rejoin_needed
    assert due == []


def test_offsets_that_were_fetched_before_an_assignment_are_not_taken_after_it(
    make_member: Callable[..., Member],
) -> None:
    """An answer that a poll had no time left for said where the group was when another had not begun."""
    member = make_member()
    member.join("evenlag", P0)
    coordinator, partitions = member.coordinator, {P0}
    answers = [{}, {P0: OffsetAndMetadata(484, "", -1)}]

    async def send(_partitions: Any) -> Any:
        return answers.pop(0)

    coordinator._send_offset_fetch_request = send
    early = coordinator._manager.call_soon(send, partitions)
    coordinator._offset_fetch_futures[frozenset(partitions)] = early
    wait_until(lambda: early.is_done)
    coordinator.ensure_coordinator_ready_async = _ready

    member.join("evenlag", P1)
    member.join("evenlag", P0)

    found = member.consumer._net.run(coordinator.fetch_committed_offsets_async, partitions, 5000)
    assert found[P0].offset == 484


async def _ready(**_timeout: Any) -> bool:
    return True
