"""DataFrames that a block caches are unpersisted even when the block fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_jobs.runtime.frames import CachedFrames
from tests.soak.probes import kept_plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm


def fail_with_three_kept(spark: SparkSession, before: int) -> None:
    from pyspark import StorageLevel

    with CachedFrames() as cached:
        frames = [cached.cache(spark.range(7)), cached.cache(spark.range(8), StorageLevel.DISK_ONLY)]
        assert [frame.count() for frame in frames] == [7, 8]
        with CachedFrames() as for_a_while:
            for_a_while.cache(frames[0].selectExpr("id + 1 AS id"))
            assert kept_plans(spark) == before + 3
        assert kept_plans(spark) == before + 2
        assert frames[1].storageLevel.useDisk
        raise OSError("the lake is full")


def test_nothing_is_kept_after_a_step_that_failed(spark: SparkSession) -> None:
    before = kept_plans(spark)
    with pytest.raises(OSError, match="the lake is full"):
        fail_with_three_kept(spark, before)
    assert kept_plans(spark) == before
