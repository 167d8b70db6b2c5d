"""Slots of a job that runs a cycle every so often: which slot is due, and when the next one is.

Slots are multiples of the interval, counted from 1970-01-01 in UTC. A slot that passes while a cycle runs is
skipped: the newest due slot is next. Only the wall clock counts, so a computer that slept continues with the
newest slot.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

# The longest pause after failed cycles, unless the interval is longer.
MAX_PAUSE_MS: Final = 600_000
# How long a wait may miss that the clock was set.
_MAX_SLEEP_MS: Final = 1_000
_MAX_DOUBLINGS: Final = 20
_MS: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class SlotClock:
    """Chooses the slots of cycles, from the moment of the first call on.

    Later slots are at least half an interval after the slot before. After consecutive failures the distance
    doubles, to ten minutes at most (or the interval, if that is longer).

    offset: Distance of all later slots to the multiples, so that clusters of one interval take turns.

    If the wall clock goes back by more than an interval, the slots continue from the new time, each one
    millisecond later than a multiple of the interval: waiting could take years, and a slot that already has a
    snapshot would not be read again.
    """

    def __init__(
        self,
        every: timedelta,
        *,
        offset: timedelta = timedelta(0),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._every_ms = every // _MS
        self._now, self._sleep = now, sleep
        self._first_ms: int | None = None
        self._last_ms = 0
        self._offset_ms = offset // _MS
        self._num_failures = 0

    def wait(self) -> datetime:
        """Wait until a slot is due."""
        now_ms = self._now_ms()
        while (slot_ms := self._next_slot(now_ms)) > now_ms:
            self._sleep(min(slot_ms - now_ms, _MAX_SLEEP_MS) / 1000)
            now_ms = self._now_ms()
        if self._first_ms is None:
            self._first_ms = slot_ms
        self._last_ms = slot_ms
        return _EPOCH + slot_ms * _MS

    def succeeded(self) -> datetime:
        """Record that the cycle of the last slot succeeded; return the next slot by the present clock."""
        return self._ended(0)

    def failed(self) -> datetime:
        """Record that the cycle of the last slot failed; return the next slot by the present clock."""
        return self._ended(self._num_failures + 1)

    def _ended(self, num_failures: int) -> datetime:
        self._num_failures = num_failures
        return _EPOCH + self._next_slot(self._now_ms()) * _MS

    def _now_ms(self) -> int:
        return (self._now() - _EPOCH) // _MS

    def _next_slot(self, now_ms: int) -> int:
        """The next slot, since the epoch; one that is not later than now is due."""
        if self._first_ms is None:
            return now_ms
        slot_ms = self._multiple(now_ms)
        if slot_ms - now_ms > self._distance_ms() + self._every_ms:
            self._follow_clock(now_ms)
            slot_ms = self._multiple(now_ms)
        return slot_ms

    def _multiple(self, now_ms: int) -> int:
        """The newest multiple that is due, or the first one that is far enough from the last slot."""
        earliest = self._last_ms + self._distance_ms() - self._every_ms // 2
        newest = (now_ms - self._offset_ms) // self._every_ms
        first = -((self._offset_ms - earliest) // self._every_ms)
        return max(newest, first) * self._every_ms + self._offset_ms

    def _distance_ms(self) -> int:
        doubled = self._every_ms << min(max(self._num_failures - 1, 0), _MAX_DOUBLINGS)
        return min(doubled, max(self._every_ms, MAX_PAUSE_MS))

    def _follow_clock(self, now_ms: int) -> None:
        """Continue from the present time, beside the multiples that were slots before."""
        self._last_ms = now_ms
        self._offset_ms += 1
        if ((self._first_ms or 0) - self._offset_ms) % self._every_ms == 0:
            self._offset_ms += 1
