"""Hints of a storm: partitions distributed at random; and the waits until a group is whole and done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assignor_core.hint import HintPayload
from sandbox.kafka.topic_admin import read_offsets
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from evenlag.kafka.live_groups import LiveGroup
    from tests.support.faulty_workload import FaultyWorkload

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
    workload: FaultyWorkload,
    describe: Callable[[], LiveGroup | None],
    num_partitions: Callable[[], int],
) -> None:
    """Wait until all consumers are members, and each partition of the main topic has one owner."""

    def is_whole() -> bool:
        workload.check()
        held = sorted(number for numbers in workload.owners().values() for number in numbers)
        live = describe()
        is_owned = held == list(range(num_partitions()))
        return is_owned and live is not None and len(live.held) == len(workload.consumers)

    def tail() -> str:
        shown = {name: sorted(numbers) for name, numbers in workload.owners().items()}
        return f"the group is {describe()}, and owners are {shown}"

    wait_until(is_whole, timeout_s=240, what=tail)


def wait_until_consumed(
    client: Mapping[str, Any], group_id: str, partitions: Sequence[tuple[str, int]]
) -> None:
    """Wait until a group has committed all that is in the partitions."""

    def offsets() -> Mapping[Any, tuple[int, int, int | None]]:
        return read_offsets(client, group_id, partitions)

    wait_until(
        lambda: all(end in (committed or 0, start) for start, end, committed in offsets().values()),
        timeout_s=240,
        what=lambda: f"not all is consumed: {offsets()}",
        progress=offsets,
    )


def sent_by_producer(output: Path) -> tuple[int, int]:
    """Return how many records a producer process sent, and how many the brokers acknowledged."""
    last = output.read_text(encoding="utf-8").splitlines()[-1]
    numbers = re.fullmatch(r"(\d+) records sent, (\d+) acknowledged", last)
    assert numbers is not None, last
    return int(numbers[1]), int(numbers[2])
