"""EAGER and COOPERATIVE change while consumers live (KIP-726); only a partition's owner commits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kafka import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError

from tests.support.hints import NUM_PARTITIONS, AsyncListener, Cluster, Listener, Runner, is_settled, place
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = [pytest.mark.extended, pytest.mark.broker]


def numbers(runners: list[Runner]) -> list[list[int]]:
    return [sorted(number for _, number in runner.held) for runner in runners]


def at(topic: str, number: int, offset: int) -> dict[Any, Any]:
    return {TopicPartition(topic, number): OffsetAndMetadata(offset, "", -1)}


@pytest.mark.parametrize("listener", [Listener, AsyncListener])
def test_the_mode_follows_the_assignor_that_the_group_selected_last(
    cluster: Cluster, topic: str, start: Callable[..., Runner], listener: type[Any]
) -> None:
    runners = [
        start(partition_assignment_strategy=[RangePartitionAssignor], listener=listener()) for _ in range(2)
    ]
    wait_until(lambda: is_settled(runners, NUM_PARTITIONS) and all(len(r.held) == 3 for r in runners))
    assert not any(r.consumer._port.is_eager for r in runners)
    for runner in runners:
        wait_until(lambda each=runner: each.listener.knows() == each.held)  # type: ignore[misc]
        runner.listener.calls.clear()
    # evenlag is selected, with range beside it: two phases, and what stays is never given up.
    generation = runners[0].generation
    had = [r.held for r in runners]
    first = sorted(number for _, number in had[0])
    keep = sorted(number for _, number in had[1])[:1]
    wanted = [[n for n in range(NUM_PARTITIONS) if n not in keep], keep]
    assert set(first) < set(wanted[0])
    cluster.publish(cluster.payload(place(runners, topic, wanted)))
    wait_until(lambda: numbers(runners) == wanted)
    wait_until(lambda: is_settled(runners, NUM_PARTITIONS) and runners[0].generation >= generation + 2)
    wait_until(lambda: [kind for kind, _ in runners[0].listener.calls] == ["assigned"])
    assert runners[1].listener.calls == [("revoked", had[1] - {(topic, n) for n in keep})]
    # One that knows only range: what the others kept may be anybody's at once, so it is lost for them.
    had = [r.held for r in runners]
    for runner in runners:
        runner.listener.calls.clear()
    plain = start(plain=[RangePartitionAssignor])
    trio = [*runners, plain]
    wait_until(lambda: is_settled(trio, NUM_PARTITIONS) and all(len(r.held) == 2 for r in trio))
    for runner, before in zip(runners, had, strict=True):
        wait_until(lambda calls=runner.listener.calls: len(calls) >= 2)  # type: ignore[misc]
        assert runner.listener.calls[:2] == [("lost", before), ("assigned", runner.held)]
        assert runner.consumer._port.is_eager
        runner.listener.calls.clear()
    # Range was selected last, so the next join gives all up first, in order; then evenlag is back, and with
    # it the hint, which is for these two.
    held = [r.held for r in runners]
    plain.close()
    wait_until(lambda: is_settled(runners, NUM_PARTITIONS) and numbers(runners) == wanted)
    for runner, before in zip(runners, held, strict=True):
        # A round that a late member had begun before may end first: it assigns what each has.
        ended = ("assigned", before)
        wait_until(lambda calls=runner.listener.calls, old=ended: len([e for e in calls if e != old]) >= 2)  # type: ignore[misc]
        assert next(event for event in runner.listener.calls if event != ended) == ("revoked", before)
        assert all(kind != "lost" for kind, _ in runner.listener.calls)
        assert not runner.consumer._port.is_eager


def test_a_member_without_the_eager_assignor_joins_those_that_have_it(
    cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    runners = [start(partition_assignment_strategy=[RangePartitionAssignor]) for _ in range(2)]
    wait_until(lambda: is_settled(runners, NUM_PARTITIONS))
    runners.append(start())
    wait_until(lambda: is_settled(runners, NUM_PARTITIONS) and bool(runners[2].held))
    cluster.publish(cluster.payload(place(runners, topic, [[0], [1], range(2, NUM_PARTITIONS)])))
    wait_until(lambda: [len(r.held) for r in runners] == [1, 1, NUM_PARTITIONS - 2])
    assert not any(r.listener.lost for r in runners)


def test_only_what_is_held_is_committed(topic: str, start: Callable[..., Runner]) -> None:
    events: list[Any] = []
    runners = [start(enable_auto_commit=False, on_hint_event=events.append) for _ in range(2)]
    wait_until(lambda: is_settled(runners, NUM_PARTITIONS) and all(len(r.held) == 3 for r in runners))
    mine, others = (min(number for _, number in r.held) for r in runners)
    consumer = runners[0].consumer
    consumer.commit({**at(topic, mine, 0), **at(topic, others, 7)}, timeout_ms=60_000)
    assert consumer.committed(TopicPartition(topic, mine)) == 0
    assert consumer.committed(TopicPartition(topic, others)) is None
    assert [e.detail for e in events if e.reason == "COMMIT_REFUSED"] == [f"{topic}-{others}"]
    with pytest.raises(CommitFailedError, match=f"{topic}-{others}"):
        consumer.commit(at(topic, others, 7), timeout_ms=60_000)
    answers: list[Any] = []
    consumer.commit_async(at(topic, others, 7), callback=lambda _, answer: answers.append(answer))
    wait_until(lambda: answers)
    assert isinstance(answers[0], CommitFailedError)
    assert consumer.committed(TopicPartition(topic, others)) is None


class _CommitsAndForgets(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python ships no types
    """What a sync listener can do: send a commit for what is revoked and not wait for it."""

    consumer: Any = None

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.consumer.commit_async({tp: OffsetAndMetadata(5, "", -1) for tp in revoked})

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass


def test_what_is_being_revoked_may_still_be_committed_by_a_listener_that_does_not_wait(
    start: Callable[..., Runner],
) -> None:
    listener = _CommitsAndForgets()
    first = start(enable_auto_commit=False, listener=listener)
    listener.consumer = first.consumer
    wait_until(lambda: len(first.held) == NUM_PARTITIONS)
    second = start(enable_auto_commit=False)
    wait_until(lambda: is_settled([first, second], NUM_PARTITIONS) and len(second.held) == 3)
    moved = [TopicPartition(*pair) for pair in second.held]
    wait_until(lambda: all(second.consumer.committed(tp) == 5 for tp in moved))


def test_a_member_whose_instance_id_was_taken_over_is_told_though_it_never_commits(
    cluster: Cluster, start: Callable[..., Runner]
) -> None:
    first = Runner(cluster, group_instance_id="pod-0", enable_auto_commit=False)
    wait_until(lambda: len(first.held) == NUM_PARTITIONS)
    second = start(group_instance_id="pod-0")
    wait_until(lambda: len(second.held) == NUM_PARTITIONS)
    wait_until(lambda: type(first.error).__name__ == "FencedInstanceIdError")
    first.error = None
    first.close()
