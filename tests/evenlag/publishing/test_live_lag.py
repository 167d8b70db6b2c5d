"""Current lag before publishing: the rules of ``lag_rules``, and a plan measured on the current lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from assignor_core.hint import HintPayload
from evenlag.enums import IsolationLevel
from evenlag.kafka.live_groups import LiveGroup
from evenlag.kafka.live_offsets import LiveOffsets
from evenlag.policy.group_settings import CapacityRule, GroupSettings
from evenlag.publishing.live_lag import LiveGain, group_lag, measure_gain
from tests.support.lag_rules import BY_DURATION, LAG_RULES, GroupCase, LagRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LIVE = LiveGroup(
    state="Stable",
    assignor="evenlag",
    fingerprint="f" * 64,
    topics=(("t", TOPIC_ID, 4),),
    held={"i:big": {TOPIC_ID: [0, 1]}, "m:b": {TOPIC_ID: [2, 3]}},
)


@pytest.mark.parametrize("rule", [rule for rule in LAG_RULES if rule.is_live], ids=lambda rule: rule.name)
def test_lag_is_counted_by_the_rules_of_the_table(rule: LagRule) -> None:
    def array(value: int | None) -> NDArray[np.int64]:
        return np.array([-1 if value is None else value], dtype=np.int64)

    is_read = rule.group is not GroupCase.COMMITS_UNREAD
    offsets = LiveOffsets(
        committed={"g": {"t": array(rule.committed)}} if is_read else {},
        start={"t": array(rule.start)},
        end={
            IsolationLevel.READ_COMMITTED: {"t": array(rule.stable_end)},
            IsolationLevel.READ_UNCOMMITTED: {"t": array(rule.high_watermark)},
        },
        reset={BY_DURATION: {"t": array(rule.reset_offset)}},
    )
    group = LiveGroup("Stable", "evenlag", "f", topics=(("t", TOPIC_ID, 1),))
    settings = GroupSettings(reset_policy=rule.reset, isolation_level=rule.isolation)
    assert group_lag(group, settings, "g", offsets).tolist() == [-1 if rule.lag is None else rule.lag]


def measure(
    ends: Sequence[int],
    settings: GroupSettings | None = None,
    *,
    stable: Sequence[int] | None = None,
    group: str = "g",
) -> LiveGain:
    """Measure a plan that swaps partitions 1 and 3; the group has committed offset 0 of all four."""
    payload = HintPayload(
        cluster_id="k",
        group_id=group,
        snapshot_id="s",
        fingerprint="f" * 64,
        assignment={"i:big": {TOPIC_ID: [0, 3]}, "m:b": {TOPIC_ID: [1, 2]}},
        count_slack=0,
        max_moves=2,
    )
    none = np.zeros(4, dtype=np.int64)
    offsets = LiveOffsets(
        committed={"g": {"t": none}},
        start={"t": none},
        end={
            IsolationLevel.READ_UNCOMMITTED: {"t": np.array(ends, dtype=np.int64)},
            IsolationLevel.READ_COMMITTED: {"t": np.array(stable or ends, dtype=np.int64)},
        },
    )
    return measure_gain(payload, LIVE, settings or GroupSettings(), group, offsets)


def test_a_plan_is_measured_on_the_lag_of_this_moment() -> None:
    good = measure((500, 500, 10, 10))
    assert good.num_unknown == 0
    assert good.gain == pytest.approx(1 - 510 / 1000)
    worse = measure((500, 10, 10, 500))
    assert worse.gain == pytest.approx(1 - 1000 / 510)
    assert measure((0, 0, 0, 0)) == LiveGain(0.0, 0)


def test_capacities_and_isolation_level_count() -> None:
    ends = (500, 500, 10, 10)
    big = GroupSettings(capacities=(CapacityRule(match="big", capacity=4),))
    assert measure(ends, big).gain == pytest.approx(1 - 510 / 250)
    committed = GroupSettings(isolation_level=IsolationLevel.READ_COMMITTED)
    assert measure(ends, committed, stable=(0, 0, 0, 0)) == LiveGain(0.0, 0)


def test_what_cannot_be_read_is_not_known() -> None:
    assert measure((500, 500, 10, -1)).num_unknown == 1
    assert measure((5, 5, 5, 5), group="refused").num_unknown == 4
