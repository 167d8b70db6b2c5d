"""Limits of the server's connections: their number, and the time for a request's headers and for its answer.

uvicorn has a limit for idle connections only, between two requests. A client that begins a request and never
ends it would keep its connection permanently, and with enough of them nobody else is let in.
"""

from __future__ import annotations

import math
import resource
from typing import TYPE_CHECKING, ClassVar, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from evenlag.logging_setup import named_logger

if TYPE_CHECKING:
    import asyncio

HEADER_S: Final = 10.0
ANSWER_S: Final = 120.0
_MAX_CONNECTIONS: Final = 128
_REPORT_S: Final = 60.0
_LOG: Final = named_logger(__name__)


def max_connections() -> int:
    """Return the limit: 128, or a quarter of the files that the process may open."""
    return max(8, min(_MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol of one connection, with limits.

    A new connection above the limit ends the oldest one that waits for its client, so that whoever holds many
    loses them and others are answered.
    """

    _limit: asyncio.TimerHandle | None = None
    _is_answering = False
    _reported_at: ClassVar[float] = -math.inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin the time for the headers, and make room."""
        super().connection_made(transport)
        self._set_limit(HEADER_S)
        self._made_at = self.loop.time()
        if len(self.connections) > max_connections():
            others = [other for other in self.connections if isinstance(other, LimitedProtocol)]
            waiting = [other for other in others if not other._is_answering and other is not self]  # noqa: SLF001  # this class
            oldest = min(waiting, key=lambda other: other._made_at, default=self)  # noqa: SLF001  # as above
            self._report()
            # Its loss is reported later, and the next new connection must find another one.
            self.connections.discard(oldest)
            oldest.transport.abort()

    def _report(self) -> None:
        """Log at most once a minute: whoever opens many connections would fill the log."""
        now = self.loop.time()
        if now - LimitedProtocol._reported_at >= _REPORT_S:
            LimitedProtocol._reported_at = now
            _LOG.warning(
                "more than %d connections: those that wait longest for their clients are ended",
                max_connections(),
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the limit."""
        if self._limit is not None:
            self._limit.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Read what has arrived; complete headers begin the time for the answer."""
        super().handle_events()
        self._note_phase()

    def on_response_complete(self) -> None:
        """Begin the time for the next request's headers."""
        super().on_response_complete()
        self._note_phase()

    def _note_phase(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering != self._is_answering:
            self._is_answering = is_answering
            self._set_limit(ANSWER_S if is_answering else HEADER_S)

    def _set_limit(self, seconds: float) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._limit = self.loop.call_later(seconds, self.transport.abort)
