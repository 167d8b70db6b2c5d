"""Commits to a lake on this machine are kept apart by the kernel: no writer's commit replaces another's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.spark_storage import log_store_problem
from tests.support.log_store.committers import Committer, compile_committer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm

HARD_LINK = "evenlag.storage.HardLinkLogStore"
NUM_JVMS, NUM_PYTHONS, NUM_COMMITS = 2, 1, 40
# Another writer is first nearly each time: deltalake gives up after 15 attempts by default.
PYTHON = """
import sys
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
table, name, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for n in range(number):
    once = CommitProperties(app_transactions=[Transaction(f"{name}/{n}", 1)], max_commit_retries=1000)
    write_deltalake(table, pa.table({"writer": [f"{name}/{n}"]}), mode="append", commit_properties=once)
"""


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_committer(tmp_path_factory.mktemp("committer"))


def test_no_commit_of_jvms_and_of_deltalake_at_the_same_time_is_lost(classes: Path, tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake
    from pyarrow import table as arrow_table

    place = tmp_path / "table"
    write_deltalake(str(place), arrow_table({"writer": ["first"]}))
    log = place / "_delta_log"
    names = [f"python-{n}" for n in range(NUM_PYTHONS)]
    with ExitStack() as stack:
        jvms = [
            stack.enter_context(Committer(classes, HARD_LINK, log.as_uri(), f"jvm-{n}", NUM_COMMITS))
            for n in range(NUM_JVMS)
        ]
        pythons = [
            subprocess.Popen(
                [sys.executable, "-c", PYTHON, str(place), name, str(NUM_COMMITS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in names
        ]
        for jvm in jvms:
            jvm.await_ready()
        for python in pythons:
            assert python.stdout is not None
            assert python.stdout.readline() == "ready\n"
        for jvm in jvms:
            jvm.begin()
        for python in pythons:
            python.communicate("\n", timeout=600)
        refused = [jvm.num_refused() for jvm in jvms]
    assert [python.returncode for python in pythons] == [0] * NUM_PYTHONS
    # They met: the store refused some.
    assert sum(refused) > 0
    delta = DeltaTable(str(place))
    assert delta.version() == (NUM_JVMS + NUM_PYTHONS) * NUM_COMMITS
    names += [f"jvm-{n}" for n in range(NUM_JVMS)]
    expected = {f"{name}/{number}" for name in names for number in range(NUM_COMMITS)}
    assert {name for name in expected if delta.transaction_version(name) == 1} == expected
    written = delta.to_pyarrow_table()["writer"].to_pylist()
    assert sorted(written) == sorted(["first", *(n for n in expected if n.startswith("python"))])
    # Nothing but the log is left.
    assert [file.name for file in log.iterdir() if file.name.startswith(".")] == []


def test_what_a_killed_writer_left_is_removed_when_it_is_old(classes: Path, tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    left = [log / f".{n:020d}.json.0000.evenlag.tmp" for n in range(2)]
    for file in left:
        file.write_text("{}")
    two_hours_ago = time.time() - 7200
    os.utime(left[0], (two_hours_ago, two_hours_ago))
    with Committer(classes, HARD_LINK, log.as_uri(), "jvm", 1) as jvm:
        jvm.await_ready()
        jvm.begin()
        assert jvm.num_refused() == 0
    # The second may be of a writer that is alive.
    assert sorted(file.name for file in log.iterdir()) == [left[1].name, "00000000000000000000.json"]


def test_sessions_commit_through_it(spark: SparkSession, tmp_path: Path) -> None:
    def setting(name: str) -> str | None:
        found: str | None = spark.conf.get(name, None)
        return found

    assert setting("spark.delta.logStore.file.impl") == HARD_LINK
    assert log_store_problem(str(tmp_path), setting) is None
    place = tmp_path / "table"
    for _ in range(2):
        spark.range(3).coalesce(1).write.format("delta").mode("append").save(str(place))
    commits = sorted(file.name for file in (place / "_delta_log").glob("*.json"))
    assert commits == [f"{n:020d}.json" for n in range(2)]
    # Hadoop's own file system would have written a checksum beside each of them.
    assert not list((place / "_delta_log").glob(".*.json.crc"))
    assert spark.read.format("delta").load(str(place)).count() == 6
