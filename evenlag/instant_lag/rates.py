"""The lag of each group over repeated snapshots, and how far rates go back."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from evenlag.lag.group_lag import measure_lag

if TYPE_CHECKING:
    from evenlag.instant_lag.snapshot import InstantSnapshot

_BARS: Final = "▁▂▃▄▅▆▇█"
_GAP: Final = " "
MAX_SNAPSHOTS: Final = 40
"""Number of snapshots that are kept."""
_LEAST_WINDOW_S: Final = 30.0


def rate_window_s(every_s: float) -> float:
    """Return how far rates go back: the last ten intervals of the snapshots, at least half a minute."""
    return max(10 * every_s, _LEAST_WINDOW_S)


class RecentLags:
    """Keeps the lag of each group in the last snapshots of a cluster."""

    def __init__(self) -> None:
        self._lags: deque[dict[str, int | None]] = deque(maxlen=MAX_SNAPSHOTS)

    def add(self, snapshot: InstantSnapshot) -> None:
        """Add the newest snapshot."""
        groups = measure_lag(snapshot.lag, snapshot.members)
        self._lags.append({group_id: lag.total_lag_records for group_id, lag in groups.items()})

    def lags(self, group_id: str) -> list[int | None]:
        """Return the lag of a group in the kept snapshots, oldest first; None where it is unknown.

        Returns at most :data:`MAX_SNAPSHOTS` values.
        """
        return [lags.get(group_id) for lags in self._lags]


def sparkline(values: list[int | None], width: int) -> str:
    """Draw numbers as bars from 0 to the largest of them.

    values: The numbers, oldest first; None leaves a gap.

    Examples
    --------
    >>> sparkline([0, 50, None, 100], 10)
    '▁▅ █'
    """
    shown = values[-width:]
    largest = max((value for value in shown if value is not None), default=0)
    steps = len(_BARS) - 1
    return "".join(
        _GAP if value is None else _BARS[(2 * value * steps + largest) // (2 * largest) if largest else 0]
        for value in shown
    )
