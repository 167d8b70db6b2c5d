"""All real contenders on one broker, on a trace of a minute and a half with members that come and go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sandbox.kafka.topic_admin import read_offsets
from tests.bench.field.broker.block import Block
from tests.bench.field.broker.contenders import REAL
from tests.bench.field.broker.programs import Programs
from tests.bench.field.broker.wire import read_entries
from tests.bench.field.traces import SIZES, Trace, make_trace
from tests.support.each import for_each
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EVENLAG = {"load": "lag", "count_slack": 2, "max_moves": 100, "min_gain": 0.05, "cooldown_s": 0}
_SETTINGS: dict[str, dict[str, Any]] = {
    "keda-hpa": {"lag_threshold": 10, "min_share": 0.0, "even_distribution": False},
    "evenlag": _EVENLAG,
    "evenlag-kip848": _EVENLAG,
}
pytestmark = pytest.mark.extended


@dataclass(frozen=True)
class Smoke:
    """A finished block: its measures, and by contender the ends of its logs and what its pods started."""

    trace: Trace
    measures: dict[str, dict[str, Any]]
    ends: dict[str, NDArray[np.int64]]
    entries: dict[str, NDArray[np.void]]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Smoke:
    """Run all contenders until they have started every record."""
    folder = tmp_path_factory.mktemp("field")
    trace = make_trace("churn", 0, 0.6, SIZES["smoke"])
    ends: dict[str, NDArray[np.int64]] = {}

    def num_started(block: Block, name: str) -> int:
        entries = read_entries(block.journals(name))
        return len(np.unique(entries[["partition", "offset"]]))

    def finish(block: Block) -> None:
        def counts() -> dict[str, int]:
            block.check()
            return {name: num_started(block, name) for name in REAL}

        total = int(trace.counts.sum())
        wait_until(
            lambda: min(counts().values()) >= total, what=lambda: f"{total}: {counts()}", progress=counts
        )
        for name in REAL:
            pairs = [(name, number) for number in range(trace.num_partitions)]
            offsets = read_offsets(block.client, name, pairs)
            ends[name] = np.array([offsets[pair][1] for pair in pairs])

    block = Block(
        trace, list(REAL), Programs.build(folder / "programs"), folder / "block",
        settings=_SETTINGS, watch_every_s=15, lead_s=120.0, may_be_late=True,
    )  # fmt: skip
    found = block.run(finish=finish)
    return Smoke(trace, found, ends, {name: read_entries(block.journals(name)) for name in REAL})


@for_each(REAL)
def test_every_record_was_started_where_its_key_belongs(name: str, smoke: Smoke) -> None:
    sent = smoke.trace.arrivals(smoke.trace.num_partitions)[0].sum(axis=0)
    assert smoke.ends[name].tolist() == sent.tolist()
    started = np.unique(smoke.entries[name][["partition", "offset"]])
    assert np.bincount(started["partition"], minlength=len(sent)).tolist() == sent.tolist()
    last = np.zeros(len(sent), dtype=np.int64)
    np.maximum.at(last, started["partition"], started["offset"] + 1)
    assert last.tolist() == sent.tolist()


@for_each(name for name, real in REAL.items() if real.has_owners)
def test_a_partition_had_one_owner_at_a_time(name: str, smoke: Smoke) -> None:
    assert smoke.measures[name]["overlaps"] == 0


@for_each(REAL)
def test_the_measures_are_whole(name: str, smoke: Smoke) -> None:
    found, entries = smoke.measures[name], smoke.entries[name]
    assert found["num_records"] == (smoke.trace.schedule()[0] >= smoke.trace.warm_up_s).sum()
    assert found["duplicates"] <= len(entries) - len(np.unique(entries[["partition", "offset"]]))
    assert found["p50_s"] <= found["p95_s"] <= found["p99_s"] <= found["worst_s"] <= smoke.trace.duration_s
    assert found["consumer_requests"] > 0
    assert found["consumer_hours"] > 0
    has_balancer = REAL[name].balancer is not None
    assert (found["balancer_cpu_s"] > 0) or not has_balancer
    assert (found["broker_requests"] > 0) or not has_balancer
