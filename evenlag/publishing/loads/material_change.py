"""Whether new loads differ enough from the published ones to be written.

Every consumer of a group reads every record of it, so a record is written when it would change what a leader
does, or when the published one gets old, and not with every snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from assignor_core.loads import LoadsPayload

# What part of the load must be on other partitions than published; a tenth, whatever its sum is rounded to.
MATERIAL_SHARE: Final = 0.1
_ROUNDING: Final = 1e-9


def material_change(published: LoadsPayload, measured: LoadsPayload, now_ms: int) -> str | None:
    """Return why measured loads are worth a record; None if they are not.

    published, measured: The loads on the topic, and those of the newest snapshot.
    now_ms: The time in milliseconds since the epoch.
    """
    if measured.measured_at_ms <= published.measured_at_ms:
        return None
    valid_ms = measured.valid_until_ms - measured.measured_at_ms
    checks = (
        (_sizes(published) != _sizes(measured), "partitions changed"),
        (_capacities(published) != _capacities(measured), "capacities changed"),
        (_limits(published) != _limits(measured), "limits changed"),
        (_member_ids(published) != _member_ids(measured), "members changed"),
        (published.valid_until_ms - published.measured_at_ms != valid_ms, "validity changed"),
        (now_ms >= published.measured_at_ms + valid_ms // 2, "half of the validity passed"),
    )
    reason = next((reason for is_material, reason in checks if is_material), None)
    if reason is not None:
        return reason
    moved = moved_share(published.loads, measured.loads)
    return f"{moved:.0%} of the load moved" if moved >= MATERIAL_SHARE - _ROUNDING else None


def moved_share(
    before: Mapping[str, Sequence[int | None]], after: Mapping[str, Sequence[int | None]]
) -> float:
    """Return what part of the load is on other partitions than before.

    Returns half the sum of the differences of the partitions' shares: 0 to 1. It is 1 where there was no
    load and there is one now, or the other way round.
    before, after: Loads by topic id, of the same partitions. An unknown load counts as the mean of the
        known ones of its topic.

    Examples
    --------
    >>> moved_share({"t": [3, 1]}, {"t": [2, 2]})
    0.25
    """
    old, new = _filled(before), _filled(after)
    old_sum, new_sum = float(old.sum()), float(new.sum())
    if not old_sum or not new_sum:
        return float(old_sum != new_sum)
    return float(np.abs(old / old_sum - new / new_sum).sum() / 2)


def _filled(loads: Mapping[str, Sequence[int | None]]) -> NDArray[np.float64]:
    topics = [np.array(loads[topic], dtype=np.float64) for topic in sorted(loads)]
    for values in topics:
        is_unknown = np.isnan(values)
        values[is_unknown] = values[~is_unknown].mean() if (~is_unknown).any() else 0.0
    return np.concatenate([np.zeros(0), *topics])


def _sizes(payload: LoadsPayload) -> dict[str, int]:
    return {topic: len(values) for topic, values in payload.loads.items()}


def _capacities(payload: LoadsPayload) -> tuple[int, dict[str, int]]:
    return payload.default_capacity, dict(payload.capacities)


def _limits(payload: LoadsPayload) -> tuple[int, int]:
    return payload.count_slack, payload.max_moves


def _member_ids(payload: LoadsPayload) -> list[str] | None:
    return None if payload.member_ids is None else sorted(payload.member_ids)
