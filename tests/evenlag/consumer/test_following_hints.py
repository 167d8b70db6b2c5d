"""Real consumers on the real broker follow a published hint, or do not and say why."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from kafka.coordinator.assignors.range import RangePartitionAssignor

from assignor_core.hint import STOP_KEY, derive_group_key, encode_hint, hint_key
from assignor_core.loads import LoadsPayload, encode_loads, loads_key
from evenlag.consumer import Reason
from tests.support.hints import (
    HOUR_MS,
    NUM_PARTITIONS,
    Cluster,
    Runner,
    is_settled,
    let_them_ask,
    now_ms,
    place,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.broker_node import BrokerNode

pytestmark = pytest.mark.broker


def test_a_published_hint_is_followed_in_two_phases_and_nothing_is_read_twice(
    cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    runners = [start() for _ in range(3)]
    settle_evenly(runners)
    # Listeners receive the change a moment after the consumers know it.
    wait_until(lambda: all(r.listener.knows() == r.held for r in runners))
    for runner in runners:
        runner.listener.calls.clear()
    before = [r.held for r in runners]
    for i in range(300):
        cluster.producer.send(topic, b"x", partition=i % NUM_PARTITIONS)
    cluster.producer.flush()
    first = sorted(partition for _, partition in before[0])
    others = [p for p in range(NUM_PARTITIONS) if p not in first[:1]]
    # The first keeps one partition, the second gets all others but one of the third's.
    keep_third = min(partition for _, partition in before[2])
    wanted = [first[:1], [p for p in others if p != keep_third], [keep_third]]
    cluster.publish(cluster.payload(place(runners, topic, wanted)))
    wait_until(lambda: [sorted(p for _, p in r.held) for r in runners] == [sorted(w) for w in wanted])
    wait_until(lambda: is_settled(runners, NUM_PARTITIONS))
    # Partitions that did not move were never revoked, and nobody was handed one before it was free.
    for runner, had, want in zip(runners, before, wanted, strict=True):
        gone = set().union(*runner.listener.revoked)
        assert gone <= {(t, p) for t, p in had if p not in want}
        assert not runner.listener.lost
    for i in range(300):
        cluster.producer.send(topic, b"y", partition=i % NUM_PARTITIONS)
    cluster.producer.flush()
    wait_until(lambda: len(set(all_records(runners))) == 600)
    # What is read twice is read before these.
    for partition in range(NUM_PARTITIONS):
        cluster.producer.send(topic, b"z", partition=partition)
    wait_until(lambda: len(set(all_records(runners))) == 600 + NUM_PARTITIONS)
    assert len(all_records(runners)) == 600 + NUM_PARTITIONS
    assert any("FOLLOWED" in r.reasons() for r in runners)


def all_records(runners: list[Runner]) -> list[tuple[str, int, int]]:
    return [record for runner in runners for record in runner.records]


def settle_evenly(runners: list[Runner]) -> None:
    even = NUM_PARTITIONS // len(runners)
    wait_until(lambda: is_settled(runners, NUM_PARTITIONS) and all(len(r.held) == even for r in runners))
    # Of what exists at its first reading, a member sees the last of each key only.
    wait_until(lambda: not any(r.consumer.hint_cache.view.is_cold for r in runners))


def counts(runners: list[Runner]) -> list[int]:
    return sorted(len(r.held) for r in runners)


def requests_for_hints(runner: Runner) -> int:
    """Count the rebalances that a member requested for a hint; a leader's for a late sync name no plan."""
    return sum(event.reason is Reason.ASKED and event.plan_id is not None for event in runner.events)


def uneven(runners: list[Runner], topic: str) -> dict[str, dict[str, tuple[int, ...]]]:
    """All but one partition to the first."""
    return place(runners, topic, [range(NUM_PARTITIONS - 1), [NUM_PARTITIONS - 1]])


