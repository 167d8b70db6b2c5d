"""The group that most tests of the publisher publish for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.live_plan import LiveGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker


@pytest.fixture
def group(
    broker: Broker, spark: SparkSession, tmp_path: Path, unique: Callable[[str], str]
) -> Iterator[LiveGroup]:
    """A live group of mode auto."""
    live = LiveGroup(broker, spark, tmp_path, unique, mode="auto")
    yield live
    live.close()
