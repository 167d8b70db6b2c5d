"""Capacities of a group's members relative to each other: configured, measured, or 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

# Of these scales of log-speeds, and centres beside the median of the measured ones in scales, the likeliest.
_SCALES: Final = np.geomspace(0.01, 1.0, 24)
_CENTRES: Final = np.linspace(-1.0, 4.0, 21)
_ROUNDING: Final = 1e-9

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
    found = _speeds(capacity, speed, is_bound) if settings.uses_measured_speeds else None
    if found is None:
        return capacity
    speeds, typical = found
    return np.where(is_configured, capacity, speeds / typical)


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
    found = _speeds(capacity, speed, is_bound)
    if found is None:
        bounds = np.where(np.isfinite(speed), speed / capacity, 0.0)
        return capacity * max(unknown_total / float(capacity.sum()), float(bounds.max(initial=0.0)))
    speeds, typical = found
    return np.where(is_configured, capacity * typical, speeds)


def _configured(settings: GroupSettings, instance_ids: Sequence[str | None]) -> tuple[Floats, Bools]:
    """Capacities by the policy, else 1, and which are configured."""
    capacity = np.array(settings.configured_capacities(instance_ids))
    is_configured = np.isfinite(capacity)
    return np.where(is_configured, capacity, 1.0), is_configured


def _speeds(capacity: Floats, speed: Floats, is_bound: Bools) -> tuple[Floats, float] | None:
    """Return all speeds, and that of a typical member of capacity 1; None if none is measured.

    Members are as fast as the median of the measured ones, unless measurements say otherwise. A bound above
    it does: then log-speeds are logistic, with the centre and the scale that are likeliest for the measured
    speeds and for these bounds, and a bound stands for the median of what is above it.
    """
    is_known = np.isfinite(speed) & (speed > 0)
    is_measured = is_known & ~is_bound
    if not is_measured.any():
        return None
    relative = np.where(is_known, speed, 1.0) / capacity
    log_speed, centre = np.log(relative), float(np.log(np.median(relative[is_measured])))
    is_above = is_known & is_bound & (log_speed > centre + _ROUNDING)
    bounds, scale = log_speed[is_above], 1.0
    if len(bounds):
        centre, scale = _likeliest(log_speed[is_measured], bounds)
    found = np.where(is_measured, log_speed, centre)
    found[is_above] = centre + scale * np.logaddexp(0.0, np.log(2.0) + (bounds - centre) / scale)
    return capacity * np.exp(found), float(np.exp(centre))


def _likeliest(measured: Floats, bounds: Floats) -> tuple[float, float]:
    """Return centre and scale of the logistic distribution of these values, and of some above the bounds."""
    scale = _SCALES[:, None, None]
    centre = np.median(measured) + _CENTRES[:, None] * scale
    off, above = (measured - centre) / scale, (bounds - centre) / scale
    likelihood = -np.logaddexp(0.0, above).sum(axis=2)
    likelihood -= (off + 2 * np.logaddexp(0.0, -off) + np.log(scale)).sum(axis=2)
    best = np.unravel_index(int(likelihood.argmax()), likelihood.shape)
    return float(centre[(*best, 0)]), float(_SCALES[best[0]])
