"""Commits without a JVM on an S3 server: each is a put on condition, and a lost answer doubles nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from evenlag.lake.delta_log import forget_tables, one_look, open_table, read_actions
from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import RUNS
from evenlag.lake.upkeep.open_day import MANY_FILES
from evenlag.lake.writer import DirectWriter, append_guarded, append_once
from tests.evenlag.lake.test_writer_races import append_and_wake_late
from tests.support.lakes.run_rows import of_run, run
from tests.support.races.lake_log import read_rows
from tests.support.s3.counted import counting_proxy
from tests.support.s3.lost_answers import losing_proxy

if TYPE_CHECKING:
    from tests.support.s3.server import S3Server

pytestmark = pytest.mark.extended

# Compacts the open day of two clusters at once, on one core.
_TEND: Final = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from concurrent.futures import ThreadPoolExecutor
from evenlag.lake.location import LakePaths
from evenlag.lake.tables import RUNS
from evenlag.lake.upkeep.open_day import tend_tables
with ThreadPoolExecutor(2) as pool:
    list(pool.map(lambda cluster: tend_tables(LakePaths(sys.argv[1]), cluster, [RUNS]), sys.argv[2:]))
"""


@pytest.mark.parametrize("variables", [{}, {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}], ids=["default", "unsafe"])
def test_each_commit_is_a_put_on_condition_and_one_whose_answer_was_lost_is_found(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    bucket = f"commits-{len(variables)}"
    root = f"s3://{bucket}/lake"
    s3.make_bucket(bucket)
    with losing_proxy(s3.endpoint) as proxy:
        environ = s3.environment() | {"AWS_ENDPOINT_URL": proxy.endpoint} | variables
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        for name in ("a", "b"):
            append_once(root, RUNS, [run(name)], of_run(name))
        assert not append_once(root, RUNS, [run("a")], of_run("a"))
        append_once(root, RUNS, [run("c")], None)
        # The table's first commit, and one for each row.
        assert len(proxy.lost) == 4
        assert len(proxy.conditions) >= 4
        assert set(proxy.conditions) == {"*"}
        assert LakeReader(root).read(RUNS).num_rows == 3
    # Without the proxy, and without the product's reader.
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert sorted(row["run_id"] for row in read_rows(root, RUNS.name)) == ["a", "b", "c"]


def test_a_writer_that_wakes_late_adds_nothing_to_what_another_has_written(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.make_bucket("woken")
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    append_and_wake_late("s3://woken/lake")


def test_an_open_table_is_brought_up_to_date_by_one_list_and_within_a_look_by_none(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import write_deltalake

    root = "s3://opened/lake"
    s3.make_bucket("opened")
    with counting_proxy(s3.endpoint) as proxy:
        for name, value in (s3.environment() | {"AWS_ENDPOINT_URL": proxy.endpoint}).items():
            monkeypatch.setenv(name, value)

        def read(expected: list[str]) -> dict[str, int]:
            with proxy.counted() as counts:
                rows = LakeReader(root).read(RUNS)["run_id"].to_pylist()
            assert sorted(rows) == sorted(expected)
            return {operation: count for (operation, _), count in counts.items()}

        for name in "abc":
            append_once(root, RUNS, [run(name)], of_run(name))
        # Each data file by one request, once.
        assert read(["a", "b", "c"])["GET"] == 3
        assert read(["a", "b", "c"]) == {"LIST": 1, "GET log": 1}
        with one_look():
            assert read(["a", "b", "c"]) == {}
            append_once(root, RUNS, [run("d")], of_run("d"))
            assert read(["a", "b", "c", "d"]) == {"GET": 1}
        # A commit looks for those before it in any case: the table is not updated first.
        with proxy.counted() as counts:
            append_once(root, RUNS, [run("x")], of_run("x"))
        assert sum(count for (operation, _), count in counts.items() if operation == "LIST") == 2
        # What another process commits is seen, at the latest by who writes the same.
        theirs = DirectWriter(root, RUNS).conform([run("e")])
        with one_look():
            write_deltalake(f"{root}/{RUNS.name}", theirs, mode="append")
            assert read(["a", "b", "c", "d", "x"]) == {"GET": 1}
        assert read(["a", "b", "c", "d", "e", "x"])["LIST"] == 1
        with one_look():
            append_guarded(root, RUNS, lambda: [run("f")])
            forget_tables()
            assert not append_once(root, RUNS, [run("f")], of_run("f"))


def test_clusters_compact_at_once_whatever_the_number_of_cores(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waits in deltalake's threads for rows that deltalake reads."""
    root, clusters = "s3://compacted/lake", ["c", "d"]
    s3.make_bucket("compacted")
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    names = [f"{number:05d}" for number in range(MANY_FILES)]
    for name in names:
        append_once(root, RUNS, [run(name, cluster=cluster, snapshot_id=name) for cluster in clusters], None)
    command = [sys.executable, "-c", _TEND, root, *clusters]
    subprocess.run(command, check=True, timeout=300)
    assert sorted(row["run_id"] for row in read_rows(root, RUNS.name)) == sorted(2 * names)
    with open_table(LakePaths(root), RUNS) as delta:
        assert read_actions(delta, LakePaths(root), RUNS).num_rows == len(clusters)
