"""Sessions on a Spark Connect server: repeats, deaths, refusals, and that nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG
from sandbox.processes import free_ports
from sandbox.spark.connect_server import ConnectServer, jvm_environment
from tests.support.connect_jobs import job_environment, run_module, start_program
from tests.support.processes import num_threads, processes_with, tree, wait_until_gone
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.extended

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
from evenlag.lake.tables import LAG
from spark_jobs.runtime.frames import CachedFrames
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.session import open_session

root, count, began, gate = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]

def rows(batches):
    import pathlib
    import time
    import pyarrow as pa
    from evenlag.lake.arrow_schema import arrow_schema
    from evenlag.lake.tables import LAG
    pathlib.Path(began).touch()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            while gate and not pathlib.Path(gate).exists():
                time.sleep(0.1)
            row = {"cluster": "c", "day": date(2026, 3, 1), "snapshot_id": "s", "partition": number}
            yield from pa.Table.from_pylist([row], schema=arrow_schema(LAG)).to_batches()

for number in range(count):
    with open_session("test", job_identity=f"test {root}") as spark, CachedFrames() as cached:
        # Equal queries would share one entry of the cache.
        few = cached.cache(spark.range(3).withColumn("name", sf.lit(str(uuid.uuid4()))))
        assert few.count() == 3
        # One task: two sessions at once fit into two slots.
        frame = spark.range(0, 2, 1, 1).mapInArrow(rows, LAG.ddl)
        Lake(spark, root).append(LAG, frame)
        print("written", flush=True)
"""

# A job with far more tasks than the server has slots, each of half a second: ten minutes.
LONG = """
import sys
import time
from spark_jobs.runtime.session import num_task_slots, open_session

began = sys.argv[1]

def wait(batches):
    import pathlib
    pathlib.Path(began).touch()
    for batch in batches:
        time.sleep(0.5)
        yield batch

with open_session("test", job_identity="long") as spark:
    num_tasks = 1200 * num_task_slots(spark)
    spark.range(0, num_tasks, 1, num_tasks).mapInArrow(wait, "id BIGINT").count()
"""


def work(
    url: str, lake: Path, *, count: int = 1, began: Path | None = None, gate: Path | None = None
) -> subprocess.Popen[str]:
    """Start sessions, one after the other, that append two rows each.

    Their tasks make the file `began`, and wait for the file `gate`.
    """
    made = lake.with_name(f"{lake.name}.began") if began is None else began
    return start_program(url, WORK, str(lake), str(count), str(made), str(gate or ""))


def begin(url: str, lake: Path, name: str) -> tuple[subprocess.Popen[str], Path]:
    """Start a session, and wait until a task of it runs: it ends no sooner than its gate is there."""
    began, gate = lake.with_name(f"{name}.began"), lake.with_name(f"{name}.gate")
    process = work(url, lake, began=began, gate=gate)
    wait_for_task(process, began)
    return process, gate


def wait_for_task(process: subprocess.Popen[str], began: Path) -> None:
    wait_until(lambda: began.exists() or process.poll() is not None, what="no task runs")
    assert began.exists(), process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a session's end."""
    stdout, stderr = process.communicate()
    return process.returncode, stdout, stderr


def num_rows(lake: Path) -> int:
    return int(LakeReader(str(lake)).read(LAG).num_rows)


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
        assert (status, stdout) == (0, "written\n" * num_sessions), stderr


