"""Fifty members, each a process of its own, settle a hint in two generations and not in fifty."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from tests.bench.settling import measure

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.soak]


def test_fifty_members_settle_a_hint_in_two_generations_and_seldom_more_than_one_for_the_late(
    broker: Broker, tmp_path: Path
) -> None:
    rows = measure(broker, tmp_path, num_members=50, num_hints=9)
    generations = [row["generations"] for row in rows]
    assert min(row["moves"] for row in rows) > 80
    assert statistics.median(generations) == 2, generations
    assert max(generations) <= 4, generations  # one more for each time that somebody syncs late
