"""A lake on a Hadoop file system that is not the machine's own: Hadoop's viewfs over a local folder."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_ids import new_snapshot_id
from evenlag.lake.tables import COMPARISONS, OFFSETS, Table
from spark_jobs.runtime.delta_lake import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.extended, pytest.mark.jvm]

SLOT = datetime(2026, 3, 1, 12, tzinfo=UTC)
MOUNT = "fs.viewfs.mounttable.evenlag.link./srv"


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "store").mkdir()
    spark.conf.set(MOUNT, (tmp_path / "store").as_uri())
    yield "viewfs://evenlag/srv/lake"
    spark.conf.unset(MOUNT)


def rows(lake: Lake, table: Table, **columns: object) -> DataFrame:
    from pyspark.sql import functions as sf

    frame = lake.spark.range(1)
    return frame.select(
        *(sf.lit(columns.get(column.name)).cast(column.type).alias(column.name) for column in table.columns)
    )


def test_what_the_jobs_do_with_a_lake_works_on_another_file_system(
    spark: SparkSession, mounted: str, tmp_path: Path
) -> None:
    lake, snapshot = Lake(spark, mounted), new_snapshot_id(SLOT)
    head = {"cluster": "c", "day": SLOT.date(), "snapshot_id": snapshot}
    offsets = rows(lake, OFFSETS, **head, topic_id="t", topic="orders", partition=0)
    lake.append(OFFSETS, offsets)
    compared = rows(lake, COMPARISONS, **head, group_id="g", policy="range")
    for _ in range(2):
        lake.replace_days(COMPARISONS, compared, "c", [date(2026, 3, 1)])

    assert [lake.read(table).count() for table in (OFFSETS, COMPARISONS)] == [1, 1]
    # It lies where the mount says, and nothing else does.
    beneath = LakeReader(str(tmp_path / "store" / "lake"))
    assert beneath.read(OFFSETS)["topic"].to_pylist() == ["orders"]
    names = {folder.name for folder in (tmp_path / "store" / "lake").iterdir()}
    assert names == {OFFSETS.name, COMPARISONS.name}


def test_a_file_uri_is_the_folder_that_it_names(tmp_path: Path) -> None:
    paths = LakePaths((tmp_path / "a lake").as_uri())
    assert paths.is_local
    assert paths.table(OFFSETS) == str(tmp_path / "a lake" / "offsets")
    elsewhere = LakePaths("s3a://bucket/lake/")
    assert not elsewhere.is_local
    assert elsewhere.table(OFFSETS) == "s3a://bucket/lake/offsets"
