"""Two gigabytes of foreign records on the hint topic: each command and each reader works, in 300 MB.

The seconds and the peak memory of each process are in ``docs/bench/flood.json``. Three quarters of the
records have foreign keys, a quarter groups' keys; all are in the partition of the groups that have hints.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from sandbox.kafka.broker import Broker
from tests.support.broker_plugin.harness import Harness
from tests.support.flood import RECORD_BYTES, flood, group_keys
from tests.support.hints import Cluster
from tests.support.java_client.group import JavaGroup
from tests.support.java_client.harness import ClientHarness
from tests.support.live_plan import LiveGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "flood.json"
NUM_RECORDS: Final = 2_250
MAX_MB: Final = 300
_PEAK: Final = re.compile(r"VmHWM:\s+(\d+) kB")
# Python processes report their own peak: that of a child contains its parent's at the fork.
_MEASURED: Final = "import atexit; atexit.register(lambda: print(open('/proc/self/status').read()))\n"
_COMMAND: Final = "from evenlag.__main__ import main; main()"
_PUBLISH: Final = """
import sys, json
from datetime import UTC, datetime
from evenlag.policy.loader import load_policy
from evenlag.publishing.publish import publish_hints
report = publish_hints(load_policy(sys.argv[1]), "sandbox", datetime.now(UTC), "run")
print(json.dumps({"published": report.published, "loads": report.loads.error}))
"""
_WATCH: Final = """
import sys, time
from evenlag.consumer import HintCache, HintWatcher
servers, topic, group = sys.argv[1:]
cache = HintCache(group)
watcher = HintWatcher(cache, {"bootstrap_servers": servers}, topic=topic)
watcher.start()
while cache.view.is_cold:
    time.sleep(0.1)
print(cache.view.hint.plan_id)
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker.start(tmp_path / "broker")
    yield running
    running.kill()


@pytest.fixture
def group(
    broker: Broker, spark: SparkSession, tmp_path: Path, unique: Callable[[str], str]
) -> Iterator[LiveGroup]:
    live = LiveGroup(broker, spark, tmp_path, unique, mode="auto")
    yield live
    live.close()


def peak_mb(status: str) -> float:
    found = _PEAK.search(status)
    assert found is not None
    return int(found[1]) / 1024


class Measured:
    """Runs processes, and collects the seconds and the peak memory of each."""

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, float]] = {}

    def note(self, name: str, began: float, peak: float) -> None:
        self.figures[name] = {"seconds": round(time.monotonic() - began, 1), "peak_mb": round(peak)}

    def run(self, name: str, code: str, *arguments: object) -> str:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", _MEASURED + code, *map(str, arguments)],
            capture_output=True, text=True, check=False, timeout=1_800,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        self.note(name, began, peak_mb(done.stdout))
        return done.stdout + done.stderr

    def command(self, name: str, live: LiveGroup, *arguments: str) -> str:
        return self.run(name, _COMMAND, "hints", *arguments, "--config", live.config)


def test_two_gigabytes_of_foreign_records_stop_nothing_and_nobody(
    broker: Broker, group: LiveGroup, plugin_jar: Path, client_jar: Path, tmp_path: Path
) -> None:
    written = flood(group.kafka, NUM_RECORDS)
    measured = Measured()
    plan = group.plan(mode="auto", approved=True)
    group.wait_until_settled()
    published = measured.run("publish", _PUBLISH, group.config)
    assert json.dumps({"published": [[group.group_id, plan, 1]], "loads": None}) in published
    group.wait_until_followed(plan)
    assert plan[:12] in measured.command("hints", group)
    assert group.group_id in measured.command("hints GROUP", group, group.group_id)
    assert plan in measured.run(
        "watcher in Python", _WATCH, group.kafka.bootstrap_servers, group.kafka.hint_topic, group.group_id
    )
    watch_in_java(measured, broker, group, plugin_jar, client_jar, tmp_path)
    why = ("--reason", "flood")
    measured.command("hints stop-all", group, "stop-all", *why)
    measured.command("hints resume", group, "resume", *why)
    purged = measured.command("hints purge", group, "purge", "--yes", *why)
    assert f"{written.num_foreign:,} keys with" in purged
    results = {"records": NUM_RECORDS, "bytes": NUM_RECORDS * RECORD_BYTES, "processes": measured.figures}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    assert all(found["peak_mb"] < MAX_MB for found in measured.figures.values()), measured.figures


def watch_in_java(
    measured: Measured, broker: Broker, live: LiveGroup, plugin_jar: Path, client_jar: Path, tmp_path: Path
) -> None:
    """Let the plug-in and a group of Java's own client read the topic; the group follows a hint."""
    options = ("-Xmx64m", "-XX:+UseSerialGC")
    (tmp_path / "plugin").mkdir()
    with (
        Harness(plugin_jar, tmp_path / "plugin", options=options) as plugin,
        neighbour(broker, live, "kip848") as cluster,
    ):
        cluster.publish(cluster.payload({"m:a": {next(iter(cluster.topics)): [0]}}, member_ids={}))
        servers, topic = cluster.bootstrap_servers, cluster.hint_topic
        configs = {"evenlag.bootstrap.servers": servers, "evenlag.hint.topic": topic}
        began = time.monotonic()
        answer: dict[str, Any] = {"held": -1}
        while answer["held"] < 0:  # the harness waits for a minute
            answer = plugin.ask("watch", configs=configs, reason="READY", count=1)
        measured.note("plug-in", began, process_peak_mb(plugin))
        assert (answer["held"], answer["counts"]["MALFORMED"]) == (1, NUM_RECORDS // 4)
    (tmp_path / "client").mkdir()
    with (
        ClientHarness(client_jar, tmp_path / "client", options=options) as client,
        neighbour(broker, live, "java") as cluster,
        JavaGroup(client, cluster) as java,
    ):
        began = time.monotonic()
        java.start_java("a", "b", asks=True)
        java.settle()
        plan = {"a": [0], "b": [1, 2, 3]}
        java.publish(plan)
        java.wait_for(plan)
        measured.note("Java client", began, process_peak_mb(client))


def neighbour(broker: Broker, live: LiveGroup, name: str) -> Cluster:
    """Return a group whose hints are in the same partition of the same topic."""
    key = next(group_keys(name, live.kafka.hint_partition())).decode()
    made = Cluster(
        broker,
        group_id=key.removeprefix("group/"),
        topics={f"{name}-orders": 4},
        hint_topic=live.kafka.hint_topic,
        make_topics=False,
    )
    made.create(made.topics)
    return made


def process_peak_mb(harness: Any) -> float:
    return peak_mb(Path(f"/proc/{harness._process.pid}/status").read_text(encoding="ascii"))
