"""Sessions on a Spark Connect server: repeats, deaths, refusals, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import COMMITS
from sandbox.processes import free_ports
from sandbox.spark import jvm_class_archive
from sandbox.spark.connect_server import ConnectServer
from tests.support.connect_jobs import job_environment, run_module, start_program
from tests.support.processes import processes_with, wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(900)

TOKEN = "s3cret-of-the-test"
CHECK = "spark_jobs.connect_server"

# One session: a closure with evenlag's code, a cached DataFrame, an append that may be repeated.
WORK = """
import sys
import uuid
from datetime import date
from pyspark.sql import functions as sf
from evenlag.lake.tables import COMMITS
from spark_jobs.runtime.cached_frames import CachedFrames
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.session import open_session

root, app_id, delay_s = sys.argv[1], sys.argv[2], float(sys.argv[3])

def rows(batches):
    import time
    import pyarrow as pa
    from evenlag.lake.arrow_schema import arrow_schema
    from evenlag.lake.tables import COMMITS
    for batch in batches:
        for number in batch.column(0).to_pylist():
            time.sleep(delay_s)
            row = {"cluster": "c", "day": date(2026, 3, 1), "snapshot_id": "s", "partition": number}
            yield from pa.Table.from_pylist([row], schema=arrow_schema(COMMITS)).to_batches()

with open_session("test", job_identity=f"test {root}") as spark, CachedFrames() as cached:
    # Equal queries would share one entry of the cache.
    few = cached.cache(spark.range(3).withColumn("name", sf.lit(str(uuid.uuid4()))))
    assert few.count() == 3
    print("begins", flush=True)
    frame = spark.range(0, 2, 1, 2).mapInArrow(rows, COMMITS.ddl)
    Lake(spark, root).append(COMMITS, frame, app_id)
    print("written", flush=True)
"""


def work(url: str, lake: Path, app_id: str = "a", delay_s: float = 0.0) -> subprocess.Popen[str]:
    """Start a session that appends two rows."""
    return start_program(url, WORK, str(lake), app_id, str(delay_s))


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a session's end."""
    stdout, stderr = process.communicate(timeout=240)
    return process.returncode, stdout, stderr


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    told = process.stdout.readline().strip()
    assert told == line, process.communicate(timeout=60)


def num_rows(lake: Path) -> int:
    return int(LakeReader(str(lake)).read(COMMITS).num_rows)


def tree(root: int) -> list[int]:
    """Return a process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [root]
    for process in found:
        found += parents.get(process, [])
    return found


def num_threads(processes: list[int]) -> int:
    """Count threads, without Spark's two pools of 100 for blocks: a few sessions fill them."""
    names = [
        (task / "comm").read_text()
        for process in processes
        for task in Path(f"/proc/{process}/task").iterdir()
    ]
    return sum(not name.startswith("block-manager") for name in names)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ConnectServer]:
    """A server that the test may kill."""
    with ConnectServer.start(tmp_path / "server") as server:
        server.wait_until_ready()
        yield server


def run_sessions(server: ConnectServer, lake: Path, count: int) -> None:
    for number in range(count):
        status, stdout, stderr = finish(work(server.url, lake, f"{number}"))
        assert (status, stdout) == (0, "begins\nwritten\n"), stderr


def check_nothing_grows(server: ConnectServer, lake: Path, warm_up: int, count: int) -> None:
    assert server.pid is not None
    run_sessions(server, lake, warm_up)
    before = tree(server.pid)
    threads = num_threads(before)
    run_sessions(server, lake / "more", count)
    after = tree(server.pid)
    # Spark ends idle Python workers after a minute, and starts at most one for each task slot.
    assert len(after) <= len(before) + (os.cpu_count() or 1)
    # Fewer than one a session: those that remain belong to pools that still fill.
    assert num_threads(after) < threads + max(8, count // 4)
    assert num_rows(lake / "more") == 2 * count


def test_ten_sessions_leave_no_process_and_no_thread(connect_server: ConnectServer, tmp_path: Path) -> None:
    check_nothing_grows(connect_server, tmp_path / "lake", 3, 10)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_three_hundred_sessions_leave_nothing(own_server: ConnectServer, tmp_path: Path) -> None:
    def resident_mb() -> float:
        assert own_server.pid is not None
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in tree(own_server.pid))
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    run_sessions(own_server, tmp_path / "first", 100)
    before = resident_mb()
    check_nothing_grows(own_server, tmp_path / "lake", 1, 200)
    assert resident_mb() < 1.25 * before


