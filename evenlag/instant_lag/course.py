"""What repeated snapshots add: rates of each partition, and the course of each group's lag."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    from numpy.typing import NDArray

    from evenlag.instant_lag.snapshot import InstantSnapshot

_KEY: Final = ["group_id", "topic_id", "partition"]
_BARS: Final = "▁▂▃▄▅▆▇█"
_GAP: Final = " "
MAX_SNAPSHOTS: Final = 40
"""Number of snapshots that the course of a lag goes back."""
_LEAST_WINDOW_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Offsets of one snapshot: rows by key."""

    commits_at: datetime
    ends_at: datetime
    key: pa.Table
    committed: NDArray[np.float64]
    end: NDArray[np.float64]


class LagCourse:
    """Keeps the last snapshots of a cluster.

    Parameters
    ----------
    every_s
        Interval of the snapshots. Rates are those of the last ten intervals, at least half a minute.
    """

    def __init__(self, every_s: float) -> None:
        self._window_s = max(10 * every_s, _LEAST_WINDOW_S)
        self._offsets: deque[_Offsets] = deque()
        self._lags: deque[dict[str, int | None]] = deque(maxlen=MAX_SNAPSHOTS)

    def add(self, snapshot: InstantSnapshot) -> InstantSnapshot:
        """Add a snapshot.

        Parameters
        ----------
        snapshot
            The newest snapshot.

        Returns
        -------
        InstantSnapshot
            The snapshot with rates, drain times and stalled partitions where earlier snapshots allow them.
        """
        table = snapshot.lag
        now = _Offsets(
            snapshot.commits_read_at,
            snapshot.ends_read_at,
            table.select(_KEY),
            _floats(table["committed_offset"]),
            _floats(table["end_offset"]),
        )
        while self._offsets and (now.ends_at - self._offsets[0].ends_at).total_seconds() > self._window_s:
            self._offsets.popleft()
        before = self._offsets[0] if self._offsets else None
        self._offsets.append(now)
        totals = table.group_by("group_id").aggregate([("lag_records", "sum")])
        self._lags.append(
            dict(zip(totals["group_id"].to_pylist(), totals["lag_records_sum"].to_pylist(), strict=True))
        )
        return snapshot if before is None else replace(snapshot, lag=_with_rates(table, before, now))

    def lags(self, group_id: str) -> list[int | None]:
        """Return the lag of a group in the kept snapshots, oldest first; None where it is unknown.

        Parameters
        ----------
        group_id
            The group.

        Returns
        -------
        list of int or None
            At most :data:`MAX_SNAPSHOTS` values.
        """
        return [lags.get(group_id) for lags in self._lags]


def sparkline(values: list[int | None], width: int) -> str:
    """Draw numbers as bars from 0 to the largest of them.

    Parameters
    ----------
    values
        The numbers, oldest first; None leaves a gap.
    width
        Number of the last values to draw.

    Returns
    -------
    str
        One character for each value.

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


def _with_rates(table: pa.Table, before: _Offsets, now: _Offsets) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    at = _places(before.key, now.key)
    arrival, consume = (
        _rate(new, np.where(at < 0, np.nan, old[at] if len(old) else np.nan), since, until)
        for new, old, since, until in (
            (now.end, before.end, before.ends_at, now.ends_at),
            (now.committed, before.committed, before.commits_at, now.commits_at),
        )
    )
    lag = _floats(table["lag_records"])
    falls_by = consume - arrival
    with np.errstate(invalid="ignore", divide="ignore"):
        drain = np.where(lag == 0, 0.0, np.where(falls_by > 0, 1_000 * lag / falls_by, np.nan))
    is_owned = pc.is_valid(table["owner_member_id"]).to_numpy()
    columns = {
        "arrival_rate_records_per_s": pa.array(arrival, mask=np.isnan(arrival)),
        "consume_rate_records_per_s": pa.array(consume, mask=np.isnan(consume)),
        "drain_time_ms": pa.array(np.nan_to_num(drain).round().astype(np.int64), mask=np.isnan(drain)),
        "stalled": pa.array((lag > 0) & is_owned & (consume == 0)),
    }
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    return table


def _floats(values: pa.ChunkedArray) -> NDArray[np.float64]:
    import pyarrow.compute as pc

    return np.asarray(
        pc.fill_null(pc.cast(values, "float64", safe=False), np.nan).to_numpy(), dtype=np.float64
    )


def _rate(
    new: NDArray[np.float64], old: NDArray[np.float64], since: datetime, until: datetime
) -> NDArray[np.float64]:
    """Increase per second; NaN when it is unknown, or the offset decreased (a reset)."""
    seconds = (until - since).total_seconds()
    grown = new - old
    return np.where((grown >= 0) & (seconds > 0), grown / max(seconds, 1e-9), np.nan)


def _places(before: pa.Table, now: pa.Table) -> NDArray[np.int64]:
    """Row of each present key in the earlier snapshot; -1 for a new one."""
    if before.equals(now):
        return np.arange(now.num_rows)
    rows = {
        key: row for row, key in enumerate(zip(*(before[name].to_pylist() for name in _KEY), strict=True))
    }
    keys = zip(*(now[name].to_pylist() for name in _KEY), strict=True)
    return np.array([rows.get(key, -1) for key in keys], dtype=np.int64)
