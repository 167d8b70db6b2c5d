"""The join of one consumer: it goes on between two polls, and its assignment waits for the next poll."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

# The others of the group have joined by then, and their leader answers at once.
_SYNC_S = 1.0


class CurrentJoin:
    """A join from its request until its assignment is applied.

    kafka-python forgets an assignment that arrives between two polls, and joins again.

    keeps_partitions: Returns whether the member owns partitions whose records may be returned meanwhile.
    patience_s: Returns how many seconds polls wait for the answer to a join before they return records.
    is_sent: Whether the coordinator has not answered the join yet.
    """

    def __init__(
        self, coordinator: Any, keeps_partitions: Callable[[], bool], patience_s: Callable[[], float]
    ) -> None:
        self._coordinator = coordinator
        self._keeps_partitions, self._patience_s = keeps_partitions, patience_s
        self._task: Any = None
        self._generation: Any = None
        self._patient_until_s = 0.0
        self._is_in_doubt = False
        self.is_sent = False

    @property
    def is_running(self) -> bool:
        """Whether the join or its sync is not answered yet."""
        task = self._task
        return task is not None and not task.is_done

    @property
    def is_finished(self) -> bool:
        """Whether an assignment of the current generation waits to be applied."""
        return self._generation is not None and self._generation == self._coordinator._generation  # noqa: SLF001

    @property
    def lets_polls_return(self) -> bool:
        """Whether the join is not over, and polls return records meanwhile."""
        return self.is_running and self._wait_ms() == 0

    def answered(self) -> None:
        """Record that the coordinator has accepted the join: the session begins."""
        self.is_sent = False
        self._patient_until_s = time.monotonic() + _SYNC_S
        self._coordinator.heartbeat.received_heartbeat()

    def applied(self) -> None:
        """Record that the assignment is applied."""
        self._task = self._generation = None

    async def join(self, original: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the assignment of the join in flight, or else of a new one.

        Raises ``KafkaTimeoutError`` while the join goes on and the member has records to return: the poll
        ends, and the next one asks again.
        """
        heartbeat, manager = self._coordinator.heartbeat, self._coordinator._manager  # noqa: SLF001
        is_over = heartbeat.session_timeout_expired()
        # A failure between two polls is raised first.
        if self._task is None or (self._task.succeeded() and (is_over or not self.is_finished)):
            # Without an answer for so long, another member may own the partitions.
            self._is_in_doubt = is_over
            self._patient_until_s = time.monotonic() + self._patience_s()
            self._task = manager.call_soon(self._attempt, original)
        task = self._task
        try:
            content: bytes = await manager.wait_for(task, self._wait_ms())
        except Exception:
            if task.is_done:
                self._task = None
            raise
        return content

    def _wait_ms(self) -> float | None:
        """Return how long polls still wait; None: until the join is over."""
        if self._is_in_doubt or not self._keeps_partitions():
            return None
        return max(0.0, self._patient_until_s - time.monotonic()) * 1000

    async def _attempt(self, original: Callable[[], Awaitable[bytes]]) -> bytes:
        """Join and sync; then send heartbeats, however late the next poll is."""
        self._generation, self.is_sent = None, True
        try:
            content = await original()
        finally:
            self.is_sent = False
        current = self._coordinator._generation  # noqa: SLF001
        if not current.is_lost():
            self._generation = current
            self._coordinator._enable_heartbeat()  # noqa: SLF001
        return content
