"""Commits to a lake on S3 are kept apart by the store: a put of what exists is refused."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.spark_storage import lake_storage_conf
from sandbox.jars import s3_jars
from tests.support.log_store.committers import Committer, compile_committer
from tests.support.s3.counted import counting_proxy
from tests.support.s3.lost_answers import losing_proxy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.s3.server import S3Server

pytestmark = [pytest.mark.extended, pytest.mark.jvm]

CONDITIONAL = "evenlag.storage.S3ConditionalLogStore"
BUCKET = "log-store"
NUM_WRITERS, NUM_RACES = 12, 40
NUM_JVMS, NUM_COMMITS = 2, 15


@pytest.fixture(scope="module")
def bucket(s3: S3Server) -> str:
    s3.make_bucket(BUCKET)
    return BUCKET


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_committer(tmp_path_factory.mktemp("committer"))


def hadoop_conf(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a session would give to Hadoop."""
    prefix = "spark.hadoop."
    conf = lake_storage_conf(environ)
    return {key.removeprefix(prefix): value for key, value in conf.items() if key.startswith(prefix)}


def committer(
    server: S3Server, endpoint: str, classes: Path, table: str, name: str, number: int
) -> Committer:
    environ = server.environment() | {"AWS_ENDPOINT_URL": endpoint}
    return Committer(
        classes,
        CONDITIONAL,
        f"s3://{BUCKET}/{table}/_delta_log",
        name,
        number,
        conf=hadoop_conf(environ),
        jars=tuple(map(str, s3_jars())),
        environ=environ,
    )


def commits(server: S3Server, table: str) -> Counter[str]:
    """Return the transactions in a log, read from the server's folder, by their name."""
    folder = server.folder / BUCKET / table / "_delta_log"
    return Counter(line for file in folder.glob("*.json") for line in file.read_text().splitlines())


def test_of_many_conditional_puts_of_one_object_the_server_takes_one(s3: S3Server, bucket: str) -> None:
    """What all the others rest on: the server itself."""
    with ThreadPoolExecutor(NUM_WRITERS) as pool:
        for race in range(NUM_RACES):
            start, path = Barrier(NUM_WRITERS), f"/{bucket}/races/{race}"

            def put(writer: int, start: Barrier = start, path: str = path) -> int:
                start.wait()
                content = f"{writer}".encode() * 100
                return s3.request("PUT", path, body=content, headers={"If-None-Match": "*"}).status

            found = list(pool.map(put, range(NUM_WRITERS)))
            assert sorted(found) == [200] + [412] * (NUM_WRITERS - 1)
            winner = str(found.index(200)).encode() * 100
            assert s3.request("GET", path).body == winner


@pytest.mark.usefixtures("bucket")
def test_no_commit_of_drivers_at_the_same_time_is_lost(s3: S3Server, classes: Path) -> None:
    with ExitStack() as stack:
        jvms = [
            stack.enter_context(committer(s3, s3.endpoint, classes, "raced", f"jvm-{n}", NUM_COMMITS))
            for n in range(NUM_JVMS)
        ]
        for jvm in jvms:
            jvm.await_ready()
        for jvm in jvms:
            jvm.begin()
        refused = [jvm.num_refused() for jvm in jvms]
    assert sum(refused) > 0
    expected = [f"jvm-{n}/{number}" for n in range(NUM_JVMS) for number in range(NUM_COMMITS)]
    assert commits(s3, "raced") == Counter(f'{{"txn":{{"appId":"{name}","version":1}}}}' for name in expected)


@pytest.mark.usefixtures("bucket")
def test_a_commit_whose_answer_was_lost_is_recognized_as_ones_own(s3: S3Server, classes: Path) -> None:
    with losing_proxy(s3.endpoint) as proxy:
        with committer(s3, proxy.endpoint, classes, "unsure", "jvm", 5) as jvm:
            jvm.await_ready()
            jvm.begin()
            assert jvm.num_refused() == 0
        # Each was put twice: the second time the server refused it.
        assert len(proxy.lost) == 5
    assert commits(s3, "unsure") == Counter(f'{{"txn":{{"appId":"jvm/{n}","version":1}}}}' for n in range(5))


def test_an_append_lists_once_and_puts_data_commit_and_checksum(s3: S3Server, spark: SparkSession) -> None:
    s3.make_bucket("appended")
    table = "s3://appended/lake/table"
    with counting_proxy(s3.endpoint) as proxy, ExitStack() as stack:
        for key, value in hadoop_conf(s3.environment() | {"AWS_ENDPOINT_URL": proxy.endpoint}).items():
            # The session began before the server.
            if key.startswith("fs.s3a."):
                spark.conf.set(key, value)
                stack.callback(spark.conf.unset, key)

        def append() -> None:
            spark.range(3).coalesce(1).write.format("delta").mode("append").save(table)

        append()
        append()
        with proxy.counted() as counts:
            append()
        rows = spark.read.format("delta").load(table).count()
    found = {operation: count for (operation, _), count in counts.items()}
    # Delta looks at what it has written: twice at the data, once at the commit.
    assert found == {"LIST": 1, "PUT": 2, "HEAD": 2, "PUT commit": 1, "HEAD log": 1}
    assert rows == 9
    log = s3.folder / "appended" / "lake" / "table" / "_delta_log"
    assert sorted(file.name for file in log.glob("*.crc")) == [f"{n:020d}.crc" for n in range(3)]
    assert not list(log.glob(".*tmp*"))
