"""Current lag, for the check right before a hint is published.

It uses the snapshot's readers and the formula of :mod:`evenlag.lag`, for the few groups that are about to be
hinted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assignor_core.hint import HintPayload
from assignor_core.objective import relative_gain
from evenlag.kafka.arrow_rows import member_rows
from evenlag.kafka.live_offsets import read_live_offsets
from evenlag.lag.arrays import codes, integers
from evenlag.lag.formula import count_lag
from evenlag.lag.group_lag import is_inexact
from evenlag.lag.partitions import join_partitions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from evenlag.kafka.live_groups import LiveGroup
    from evenlag.kafka.live_offsets import LiveOffsets
    from evenlag.kafka.rate_limit import RequestLimits
    from evenlag.policy.group_settings import GroupSettings

_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class LiveGain:
    """Effect of a plan on the current lag.

    gain: Relative decrease of the largest lag of a member by its capacity; negative when it increases.
    num_unknown: Partitions whose lag is unknown; the gain is meaningless unless this is 0.
    error: Why offsets could not be read; None when all were. It says nothing about the plan.
    """

    gain: float
    num_unknown: int
    error: str | None = None


def read_live_gains(
    client: Any,
    plans: Sequence[Mapping[str, Any]],
    live: Mapping[str, LiveGroup],
    settings: Mapping[str, GroupSettings],
    limits: RequestLimits,
) -> dict[str, LiveGain]:
    """Read the current offsets of the plans' groups and measure the plans on the lag.

    plans: ``plan_id, group_id, payload``; one per group.
    live: The groups, with the members and topics that the plans were made for (same fingerprint).
    limits: Request rate, timeouts and deadline; what is not read by the deadline is unknown.
    """
    if not plans:
        return {}
    topics = {topic for plan in plans for topic, _, _ in live[plan["group_id"]].topics}
    group_ids = [plan["group_id"] for plan in plans]
    policies = {policy for group_id in group_ids if (policy := settings[group_id].reset_policy)}
    offsets = read_live_offsets(client, group_ids, topics, limits, policies)
    return {
        plan["plan_id"]: measure_gain(
            HintPayload.decode(plan["payload"].encode()),
            live[plan["group_id"]],
            settings[plan["group_id"]],
            plan["group_id"],
            offsets,
        )
        for plan in plans
    }


def measure_gain(
    payload: HintPayload, group: LiveGroup, settings: GroupSettings, group_id: str, offsets: LiveOffsets
) -> LiveGain:
    """Measure a plan on the current lag of its group."""
    sizes = [size for _, _, size in group.topics]
    lag = group_lag(group, settings, group_id, offsets)
    first_row = dict(
        zip((topic_id for _, topic_id, _ in group.topics), np.cumsum([0, *sizes]).tolist(), strict=False)
    )
    keys = sorted(group.held)
    gain = relative_gain(
        lag.astype(np.float64).clip(min=0.0),
        np.array([settings.capacity_of(_instance_of(key)) for key in keys]),
        _owners(group.held, keys, first_row, len(lag)),
        _owners(payload.assignment, keys, first_row, len(lag)),
    )
    return LiveGain(
        gain=gain,
        num_unknown=int((lag < 0).sum()),
        error=offsets.error_of(group_id, [topic for topic, _, _ in group.topics]),
    )


def group_lag(
    group: LiveGroup, settings: GroupSettings, group_id: str, offsets: LiveOffsets
) -> NDArray[np.int64]:
    """Compute the current lag of a group.

    Returns lag in records by (topic, partition number), int64; -1: unknown, or known as a bound only.
    group, group_id: The live group; its topics give the order of the rows.
    """
    import pyarrow.compute as pc

    names = [topic for topic, _, _ in group.topics]
    subscribed = member_rows(
        [
            {
                "group_id": group_id,
                "group_state": group.state,
                "member_id": "",
                "assignment": [],
                "subscription": names,
            }
        ]
    )
    commits = offsets.commits.filter(pc.equal(offsets.commits["group_id"], group_id))
    joined = join_partitions(offsets.offsets, commits, subscribed, lambda _group_id: settings)
    rows = count_lag(joined.partitions, joined.groups, joined.member_ids, 0.0)
    rows = rows.filter(pc.invert(is_inexact(rows)))
    sizes = np.array([size for _, _, size in group.topics], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    lag = np.full(starts[-1], _UNKNOWN, dtype=np.int64)
    topic, partition = codes(rows["topic"], names), integers(rows["partition"])
    is_planned = (topic >= 0) & (partition < sizes[topic] if len(sizes) else False)
    lag[(starts[topic] + partition)[is_planned]] = integers(rows["lag_records"])[is_planned]
    return lag


def _owners(
    owned: Mapping[str, Mapping[str, Sequence[int]]],
    keys: Sequence[str],
    first_row: Mapping[str, int],
    num_rows: int,
) -> NDArray[np.int32]:
    """Row → index of its owner in ``keys``; loops over (member, topic) pairs, not over partitions."""
    owners = np.full(num_rows, _UNKNOWN, dtype=np.int32)
    for member, key in enumerate(keys):
        for topic_id, numbers in owned.get(key, {}).items():
            if topic_id in first_row:
                owners[first_row[topic_id] + np.asarray(numbers, dtype=np.int64)] = member
    return owners


def _instance_of(key: str) -> str | None:
    return key.removeprefix("i:") if key.startswith("i:") else None
