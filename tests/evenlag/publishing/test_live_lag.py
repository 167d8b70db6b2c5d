"""The last look at lag: the same rules as the pipeline's, and a plan measured on what is read right then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import kafka.errors
import numpy as np
import pytest
from kafka import TopicPartition

from assignor_core.hint import HintPayload
from evenlag.enums import IsolationLevel, ResetPolicy
from evenlag.kafka.live_groups import LiveGroup
from evenlag.policy.group_settings import CapacityRule, GroupSettings
from evenlag.publishing.live_lag import LiveGain, count_lag, read_live_gains

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LIVE = LiveGroup(
    state="Stable",
    assignor="evenlag",
    fingerprint="f",
    topics=(("t", TOPIC_ID, 4),),
    held={"i:big": {TOPIC_ID: [0, 1]}, "m:b": {TOPIC_ID: [2, 3]}},
)


@pytest.mark.parametrize(
    ("committed", "start", "end", "policy", "lag"),
    [
        (40, 10, 100, None, 60),
        (120, 10, 100, None, 0),
        (-1, 10, 100, None, -1),
        (-1, 10, 100, ResetPolicy.EARLIEST, 90),
        (-1, 10, 100, ResetPolicy.LATEST, 0),
        (5, 10, 100, None, -1),
        (5, 10, 100, ResetPolicy.EARLIEST, 90),
        (40, 10, -1, ResetPolicy.EARLIEST, -1),
        (40, -1, 100, ResetPolicy.LATEST, -1),
    ],
)
def test_lag_is_counted_as_in_the_tables(
    committed: int, start: int, end: int, policy: ResetPolicy | None, lag: int
) -> None:
    rows = np.array([[committed], [start], [end]], dtype=np.int64)
    assert count_lag(rows[0], rows[1], rows[2], policy).tolist() == [lag]


class Admin:
    """Stands for the admin client: a broker cannot be made to refuse one partition for a moment."""

    def __init__(self, ends: Mapping[int, int], *, stable: Mapping[int, int] | None = None) -> None:
        self._ends, self._stable = ends, stable or ends

    def list_group_offsets(self, groups: Mapping[str, None]) -> dict[str, Any]:
        if "refused" in groups:
            raise kafka.errors.GroupAuthorizationFailedError
        commit = SimpleNamespace(offset=0)
        return {group: {TopicPartition("t", number): commit for number in range(4)} for group in groups}

    def list_partition_offsets(self, wanted: Mapping[Any, Any], *, isolation_level: Any) -> dict[Any, Any]:
        from kafka.admin import OffsetSpec
        from kafka.protocol.consumer import IsolationLevel as KafkaLevel

        is_stable = isolation_level == KafkaLevel.build_from("read_committed")
        ends = self._stable if is_stable else self._ends
        if any(partition.partition not in ends for partition in wanted):
            raise kafka.errors.UnknownTopicOrPartitionError
        return {
            partition: SimpleNamespace(offset=0 if spec == OffsetSpec.EARLIEST else ends[partition.partition])
            for partition, spec in wanted.items()
        }


def measure(admin: Admin, settings: GroupSettings | None = None, group: str = "g") -> LiveGain:
    """Measure a plan that swaps partitions 1 and 3."""
    payload = HintPayload(
        cluster_id="k",
        group_id=group,
        snapshot_id="s",
        fingerprint="f" * 64,
        assignment={"i:big": {TOPIC_ID: [0, 3]}, "m:b": {TOPIC_ID: [1, 2]}},
        count_slack=0,
        max_moves=2,
    )
    plan = {"plan_id": "p", "group_id": group, "payload": payload.encode().decode()}
    found = read_live_gains(admin, [plan], {group: LIVE}, {group: settings or GroupSettings()}, timeout_s=10)
    return found["p"]


def test_a_plan_is_measured_on_the_lag_of_this_moment() -> None:
    good = measure(Admin({0: 500, 1: 500, 2: 10, 3: 10}))
    assert good.num_unknown == 0
    assert good.gain == pytest.approx(1 - 510 / 1000)
    worse = measure(Admin({0: 500, 1: 10, 2: 10, 3: 500}))
    assert worse.gain == pytest.approx(1 - 1000 / 510)
    assert measure(Admin({0: 0, 1: 0, 2: 0, 3: 0})) == LiveGain(0.0, 0)


def test_capacities_and_isolation_level_count() -> None:
    ends = {0: 500, 1: 500, 2: 10, 3: 10}
    big = GroupSettings(capacities=(CapacityRule(match="big", capacity=4),))
    assert measure(Admin(ends), big).gain == pytest.approx(1 - 510 / 250)
    committed = GroupSettings(isolation_level=IsolationLevel.READ_COMMITTED)
    assert measure(Admin(ends, stable=dict.fromkeys(range(4), 0)), committed) == LiveGain(0.0, 0)


def test_what_cannot_be_read_is_not_known() -> None:
    assert measure(Admin({0: 500, 1: 500, 2: 10})).num_unknown == 1
    assert measure(Admin(dict.fromkeys(range(4), 5)), group="refused").num_unknown == 4
