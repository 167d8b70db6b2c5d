"""`evenlag serve --live`: pages beside Kafka's own numbers, many browsers, and brokers that are gone."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from html import unescape
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from kafka.structs import OffsetAndMetadata

from evenlag.kafka.connection import admin_client
from evenlag.live_lag.snapshot import policy_target
from evenlag.overview import live
from evenlag.overview.live import LiveClusters, LiveView
from evenlag.overview.model import GroupRow
from evenlag.overview.server import make_app
from evenlag.overview.views import OverviewView, ReportSource
from evenlag.policy.loader import load_policy
from sandbox.processes import free_ports
from tests.evenlag.overview.test_server import ask
from tests.support.hints import now_ms
from tests.support.kafka_python_rejoin_fix import finish_joins
from tests.support.overview.rows import overview_of
from tests.support.waiting import wait_until
from tests.truth.recorded_lakes import extract

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from starlette.applications import Starlette

    from tests.evenlag.overview.conftest import Serving
    from tests.support.brokers import Brokers
    from tests.support.fixtures.browser import Browser
    from tests.support.fixtures.command import Evenlag

RECORDS = {0: 30, 1: 20}
COMMITTED = {0: 12, 1: 20}
NUM_BROWSERS = 20


class LiveGroup:
    """A consumer of two partitions that has committed some of the records, and reads no more."""

    def __init__(self, brokers: Brokers, name: str) -> None:
        self.servers = brokers.bootstrap_servers
        self.topic, self.name = f"{name}-orders", f"{name}-<b>billing"
        self.partitions = [TopicPartition(self.topic, number) for number in RECORDS]
        self.admin = KafkaAdminClient(bootstrap_servers=self.servers)
        self.admin.create_topics({self.topic: {"num_partitions": len(RECORDS)}}, wait_for_metadata=True)
        self.write(RECORDS)
        consumer = KafkaConsumer(
            self.topic,
            group_id=self.name,
            client_id="app-<i>",
            bootstrap_servers=self.servers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_interval_ms=3_600_000,
            session_timeout_ms=300_000,
        )
        self.consumer = finish_joins(consumer)
        wait_until(lambda: self.consumer.poll(100) is not None and len(self.consumer.assignment()) == 2)
        self.consumer.commit({TopicPartition(self.topic, n): commit_of(at) for n, at in COMMITTED.items()})

    def close(self) -> None:
        self.consumer.close()
        self.admin.close()

    def write(self, counts: Mapping[int, int]) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers)
        for partition, count in counts.items():
            for _ in range(count):
                producer.send(self.topic, b"x", partition=partition)
        producer.flush()
        producer.close()

    def offsets(self) -> dict[str, tuple[int, int]]:
        """(committed, end) by partition, as Kafka reports them."""
        committed = self.admin.list_group_offsets({self.name: None})[self.name]
        ends = self.admin.list_partition_offsets(dict.fromkeys(self.partitions, OffsetSpec.LATEST))
        return {str(at.partition): (committed[at].offset, ends[at].offset) for at in self.partitions}

    def path(self, **more: str) -> str:
        return f"overview?{urlencode({'cluster': 'shop', 'group': self.name, **more})}"


def commit_of(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", -1)


@pytest.fixture(scope="module")
def group(broker: Brokers) -> Iterator[LiveGroup]:
    made = LiveGroup(broker, f"live{now_ms() % 100_000_000}")
    yield made
    made.close()


def write_policy(folder: Path, lake: Path, **servers: str) -> Path:
    clusters = ", ".join(
        f"{name}: {{bootstrap_servers: '{address}', kafka: {{bootstrap_timeout_ms: 2000}}}}"
        for name, address in servers.items()
    )
    policy = folder / "evenlag.yaml"
    policy.write_text(f"lake: {lake}\nclusters: {{{clusters}}}\n", encoding="utf-8")
    return policy


def live_app(path: Path) -> Starlette:
    policy = load_policy(path).policy
    sources = {name: ReportSource("", name, policy.lake) for name in policy.clusters}
    clusters = LiveClusters(lambda name: policy_target(policy, name, is_named=True))
    return make_app(lambda: sources, view=LiveView(lambda: sources, clusters))


@contextmanager
def command(*arguments: object) -> Iterator[str]:
    """Run `evenlag serve`, and give its address."""
    line = [sys.executable, "-m", "evenlag", "serve", "--port", "0", *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENLAG_")}
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            found = re.match(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert found is not None
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(600) in {0, 130, -signal.SIGINT}


def shown(page: str) -> str:
    """The words of a page."""
    return " ".join(unescape(re.sub(r"<(style|script)>.*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)).split())


def partitions(page: str) -> dict[str, list[str]]:
    """Cells of each partition by its number, in the order of the page."""
    lines = re.findall(r"<tr>(.*?)</tr>", page.partition("<tbody>")[2], flags=re.DOTALL)
    rows = [[unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line)] for line in lines]
    return {row[1]: row for row in rows}


def live_page(address: str) -> str:
    """Ask until the brokers have answered."""

    def read() -> str:
        status, page, _ = ask(address)
        assert status == 200
        return page if "live, read at " in page else ""

    return wait_until(read)


@pytest.mark.broker
def test_pages_have_kafkas_own_numbers_of_now_and_change_with_them(group: LiveGroup, tmp_path: Path) -> None:
    gone = f"127.0.0.1:{free_ports(1)[0]}"
    policy = write_policy(tmp_path, tmp_path / "lake", shop=group.servers, gone=gone)
    with command("--live", "--config", policy) as url:

        def of_partitions() -> dict[str, list[str]]:
            return partitions(live_page(f"{url}{group.path()}"))

        def expect() -> None:
            rows, offsets = of_partitions(), group.offsets()
            assert rows.keys() == offsets.keys()
            for number, (committed, end) in offsets.items():
                topic, _, lag, _, status, *at, member, client, host = rows[number]
                assert (topic, lag, status, *at) == (
                    group.topic,
                    str(end - committed),
                    "OK",
                    str(committed),
                    str(end),
                )
                assert member.startswith("app-<i>-")
                assert client == "app-<i>"
                assert re.fullmatch(r"[\d.:a-f]+", host)

        expect()
        words = shown(live_page(f"{url}{group.path()}"))
        assert f"{group.name} on shop" in words
        assert re.search(r"shop live, read at \d\d:\d\d:\d\d UTC(, \d+ parts? not read)? last cycle", words)
        assert "18 records behind" in words
        assert "1 member; live: Stable; not in the last cycle" in words

        # A cluster whose brokers are gone hides nothing of the other one.
        def beside_gone() -> str:
            page = live_page(f"{url}overview")
            return page if re.search(rf"gone not live: {gone} refuses connections", shown(page)) else ""

        overview = wait_until(beside_gone, what=lambda: shown(live_page(f"{url}overview")))
        assert f'href="{group.path().replace("&", "&amp;")}"' in overview
        assert "<b>billing" not in overview

        group.write({0: 5, 1: 7})
        wait_until(lambda: of_partitions()["1"][2] == "7")
        expect()


@pytest.mark.broker
def test_live_rows_have_the_lag_of_the_last_cycle_beside_theirs(
    group: LiveGroup, tmp_path: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = overview_of(
        GroupRow("shop", group.name, "Empty", 0, 2, lag_records=12_345),
        GroupRow("shop", "deleted", "Stable", 1, 1, lag_records=77),
    )
    monkeypatch.setattr(OverviewView, "read", lambda *_: known)
    policy = write_policy(tmp_path, tmp_path / "lake", shop=group.servers)
    with serving(live_app(policy)) as url:
        page = live_page(f"{url}/overview?q={group.name[:12]}")
        lag = sum(end - committed for committed, end in group.offsets().values())
        row = re.search(rf'<tr data-s="[^"]*" data-c="shop"><th.*?{lag}</td>.*?</tr>', page)
        assert row is not None
        assert "1 member · 2 partitions · live: Stable; last cycle: 12,345 behind" in shown(row[0])
        assert "no members" not in row[0]
        # What the brokers do not list is of the last cycle, as its link.
        assert 'href="report?cluster=shop&amp;group=deleted"' in page
        for sort, numbers in (("partition", ["1", "0"]), ("-partition", ["0", "1"]), ("x' y", None)):
            ordered = live_page(f"{url}/{group.path(sort=sort)}")
            assert numbers is None or list(partitions(ordered)) == numbers
            assert ordered.partition("<main")[2].count("aria-sort=") == 1
        assert "sort=-lag_records" in live_page(f"{url}/{group.path()}")
        assert "12,345" in shown(live_page(f"{url}/{group.path()}"))


@pytest.mark.broker
def test_many_browsers_share_one_read(
    group: LiveGroup, tmp_path: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    is_due = threading.Event()

    def keep(_seconds: float) -> None:
        """Keep a read until it is said that it is old."""
        is_due.wait(1_800)
        is_due.clear()

    @contextmanager
    def counted(*arguments: Any) -> Iterator[Any]:
        reads.append("connection")
        # Long enough for all others to come meanwhile.
        time.sleep(0.5)
        with admin_client(*arguments) as client:
            yield client

    monkeypatch.setattr(live, "admin_client", counted)
    monkeypatch.setattr(live, "time", SimpleNamespace(sleep=keep))
    policy = write_policy(tmp_path, tmp_path / "lake", shop=group.servers)
    with serving(live_app(policy)) as url, ThreadPoolExecutor(NUM_BROWSERS) as pool:
        paths = [group.path(), "overview"] * (NUM_BROWSERS // 2)
        for _ in range(2):
            pages = list(pool.map(lambda path: live_page(f"{url}/{path}"), paths))
            assert len({re.findall(r"live, read at [\d:]+", page)[0] for page in pages}) == 1
            assert len(reads) == 1
        # Neither Prometheus nor a report makes evenlag read brokers.
        assert ask(f"{url}/metrics")[0] == 200
        is_due.set()
        wait_until(lambda: live_page(f"{url}/overview") and len(reads) == 2)
        time.sleep(1)
        assert ask(f"{url}/metrics")[0] == 200
        assert len(reads) == 2
        is_due.set()


def test_without_brokers_the_pages_are_of_the_last_cycle_with_one_line(
    tmp_path: Path, serving: Serving
) -> None:
    lake = extract("names", tmp_path / "names")
    (cluster,) = lake.clusters
    policy = write_policy(tmp_path, lake.root, **{cluster: f"127.0.0.1:{free_ports(1)[0]}"})
    with serving(live_app(policy)) as url:

        def refused(path: str) -> str:
            status, page, _ = ask(f"{url}/{path}")
            assert status == 200
            return page if "refuses connections" in page else ""

        overview = wait_until(lambda: refused("overview"))
        assert overview.count("<tr data-s=") == 17
        # One line says so, no row says live, and each link is that of the lake's page.
        assert overview.count("live: ") == overview.count("not live: ") == 1
        assert 'href="report?cluster=names&amp;group=%5B%2Fx%5D"' in overview
        page = wait_until(lambda: refused(f"overview?cluster={cluster}&group=%5B%2Fx%5D"))
        assert "of the last cycle" in shown(page)
        assert 'href="report?cluster=names&amp;group=%5B%2Fx%5D"' in page


def test_brokers_that_hang_hold_up_a_page_for_a_moment_only(
    tmp_path: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "WAIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        policy = write_policy(tmp_path, tmp_path, shop=f"127.0.0.1:{silent.getsockname()[1]}")
        with serving(live_app(policy)) as url:
            status, page, _ = ask(f"{url}/overview")
    assert status == 200
    assert "shop not live: the brokers have not answered yet" in shown(page)


def test_an_unexpected_error_is_in_the_log_and_not_on_the_page(
    tmp_path: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("password hunter2")

    monkeypatch.setattr(live, "admin_client", fail)
    with serving(live_app(write_policy(tmp_path, tmp_path, shop="127.0.0.1:1"))) as url:
        status, page, _ = ask(f"{url}/overview")
    assert status == 200
    assert "shop not live: the server's log says why" in shown(page)
    assert "hunter2" not in page
    assert "hunter2" in caplog.text


def test_live_without_a_policy_is_one_line(evenlag: Evenlag, tmp_path: Path) -> None:
    for more in ((), ("--lake", tmp_path)):
        answer = evenlag("serve", "--live", *more)
        assert answer.exit_code == 2
        assert "there is no policy file: name one with --config or EVENLAG_CONFIG" in answer.stderr
        assert len(answer.stderr.splitlines()) == 1


def test_without_live_nothing_connects_to_the_brokers(tmp_path: Path) -> None:
    lake = extract("names", tmp_path / "names")
    (cluster,) = lake.clusters
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with command("--config", write_policy(tmp_path, lake.root, **{cluster: address})) as url:
            for path in ("overview", f"overview?cluster={cluster}&group=%5B%2Fx%5D", "metrics"):
                status, page, _ = ask(f"{url}{path}")
                assert status == 200
                assert "live" not in shown(page).split()
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.broker
@pytest.mark.extended
@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_of_a_group_fits_and_refreshes_itself(
    browser: Browser, group: LiveGroup, tmp_path: Path, serving: Serving, width: int
) -> None:
    policy = write_policy(tmp_path, tmp_path / "lake", shop=group.servers)
    with serving(live_app(policy)) as url:
        live_page(f"{url}/{group.path()}")
        browser.open(f"{url}/{group.path()}", width=width)
        fits = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert browser.run(fits)
        assert [line for line in browser.complaints() if "favicon" not in line] == []
        browser.run("window.before = true")
        wait_until(lambda: browser.run("return window.before !== true"))
        assert "live, read at" in browser.run("return document.body.innerText")
        browser.driver.find_element("link text", "Partition").click()
        wait_until(lambda: "sort=partition" in browser.driver.current_url)
        assert browser.run("return document.querySelectorAll('th[aria-sort=descending]').length") == 1
