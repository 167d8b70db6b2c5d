"""How long an application has processed records: from a poll that returned some to the next poll."""

import time

from assignor_core.busy_time import BusyTime


class BusyClock:
    """A stopwatch of the thread that polls; any thread may read it."""

    def __init__(self) -> None:
        self._since_ms = time.time_ns() // 1_000_000
        # In one tuple, which other threads read as a whole: seconds until the last stop, and the start since.
        self._state: tuple[float, float | None] = 0.0, None

    def start(self) -> None:
        """Count from now on."""
        self._state = self._total_s(), time.monotonic()

    def stop(self) -> None:
        """Count no more."""
        self._state = self._total_s(), None

    def read(self) -> BusyTime:
        """Return what was counted so far."""
        return BusyTime(int(self._total_s() * 1000), self._since_ms)

    def _total_s(self) -> float:
        total_s, started_s = self._state
        return total_s if started_s is None else total_s + time.monotonic() - started_s
