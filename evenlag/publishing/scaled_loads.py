"""Loads and their flow as the whole numbers of a record (ADR 114)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from assignor_core.loads import MAX_FLOW_AGE_S, MAX_PER_S
from assignor_core.objective import Load, member_load
from assignor_core.record import MAX_NUMBER
from evenlag.lag.speeds import COMMIT_INTERVAL_S

LARGEST_LOAD: Final = 1_000_000
_DIGITS: Final = 3
# Seconds whose arrivals are part of a load in time: until about the next plan.
_NEAR_S: Final = 300
# The largest arrivals have about four digits: each further one is a byte of each partition.
_LARGEST_ARRIVALS: Final = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What is known of the P partitions and M members of a group at a moment.

    lag: int64 [P], records.
    arrival_rate: [P] records per second, NaN if unknown.
    owner: int64 [P] index of the member that processes a partition, -1 if none does.
    speed: [M] work per second; what members process now, where their speed is unknown.
    cost: [P] work of a record.
    """

    lag: NDArray[np.int64]
    arrival_rate: NDArray[np.float64]
    owner: NDArray[np.int64]
    speed: NDArray[np.float64]
    cost: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ScaledFlow:
    """The numbers of a flow of P partitions and M members; owners are -1 for none."""

    arrivals: NDArray[np.int64]
    owners: NDArray[np.int64]
    speeds: NDArray[np.int64]
    per_s: int
    horizon_s: int


def scale_measured(kind: Load, measured: Measured) -> tuple[NDArray[np.int64], ScaledFlow | None]:
    """Return the loads of a record, int64 [P], and their flow; None if time does not change them."""
    lag, rate = measured.lag.astype(np.float64), np.nan_to_num(measured.arrival_rate, nan=0.0).clip(min=0.0)
    if kind is Load.TIME:
        work, arriving, horizon_s = lag * measured.cost, rate * measured.cost, _NEAR_S
        load, speed = work + arriving * horizon_s, measured.speed
    elif kind is Load.LAG:
        # A member that keeps up is behind by what arrives between two commits.
        arriving, horizon_s, speed = rate, round(COMMIT_INTERVAL_S), measured.speed
        load = np.maximum(lag, arriving * horizon_s)
    else:
        load = member_load(kind, measured.lag, rate)
        behind_s = lag.sum() / (rate.sum() or np.inf)
        if kind is Load.RATE or not COMMIT_INTERVAL_S <= behind_s <= MAX_FLOW_AGE_S:
            return scale_loads(load), None
        unit = LARGEST_LOAD / lag.sum()
        arriving, horizon_s, speed = rate * unit, round(behind_s), measured.speed * unit
    scale = LARGEST_LOAD / (float(load.max(initial=0.0)) or np.inf)
    return scale_loads(load), _flow(arriving * scale, speed * scale, measured.owner, horizon_s)


def _flow(
    arriving: NDArray[np.float64], speed: NDArray[np.float64], owner: NDArray[np.int64], horizon_s: int
) -> ScaledFlow:
    fastest, largest = float(speed.max(initial=0.0)), float(arriving.max(initial=0.0))
    per_s = min(_LARGEST_ARRIVALS / (largest or np.inf) or MAX_PER_S, MAX_NUMBER / (fastest or 1.0))
    per_s = int(np.clip(per_s, 1, MAX_PER_S))
    return ScaledFlow(
        arrivals=_whole(arriving * per_s),
        owners=owner,
        speeds=_whole(speed * per_s),
        per_s=per_s,
        horizon_s=horizon_s,
    )


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    whole: NDArray[np.int64] = np.rint(values).clip(0, MAX_NUMBER).astype(np.int64)
    return whole


def scale_loads(load: NDArray[np.float64]) -> NDArray[np.int64]:
    """Scale loads so that the largest is a million, and round them to three significant digits.

    Examples
    --------
    >>> scale_loads(np.array([0.0, 1.0, 3.0, 2048.0])).tolist()
    [0, 488, 1460, 1000000]
    """
    largest = float(load.max(initial=0.0))
    if not largest > 0:
        return np.zeros(len(load), dtype=np.int64)
    scaled = load / largest * LARGEST_LOAD
    digits = np.floor(np.log10(np.maximum(scaled, 1.0))) + 1
    unit = 10.0 ** np.maximum(digits - _DIGITS, 0)
    rounded: NDArray[np.int64] = (np.rint(scaled / unit) * unit).astype(np.int64)
    return rounded
