"""How many requests a reading may send, and how long it may take."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """How gently one process reads.

    Attributes
    ----------
    requests_per_s
        Requests to all brokers together.
    request_timeout_s
        How long one request may take, connecting included.
    max_broker_failures
        How often a broker may not answer before it is left alone.
    deadline_s
        How long it may take in all; what is not read by then is not known.
    """

    requests_per_s: float = 100.0
    request_timeout_s: float = 30.0
    max_broker_failures: int = 3
    deadline_s: float = 120.0


class RequestBudget:
    """A token bucket: over any ``t`` seconds at most ``requests_per_s * (t + 1)`` requests, at least one.

    Parameters
    ----------
    requests_per_s
        How fast it fills; it holds the requests of one second, and never less than one.
    is_full
        Whether it begins full. One that continues another's reading begins empty, so that a reading in
        several steps has its one second in advance only once.
    clock
        Seconds that only grow.

    Attributes
    ----------
    num_requests : int
        Requests that were taken.

    Examples
    --------
    >>> budget = RequestBudget(2, clock=lambda: 0.0)
    >>> [budget.take() for _ in range(4)]
    [0.0, 0.0, 0.5, 1.0]
    """

    def __init__(
        self, requests_per_s: float, *, is_full: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = requests_per_s
        self._size = max(requests_per_s, 1.0)
        self._tokens = self._size if is_full else 0.0
        self._clock = clock
        self._seen_at = clock()
        self.num_requests = 0

    @property
    def interval_s(self) -> float:
        """Seconds between requests when nothing is left over."""
        return 1.0 / self._rate

    def take(self) -> float:
        """Take the right to send one request; returns how many seconds it must still wait."""
        now = self._clock()
        self._tokens = min(self._size, self._tokens + (now - self._seen_at) * self._rate)
        self._seen_at = now
        self._tokens -= 1.0
        self.num_requests += 1
        return max(0.0, -self._tokens / self._rate)


class Deadline:
    """A moment by which reading must end, so that one slow broker cannot hold up a run for ever."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the moment has passed."""
        return self.left_s <= 0

    @property
    def left_s(self) -> float:
        """Seconds that are left; below 0 when it is over."""
        return self._end - self._clock()

    def extend(self, seconds: float) -> None:
        """Put it off: time that was waited for our own sake is not the brokers'."""
        self._end += seconds
