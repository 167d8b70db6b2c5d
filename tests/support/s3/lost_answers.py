"""A proxy that passes each request on and loses some answers: the server has done what it was asked."""

from __future__ import annotations

import http.client
import threading
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_Proxy = TypeVar("_Proxy", bound="LosingProxy")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LosingProxy

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.server.is_refused():
            self.send_response_only(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        connection = http.client.HTTPConnection(self.server.target, timeout=600)
        try:
            # The signature covers the headers: they stay, the host's name included.
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "expect":
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        self.server.note(self.command, self.path, self.headers.get("If-None-Match"))
        if self.server.is_lost(self.command, self.path):
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                self.send_header(name, value)
        if self.command == "HEAD":
            self.send_header("Content-Length", answer.getheader("content-length", "0"))
        else:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815  # the base class looks for them

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class calls it so
        """Write no log."""


class LosingProxy(ThreadingHTTPServer):
    """The proxy; it loses the first answer to each ``PUT`` of a commit.

    endpoint: ``http://host:port`` of the server.
    lost: Paths of the commits whose first answer was lost.
    conditions: ``If-None-Match`` of each request that wrote a commit.
    """

    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(endpoint).netloc
        self.lost: list[str] = []
        self.conditions: list[str | None] = []
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        """Its own address."""
        return f"http://127.0.0.1:{self.server_port}"

    def note(self, method: str, path: str, condition: str | None) -> None:
        """Note the condition of a request that writes a commit, in whatever way."""
        if method in {"PUT", "POST"} and path.partition("?")[0].endswith(".json"):
            self.conditions.append(condition)

    def is_refused(self) -> bool:
        """Whether a request is answered with 503 and not passed on: never."""
        return False

    def is_lost(self, method: str, path: str) -> bool:
        """Whether the answer to this request is lost."""
        name = path.partition("?")[0]
        with self._lock:
            if method != "PUT" or not name.endswith(".json") or name in self.lost:
                return False
            self.lost.append(name)
        return True


@contextmanager
def serving(proxy: _Proxy) -> Iterator[_Proxy]:
    """Run a proxy in a thread for a ``with`` block."""
    with proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy
        proxy.shutdown()


def losing_proxy(endpoint: str) -> AbstractContextManager[LosingProxy]:
    """Run the proxy in a thread for a ``with`` block."""
    return serving(LosingProxy(endpoint))
