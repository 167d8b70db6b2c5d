"""Two policies, each with a lake of its own, publish for one group on one hint topic."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from evenlag.publishing.publish import publish_hints
from tests.support.live_plan import LiveGroup

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker

pytestmark = pytest.mark.broker


def test_the_log_names_a_hint_that_another_policy_has_published(
    broker: Broker,
    spark: SparkSession,
    tmp_path: Path,
    unique: Callable[[str], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = LiveGroup(broker, spark, tmp_path, unique, mode="auto")
    caplog.set_level("WARNING", "evenlag.publishing.publish")
    ours, theirs = tmp_path / "lake", tmp_path / "another-lake"

    def publish(lake: Path, age_s: int) -> tuple[int, list[str]]:
        group.lake = lake
        group.set_mode("auto")
        group.wait_until_settled()
        group.plan(mode="auto", approved=True, age_s=age_s)
        caplog.clear()
        [(_, _, sequence)] = publish_hints(group.loaded, group.name, datetime.now(UTC), "r").published
        return sequence, [message for message in caplog.messages if "another policy" in message]

    try:
        assert publish(ours, 20) == (1, [])
        assert publish(ours, 19) == (2, [])
        for number, lake in ((3, theirs), (4, ours), (5, theirs)):
            sequence, [shown] = publish(lake, 20 - number)
            assert sequence == number
            assert (
                f"sequence {number - 1} on {group.kafka.hint_topic}, that this lake has not recorded" in shown
            )
    finally:
        group.close()
