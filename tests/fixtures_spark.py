"""The session's one Spark: built as the jobs build it, never stopped between tests."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.session import build_session
from tests.support.spark_tables import use_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that needs the session, also through another fixture, as one that starts a JVM."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("jvm")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the session that all tests share."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    # A task may fail once, as it may three times on a cluster.
    conf = {"spark.sql.warehouse.dir": str(warehouse), "spark.master": "local[*,2]"}
    session = build_session("evenlag-tests", conf=conf)
    session.sparkContext.setLogLevel("ERROR")
    use_session(session)
    yield session
    use_session(None)
    session.stop()
    # It tells of its connections once more while the interpreter ends, when nobody listens any longer.
    logging.getLogger("py4j").setLevel(logging.WARNING)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """Return an empty lake of the test's own."""
    return Lake(spark, str(tmp_path / "lake"))