def check_nothing_grows(server: ConnectServer, lake: Path, warm_up: int, count: int) -> None:
    assert server.pid is not None
    run_sessions(server, lake, warm_up)
    before = tree(server.pid)
    threads = num_threads(before, besides=BLOCK_POOLS)
    run_sessions(server, lake / "more", count)
    after = partial(tree, server.pid)
    # Spark ends idle Python workers after a minute, and starts at most one for each task slot.
    wait_until(lambda: len(after()) <= len(before) + (os.cpu_count() or 1), what="processes are left")
    # Fewer than one a session: those that remain belong to pools that still fill.
    most = threads + max(8, count // 4)
    wait_until(lambda: num_threads(after(), besides=BLOCK_POOLS) < most, what="threads are left")
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
    # Its tasks never end by themselves.
    killed, _ = begin(connect_server.url, lake, "killed")
    killed.kill()
    killed.communicate()
    status, _, stderr = finish(work(connect_server.url, lake))
    assert status == 0, stderr
    assert "an earlier attempt of this job was still running" in stderr
    assert num_rows(lake) == 2


def test_a_short_job_does_not_wait_for_the_tasks_of_a_long_one(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    long = start_program(connect_server.url, LONG, str(began))
    try:
        # Its tasks run, and most of them wait.
        wait_for_task(long, began)
        status, _, stderr = finish(work(connect_server.url, tmp_path / "lake"))
        assert status == 0, stderr
        assert long.poll() is None
    finally:
        long.send_signal(signal.SIGINT)
        long.communicate()


def test_what_a_killed_client_has_cached_is_uncached_and_what_a_live_one_has_stays(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    log = connect_server.directory / "spark-connect.log"
    offset = log.stat().st_size

    def tail() -> str:
        return log.read_text(encoding="utf-8")[offset:]

    def num_uncached() -> int:
        found = re.findall(r"uncached (\d+) DataFrames of sessions that have ended", tail())
        return sum(map(int, found))

    (live, _), (dead, _) = (begin(connect_server.url, tmp_path / name, name) for name in ("live", "dead"))
    # What this test does not know of belongs to sessions that have ended, and goes first.
    for number, (process, name) in enumerate(((dead, "dead"), (live, "live")), 1):
        process.kill()
        process.communicate()
        assert finish(work(connect_server.url, tmp_path / name))[0] == 0
        # The server looks for orphans every second: while it uncached the first, it saw the other one live.
        wait_until(lambda number=number: num_uncached() >= number, what=tail)  # type: ignore[misc]
        assert num_uncached() == number, tail()


def test_an_attempt_that_still_runs_ends_when_its_repeat_begins(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    first, _ = begin(connect_server.url, lake, "first")
    second, gate = begin(connect_server.url, lake, "second")
    # Its end, in the middle of the other one's work, does not end the other one.
    status, _, stderr = finish(first)
    assert status != 0
    assert "SparkUnreachableError" in stderr
    assert "a repeat of this job runs" in stderr
    gate.touch()
    status, _, stderr = finish(second)
    assert status == 0, stderr
    assert num_rows(lake) == 2


# Two such jobs open the session at the same time: none does before both have ended what ran before.
_TOGETHER = """
import pathlib
import sys
import time
from spark_jobs.runtime import connect_session

take_over, (own, other) = connect_session._Server.take_over, map(pathlib.Path, sys.argv[5:])

def wait_for_other(self, identity):
    found = take_over(self, identity)
    own.touch()
    while not other.exists():
        time.sleep(0.01)
    return found

connect_session._Server.take_over = wait_for_other
"""


def test_of_two_jobs_that_start_together_one_runs(connect_server: ConnectServer, tmp_path: Path) -> None:
    lake, gate = tmp_path / "lake", tmp_path / "gate"
    names = [str(tmp_path / name) for name in ("one", "two")]
    both = [
        start_program(
            connect_server.url, _TOGETHER + WORK, str(lake), "1", str(tmp_path / "began"), str(gate), *order
        )
        for order in (names, names[::-1])
    ]
    # The tasks of both wait for the gate.
    wait_until(lambda: any(process.poll() is not None for process in both), what="both run")
    gate.touch()
    (_, _, won), (_, _, lost) = ended = sorted(map(finish, both), key=lambda end: end[0] != 0)
    assert [status != 0 for status, *_ in ended] == [False, True], (won, lost)
    assert "another attempt of this job has started at the same time" in lost
    assert num_rows(lake) == 2


def test_a_server_that_dies_is_told_in_one_line_and_the_retry_succeeds(
    connect_server: ConnectServer, own_server: ConnectServer, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    # Its tasks never end by themselves.
    running, _ = begin(own_server.url, lake, "running")
    assert own_server.pid is not None
    for process in tree(own_server.pid)[1:]:
        # With the JVM its Python workers end by themselves.
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    status, _, stderr = finish(running)
    address = own_server.url.removeprefix("sc://")
    assert f"SparkUnreachableError: the Spark Connect server {address} does not answer" in stderr
    assert status != 0
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
    wait_until(lambda: len(processes_with(marker)) >= 4)
    process.send_signal(how)
    assert process.wait(600) == (-how if how is signal.SIGKILL else 0)
    wait_until_gone(marker)


@pytest.mark.jvm
def test_a_token_is_required_kept_secret_and_compared_and_a_stopped_server_leaves_nothing(
    tmp_path: Path,
) -> None:
    settings = jvm_environment(tmp_path)
    with bare_server(tmp_path, **settings, EVENLAG_SPARK_TOKEN=TOKEN) as (process, url, marker):
        good = run_module(url, CHECK, "--check", EVENLAG_SPARK_TOKEN=TOKEN)
        assert good.returncode == 0, good.stderr
        for token in ("", "wrong-one"):
            bad = run_module(url, CHECK, "--check", EVENLAG_SPARK_TOKEN=token)
            assert bad.returncode == 3
            (line,) = bad.stderr.splitlines()
            assert "refuses the token" in line
            assert "wrong-one" not in line
        record = start_program(
            url, WORK + _LIST_CONF, str(tmp_path / "lake"), "1", str(tmp_path / "began"), "",
            EVENLAG_SPARK_TOKEN=TOKEN,
        )  # fmt: skip
        status, stdout, stderr = finish(record)
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
