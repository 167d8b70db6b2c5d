"""Request rate and deadline of a snapshot."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of one snapshot.

    requests_per_s: Request rate, over all brokers.
    request_timeout_s: Time limit of one request in seconds, connecting included.
    max_broker_failures: Number of failures after which a broker is skipped.
    deadline_s: Time limit in seconds; what is not read by then is unknown.
    failover_s: How long to wait for the brokers that take over from one that fails, in seconds from the
        first failure. By default more than the 9 s after which a cluster replaces a broker that is gone.
    """

    requests_per_s: float = 100.0
    request_timeout_s: float = 30.0
    max_broker_failures: int = 3
    deadline_s: float = 120.0
    failover_s: float = 15.0


class RequestBudget:
    """A token bucket: in any ``t`` seconds at most ``requests_per_s * (t + 1)`` requests, and at least one.

    requests_per_s: Refill rate. The bucket's size is the requests of one second, at least one.
    num_requests: Number of requests taken.

    Examples
    --------
    >>> budget = RequestBudget(2, clock=lambda: 0.0)
    >>> [budget.take() for _ in range(4)]
    [0.0, 0.0, 0.5, 1.0]
    """

    def __init__(self, requests_per_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = requests_per_s
        self._size = max(requests_per_s, 1.0)
        self._tokens = self._size
        self._clock = clock
        self._seen_at = clock()
        self.num_requests = 0

    @property
    def interval_s(self) -> float:
        """Seconds between requests when the bucket is empty."""
        return 1.0 / self._rate

    def take(self) -> float:
        """Take one request from the budget."""
        now = self._clock()
        self._tokens = min(self._size, self._tokens + (now - self._seen_at) * self._rate)
        self._seen_at = now
        self._tokens -= 1.0
        self.num_requests += 1
        return max(0.0, -self._tokens / self._rate)


class Deadline:
    """A time limit, so that one slow broker cannot block a run forever.

    seconds: Time until the deadline.
    clock: Monotonic clock in seconds.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.left_s <= 0

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self._end - self._clock()

    def extend(self, seconds: float) -> None:
        """Extend the deadline: waits of the rate limit do not count."""
        self._end += seconds


class FailoverWindow:
    """The time in which other brokers may take over what a failing broker leads or coordinates.

    seconds: Its length, from the first failure.
    deadline: The window closes with it.
    clock: Monotonic clock in seconds.
    """

    def __init__(
        self, seconds: float, deadline: Deadline, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._deadline = deadline
        self._clock = clock
        self._since: float | None = None

    def begin(self) -> None:
        """Record a failure, or that a leader or a coordinator is moving; the first one opens the window."""
        if self._since is None:
            self._since = self._clock()

    @property
    def is_open(self) -> bool:
        """Whether there is a failure, and time to wait for its end."""
        if self._since is None or self._deadline.is_over:
            return False
        return self._clock() - self._since < self._seconds
