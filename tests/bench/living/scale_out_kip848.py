"""A hinted group of 4 scales to 8 under KIP-848: the broker with the plug-in places by load.

The soak test of ``tests/broker_plugin/test_scale_out.py`` runs it and writes its figures to
``docs/bench/scale_out.json``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from assignor_core.hint import derive_broker_key
from evenlag.publishing.rebalance_trigger.await_target import ask_coordinator
from tests.bench.living.scale_out import least_possible, planned, publish_loads, zipf_loads
from tests.support.broker_plugin.fleet import Fleet
from tests.support.broker_plugin.node import HINTS, MASTER
from tests.support.hints import Cluster, now_ms
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.broker_plugin.node import Node

_FROM, _TO = 4, 8
# Members hear of another answer within some heartbeats (300 ms each).
_QUIET_S = 2.0


def scale_out(node: Node, folder: Path, seed: int, *, count_slack: int = 0) -> list[dict[str, Any]]:
    """Scale a group from 4 to 8; a row for each join.

    Returns ``members``; ``moves`` between members that were there before; ``changed``: how many members
    were given or lost something; ``largest``: the largest published load of a member by the least that is
    possible; ``counts`` of partitions.
    """
    loads = zipf_loads(seed)
    topic = f"scale-out-{seed}-{now_ms()}"
    with Cluster(
        node.broker, group_id=topic, topics={topic: len(loads)}, hint_topic=HINTS, make_topics=False
    ) as cluster:
        cluster.create({topic: len(loads)})
        if HINTS not in cluster.admin.list_topics():
            cluster.create({HINTS: 3}, {"cleanup.policy": "compact", "compression.type": "uncompressed"})
        with Fleet(cluster, [f"pod-{number}" for number in range(_FROM)], folder) as fleet:
            _wait_until_quiet(fleet, len(loads))
            _follow_a_hint(node, cluster, fleet, loads, count_slack)
            rows = []
            for number in range(_FROM, _TO):
                before = fleet.held()
                fleet.add(f"pod-{number}")
                _wait_until_quiet(fleet, len(loads))
                after = fleet.held()
                rows.append(_row(loads, before, after, count_slack))
            return rows


def _row(
    loads: Sequence[int], before: dict[str, list[int]], after: dict[str, list[int]], count_slack: int
) -> dict[str, Any]:
    largest = max(sum(loads[number] for number in held) for held in after.values())
    return {
        "members": len(after),
        "moves": sum(len(set(before[name]) - set(after[name])) for name in before),
        "changed": sum(before.get(name) != held for name, held in after.items()),
        "largest": round(largest / least_possible(loads, len(after), count_slack), 4),
        "counts": [len(held) for held in after.values()],
    }


def _follow_a_hint(
    node: Node, cluster: Cluster, fleet: Fleet, loads: Sequence[int], count_slack: int
) -> None:
    key = derive_broker_key(MASTER, cluster.group_id)
    ids = fleet.members()
    placement = planned(
        fleet.topic, {f"i:{pod}": held for pod, held in fleet.held().items()}, loads, count_slack=count_slack
    )
    before = node.figures()["ReceivedTotal"]
    publish_loads(
        cluster, loads, count_slack=count_slack, max_moves=1_000, key=key, member_ids=sorted(ids.values())
    )
    payload = cluster.payload(
        placement,
        count_slack=count_slack,
        max_moves=1_000,
        member_ids={f"i:{pod}": member_id for pod, member_id in ids.items()},
    )
    cluster.publish(payload, key=key)
    node.wait_for("the hint is read", lambda now: now["ReceivedTotal"] > before)
    ask_coordinator({"bootstrap.servers": cluster.bootstrap_servers}, cluster.group_id, HINTS)
    wanted = {pod: placement[f"i:{pod}"][fleet.topic] for pod in fleet.instances}
    wait_until(lambda: fleet.has(wanted), what=f"{wanted}, not {fleet.held()}")
    _wait_until_quiet(fleet, len(loads))


def _wait_until_quiet(fleet: Fleet, num_partitions: int) -> None:
    """Wait until each partition is with one member, all have some, and nothing has changed for a while."""

    def is_whole() -> bool:
        held = fleet.held()
        numbers = [number for owned in held.values() for number in owned]
        return sorted(numbers) == list(range(num_partitions)) and all(held.values())

    while True:
        wait_until(is_whole, timeout_s=120, what=f"not whole: {fleet.held()}")
        calls = fleet.num_callbacks()
        time.sleep(_QUIET_S)
        if fleet.num_callbacks() == calls and is_whole():
            return
