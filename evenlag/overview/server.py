"""A small web server for overview, reports and metrics: it reads the lake, and answers GET requests only.

It has no users. On this machine's own address it answers whoever may connect there; on any other address
each request needs a token.
"""

import asyncio
import base64
import binascii
import hmac
import math
import os
import resource
import socket
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from evenlag.errors import JobError
from evenlag.logging_setup import named_logger
from evenlag.overview.metrics import MAX_GROUPS, render_metrics
from evenlag.overview.views import (
    MAX_HOURS,
    OverviewView,
    ReportSource,
    answer,
    message_response,
    unreadable_policy,
)

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
HEALTH_PATH: Final = "/healthz"
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_DEFAULT_HOURS: Final = 24.0
# asyncio accepts so many connections before it looks after the first of them.
_BACKLOG: Final = 32
HEADER_S: Final = 10.0
ANSWER_S: Final = 120.0
_MAX_CONNECTIONS: Final = 128
_REPORT_S: Final = 60.0
_LOG: Final = named_logger(__name__)


class AddressError(JobError, exit_code=3):
    """Raised when the server cannot listen on an address."""


def make_app(
    sources: Callable[[], dict[str, ReportSource]],
    *,
    token: str | None = None,
    hosts: Iterable[str] = (),
    max_groups: int = MAX_GROUPS,
    view: OverviewView | None = None,
) -> Starlette:
    """Build the application; `sources` returns the clusters by name, `view` is another than the lake's."""
    view = view or OverviewView(sources)

    def overview(request: Request) -> Response:
        return view.answer(_everybody, request.query_params, request.headers.get("if-none-match"))

    def report(request: Request) -> Response:
        query = request.query_params
        hours = _hours(query.get("hours"))
        if hours is None:
            message = f"hours is a number from 0 to {MAX_HOURS:g}."
            return message_response(HTTPStatus.UNPROCESSABLE_ENTITY, message)
        return answer(_everybody, query.get("cluster"), query.get("group"), hours, sources)

    def metrics(_: Request) -> Response:
        try:
            known = list(sources().values())
        except JobError as error:
            return PlainTextResponse(f"{unreadable_policy(error)}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        text = render_metrics(view.read(known), view.count(known), max_groups)
        return Response(text, media_type=METRICS_TYPE)

    def start(_: Request) -> Response:
        return RedirectResponse("overview")

    def health(_: Request) -> Response:
        return PlainTextResponse("ok\n", headers={"Cache-Control": "no-store"})

    return Starlette(
        routes=[
            Route("/", start),
            Route("/overview", overview),
            Route("/report", report),
            Route("/metrics", metrics),
            Route(HEALTH_PATH, health),
        ],
        middleware=[
            Middleware(_Guard, token=token, hosts=LOOPBACK | {host.lower() for host in hosts}),
            Middleware(GZipMiddleware, minimum_size=1_000),
        ],
    )


def listen(host: str, port: int) -> socket.socket:
    """Open the server's socket."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise AddressError(f"the host {host} cannot be used: {error.strerror}") from error
    is_dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        # From here on a request waits for the application; its address is printed before it runs.
        return socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise AddressError(
            f"cannot listen on {host}:{port}: {reason}; name another --port, or 0 for any free one"
        ) from error


def make_server(app: Starlette) -> uvicorn.Server:
    """Build the server of an application, with the limits of its connections."""
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        backlog=_BACKLOG,
        # uvloop does not log why it cannot accept a connection.
        loop="asyncio",
        # The log of requests would have the group ids that users look for.
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


def _everybody(_: str) -> bool:
    return True


def _hours(text: str | None) -> float | None:
    """Parse the length of a report's period; None if it is none."""
    try:
        hours = _DEFAULT_HOURS if text is None else float(text)
    except ValueError:
        return None
    return hours if 0 < hours <= MAX_HOURS else None


class _Guard:
    """Refuses requests without the token, or for another host; an ASGI middleware."""

    def __init__(self, app: Any, *, token: str | None, hosts: frozenset[str]) -> None:
        self._app, self._token, self._hosts = app, token, hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Mapping[str, Any]) -> Response | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["path"] == HEALTH_PATH:
            return None
        if self._token is not None:
            if hmac.compare_digest(_given_token(headers.get("authorization", "")), self._token.encode()):
                return None
            # A browser asks for name and password: the password is the token.
            asked = {"WWW-Authenticate": 'Basic realm="evenlag"'}
            return message_response(HTTPStatus.UNAUTHORIZED, "This needs the token.", **asked)
        if _host(headers.get("host", "")) in self._hosts:
            return None
        return message_response(HTTPStatus.MISDIRECTED_REQUEST, "This server does not answer for that host.")


def _host(header: str) -> str | None:
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None


def _given_token(header: str) -> bytes:
    """Token of a request: a bearer's, or the password of basic authentication; empty if there is none."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""


def max_connections() -> int:
    """Return the limit: 128, or a quarter of the files that the process may open."""
    return max(8, min(_MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol of one connection, with limits.

    uvicorn limits idle connections only, between two requests: a client that begins a request and never ends
    it would keep its connection. A new connection above the limit ends the oldest one that waits for its
    client, so that whoever holds many loses them and others are answered.
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
