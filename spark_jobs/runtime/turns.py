"""Turns to compute, for the cycles of several clusters in one process.

Python runs one thread at a time, and cycles that compute at once only take each other's time: of 30 clusters,
all at once, 5.1 CPU seconds a cycle, four at once 4.7, two 3.7. Nobody waits for a broker in a turn, and
nobody for a turn longer than a limit.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# While one computes, the other one waits for the lake or for Spark.
_TURNS: Final = 2
_MAX_WAIT_S: Final = 30.0


class Turns:
    """So many turns at once, in the order of asking; after `max_wait_s` without one, a thread goes on."""

    def __init__(self, num_turns: int = _TURNS, max_wait_s: float = _MAX_WAIT_S) -> None:
        self._num_free, self._max_wait_s = num_turns, max_wait_s
        self._waiting: deque[threading.Event] = deque()
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Compute in a turn."""
        is_taken = self.take()
        try:
            yield
        finally:
            if is_taken:
                self.give_back()

    def take(self) -> bool:
        """Wait for a turn; return whether there was one in time."""
        with self._lock:
            if self._num_free:
                self._num_free -= 1
                return True
            given = threading.Event()
            self._waiting.append(given)
        given.wait(self._max_wait_s)
        with self._lock:
            if not given.is_set():
                self._waiting.remove(given)
            return given.is_set()

    def give_back(self) -> None:
        """Give a turn to who has waited longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._num_free += 1


CYCLE_TURNS: Final = Turns()
"""The turns of all cycles in this process."""
