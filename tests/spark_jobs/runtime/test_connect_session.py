"""Sessions on a Spark Connect server: repeats, deaths, refusals, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import COMMITS
from sandbox.processes import free_ports
from sandbox.spark import jvm_class_archive
from sandbox.spark.connect_server import ConnectServer
from tests.support.connect_jobs import job_environment, run_module, start_program
from tests.support.processes import num_threads, processes_with, tree, wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(900)

TOKEN = "s3cret-of-the-test"
CHECK = "spark_jobs.connect_server"
_SESSIONS_PER_CLIENT = 10
# Spark's two pools of 100 threads for blocks, which a few sessions fill.
BLOCK_POOLS = "block-manager"

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

root, delay_s, count = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])

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

for number in range(count):
    with open_session("test", job_identity=f"test {root}") as spark, CachedFrames() as cached:
        # Equal queries would share one entry of the cache.
        few = cached.cache(spark.range(3).withColumn("name", sf.lit(str(uuid.uuid4()))))
        assert few.count() == 3
        print("begins", flush=True)
        frame = spark.range(0, 2, 1, 2).mapInArrow(rows, COMMITS.ddl)
        Lake(spark, root).append(COMMITS, frame)
        print("written", flush=True)
"""

# A job with far more tasks than the server has slots, each of half a second.
LONG = """
import time
from spark_jobs.runtime.session import num_task_slots, open_session

def wait(batches):
    for batch in batches:
        time.sleep(0.5)
        yield batch

with open_session("test", job_identity="long") as spark:
    num_tasks = 60 * num_task_slots(spark)
    print("begins", flush=True)
    spark.range(0, num_tasks, 1, num_tasks).mapInArrow(wait, "id BIGINT").count()
"""


def work(url: str, lake: Path, delay_s: float = 0.0, count: int = 1) -> subprocess.Popen[str]:
    """Start sessions, one after the other, that append two rows each."""
    return start_program(url, WORK, str(lake), str(delay_s), str(count))


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


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ConnectServer]:
    """A server that the test may kill."""
    with ConnectServer.start(tmp_path / "server") as server:
        server.wait_until_ready()
        yield server


def run_sessions(server: ConnectServer, lake: Path, count: int) -> None:
    """Run sessions in a few client processes: the server sees no difference."""
    for first in range(0, count, _SESSIONS_PER_CLIENT):
        num_sessions = min(_SESSIONS_PER_CLIENT, count - first)
        status, stdout, stderr = finish(work(server.url, lake, count=num_sessions))
        assert (status, stdout) == (0, "begins\nwritten\n" * num_sessions), stderr


