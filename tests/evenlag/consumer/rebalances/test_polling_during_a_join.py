"""``poll()`` goes on during a join: records of owned partitions, their commits, and the end of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kafka import OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    RebalanceInProgressError,
    RetriableError,
    UnknownMemberIdError,
)
from kafka.future import Future
from kafka.protocol.consumer import HeartbeatResponse
from kafka.structs import MemberState

from evenlag.consumer import HintAssignor, HintCache
from tests.support.consumer.coordinator_member import Member
from tests.support.hints import NUM_PARTITIONS, Listener, is_settled
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.hints import Cluster, Runner

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
_COORDINATOR, _BROKER = "coordinator-1", 1


class JoiningMember(Member):
    """A member that owns two partitions, and whose join waits for the others of its group.

    requests, answers: (node id, request) of each request that was sent, and the futures of their answers.
    """

    def __init__(self, offline_consumer: Callable[..., Any], *strategy: Any, **configs: Any) -> None:
        make = lambda **settings: offline_consumer(**settings, **configs)  # noqa: E731  # as the fixture
        self.listener = Listener()
        super().__init__(make, [HintAssignor(HintCache("g")), *strategy], self.listener)
        self.requests: list[tuple[Any, Any]] = []
        self.answers: list[Any] = []
        manager = self.consumer._manager
        manager.send = self._send
        node = SimpleNamespace(host="h", port=9092)
        manager.cluster.broker_metadata = lambda node_id: node if node_id == _COORDINATOR else None
        manager.cluster.brokers = lambda: [SimpleNamespace(node_id=_BROKER, host="h", port=9092)]
        self.coordinator._client.is_disconnected = lambda _node_id: False
        self.coordinator.coordinator_id = _COORDINATOR
        # No poll waits for a join, however long the machine took since the last one.
        self.membership._longest_patience_s = 0.0
        self.membership._settle_s = lambda: 1_000.0
        self.join("evenlag", P0, P1)
        self.listener.calls.clear()
        for partition in (P0, P1):
            self.consumer._subscription.seek(partition, 7)

    def _send(self, request: Any, node_id: Any = None, **_timeout: Any) -> Any:
        reply = Future()
        if node_id in {_COORDINATOR, _BROKER}:  # the others are for metadata
            self.requests.append((node_id, request))
            self.answers.append(reply)
        return reply

    def begin(self, *, timeout_ms: int = 60_000) -> bool:
        """Poll with a rebalance requested; return whether records are returned."""
        self.coordinator.request_rejoin()
        return self.poll(timeout_ms=timeout_ms)

    def poll(self, *, timeout_ms: int = 60_000) -> bool:
        return bool(self.coordinator.poll(timeout_ms=timeout_ms))

    def commit(self, *codes: int) -> Any:
        """Commit, answer with error codes by partition, and return the request and the outcome."""
        offsets = {partition: OffsetAndMetadata(9, "", -1) for partition in (P0, P1)}
        known = len(self.requests)
        outcome = self.coordinator.commit_offsets_async(offsets)
        wait_until(lambda: len(self.requests) > known or outcome.is_done)
        if not outcome.is_done:
            topics = [("t", list(enumerate(codes)))]
            self.answer(SimpleNamespace(topics=topics))
            wait_until(lambda: outcome.is_done)
        return outcome

    def answer(self, response: Any) -> None:
        reply = self.answers[-1]

        async def answer() -> None:
            reply.success(response)

        self.consumer._net.run(answer)


@pytest.fixture
def make_member(offline_consumer: Callable[..., Any]) -> Callable[..., JoiningMember]:
    return lambda *strategy, **configs: JoiningMember(offline_consumer, *strategy, **configs)


def test_a_member_with_partitions_goes_on(make_member: Callable[..., JoiningMember]) -> None:
    member = make_member()
    assert member.begin()
    assert member.poll()
    assert [type(request).__name__ for _, request in member.requests] == ["JoinGroupRequest"]
    assert member.held() == {P0, P1}
    assert member.listener.calls == []
    assert 0 < member.coordinator.time_to_next_poll() < 1, "fetches are waited for, and not for long"


def test_members_wait_whose_partitions_others_may_own(make_member: Callable[..., JoiningMember]) -> None:
    with_eager = make_member(RangePartitionAssignor)
    assert not with_eager.begin(timeout_ms=50)
    unsubscribed = make_member()
    assert unsubscribed.begin()
    unsubscribed.consumer._subscription.change_subscription(["other"])
    assert not unsubscribed.poll(timeout_ms=50)
    lost = make_member()
    assert lost.begin()
    lost.coordinator.reset_generation()
    # As long as it takes to begin to wait.
    wait_until(lambda: lost.poll(timeout_ms=50) or lost.listener.calls)
    assert not lost.poll(timeout_ms=50)
    assert lost.listener.calls == [("lost", {P0, P1})]


def test_a_commit_during_a_join_is_sent_beside_it(make_member: Callable[..., JoiningMember]) -> None:
    member = make_member()
    member.begin()
    assert member.commit(0, 0).succeeded()
    node_id, request = member.requests[-1]
    # The broker reads nothing from the coordinator's connection until it answers the join.
    assert [node for node, _ in member.requests] == [_COORDINATOR, _BROKER]
    assert node_id == _BROKER
    assert request.generation_id_or_member_epoch == 1


@pytest.mark.parametrize("code", [IllegalGenerationError.errno, RebalanceInProgressError.errno])
def test_a_commit_that_a_rebalance_refuses_may_be_repeated(
    make_member: Callable[..., JoiningMember], code: int
) -> None:
    member = make_member()
    member.begin()
    refused = member.commit(0, code).exception
    assert isinstance(refused, RebalanceInProgressError)
    assert isinstance(refused, RetriableError)
    assert member.coordinator._generation.generation_id == 1
    assert member.held() == {P0, P1}


def test_a_commit_of_a_member_that_was_removed_fails(make_member: Callable[..., JoiningMember]) -> None:
    member = make_member()
    member.begin()
    assert isinstance(member.commit(UnknownMemberIdError.errno, 0).exception, CommitFailedError)
    wait_until(lambda: member.poll(timeout_ms=50) or member.listener.calls)
    assert not member.poll(timeout_ms=50)
    assert member.listener.calls == [("lost", {P0, P1})]


def test_a_member_that_is_not_joining_loses_its_membership_with_its_generation(
    make_member: Callable[..., JoiningMember],
) -> None:
    member = make_member()
    member.coordinator.rejoin_needed = False
    assert isinstance(member.commit(IllegalGenerationError.errno, 0).exception, CommitFailedError)
    assert member.coordinator._generation.is_lost()


def test_leaving_does_not_wait_for_the_join(make_member: Callable[..., JoiningMember]) -> None:
    member = make_member()
    member.begin()
    left = member.consumer._manager.call_soon(member.coordinator.maybe_leave_group_async)
    wait_until(lambda: len(member.requests) == 2)
    node_id, request = member.requests[-1]
    assert (node_id, type(request).__name__) == (_BROKER, "LeaveGroupRequest")
    member.answer(SimpleNamespace(error_code=0, members=[]))
    wait_until(lambda: left.is_done)
    assert member.coordinator.coordinator_id == _COORDINATOR


def test_what_was_returned_during_a_join_is_committed_before_its_partition_is_revoked(
    make_member: Callable[..., JoiningMember],
) -> None:
    member = make_member(enable_auto_commit=True)
    events: list[Any] = []

    async def commit(offsets: Any, timeout_ms: float) -> None:
        assert timeout_ms is None or timeout_ms > 0
        events.append({partition: offset.offset for partition, offset in offsets.items()})

    member.coordinator._commit_offsets_sync_async = commit
    member.prepare()
    assert events == [{P0: 7, P1: 7}]
    member.consumer._subscription.seek(P0, 12)  # five records were returned since
    member.answer_join("evenlag")
    member.complete("evenlag", P1)
    assert events[1:] == [{P0: 12}]
    assert member.listener.calls == [("revoked", {P0})]


def test_a_rebalance_that_begins_before_an_assignment_is_applied_is_joined(
    make_member: Callable[..., JoiningMember],
) -> None:
    member = make_member()
    current = member.membership._join
    current._generation = member.coordinator._generation
    with pytest.raises(RebalanceInProgressError):
        member.coordinator._handle_heartbeat_response(
            HeartbeatResponse[0](RebalanceInProgressError.errno), 0.0
        )
    member.complete("evenlag", P0, P1)
    assert member.coordinator.rejoin_needed
    member.join("evenlag", P0, P1)
    assert not member.coordinator.rejoin_needed


def test_the_next_round_is_looked_for_soon_and_no_batch_begins_before(
    make_member: Callable[..., JoiningMember], monkeypatch: pytest.MonkeyPatch
) -> None:
    member = make_member()
    due: list[Callable[[], Any]] = []
    monkeypatch.setattr(member.coordinator._net, "call_later", lambda _delay_s, call: due.append(call))
    member.membership._processing_s = 1_000.0
    member.join("evenlag", P0, P1)
    monkeypatch.undo()
    assert not member.poll(timeout_ms=50)
    # Others are those of connections that are tried again.
    (look,) = (call for call in due if getattr(call, "__name__", "") == "_look_for_next_round")
    task = member.consumer._manager.call_soon(look)
    wait_until(lambda: member.requests)
    assert type(member.requests[0][1]).__name__ == "HeartbeatRequest"
    member.answer(SimpleNamespace(error_code=RebalanceInProgressError.errno))
    wait_until(lambda: task.is_done)
    assert member.coordinator.rejoin_needed
    member.consumer._net.run(look)
    assert len(member.requests) == 1, "it joins now"


def _settle(runners: Sequence[Runner]) -> None:
    """Poll each in turn until all partitions are owned in one generation."""

    def is_done() -> bool:
        for runner in runners:
            runner.consumer.poll(timeout_ms=200)
        return is_settled(runners, NUM_PARTITIONS) and all(runner.held for runner in runners)

    wait_until(is_done, what=lambda: [(r.generation, r.held) for r in runners])


def _begin_a_join(runner: Runner) -> None:
    """Let a member join; the others do not poll, so its join is not answered."""
    runner.consumer._port.ask_from_io_thread()

    def is_joining() -> bool:
        runner.consumer.poll(timeout_ms=50)
        return runner.consumer.group_metadata().state is MemberState.REBALANCING

    wait_until(is_joining)


def _records(runner: Runner) -> list[tuple[int, int]]:
    batches = runner.consumer.poll(timeout_ms=200).values()
    return [(record.partition, record.offset) for batch in batches for record in batch]


@pytest.mark.broker
def test_records_are_returned_and_committed_while_a_join_waits_for_another_member(
    cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    # Nobody is removed for missing heartbeats: what ends here ends by requests.
    settings = {"start": False, "enable_auto_commit": False, "session_timeout_ms": 300_000}
    first, second = start(**settings), start(**settings)
    _settle([first, second])
    _begin_a_join(first)
    mine = sorted(number for _, number in first.held)
    for number in mine:
        cluster.producer.send(topic, b"x", partition=number)
    seen: list[tuple[int, int]] = []

    def have_all() -> bool:
        seen.extend(_records(first))
        return len(seen) == len(mine)

    wait_until(have_all)
    assert sorted(seen) == [(number, 0) for number in mine]
    first.consumer.commit(timeout_ms=60_000)
    assert first.consumer.group_metadata().state is MemberState.REBALANCING
    assert [second.consumer.committed(TopicPartition(topic, number)) for number in mine] == [1] * len(mine)
    _settle([first, second])
    _begin_a_join(first)
    first.consumer.close()
    assert not second.held & {(topic, number) for number in mine}
    _settle([second])
    assert _records(second) == []
