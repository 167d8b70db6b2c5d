"""Hints of a storm: partitions distributed at random; and the waits until a group is whole and done."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from assignor_core.hint import HintPayload
from sandbox.kafka.topic_admin import read_offsets

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from evenlag.kafka.live_groups import LiveGroup
    from sandbox.workload.workload import Workload

# Member → topic id → partitions.
Dealt = dict[str, dict[str, tuple[int, ...]]]


def deal(live: LiveGroup, chance: random.Random) -> Dealt:
    """Deal all partitions to the members at random."""
    dealt: dict[str, dict[str, list[int]]] = {key: {} for key in live.held}
    for _, topic_id, count in live.topics:
        for number in range(count):
            dealt[chance.choice(sorted(dealt))].setdefault(topic_id, []).append(number)
    return {
        key: {topic_id: tuple(numbers) for topic_id, numbers in by_topic.items()}
        for key, by_topic in dealt.items()
    }


def payload_of(dealt: Dealt, live: LiveGroup, *, cluster_id: str, group_id: str) -> HintPayload:
    """Return the hint that gives members the partitions that were dealt to them."""
    return HintPayload(
        cluster_id=cluster_id,
        group_id=group_id,
        snapshot_id="storm",
        fingerprint=str(live.fingerprint),
        assignment=dealt,
        count_slack=1000,
        max_moves=1000,
    )


def is_same(held: Any, wanted: Any) -> bool:
    """Whether two placements give each member the same partitions; one without any need not be named."""

    def pairs(by_member: Any) -> set[tuple[str, str, int]]:
        return {
            (key, topic_id, number)
            for key, by_topic in by_member.items()
            for topic_id, numbers in by_topic.items()
            for number in numbers
        }

    return pairs(held or {}) == pairs(wanted)


def wait_until_whole(
    workload: Workload,
    describe: Callable[[], LiveGroup | None],
    num_partitions: Callable[[], int],
    timeout_s: float = 240.0,
) -> None:
    """Wait until all consumers are members, and each partition of the main topic has one owner."""
    deadline = time.monotonic() + timeout_s
    while True:
        workload.check()
        owners = workload.owners()
        held = sorted(number for numbers in owners.values() for number in numbers)
        live = describe()
        is_whole = held == list(range(num_partitions()))
        if is_whole and live is not None and len(live.held) == len(workload.consumers):
            return
        if time.monotonic() > deadline:
            shown = {name: sorted(numbers) for name, numbers in owners.items()}
            raise AssertionError(f"after {timeout_s:.0f} s the group is {live}, and owners are {shown}")
        time.sleep(0.2)


def wait_until_consumed(
    client: Mapping[str, Any], group_id: str, partitions: Sequence[tuple[str, int]], timeout_s: float = 240.0
) -> None:
    """Wait until a group has committed all that is in the partitions."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        offsets = read_offsets(client, group_id, partitions)
        if all(end in (committed or 0, start) for start, end, committed in offsets.values()):
            return
        time.sleep(0.3)
    raise AssertionError(f"after {timeout_s:.0f} s not all is consumed: {offsets}")


def sent_by_producer(output: Path) -> tuple[int, int]:
    """Return how many records a producer process sent, and how many the brokers acknowledged."""
    last = output.read_text(encoding="utf-8").splitlines()[-1]
    numbers = re.fullmatch(r"(\d+) records sent, (\d+) acknowledged", last)
    assert numbers is not None, last
    return int(numbers[1]), int(numbers[2])
