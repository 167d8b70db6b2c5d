"""Capacities of a group's members relative to each other: configured, measured, or 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

# Scale of a logistic distribution of log-speeds whose standard deviation is 0.5: what is expected of a group
# before anything is known, which counts as so many members.
_SPREAD: Final = 0.5 * 3**0.5 / np.pi
_PRIOR_MEMBERS: Final = 4

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lag.arrays import Bools, Floats
    from evenlag.policy.group_settings import GroupSettings


def capacities_of(
    settings: GroupSettings, instance_ids: Sequence[str | None], speed: Floats, is_bound: Bools
) -> Floats:
    """Return the capacity of each member: [M]; the typical member has 1.

    Configured capacities win. A member whose speed is only known as a lower bound counts as the typical one,
    or as more if its bound says so. Without any measured speed all others have 1.

    speed, is_bound: [M] measured speeds, NaN for unknown ones, and which are lower bounds.
    """
    capacity, is_configured = _configured(settings, instance_ids)
    is_measured = np.isfinite(speed) & ~is_bound
    if not settings.uses_measured_speeds or not is_measured.any():
        return capacity
    typical = float(np.median((speed / capacity)[is_measured]))
    return np.where(is_configured, capacity, _speeds(capacity * typical, speed, is_bound) / typical)


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
    capacity, is_configured = _configured(settings, instance_ids)
    is_measured = np.isfinite(speed) & ~is_bound
    typical = unknown_total / float(capacity.sum())
    if is_measured.any():
        typical = float(np.median((speed / capacity)[is_measured]))
    return np.where(is_configured, capacity * typical, _speeds(capacity * typical, speed, is_bound))


def _configured(settings: GroupSettings, instance_ids: Sequence[str | None]) -> tuple[Floats, Bools]:
    """Capacities by the policy, else 1, and which are configured."""
    capacity = np.array([settings.configured_capacity(instance) for instance in instance_ids])
    is_configured = np.isfinite(capacity)
    return np.where(is_configured, capacity, 1.0), is_configured


def _speeds(typical: Floats, speed: Floats, is_bound: Bools) -> Floats:
    """Return all speeds; of a bound the median of what it may be.

    A member that keeps up may be faster than it had to be. If it were taken to be no faster, it would never
    get the work that shows it; one that gets too much is behind, and so measured, an interval later.
    Log-speeds of a group are logistic around the typical one, and as far apart as the known ones.
    """
    is_known = np.isfinite(speed)
    above = np.log(np.where(is_known, speed, typical) / typical)
    off = np.where(is_bound, above.clip(min=0.0), above)
    total = _PRIOR_MEMBERS * _SPREAD**2 + 3 / np.pi**2 * (off**2).sum()
    spread = np.sqrt(total / (_PRIOR_MEMBERS + is_known.sum()))
    median = typical * np.exp(spread * np.logaddexp(0.0, np.log(2.0) + above / spread))
    return np.where(is_known, np.where(is_bound, median, speed), typical)
