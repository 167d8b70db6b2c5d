"""Errors of Kafka say nothing about a plan: it waits; only a group that is gone, or has changed, ends it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from assignor_core.hint import Hint
from evenlag.kafka.broker_requests import Answer, BrokerCalls, FailoverWindow
from evenlag.publishing import publish_checks
from evenlag.publishing.hint_topic import TopicState
from evenlag.publishing.publish import LastSequences, PublishReport, _issue_time, publish_hints
from tests.support.brokers import settings_of
from tests.support.live_plan import LiveGroup
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.kafka.broker_requests import Call
    from sandbox.kafka.broker import Broker

pytestmark = pytest.mark.broker

LOADING, UNAVAILABLE, MOVED, DENIED, GONE = 14, 15, 16, 30, 69


@pytest.fixture(autouse=True)
def no_failover(monkeypatch: pytest.MonkeyPatch) -> None:
    """One description of the groups does not wait for a failover: these tests are of what follows it."""
    monkeypatch.setattr(FailoverWindow, "is_open", False)


@pytest.fixture
def group(
    broker: Broker,
    spark: SparkSession,
    tmp_path: Path,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[LiveGroup]:
    monkeypatch.setattr(publish_checks, "_RETRY_S", 0.5)
    live = LiveGroup(broker, spark, tmp_path, unique, mode="approve")
    yield live
    live.close()


class Answers:
    """Changes the broker's answers: it cannot be made to load or to refuse at a chosen moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.describe_error = 0
        self.commit_error = 0
        self.left = 1_000_000
        real = BrokerCalls.run

        def run(calls: BrokerCalls, wanted: Sequence[Call]) -> list[Answer]:
            return [self._changed(answer) for answer in real(calls, wanted)]

        monkeypatch.setattr(BrokerCalls, "run", run)
        monkeypatch.setattr(BrokerCalls, "pause", lambda *_: None)

    def _changed(self, answer: Answer) -> Answer:
        kind = type(answer.response).__name__
        error = {
            "DescribeGroupsResponse": self.describe_error,
            "ConsumerGroupDescribeResponse": self.describe_error,
            "OffsetFetchResponse": self.commit_error,
        }.get(kind.split("_")[0], 0)
        if error and self.left > 0:
            self.left -= 1
            for row in answer.response.groups:
                row.error_code = error
                if kind.startswith("DescribeGroups"):
                    # What a coordinator that does not coordinate the group reports beside the error.
                    row.group_state, row.members = "Dead", []
        return answer


def publish(group: LiveGroup) -> PublishReport:
    return publish_hints(group.loaded, group.name, datetime.now(UTC), "r")


def approved(group: LiveGroup) -> str:
    group.wait_until_settled()
    plan_id = group.plan(approved=False)
    recorded = group.events(plan_id)["PROPOSED"]
    from evenlag.publishing.event_log import append_plan_events

    yes = recorded | {"event": "APPROVED", "actor": "alice", "at": datetime.now(UTC)}
    append_plan_events(str(group.lake), [yes])
    return plan_id


