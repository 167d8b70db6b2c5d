"""A proxy that counts the requests to a lake on an S3 server, by operation and table."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.s3.lost_answers import LosingProxy

if TYPE_CHECKING:
    from collections.abc import Iterator


class CountingProxy(LosingProxy):
    """Counts requests by operation and table; loses none."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.counts: Counter[tuple[str, str]] = Counter()

    def note(self, method: str, path: str, condition: str | None) -> None:
        """Count a request; a GET of the bucket is a LIST."""
        parts = urlsplit(path)
        query = parse_qs(parts.query, keep_blank_values=True)
        name = query.get("prefix", [unquote(parts.path).lstrip("/")])[0]
        table = name.partition("lake/")[2].partition("/")[0]
        operation = method
        if method == "GET" and "prefix" in query:
            operation = "LIST"
        elif method in {"GET", "HEAD"} and "_delta_log" in name:
            operation = f"{method} log"
        elif method == "PUT" and condition and name.endswith(".json"):
            operation = "PUT commit"
        with self._lock:
            self.counts[operation, table] += 1

    def is_lost(self, *_: str) -> bool:
        """Lose nothing."""
        return False

    @contextmanager
    def counted(self) -> Iterator[Counter[tuple[str, str]]]:
        """Count the requests of a block."""
        with self._lock:
            before = self.counts.copy()
        found: Counter[tuple[str, str]] = Counter()
        yield found
        with self._lock:
            found.update(self.counts - before)


@contextmanager
def counting_proxy(endpoint: str) -> Iterator[CountingProxy]:
    """Run the proxy in a thread for a ``with`` block."""
    with CountingProxy(endpoint) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy
        proxy.shutdown()