def test_hints_that_do_not_fit_are_ignored_with_their_reasons(
    cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    key = derive_group_key(b"master", cluster.group_id)
    runners = [start(hint_key=key) for _ in range(2)]
    settle_evenly(runners)
    before = [r.held for r in runners]
    wanted = uneven(runners, topic)
    payload = cluster.payload(wanted)
    cluster.publish(payload)  # unsigned
    cluster.publish(payload, key=derive_group_key(b"other", cluster.group_id))
    cluster.publish(cluster.payload(wanted, cluster_id="AAAAAAAAAAAAAAAAAAAAAQ"), key=key)
    cluster.send(hint_key(cluster.group_id), b"\x00no hint")
    expected = {"BAD_SIGNATURE", "FOREIGN", "MALFORMED"}
    wait_until(lambda: all(expected <= set(r.reasons()) for r in runners))
    cluster.publish(payload, key=key, ttl_ms=-1)
    wait_until(lambda: all("RECEIVED" in r.reasons() for r in runners))
    cluster.send(
        hint_key(cluster.group_id),
        encode_hint(
            payload.encode(), sequence=1, issued_at_ms=1, expires_at_ms=now_ms() + HOUR_MS, group_key=key
        ),
    )
    wait_until(lambda: all("REPLAYED" in r.reasons() for r in runners))
    let_them_ask(runners)
    assert [r.held for r in runners] == before
    assert not any(requests_for_hints(r) or "FOLLOWED" in r.reasons() for r in runners)
    # For other members, and beyond its own limits: asked for, and refused by the leader.
    stranger = wanted | {"m:stranger": {}}
    cluster.publish(cluster.payload(stranger), key=key)
    wait_until(lambda: any("FINGERPRINT" in r.reasons() for r in runners))
    cluster.publish(cluster.payload(wanted, max_moves=1), key=key)
    wait_until(lambda: any("MAX_MOVES" in r.reasons() for r in runners))
    cluster.publish(cluster.payload(wanted, count_slack=0), key=key)
    wait_until(lambda: any("COUNT_SLACK" in r.reasons() for r in runners))
    wait_until(lambda: is_settled(runners, NUM_PARTITIONS))
    assert [r.held for r in runners] == before
    cluster.publish(payload, key=key)
    wait_until(lambda: len(runners[0].held) == NUM_PARTITIONS - 1)


def test_a_withdrawn_or_aborted_hint_and_a_stop_leave_the_group_to_itself(
    cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    runners = [start() for _ in range(2)]
    settle_evenly(runners)
    before = [r.held for r in runners]
    payload = cluster.payload(uneven(runners, topic))
    value = encode_hint(payload.encode(), sequence=1, issued_at_ms=now_ms(), expires_at_ms=now_ms() + HOUR_MS)
    cluster.send(hint_key(cluster.group_id), value, commit=False)
    partition = cluster.hint_partition()
    cluster.send(STOP_KEY.encode(), b"{}", partition=partition)
    wait_until(lambda: all("STOPPED" in r.reasons() for r in runners))
    cluster.publish(payload)
    wait_until(lambda: all("RECEIVED" in r.reasons() for r in runners))
    let_them_ask(runners)
    assert [r.held for r in runners] == before
    cluster.send(hint_key(cluster.group_id), None)
    wait_until(lambda: all("WITHDRAWN" in r.reasons() for r in runners))
    cluster.send(STOP_KEY.encode(), None, partition=partition)
    wait_until(lambda: all("RESUMED" in r.reasons() for r in runners))
    let_them_ask(runners)
    assert [r.held for r in runners] == before
    cluster.publish(payload)
    wait_until(lambda: len(runners[0].held) == NUM_PARTITIONS - 1)


def test_static_members_keep_a_followed_hint_through_restarts_and_share_with_a_newcomer(
    cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    runners = [start(group_instance_id=f"pod-{i}") for i in range(2)]
    settle_evenly(runners)
    payload = cluster.payload(uneven(runners, topic))
    assert set(payload.assignment) == {"i:pod-0", "i:pod-1"}
    cluster.publish(payload)
    wait_until(lambda: len(runners[0].held) == NUM_PARTITIONS - 1)
    wait_until(lambda: is_settled(runners, NUM_PARTITIONS))
    wanted = [r.held for r in runners]
    # Expired once it was followed, however long that took.
    cluster.publish(payload, ttl_ms=-1)
    caches = [r.consumer.hint_cache for r in runners]
    wait_until(lambda: all(c.view.hint is not None and c.view.hint.is_expired(now_ms()) for c in caches))
    for i in range(2):
        runners[i].close()
        runners[i] = start(group_instance_id=f"pod-{i}")
        wait_until(lambda: is_settled(runners, NUM_PARTITIONS))
        assert [r.held for r in runners] == wanted
    # A newcomer changes the fingerprint, and the hint's slack protects nobody else: counts are even again.
    newcomer = start(group_instance_id="pod-2")
    members = [*runners, newcomer]
    wait_until(lambda: is_settled(members, NUM_PARTITIONS) and [len(r.held) for r in members] == [2, 2, 2])


def test_a_newcomer_beside_a_followed_hint_gets_its_share_by_load_and_nobody_asks_again(
    cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    """One partition is as heavy as the other five: by load its owner has no other one."""
    runners = [start() for _ in range(2)]
    settle_evenly(runners)
    moment, ids = now_ms(), cluster.topic_ids()
    payload = LoadsPayload(
        cluster_id=cluster.cluster_id, group_id=cluster.group_id, snapshot_id="s", measured_at_ms=moment,
        valid_until_ms=moment + HOUR_MS, loads={ids[topic]: [50, 10, 10, 10, 10, 10]}, capacities={},
        default_capacity=1, count_slack=2, max_moves=2,
    )  # fmt: skip
    cluster.send(
        loads_key(cluster.group_id), encode_loads(payload.encode()), partition=cluster.hint_partition()
    )
    cluster.publish(cluster.payload(place(runners, topic, [[0], [1, 2, 3, 4, 5]])))
    wait_until(lambda: counts(runners) == [1, 5] and is_settled(runners, NUM_PARTITIONS))
    asked = [requests_for_hints(r) for r in runners]
    newcomer = start()
    members = [*runners, newcomer]
    # Settled with other counts is a round on the way there: a sync that came late costs one more.
    wait_until(lambda: is_settled(members, NUM_PARTITIONS) and counts(members) == [1, 2, 3])
    let_them_ask(members)
    assert counts(members) == [1, 2, 3]
    assert runners[0].held == {(topic, 0)}
    assert any("PLACED_BY_LOAD" in r.reasons() for r in runners)
    assert [requests_for_hints(r) for r in runners] == asked
    assert requests_for_hints(newcomer) == 0


def test_a_restarted_group_reads_the_hint_that_was_there_before_it(
    cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    names = ["pod-0", "pod-1"]
    wanted = {
        f"i:{name}": {topic: numbers} for name, numbers in zip(names, [[5], [0, 1, 2, 3, 4]], strict=True)
    }
    cluster.publish(cluster.payload(wanted))
    runners = [start(group_instance_id=name) for name in names]
    wait_until(lambda: [len(r.held) for r in runners] == [1, 5])
    wait_until(lambda: all("READY" in r.reasons() for r in runners))


def test_a_pattern_never_takes_the_hint_topic(
    cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    runner = start(start=False)
    runner.consumer.unsubscribe()
    stems = "|".join(re.escape(name) for name in (topic, cluster.hint_topic))
    runner.consumer.subscribe(pattern=f"(?i)({stems})$", listener=runner.listener)
    wait_until(lambda: runner.consumer.poll(timeout_ms=100) or len(runner.held) == NUM_PARTITIONS)
    assert runner.consumer.subscription() == {topic}


@pytest.mark.parametrize("is_hinted", [True, False], ids=["hinted", "plain"])
def test_a_join_for_changed_metadata_that_outlasts_a_poll_is_taken_to_its_end(
    cluster: Cluster, topic: str, start: Callable[..., Runner], *, is_hinted: bool
) -> None:
    """By the adapter, and by `rejoin_fix` for kafka-python's own consumers beside hinted ones."""
    theirs = RangePartitionAssignor()
    runner = start(metadata_max_age_ms=300, **({} if is_hinted else {"plain": [theirs]}))
    wait_until(lambda: len(runner.held) == NUM_PARTITIONS)
    # Longer than a poll (100 ms): the join ends while nobody waits for it, and what it was begun for is
    # settled by then.
    assignor = runner.consumer.hint_assignor if is_hinted else theirs
    assign = assignor.assign

    def assign_slowly(*args: Any) -> Any:
        time.sleep(0.3)
        return assign(*args)

    assignor.assign = assign_slowly
    cluster.admin.create_partitions({topic: NUM_PARTITIONS + 2})
    wait_until(lambda: is_settled([runner], NUM_PARTITIONS + 2))


def test_hints_come_over_an_authenticated_connection_too(
    broker: BrokerNode, cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    assert broker.sasl_ssl is not None
    runner = start(group_instance_id="pod-0", **broker.sasl_ssl.client_config())
    cluster.publish(cluster.payload({"i:pod-0": {topic: range(NUM_PARTITIONS)}}))
    wait_until(lambda: "RECEIVED" in runner.reasons())
    wait_until(lambda: len(runner.held) == NUM_PARTITIONS)


def restarted(start: Callable[..., Runner], runner: Runner) -> Runner:
    """Restart a static member, which leaves no group, and wait until it has looked at its hint."""
    runner.close()
    again = start(group_instance_id=runner.consumer.config["group_instance_id"])
    wait_until(lambda: not again.consumer.hint_cache.view.is_cold and again.held)
    return again


def test_restarts_of_static_members_beside_a_refused_hint_cost_no_rebalance(
    cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    """As without a hint (KIP-345); the leader, whose memory is lost too, restarts twice."""
    runners = [start(group_instance_id=f"pod-{i}") for i in range(3)]
    settle_evenly(runners)
    parts = [sorted(p for _, p in r.held) for r in runners]
    payload = cluster.payload(place(runners, topic, [*parts[1:], parts[0]]), max_moves=0)
    cluster.publish(payload)
    wait_until(lambda: any("MAX_MOVES" in r.reasons() for r in runners))
    let_them_ask(runners)
    wait_until(lambda: is_settled(runners, NUM_PARTITIONS))
    leader = next(i for i, r in enumerate(runners) if "MAX_MOVES" in r.reasons())
    before, costs = runners[0].generation, []
    for number in [leader, *{0, 1, 2} - {leader}, leader]:
        runners[number] = restarted(start, runners[number])
        let_them_ask(runners)
        wait_until(lambda: is_settled(runners, NUM_PARTITIONS))
        costs.append(runners[number].generation - before)
        before = runners[number].generation
    # Of the leader, and of the others: one that a busy machine makes is none of a restart.
    # `test_rebalance_counts` counts them all in simulated time.
    assert (min(costs[0], costs[3]), min(costs[1:3])) == (0, 0), costs
    assert [sorted(p for _, p in r.held) for r in runners] == parts
    assert all(r.consumer.hint_cache.view.hint is not None for r in runners)


def test_a_plan_that_comes_while_its_static_leader_restarts_is_followed(
    cluster: Cluster, topic: str, start: Callable[..., Runner]
) -> None:
    runners = [start(group_instance_id=f"pod-{i}") for i in range(3)]
    settle_evenly(runners)
    leader = next(i for i, r in enumerate(runners) if r.consumer._port.is_leader)
    parts = [sorted(p for _, p in r.held) for r in runners]
    wanted = [*parts[1:], parts[0]]
    payload = cluster.payload(place(runners, topic, wanted))
    runners[leader].close()
    cluster.publish(payload)
    runners[leader] = start(group_instance_id=f"pod-{leader}")
    wait_until(lambda: [sorted(p for _, p in r.held) for r in runners] == wanted)