def test_a_repeat_interrupts_what_a_killed_client_left_and_writes_once(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    killed = work(connect_server.url, lake, delay_s=120.0)
    wait_for(killed, "begins")
    # The operation is on its way to the server.
    time.sleep(2)
    killed.kill()
    killed.communicate(timeout=60)
    started = time.monotonic()
    status, _, stderr = finish(work(connect_server.url, lake))
    assert status == 0, stderr
    assert "an earlier attempt of this job was still running" in stderr
    # It does not wait for the two minutes that the killed client's tasks would have slept.
    assert time.monotonic() - started < 30
    assert num_rows(lake) == 2
    assert finish(work(connect_server.url, lake))[0] == 0
    assert num_rows(lake) == 2


def test_what_a_killed_client_has_cached_is_uncached_and_what_a_live_one_has_stays(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    log = connect_server.directory / "spark-connect.log"
    offset = log.stat().st_size

    def told() -> str:
        return log.read_text(encoding="utf-8")[offset:]

    process = work(connect_server.url, tmp_path / "lake", delay_s=120.0)
    wait_for(process, "begins")
    # The server has looked for orphans at least once.
    time.sleep(7)
    assert "uncached" not in told()
    process.kill()
    process.communicate(timeout=60)
    assert finish(work(connect_server.url, tmp_path / "lake"))[0] == 0
    deadline = time.monotonic() + 30
    while "uncached 1 DataFrames of sessions that have ended" not in told():
        assert time.monotonic() < deadline, told()
        time.sleep(0.5)


def test_an_attempt_that_still_runs_ends_when_its_repeat_begins(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    first = work(connect_server.url, lake, "first", delay_s=120.0)
    wait_for(first, "begins")
    time.sleep(2)
    # Its end, in the middle of the other one's work, does not end the other one.
    second = work(connect_server.url, lake, "second", delay_s=8.0)
    status, _, stderr = finish(first)
    assert status != 0
    assert "SparkUnreachableError" in stderr
    assert "a repeat of this job runs" in stderr
    status, _, stderr = finish(second)
    assert status == 0, stderr
    assert num_rows(lake) == 2


@pytest.mark.jvm
def test_a_server_that_dies_is_told_in_one_line_and_the_retry_succeeds(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with ConnectServer.start(tmp_path / "server") as server:
        server.wait_until_ready()
        url = server.url
        running = work(url, lake, delay_s=60.0)
        wait_for(running, "begins")
        time.sleep(2)
        assert server.pid is not None
        for process in tree(server.pid)[1:]:
            os.kill(process, signal.SIGKILL)
        started = time.monotonic()
        status, _, stderr = finish(running)
        address = url.removeprefix("sc://")
        assert f"SparkUnreachableError: the Spark Connect server {address} does not answer" in stderr
        assert status != 0
        assert time.monotonic() - started < 90
    assert not (lake / "commits").exists() or num_rows(lake) == 0
    with ConnectServer.start(tmp_path / "again") as server:
        server.wait_until_ready()
        status, _, stderr = finish(work(server.url, lake))
        assert status == 0, stderr
    assert num_rows(lake) == 2
    assert wait_until_gone(str(tmp_path / "again"), 30) == []


@pytest.mark.jvm
def test_a_token_is_required_kept_secret_and_compared(tmp_path: Path) -> None:
    settings = jvm_class_archive.environment(tmp_path / "server", kind="connect")
    with ConnectServer.start(
        tmp_path / "server", environment=settings | {"EVENLAG_SPARK_TOKEN": TOKEN}
    ) as server:
        server.wait_until_ready()
        good = run_module(server.url, CHECK, "--check", EVENLAG_SPARK_TOKEN=TOKEN)
        assert good.returncode == 0, good.stderr
        for token in ("", "wrong-one"):
            bad = run_module(server.url, CHECK, "--check", EVENLAG_SPARK_TOKEN=token)
            assert bad.returncode == 3
            (line,) = bad.stderr.splitlines()
            assert "refuses the token" in line
            assert "wrong-one" not in line
        listed = start_program(server.url, _LIST_CONF, EVENLAG_SPARK_TOKEN=TOKEN)
        status, stdout, stderr = finish(listed)
        assert status == 0, stderr
        assert "spark.sql.extensions" in stdout
        assert TOKEN not in stdout
        assert server.pid is not None
        for process in tree(server.pid):
            assert TOKEN.encode() not in Path(f"/proc/{process}/cmdline").read_bytes()
    log = (tmp_path / "server" / "spark-connect.log").read_text(encoding="utf-8")
    assert TOKEN not in log


_LIST_CONF = """
from spark_jobs.runtime.session import open_session
with open_session("test") as spark:
    print(spark.conf.getAll)
"""


@pytest.mark.jvm
@pytest.mark.parametrize(
    "how", [signal.SIGTERM, signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.soak)]
)
def test_an_ended_server_leaves_neither_jvm_nor_workers(how: signal.Signals, tmp_path: Path) -> None:
    marker = str(tmp_path / "marker")
    reading, writing = os.pipe()
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", CHECK, "--port", str(port), "--memory", "1g", "--ready-fd", str(writing)],
        env=job_environment(None, EVENLAG_TEST_MARKER=marker),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(writing,),
    )
    try:
        os.close(writing)
        with os.fdopen(reading) as ready:
            assert ready.readline() == f"sc://127.0.0.1:{port}\n"
        status, _, stderr = finish(work(f"sc://127.0.0.1:{port}", tmp_path / "lake"))
        assert status == 0, stderr
        # The program, its JVM, Spark's Python daemon and its workers.
        assert len(processes_with(marker)) >= 4
        process.send_signal(how)
        assert process.wait(60) == (-how if how is signal.SIGKILL else 0)
        assert wait_until_gone(marker, 30) == []
    finally:
        process.kill()
