"""A hinted group of the consumer protocol scales out, and the broker keeps it even."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench.living.scale_out import ALLOWED, RESULTS
from tests.bench.living.scale_out_kip848 import scale_out

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker_plugin.node import Node

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: it is the extra kip848")
pytestmark = [pytest.mark.broker, pytest.mark.soak]


@pytest.mark.timeout(3600)
def test_twenty_groups_of_the_consumer_protocol_scale_out_evenly(node: Node, tmp_path: Path) -> None:
    runs = []
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        runs.append(scale_out(node, folder, seed))
    largest = [row["largest"] for run in runs for row in run]
    figures: dict[str, Any] = {
        "seeds": len(runs),
        "seeds_within": sum(all(row["largest"] <= ALLOWED for row in run) for run in runs),
        "allowed": ALLOWED,
        "largest_mean": round(sum(largest) / len(largest), 4),
        "largest_max": max(largest),
    }
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**results, "consumer": figures}, indent=1) + "\n", encoding="utf-8")
    assert figures["seeds_within"] >= 19, figures