def check_nothing_grows(server: ConnectServer, lake: Path, warm_up: int, count: int) -> None:
    assert server.pid is not None
    run_sessions(server, lake, warm_up)
    before = tree(server.pid)
    threads = num_threads(before, besides=BLOCK_POOLS)
    run_sessions(server, lake / "more", count)
    after = tree(server.pid)
    # Spark ends idle Python workers after a minute, and starts at most one for each task slot.
    assert len(after) <= len(before) + (os.cpu_count() or 1)
    # Fewer than one a session: those that remain belong to pools that still fill.
    assert num_threads(after, besides=BLOCK_POOLS) < threads + max(8, count // 4)
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


def test_a_short_job_does_not_wait_for_the_tasks_of_a_long_one(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    long = start_program(connect_server.url, LONG)
    try:
        wait_for(long, "begins")
        # Its tasks run, and most of them wait.
        time.sleep(1)
        status, _, stderr = finish(work(connect_server.url, tmp_path / "lake"))
        assert status == 0, stderr
        # Its tasks take at least half a minute together.
        assert long.poll() is None
    finally:
        long.send_signal(signal.SIGINT)
        long.communicate(timeout=60)


def test_what_a_killed_client_has_cached_is_uncached_and_what_a_live_one_has_stays(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    log = connect_server.directory / "spark-connect.log"
    offset = log.stat().st_size

    def told() -> str:
        return log.read_text(encoding="utf-8")[offset:]

    process = work(connect_server.url, tmp_path / "lake", delay_s=120.0)
    wait_for(process, "begins")
    # The server looks for orphans every second.
    time.sleep(3)
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
    first = work(connect_server.url, lake, delay_s=120.0)
    wait_for(first, "begins")
    time.sleep(2)
    # Its end, in the middle of the other one's work, does not end the other one.
    second = work(connect_server.url, lake, delay_s=8.0)
    status, _, stderr = finish(first)
    assert status != 0
    assert "SparkUnreachableError" in stderr
    assert "a repeat of this job runs" in stderr
    status, _, stderr = finish(second)
    assert status == 0, stderr
    assert num_rows(lake) == 2


def test_a_server_that_dies_is_told_in_one_line_and_the_retry_succeeds(
    connect_server: ConnectServer, own_server: ConnectServer, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    running = work(own_server.url, lake, delay_s=60.0)
    wait_for(running, "begins")
    time.sleep(2)
    assert own_server.pid is not None
    for process in tree(own_server.pid)[1:]:
        # With the JVM its Python workers end by themselves.
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    started = time.monotonic()
    status, _, stderr = finish(running)
    address = own_server.url.removeprefix("sc://")
    assert f"SparkUnreachableError: the Spark Connect server {address} does not answer" in stderr
    assert status != 0
    assert time.monotonic() - started < 90
    assert not (lake / "commits").exists() or num_rows(lake) == 0
    # Another server, as one that is started again.
    status, _, stderr = finish(work(connect_server.url, lake))
    assert status == 0, stderr
    assert num_rows(lake) == 2


@contextmanager
def bare_server(folder: Path, **environ: str) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    """The program alone, without a keeper that would end what it leaves: process, address and marker."""
    marker = str(folder / "marker")
    reading, writing = os.pipe()
    (port,) = free_ports(1)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", CHECK, "--port", str(port), "--memory", "1g", "--ready-fd", str(writing)],
            env=job_environment(None, EVENLAG_TEST_MARKER=marker, **environ),
            stdout=log,
            stderr=log,
            pass_fds=(writing,),
        )
    try:
        os.close(writing)
        with os.fdopen(reading) as ready:
            assert ready.readline() == f"sc://127.0.0.1:{port}\n"
        yield process, f"sc://127.0.0.1:{port}", marker
    finally:
        process.kill()
        process.wait()


def end(process: subprocess.Popen[bytes], how: signal.Signals, marker: str) -> None:
    """End a server that has workers; nothing of it is left."""
    # The program, its JVM, Spark's Python daemon and its workers.
    assert len(processes_with(marker)) >= 4
    process.send_signal(how)
    assert process.wait(60) == (-how if how is signal.SIGKILL else 0)
    wait_until_gone(marker)


@pytest.mark.jvm
def test_a_token_is_required_kept_secret_and_compared_and_a_stopped_server_leaves_nothing(
    tmp_path: Path,
) -> None:
    settings = jvm_class_archive.environment(tmp_path, kind="connect")
    with bare_server(tmp_path, **settings, EVENLAG_SPARK_TOKEN=TOKEN) as (process, url, marker):
        good = run_module(url, CHECK, "--check", EVENLAG_SPARK_TOKEN=TOKEN)
        assert good.returncode == 0, good.stderr
        for token in ("", "wrong-one"):
            bad = run_module(url, CHECK, "--check", EVENLAG_SPARK_TOKEN=token)
            assert bad.returncode == 3
            (line,) = bad.stderr.splitlines()
            assert "refuses the token" in line
            assert "wrong-one" not in line
        told = start_program(
            url, WORK + _LIST_CONF, str(tmp_path / "lake"), "0", "1", EVENLAG_SPARK_TOKEN=TOKEN
        )
        status, stdout, stderr = finish(told)
        assert status == 0, stderr
        assert "spark.sql.extensions" in stdout
        assert TOKEN not in stdout
        for pid in tree(process.pid):
            assert TOKEN.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        end(process, signal.SIGTERM, marker)
    assert TOKEN not in (tmp_path / "log").read_text(encoding="utf-8")


_LIST_CONF = """
with open_session("test") as spark:
    print(spark.conf.getAll)
"""


@pytest.mark.jvm
@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_an_ended_server_leaves_neither_jvm_nor_workers(how: signal.Signals, tmp_path: Path) -> None:
    with bare_server(tmp_path) as (process, url, marker):
        status, _, stderr = finish(work(url, tmp_path / "lake"))
        assert status == 0, stderr
        end(process, how, marker)
