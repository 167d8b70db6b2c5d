"""A join goes on between two polls; polls wait for it, or return records meanwhile."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import pytest
from kafka.coordinator.base import Generation
from kafka.errors import FencedInstanceIdError, KafkaTimeoutError
from kafka.future import Future

from evenlag.consumer._current_join import CurrentJoin
from tests.support.hints import NUM_PARTITIONS, is_settled
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.hints import Runner

# Longer than a join and a sync take: nearly each of them ends while nobody polls.
_PROCESSING_S = 0.1


def poll_in_turn(runners: Sequence[Runner]) -> None:
    """Poll without waiting, and process for a while, until all partitions are owned."""

    def are_owned() -> bool:
        for runner in runners:
            runner.consumer.poll(timeout_ms=0)
        time.sleep(_PROCESSING_S)
        return is_settled(runners, NUM_PARTITIONS)

    wait_until(are_owned, what=lambda: [(r.generation, r.held) for r in runners])


@pytest.mark.extended
@pytest.mark.broker
def test_members_that_poll_without_waiting_join(start: Callable[..., Runner]) -> None:
    """Without the fix each join is answered while nobody polls, and begun again."""
    first = start(start=False)
    poll_in_turn([first])
    second = start(start=False)
    poll_in_turn([first, second])
    assert [len(first.held), len(second.held)] == [NUM_PARTITIONS // 2] * 2


class Joins:
    """Joins of a member whose coordinator is the test.

    reply: The coordinator's answer to the join; None: it answers at once.
    """

    def __init__(self, consumer: Any, *, keeps_partitions: bool = False, patience_s: float = 0.0) -> None:
        self._net = consumer._net
        self.coordinator = consumer._coordinator
        self.current = CurrentJoin(self.coordinator, lambda: keeps_partitions, lambda: patience_s)
        self.reply: Any = None
        self.sent = 0

    def poll(self) -> bytes:
        """Join as a poll does."""
        content: bytes = self._net.run(self.current.join, self._send)
        return content

    def answer(self, error: Exception | None = None) -> None:
        """Answer the join that is in flight."""
        reply, self.reply = self.reply, None

        async def answer() -> None:
            reply.success(None) if error is None else reply.failure(error)

        self._net.run(answer)
        wait_until(lambda: not self.current.is_running)

    async def _send(self) -> bytes:
        self.sent += 1
        if self.reply is not None:
            await self.reply
        self.current.answered()
        self.coordinator._generation = Generation(self.sent, "me", "evenlag")
        return b"assignment %d" % self.sent


@pytest.fixture
def consumer(offline_consumer: Callable[..., Any]) -> Any:
    return offline_consumer()


def test_an_assignment_is_returned_until_it_is_applied(consumer: Any) -> None:
    joins = Joins(consumer)
    assert [joins.poll(), joins.poll(), joins.poll()] == [b"assignment 1"] * 3
    finished = [joins.current.is_finished]
    joins.current.applied()
    assert [*finished, joins.current.is_finished] == [True, False]
    assert joins.poll() == b"assignment 2"


def test_an_assignment_of_a_lost_membership_is_dropped(consumer: Any) -> None:
    joins = Joins(consumer)
    joins.poll()
    joins.coordinator.reset_generation()
    assert not joins.current.is_finished
    assert joins.poll() == b"assignment 2"


def test_an_assignment_is_dropped_when_the_group_may_have_gone_on(consumer: Any) -> None:
    joins = Joins(consumer)
    joins.poll()
    heartbeat = joins.coordinator.heartbeat
    heartbeat.last_receive = heartbeat.last_reset = -math.inf
    assert joins.poll() == b"assignment 2"


def test_heartbeats_begin_with_the_assignment(consumer: Any) -> None:
    joins = Joins(consumer)
    assert not joins.coordinator._heartbeat_enabled
    joins.poll()
    assert joins.coordinator._heartbeat_enabled


@pytest.mark.parametrize("error", [FencedInstanceIdError(), OSError("an assignor's")])
def test_a_join_that_fails_between_two_polls_fails_the_next_poll(consumer: Any, error: Exception) -> None:
    joins = Joins(consumer, keeps_partitions=True)
    joins.reply = Future()
    with pytest.raises(KafkaTimeoutError):
        joins.poll()
    joins.answer(error)
    with pytest.raises(type(error)):
        joins.poll()
    assert joins.poll() == b"assignment 2"


def test_polls_return_records_once_their_patience_is_over(consumer: Any) -> None:
    joins = Joins(consumer, keeps_partitions=True)
    joins.reply = Future()
    for _ in range(3):
        with pytest.raises(KafkaTimeoutError):
            joins.poll()
        assert joins.current.lets_polls_return
        assert joins.current.is_sent
    joins.answer()
    assert not joins.current.lets_polls_return
    assert joins.poll() == b"assignment 1"
    assert joins.sent == 1


@pytest.mark.parametrize("why", ["patience", "owns nothing", "session over"])
def test_polls_wait(consumer: Any, why: str) -> None:
    joins = Joins(consumer, keeps_partitions=why != "owns nothing", patience_s=99 if why == "patience" else 0)
    if why == "session over":
        joins.coordinator.heartbeat.last_reset = -math.inf
    joins.reply = Future()
    task = consumer._manager.call_soon(joins.current.join, joins._send)
    wait_until(lambda: joins.sent)
    assert not joins.current.lets_polls_return
    joins.answer()
    wait_until(lambda: task.is_done)
    assert task.value == b"assignment 1"
