"""Capacities of a group's members relative to each other: configured, measured, or 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lag.arrays import Bools, Floats
    from evenlag.policy.group_settings import GroupSettings


def capacities_of(
    settings: GroupSettings, instance_ids: Sequence[str | None], speed: Floats, is_bound: Bools
) -> Floats:
    """Return the capacity of each member: [M]; the typical member has 1.

    Configured capacities win. A member whose speed is only known as a lower bound counts as the typical one,
    or as its bound if that is more. Without any measured speed all others have 1.

    speed, is_bound: [M] measured speeds, NaN for unknown ones, and which are lower bounds.
    """
    configured = np.array([settings.capacity_of(instance) for instance in instance_ids])
    is_measured = np.isfinite(speed) & ~is_bound
    if not settings.uses_measured_speeds or not is_measured.any():
        return configured
    typical = _typical(configured, speed, is_measured)
    return speeds_of(settings, instance_ids, speed, is_bound, 0.0) / typical


def speeds_of(
    settings: GroupSettings,
    instance_ids: Sequence[str | None],
    speed: Floats,
    is_bound: Bools,
    unknown_total: float,
) -> Floats:
    """Return the speed of each member: [M], by the rules of :func:`capacities_of`.

    unknown_total: The sum of typical speeds, where none is measured.
    """
    configured = np.array([settings.capacity_of(instance) for instance in instance_ids])
    is_measured = np.isfinite(speed) & ~is_bound
    unit = unknown_total / configured.sum()
    if is_measured.any():
        unit = _typical(configured, speed, is_measured)
    typical = unit * configured
    is_configured = np.array([settings.has_capacity(instance) for instance in instance_ids])
    measured = np.where(is_measured, speed, np.fmax(typical, speed))
    return np.where(is_configured, typical, measured)


def _typical(configured: Floats, speed: Floats, is_measured: Bools) -> float:
    return float(np.median(speed[is_measured] / configured[is_measured]))
