"""How long the overview of a large cluster takes to load in a browser.

``python -m tests.bench.commands.overview [--groups N] [--loads N] [--quick]`` makes a lake of a day, starts
``evenlag serve`` and opens the page in Chromium. The first load reads all that the page shows; the next ones
read what is new. It writes ``docs/bench/overview.json``; ``--quick`` writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.fixtures.browser import running_browser
from tests.support.lakes.old_lake import OldLake
from tests.support.lakes.old_shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.fixtures.browser import Browser

RESULTS: Final = Path(__file__).resolve().parents[3] / "docs" / "bench" / "overview.json"
_CLUSTER: Final = "bench"
# Nobody connects to the brokers: the server reads the lake alone.
_POLICY: Final = 'lake: {lake}\nclusters:\n  bench: {{bootstrap_servers: "127.0.0.1:9092"}}\n'
_TIMES: Final = """\
const [page] = performance.getEntriesByType("navigation");
return {
  answered_ms: page.responseEnd, loaded_ms: page.loadEventEnd, bytes: page.decodedBodySize,
  sent_bytes: page.encodedBodySize, rows: document.querySelector(".groups tbody").rows.length,
};
"""


@contextmanager
def serving(config: Path) -> Iterator[str]:
    """Run ``evenlag serve`` and return its address."""
    command = [sys.executable, "-m", "evenlag", "serve", "--port", "0", "--config", str(config)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as server:
        try:
            assert server.stdout is not None
            found = next(filter(None, (re.search(r"http://[\w.:]+", line) for line in server.stdout)))
            yield found[0].rstrip("/")
        finally:
            server.send_signal(signal.SIGINT)


def load(browser: Browser, url: str) -> dict[str, Any]:
    """Open the page once; returns milliseconds since the navigation began, and sizes."""
    browser.open(f"{url}/overview")
    return dict(browser.run(_TIMES))


def measure(folder: Path, shape: Shape, loads: int) -> dict[str, Any]:
    """Make the lake, serve it, and load the page several times."""
    lake = folder / "lake"
    lake.mkdir()
    OldLake(lake, 1, datetime.now(UTC), cluster=_CLUSTER, kafka_cluster_id="k", shape=shape).write()
    config = folder / "evenlag.yaml"
    config.write_text(_POLICY.format(lake=lake), encoding="utf-8")
    with running_browser(folder / "browser") as browser, serving(config) as url:
        pages = [load(browser, url) for _ in range(loads)]
    assert {page["rows"] for page in pages} == {shape.groups}, "the page has to show every group"
    first, *others = (page["loaded_ms"] / 1000 for page in pages)
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "groups": shape.groups,
        "partitions": shape.groups * shape.partitions,
        "first_load_s": round(first, 2),
        "next_loads_s": [round(other, 2) for other in others],
        "next_load_median_s": round(statistics.median(others), 2),
        "answered_median_s": round(statistics.median(p["answered_ms"] for p in pages[1:]) / 1000, 2),
        "page_bytes": pages[-1]["bytes"],
        "sent_bytes": pages[-1]["sent_bytes"],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write.

    argv: Arguments; those of this process when None.
    """
    parser = argparse.ArgumentParser(
        prog="tests.bench.commands.overview", description="Time the overview page."
    )
    parser.add_argument("--groups", type=int, default=2_000)
    parser.add_argument("--loads", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="write nothing")
    arguments = parser.parse_args(argv)
    shape = Shape(groups=arguments.groups, partitions=100, members=4, step_s=7_200, plans=5)
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(measure(Path(folder), shape, arguments.loads), indent=1) + "\n"
    sys.stdout.write(text)
    if not arguments.quick:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
