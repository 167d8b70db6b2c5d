"""How long the overview of a large cluster, and of many clusters, takes to load in a browser.

``python -m tests.bench.commands.overview [--loads N] [--quick]`` makes lakes of a day, starts
``evenlag serve`` and opens the page in Chromium: at once, again without a change, and after a commit of each
cluster. It writes ``docs/bench/overview.json``; ``--quick`` writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import PlanEvent
from evenlag.lake.location import LOG_FOLDER
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import PLANS
from evenlag.publishing.event_log import append_plan_events, plan_event
from tests.support.fixtures.browser import running_browser
from tests.support.lakes.old_lake import OldLake
from tests.support.lakes.old_shape import Shape
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.support.fixtures.browser import Browser

RESULTS: Final = Path(__file__).resolve().parents[3] / "docs" / "bench" / "overview.json"
# Nobody connects to the brokers: the server reads the lake alone.
_CLUSTER: Final = '  {name}: {{bootstrap_servers: "127.0.0.1:9092"}}\n'
# Longer than what was read is taken to be new.
_OLD_S: Final = 6.0
_TIMES: Final = """\
const [page] = performance.getEntriesByType("navigation");
return {
  answered_ms: page.responseEnd, loaded_ms: page.loadEventEnd, bytes: page.decodedBodySize,
  sent_bytes: page.encodedBodySize, rows: document.querySelector(".groups tbody").rows.length,
};
"""
# A search, until the page is laid out again.
_SEARCH: Final = """\
const box = document.querySelector("[name=q]"), began = performance.now();
box.value = "{text}";
box.dispatchEvent(new Event("input"));
document.body.offsetHeight;
const shown = document.querySelectorAll(".groups tbody tr:not([hidden])").length;
return {ms: performance.now() - began, shown};
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


def write_lake(lake: Path, names: Sequence[str], shape: Shape) -> None:
    """Write a lake of clusters: one of each, whose files and commits come into the same tables."""
    from deltalake import DeltaTable

    now = datetime.now(UTC)
    for name in names:
        own = lake / name
        own.mkdir(parents=True)
        OldLake(own, 1, now, cluster=name, kafka_cluster_id=name, shape=shape).write()
        for table in own.iterdir():
            _move_table(table, lake / table.name)
        shutil.rmtree(own)
    for log in lake.glob(f"*/{LOG_FOLDER}"):
        DeltaTable(str(log.parent)).create_checkpoint()


def _move_table(table: Path, into: Path) -> None:
    if not into.exists():
        table.rename(into)
        return
    for folder in table.glob("cluster=*"):
        folder.rename(into / folder.name)
    version = max(int(path.stem) for path in (into / LOG_FOLDER).glob("0*.json"))
    for commit in sorted((table / LOG_FOLDER).glob("0*.json")):
        adds = [line for line in commit.read_text("utf-8").splitlines() if line.startswith('{"add"')]
        if adds:
            version += 1
            (into / LOG_FOLDER / f"{version:020d}.json").write_text("\n".join(adds) + "\n", "utf-8")


def change(lake: Path, names: Sequence[str]) -> None:
    """Commit a plan event of each cluster, as any step of a cycle commits."""
    for name in names:
        [plan] = (
            LakeReader(str(lake)).read_newest(PLANS, "slot", filters=[("cluster", "=", name)])[:1].to_pylist()
        )
        event = plan_event(
            plan, PlanEvent.REJECTED, reason="a benchmark", actor="bench", at=datetime.now(UTC)
        )
        append_plan_events(str(lake), [event])


def measure(folder: Path, num_clusters: int, shape: Shape, loads: int) -> dict[str, Any]:
    """Make the lake, serve it, and load the page several times."""
    lake, names = folder / "lake", [f"cluster-{number:02d}" for number in range(num_clusters)]
    write_lake(lake, names, shape)
    config = folder / "evenlag.yaml"
    clusters = "".join(_CLUSTER.format(name=name) for name in names)
    config.write_text(f"lake: {lake}\nclusters:\n{clusters}", encoding="utf-8")
    with running_browser(folder / "browser") as browser, serving(config) as url:
        first, same, changed, searches = load(browser, url), [], [], []
        for number in range(loads):
            time.sleep(_OLD_S)
            same.append(load(browser, url))
            searches.append(browser.run(_SEARCH.replace("{text}", str(number))))
            change(lake, names)
            time.sleep(_OLD_S)
            changed.append(load(browser, url))
            wait_until(lambda: not browser.run("return document.body.innerText").count("being read"))
    assert {page["rows"] for page in (first, *same, *changed)} == {num_clusters * shape.groups}
    assert all(search["shown"] for search in searches)
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "clusters": num_clusters,
        "groups": num_clusters * shape.groups,
        "partitions": num_clusters * shape.groups * shape.partitions,
        "first_load_s": _seconds([first])[0],
        "unchanged_s": _seconds(same),
        "changed_s": _seconds(changed),
        "search_ms": [round(search["ms"]) for search in searches],
        "answered_median_s": round(statistics.median(page["answered_ms"] for page in same) / 1000, 2),
        "page_bytes": same[-1]["bytes"],
        "sent_bytes": same[-1]["sent_bytes"],
    }


def _seconds(pages: Sequence[Mapping[str, Any]]) -> list[float]:
    return [round(page["loaded_ms"] / 1000, 2) for page in pages]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write.

    argv: Arguments; those of this process when None.
    """
    parser = argparse.ArgumentParser(
        prog="tests.bench.commands.overview", description="Time the overview page."
    )
    parser.add_argument("--loads", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a small lake; write nothing")
    arguments = parser.parse_args(argv)
    of_day = Shape(members=4, step_s=7_200, plans=5)
    runs = [
        (1, replace(of_day, groups=2_000, partitions=100)),
        (30, replace(of_day, groups=333, partitions=10)),
    ]
    if arguments.quick:
        runs = [(3, replace(of_day, groups=20))]
    results = []
    for num_clusters, shape in runs:
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(Path(folder), num_clusters, shape, arguments.loads))
    text = json.dumps(results, indent=1) + "\n"
    sys.stdout.write(text)
    if not arguments.quick:
        RESULTS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