def test_an_error_of_the_coordinator_keeps_the_plan_and_a_persons_yes(
    group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_id = approved(group)
    answers = Answers(monkeypatch)
    for code, name in (
        (LOADING, "CoordinatorLoadInProgressError"),
        (UNAVAILABLE, "CoordinatorNotAvailableError"),
        (MOVED, "NotCoordinatorError"),
        (DENIED, "GroupAuthorizationFailedError"),
    ):
        answers.describe_error = code
        report = publish(group)
        ((group_id, held, reason),) = report.held
        assert (group_id, held, report.expired, report.published) == (group.group_id, plan_id, [], []), name
        assert name in reason
        lacks = f"lacks the ACL operation Describe on the group {group.group_id!r}"
        assert (lacks in reason) is (code == DENIED), reason
    answers.describe_error = 0
    for code, name in ((MOVED, "NotCoordinatorError"), (DENIED, "GroupAuthorizationFailedError")):
        answers.commit_error = code
        ((_, held, reason),) = publish(group).held
        assert held == plan_id
        assert "its offsets cannot be read" in reason
        assert name in reason
    assert set(group.events(plan_id)) == {"PROPOSED", "APPROVED"}
    answers.commit_error = 0
    assert publish(group).published == [(group.group_id, plan_id, 1)]


def test_an_error_that_passes_is_waited_for(group: LiveGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_id = approved(group)
    monkeypatch.setattr(publish_checks, "_RETRY_S", 30.0)
    answers = Answers(monkeypatch)
    # More errors than one attempt to describe the group repeats.
    answers.describe_error, answers.left = LOADING, 4
    assert publish(group).published == [(group.group_id, plan_id, 1)]
    assert answers.left == 0


def test_a_group_that_is_gone_ends_its_plan(group: LiveGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_id = approved(group)
    answers = Answers(monkeypatch)
    answers.describe_error = GONE
    report = publish(group)
    assert [plan for _, plan, _ in report.expired] == [plan_id]
    assert group.events(plan_id)["EXPIRED"]["reason"] == (
        "the group does not exist, or does not use its protocol any more"
    )


def test_a_group_that_does_not_exist_is_dead_without_an_error_in_both_protocols(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    from evenlag.enums import GroupType
    from evenlag.kafka.connection import admin_client
    from evenlag.kafka.live_groups import read_live_groups

    old, new = unique("old"), unique("new")
    with admin_client(settings_of(broker)) as client:
        live = read_live_groups(client, {old: GroupType.CLASSIC, new: GroupType.CONSUMER})
        assert all(group.is_gone and group.error is None for group in live.values())


def test_a_coordinator_of_the_consumer_protocol_that_loads_does_not_end_a_group(
    broker: Broker, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenlag.enums import GroupType
    from evenlag.kafka.connection import admin_client
    from evenlag.kafka.live_groups import read_live_groups
    from tests.support.kip848.members import NewerMember

    topic, name = unique("orders"), unique("newer")
    with admin_client(settings_of(broker)) as client:
        client.create_topics({topic: {"num_partitions": 2}}, wait_for_metadata=True)
        member = NewerMember(client, name, [topic])
        wait_until(lambda: sum(map(len, member.beat().values())) == 2)
        answers = Answers(monkeypatch)
        for code in (0, LOADING, UNAVAILABLE, MOVED, DENIED, GONE):
            answers.describe_error = code
            group = read_live_groups(client, {name: GroupType.CONSUMER})[name]
            assert (group.error is None) is (code in (0, GONE)), group
            assert group.is_gone is (code == GONE), group
            assert group.is_denied is (code == DENIED), group


def test_errors_of_one_group_leave_the_others_as_they_are() -> None:
    from evenlag.kafka.live_groups import _live_group

    def row(group_id: str, error: str | None, **more: Any) -> dict[str, Any]:
        head = {"group_id": group_id, "group_state": "Dead", "assignor": None, "error": error}
        return head | {"group_type": "classic"} | more

    gone = _live_group([row("a", "GroupIdNotFoundError: no such group")], {}, {})
    moved = _live_group([row("b", "NotCoordinatorError")], {}, {})
    # The broker's message about another error may name whatever it likes.
    denied = _live_group([row("c", "GroupAuthorizationFailedError: GroupIdNotFound")], {}, {})
    silent = _live_group([row("d", None)], {}, {})
    assert [group.is_gone for group in (gone, moved, denied, silent)] == [True, False, False, True]
    assert [group.is_denied for group in (gone, moved, denied, silent)] == [False, False, True, False]
    assert moved.state != "Dead"


def test_sequences_continue_from_plausible_ones_and_end_at_the_limit() -> None:
    limit = 2**32
    last = LastSequences({"g": 7, "forged": limit}, floor=1_000)
    empty = TopicState(exists=True, hints={}, unreadable={})
    assert (last.next_of("g", empty), last.next_of("new", empty)) == (8, 1_001)
    assert last.next_of("forged", empty) == limit


@pytest.mark.parametrize(
    ("sequence", "ahead_ms", "expected_ms"),
    [
        # The clock counts, whatever the hint's, where its sequence can be continued from.
        (7, 0, 0),
        (7, 5_000, 0),
        # Else the new hint has to be younger than one that consumers believe, by a millisecond at least.
        (2**32, -1, 0),
        (2**32, 0, 1),
        (2**32, 5_000, 5_001),
        (2**32, 299_999, 300_000),
        # From five minutes ahead on they believe no time.
        (2**32, 300_000, 0),
    ],
)
def test_a_hint_after_an_implausible_sequence_is_younger_than_that(
    sequence: int, ahead_ms: int, expected_ms: int
) -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    now_ms = 1_772_366_400_000
    payload: Any = None
    current = Hint(b"", payload, "p", sequence, now_ms + ahead_ms, now_ms + 10_000_000, signed=False)
    assert _issue_time(now, current) - now == timedelta(milliseconds=expected_ms)
    assert _issue_time(now, None) == now
