"""Speeds of one group, snapshot by snapshot, where members keep their indexes: for simulations and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evenlag.lag.speeds import Interval, SpeedState, estimate, reported_seconds, update

if TYPE_CHECKING:
    from evenlag.lag.arrays import Floats, Int32s, Int64s
    from evenlag.lag.speeds import BusyReports, MeasuredSpeeds


class GroupSpeeds:
    """Call :meth:`observe` once a cycle with what is read of the group, then read the attributes.

    :attr:`measured` has each member that was ever there, :attr:`cost` each partition.
    """

    def __init__(self, num_members: int, num_partitions: int) -> None:
        of_group = np.zeros(num_members, dtype=np.int64), np.zeros(num_partitions, dtype=np.int64)
        self._state = SpeedState.unknown(1, *of_group)
        self._last: tuple[float, Int64s, Int64s, Int32s, BusyReports | None] | None = None

    @property
    def measured(self) -> MeasuredSpeeds:
        """Speeds of the members."""
        return estimate(self._state)

    @property
    def cost(self) -> Floats:
        """Costs of the partitions' records."""
        return self._state.cost

    def observe(
        self,
        at_s: float,
        lag: Int64s,
        end: Int64s,
        owner: Int32s,
        *,
        is_rebalancing: bool = False,
        reports: BusyReports | None = None,
    ) -> None:
        """Add a snapshot: lag, end offset and owner (index of a member, -1 for none) of each partition.

        reports: Those of the last commits; lag is then what is not committed.
        """
        last, self._last = self._last, None if is_rebalancing else (at_s, lag, end, owner.copy(), reports)
        if last is None or is_rebalancing:
            return
        num_members = len(self._state.busy_s)
        changed = last[3] != owner
        is_steady = np.ones(num_members, dtype=np.bool_)
        for owners in (last[3][changed], owner[changed]):
            is_steady[owners[owners >= 0]] = False
        processed = ((end - lag) - (last[2] - last[1])).astype(np.float64)
        reported_s = np.full(num_members, np.nan)
        if reports is not None and last[4] is not None:
            reported_s = reported_seconds(owner.astype(np.int64), processed, last[4], reports, num_members)
        self._state = update(
            self._state,
            Interval(
                duration_s=np.array([at_s - last[0]]),
                identity=np.arange(num_members),
                is_steady=is_steady,
                owner=owner.astype(np.int64),
                processed=processed,
                before=last[1].astype(np.float64),
                after=lag.astype(np.float64),
                reported_s=reported_s,
            ),
        )
