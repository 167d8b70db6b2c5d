"""One lake with every part of the report, and its page in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.report.page import report_page
from evenlag.report.read_report import read_report
from tests.support.lakes.report_lake import CLUSTER, GROUP, write_lake
from tests.support.spark_tables import together

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.report.model import Report


@pytest.fixture(scope="session")
def report_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with together(spark):
        return write_lake(tmp_path_factory.mktemp("report-lake"))


@pytest.fixture(scope="session")
def report(report_lake: Path) -> Report:
    return read_report(LakeReader(str(report_lake)), CLUSTER, GROUP)


@pytest.fixture(scope="session")
def page_file(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(report), encoding="utf-8")
    return path
