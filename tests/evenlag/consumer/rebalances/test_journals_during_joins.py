"""Members process during joins, come, go and are stopped; their journals lose nothing and repeat nothing."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING

import pytest

from assignor_core.hint import member_key
from sandbox.kafka.topic_admin import read_offsets
from tests.chaos.storm_hints import wait_until_consumed
from tests.chaos.verdict import judge
from tests.support.consumer.following import draw_placement, measure_following
from tests.support.faulty_workload import FaultyWorkload
from tests.support.hints import Cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sandbox.kafka.broker import Broker
    from tests.chaos.verdict import Verdict

pytestmark = [pytest.mark.extended, pytest.mark.broker]

_SLOW, _STOPPED = "consumer-0", "consumer-2"
_NUM_PARTITIONS = 12
_MOVES = range(8, _NUM_PARTITIONS)


class _Group:
    """Four static members, one of them with batches of four seconds, and their traffic."""

    def __init__(self, workload: FaultyWorkload, cluster: Cluster, *, extra: dict[str, object]) -> None:
        self._workload, self._cluster, self._extra = workload, cluster, extra
        self._chance = random.Random(1)  # noqa: S311  # repeatable

    def start(self) -> None:
        for name in (_SLOW, "consumer-1", _STOPPED, "consumer-3"):
            own: dict[str, dict[str, object]] = {
                _SLOW: {"records_per_s": 100.0, "extra": self._extra | {"max_poll_records": 400}},
                # Not so long that its end takes minutes, nor so short that a busy machine ends it.
                _STOPPED: {"session_timeout_ms": 30_000},
            }
            self._workload.start_consumer(name, is_static=True, **own.get(name, {}))
        self._workload.wait_until_owned()
        self._workload.fill(dict.fromkeys(range(_NUM_PARTITIONS), 400))
        self._workload.start_traffic(records_per_s=480, skew=0.0)

    def follow(self) -> None:
        """Publish a hint for the members of now, and wait until it is followed."""
        wanted = draw_placement(self._workload.wait_until_owned(), self._chance, num_moves=_MOVES)
        placement = {
            member_key("", name): {self._workload.topic: sorted(parts)} for name, parts in wanted.items()
        }
        payload = self._cluster.payload(placement)
        measure_following(self._workload, wanted, lambda: self._cluster.publish(payload), slow=[_SLOW])

    def stop_one_for_longer_than_its_session(self) -> None:
        self._workload.pause(_STOPPED)
        others = set(self._workload.consumers) - {_STOPPED}

        def is_taken_over() -> bool:
            owners = self._workload.owners()
            held = set().union(*(owners[name] for name in others))
            return held == set(range(_NUM_PARTITIONS))

        wait_until(is_taken_over, what=self._workload.owners)
        self._workload.resume(_STOPPED)
        self._workload.wait_until_owned()

    def end(self) -> Verdict:
        self._workload.stop_process("producer-0")
        partitions = [(self._workload.topic, number) for number in range(_NUM_PARTITIONS)]
        client, group_id = self._workload.client, self._workload.group_id
        wait_until_consumed(client, group_id, partitions)
        self._workload.stop()
        return judge(self._workload.journals, read_offsets(client, group_id, partitions))


@pytest.mark.parametrize(("auto_commit", "is_sync"), list(product((False, True), repeat=2)))
def test_nothing_is_lost_or_processed_twice(
    broker: Broker, tmp_path: Path, unique: Callable[[str], str], *, auto_commit: bool, is_sync: bool
) -> None:
    topic, group_id, hint_topic = unique("orders"), unique("group"), unique("hints")
    client = {"bootstrap_servers": broker.bootstrap_servers}
    extra: dict[str, object] = {"enable_auto_commit": auto_commit}
    # Of a busy machine's members none may be taken for dead.
    settings = {"extra": extra, "is_sync": is_sync, "session_timeout_ms": 60_000}
    with (
        FaultyWorkload(
            client,
            tmp_path,
            topic=topic,
            num_partitions=_NUM_PARTITIONS,
            group_id=group_id,
            hint_topic=hint_topic,
            consumer=settings,
        ) as workload,
        Cluster(
            broker,
            group_id=group_id,
            topics={topic: _NUM_PARTITIONS},
            hint_topic=hint_topic,
            make_topics=False,
        ) as cluster,
    ):
        group = _Group(workload, cluster, extra=extra)
        group.start()
        group.follow()
        group.follow()
        workload.start_consumer("consumer-4")  # a dynamic member, which comes and goes
        workload.wait_until_owned()
        workload.stop_process("consumer-4")
        group.follow()
        group.stop_one_for_longer_than_its_session()
        group.follow()
        verdict = group.end()
    assert not verdict.findings, verdict.findings
    assert verdict.figures["records_processed"] > 5_000
