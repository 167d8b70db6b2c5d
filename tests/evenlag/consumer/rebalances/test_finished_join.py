"""An assignment that arrives between two polls is applied by the next poll, without a further rebalance."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from evenlag.consumer._kafka_coordinator import FinishedJoin
from tests.support.hints import NUM_PARTITIONS, is_settled
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.hints import Runner

pytestmark = pytest.mark.extended

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


@pytest.mark.broker
def test_members_that_poll_without_waiting_join(start: Callable[..., Runner]) -> None:
    """Without the fix each join is answered while nobody polls, and begun again."""
    first = start(start=False)
    poll_in_turn([first])
    second = start(start=False)
    poll_in_turn([first, second])
    assert [len(first.held), len(second.held)] == [NUM_PARTITIONS // 2] * 2


class Joins:
    """Joins of a member that are answered at once."""

    def __init__(self, **config: int) -> None:
        settings = {"session_timeout_ms": 10_000, "max_poll_interval_ms": 300_000, **config}
        self.coordinator = SimpleNamespace(config=settings, _generation=None)
        self.finished = FinishedJoin(self.coordinator)
        self.sent = 0

    def join(self) -> bytes:
        return asyncio.run(self.finished.join(self._send))

    async def _send(self) -> bytes:
        self.sent += 1
        self.finished.joined()
        self.coordinator._generation = self.sent
        return b"assignment %d" % self.sent


def test_an_assignment_is_returned_until_it_is_applied() -> None:
    joins = Joins()
    assert [joins.join(), joins.join(), joins.join()] == [b"assignment 1"] * 3
    joins.finished.applied()
    assert joins.join() == b"assignment 2"


def test_an_assignment_of_a_lost_membership_is_dropped() -> None:
    joins = Joins()
    joins.join()
    joins.coordinator._generation = -1
    assert joins.join() == b"assignment 2"


@pytest.mark.parametrize("limit", ["session_timeout_ms", "max_poll_interval_ms"])
def test_an_assignment_is_dropped_when_the_group_may_have_gone_on(limit: str) -> None:
    joins = Joins(**{limit: 50})
    joins.join()
    time.sleep(0.06)
    assert joins.join() == b"assignment 2"


def test_a_join_that_fails_leaves_no_assignment() -> None:
    joins = Joins()
    joins.join()
    joins.coordinator._generation = -1

    async def fail() -> bytes:
        raise OSError

    with pytest.raises(OSError, match=r"^$"):
        asyncio.run(joins.finished.join(fail))
    joins.coordinator._generation = 1
    assert joins.join() == b"assignment 2"
