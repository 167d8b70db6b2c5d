"""Fifty members settle a hint in about two generations, not in fifty.

They share one process here, whose lock makes them slower to fetch an assignment than fifty would be.
"""

from __future__ import annotations

import random
import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.hints import Cluster, Runner, is_settled, place, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.soak]
NUM_MEMBERS, NUM_PARTITIONS, NUM_HINTS = 50, 100, 3


def test_fifty_members_settle_a_hint_in_two_generations_and_seldom_more_than_one_for_the_late(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    topic, chance = unique("orders"), random.Random(5)  # noqa: S311  # repeatable, no secret
    with ExitStack() as stack:
        cluster = stack.enter_context(
            Cluster(
                broker, group_id=unique("group"), topics={topic: NUM_PARTITIONS}, hint_topic=unique("hints")
            )
        )
        runners = []
        for number in range(NUM_MEMBERS):
            runners.append(
                Runner(
                    cluster,
                    group_instance_id=f"pod-{number}",
                    heartbeat_interval_ms=1000,
                    session_timeout_ms=30_000,
                    poll_ms=1000,
                )
            )
            stack.callback(runners[-1].close)
        wait_until(lambda: is_settled(runners, NUM_PARTITIONS), timeout_s=90)
        spent = []
        for _ in range(NUM_HINTS):
            dealt: list[list[int]] = [[] for _ in runners]
            for number in range(NUM_PARTITIONS):
                chance.choice(dealt).append(number)
            generation = runners[0].generation
            cluster.publish(cluster.payload(place(runners, topic, dealt), count_slack=100))
            wanted = [{(topic, number) for number in numbers} for numbers in dealt]
            wait_until(
                lambda wanted=wanted: (
                    [r.held for r in runners] == wanted  # type: ignore[misc]
                    and is_settled(runners, NUM_PARTITIONS)
                ),
                timeout_s=60,
            )
            spent.append(runners[0].generation - generation)
        assert statistics.median(spent) <= 3, spent  # one more when somebody syncs late
        assert max(spent) <= 5, spent  # as above
