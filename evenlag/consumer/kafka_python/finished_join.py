"""Apply an assignment that arrives between two polls; kafka-python drops it and joins again.

A join of kafka-python continues while the application processes records. The next ``poll()`` waits for it
only if it has not ended by then. If it has, the member sends another join with its previous claims: the round
that has just ended achieves nothing, and the group needs one or two more. A consumer that polls without
waiting may join forever.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class FinishedJoin:
    """The result of one consumer's last join, until it is applied."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        config = coordinator.config
        # The coordinator waits for heartbeats and, in a rebalance, for the next join.
        self._longest_s = min(config["session_timeout_ms"], config["max_poll_interval_ms"]) / 1000
        self._generation: Any = None
        self._content = b""
        self._joined_at = 0.0

    def joined(self) -> None:
        """Record that the coordinator has accepted a join: the session begins."""
        self._joined_at = time.monotonic()

    def applied(self) -> None:
        """Record that the assignment is applied."""
        self._generation = None

    async def join(self, original: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the assignment of a join that has ended and is not applied yet, or else join.

        The member sends no heartbeats before the assignment is applied. After the session timeout, or the
        time limit of a rebalance, the group may have gone on without it, so it joins.
        """
        current = self._coordinator._generation  # noqa: SLF001  # kafka-python has no public name
        is_current = self._generation is not None and self._generation == current
        if is_current and time.monotonic() - self._joined_at < self._longest_s:
            return self._content
        self._generation = None
        self._content = await original()
        self._generation = self._coordinator._generation  # noqa: SLF001  # as above
        return self._content
