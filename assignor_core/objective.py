"""The objective of a plan: what a member's load is, and how much a plan reduces the largest one."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

# numpy is imported where it is used: policies need `Load` alone, in processes that load no numpy.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Shares of a group's lag and arrivals are in millionths, so that they are of the size of records.
_MILLIONTHS = 1e6


class Load(StrEnum):
    """What adds up to a member's load, and is evened out: lag, the arrival rate, both, or work in time."""

    LAG = "lag"
    RATE = "rate"
    MIX = "mix"
    TIME = "time"


def member_load(kind: Load, lag: NDArray[np.int64], arrival_rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what each row adds to its member's load.

    Parameters
    ----------
    kind
        ``mix``: the row's share of the group's lag plus its share of the group's arrivals, in millionths.
    lag
        int64 [P], records.
    arrival_rate
        float64 [P], records a second; NaN (unknown) and negative rates count as 0.

    Returns
    -------
    numpy.ndarray
        float64 [P], none negative: records, records a second, or millionths.

    Examples
    --------
    >>> import numpy as np
    >>> lag, rate = np.array([30, 10]), np.array([np.nan, 5.0])
    >>> member_load(Load.LAG, lag, rate).tolist(), member_load(Load.RATE, lag, rate).tolist()
    ([30.0, 10.0], [0.0, 5.0])
    >>> member_load(Load.MIX, lag, rate).tolist()
    [750000.0, 1250000.0]
    """
    import numpy as np

    lags, rates = lag.astype(np.float64), np.nan_to_num(arrival_rate, nan=0.0).clip(min=0.0)
    if kind is Load.LAG:
        return lags
    if kind is Load.RATE:
        return rates
    return _MILLIONTHS * (lags / (lags.sum() or 1.0) + rates / (rates.sum() or 1.0))


def relative_gain(
    load: NDArray[np.float64],
    capacity: NDArray[np.float64],
    before: NDArray[np.int32],
    after: NDArray[np.int32],
) -> float:
    """Return how much the largest load by capacity falls, as a share of it.

    Parameters
    ----------
    load
        float64 [P], as `member_load` returns it.
    capacity
        float64 [M], all positive: how much load each member can process, relative to the others.
    before, after
        int32 [P], row → member, -1 for none.

    Returns
    -------
    float
        1.0: nothing is left; 0.0: the largest stays as it is, or there is no load; negative: it grows.

    Examples
    --------
    One of two members owns all 40 records; giving 10 of them to the other leaves 30:

    >>> import numpy as np
    >>> relative_gain(np.array([30.0, 10.0]), np.ones(2), np.array([0, 0]), np.array([0, 1]))
    0.25
    """
    import numpy as np

    def largest(owner: NDArray[np.int32]) -> float:
        owned = owner >= 0
        loads = np.bincount(owner[owned], load[owned], minlength=len(capacity))
        return float((loads / capacity).max(initial=0.0))

    most = largest(before)
    return 1.0 - largest(after) / most if most > 0 else 0.0
