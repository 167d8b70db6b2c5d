"""A proxy that counts the requests to a lake on an S3 server, by operation and table.

It is a process of its own: deltalake keeps the interpreter's lock while it lists a folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.s3.lost_answers import LosingProxy, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).resolve().parents[3]


class _Proxy(LosingProxy):
    """Counts requests by operation and table; loses none."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self._found: Counter[tuple[str, str]] = Counter()

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
            self._found[operation, table] += 1

    def is_lost(self, *_: str) -> bool:
        """Lose nothing."""
        return False

    def counts(self) -> list[tuple[str, str, int]]:
        """Return the requests until now."""
        with self._lock:
            return [(*key, count) for key, count in self._found.items()]


class CountingProxy:
    """The process of a proxy, as a block has it.

    endpoint: Its address.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = self._line().strip()

    @contextmanager
    def counted(self) -> Iterator[Counter[tuple[str, str]]]:
        """Count the requests of a block."""
        before = self._counts()
        found: Counter[tuple[str, str]] = Counter()
        yield found
        found.update(self._counts() - before)

    def _counts(self) -> Counter[tuple[str, str]]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Counter({(operation, table): count for operation, table, count in json.loads(self._line())})

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def counting_proxy(endpoint: str) -> Iterator[CountingProxy]:
    """Run the proxy for a ``with`` block."""
    command = [sys.executable, "-m", "tests.support.s3.counted", endpoint]
    # It ends when its standard input does.
    with subprocess.Popen(
        command, cwd=_ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield CountingProxy(process)


def main() -> None:
    """Print the address, and the counts for each line of the standard input."""
    with serving(_Proxy(sys.argv[1])) as proxy:
        sys.stdout.write(f"{proxy.endpoint}\n")
        sys.stdout.flush()
        for _ in sys.stdin:
            sys.stdout.write(json.dumps(proxy.counts()) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
