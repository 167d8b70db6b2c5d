"""How long records wait in a replay: calculated cases, and beside the area under the lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from evenlag.simulation.estimates import Case
from evenlag.simulation.fluid_model import Simulated, simulate
from evenlag.simulation.replay_waiting import merge_alike
from evenlag.simulation.waiting import Waits, measure_waiting
from tests.bench.field.waiting import shares_above
from tests.support.each import for_each
from tests.support.lakes.replay_histories import history_of, snapshot
from tests.support.simulated_scenarios import FixedOwners, constant

if TYPE_CHECKING:
    from collections.abc import Sequence


def replay(
    ends: Sequence[Sequence[float | None]],
    capacity: float,
    *,
    pauses: Sequence[Sequence[float]] | None = None,
    lags: Sequence[Sequence[float | None]] | None = None,
    owners: Sequence[Sequence[str]] | None = None,
) -> Simulated:
    """Replay snapshots 300 s apart of one member; nothing lags at first unless said."""
    size = len(ends[0])
    history = history_of(
        ends, lags or [[0.0] * size] * len(ends), owners or [["a"] * size] * len(ends),
        [snapshot("a")] * len(ends),
    )  # fmt: skip
    return simulate(history, [FixedOwners([0] * size, pauses)], constant(history, np.array([capacity])))


def test_a_burst_waits_as_one_calculates() -> None:
    """10 records/s for 300 s over 8: the record of second t waits t / 4, and all are started at 375 s."""
    waiting = replay([[0.0], [3000.0], [3000.0]], 8.0).waiting[0]
    assert waiting.num_records == pytest.approx(3000)
    assert waiting[1:5] == pytest.approx((37.5, 71.25, 74.25, 75.0), abs=1e-4)
    assert waiting.record_s == pytest.approx(600 * 375 / 2)
    assert shares_above(waiting) == pytest.approx(((70 / 75) ** 2, (45 / 75) ** 2, 0.0))


def test_a_pause_shorter_than_an_interval_is_seen() -> None:
    """4 records/s, 8 in all, no processing for 30 s: caught up 30 s later, long before the snapshot."""
    waiting = replay([[0.0], [1200.0], [2400.0]], 8.0, pauses=[[0.0], [30.0], [0.0]]).waiting[0]
    assert (waiting.worst_s, waiting.record_s) == pytest.approx((30.0, 4 * 30 * 60 / 2))
    # A tenth of the records wait at all, evenly from 0 to 30 s.
    assert waiting.p95_s == pytest.approx(15.0, abs=1e-4)


def test_what_is_not_started_waits_until_the_end_or_until_its_partition_goes() -> None:
    """Nothing is processed: of two partitions, one goes after 600 s, the other is there for 900 s."""
    waiting = replay([[0.0], [300.0], [300.0]], 0.0).waiting[0]
    assert (waiting.p50_s, waiting.worst_s) == pytest.approx((450.0, 600.0), abs=1e-4)
    gone = replay(
        [[0.0, 0.0], [300.0, 300.0], [300.0, None], [300.0, None]], 0.0,
        owners=[["a", "a"], ["a", "a"], ["a", "-"], ["a", "-"]],
    ).waiting[0]  # fmt: skip
    assert gone.num_records == pytest.approx(600)
    assert gone.record_s == pytest.approx(300 * 750 + 300 * 450)


def test_the_first_backlog_is_served_first_and_not_counted_and_nothing_unknown_is() -> None:
    """80 records of before take 10 s, in which what comes at 4 a second waits."""
    ends, lags = [[80.0, 0.0], [1280.0, 900.0]], [[80.0, None], [0.0, None]]
    waiting = replay(ends, 8.0, lags=lags).waiting[0]
    assert waiting.num_records == pytest.approx(1200)
    assert waiting.worst_s == pytest.approx(10.0, abs=1e-4)
    # The area under the lag, without that under the 80.
    assert waiting.record_s == pytest.approx(80 * 20 / 2 - 80 * 10 / 2)


@for_each(range(30))
def test_record_time_is_the_area_under_the_lag(seed: int) -> None:
    chance = np.random.default_rng(seed)
    size, snapshots = 3, 6
    arrived = chance.choice([0.0, 30.0, 600.0, 2000.0], (snapshots - 1, size))
    ends = np.vstack([np.zeros(size), np.cumsum(arrived, axis=0)])
    pauses = chance.choice([0.0, 0.0, 5.0, 45.0], (snapshots, size))
    simulated = replay(ends.tolist(), float(chance.choice([5.0, 8.0])), pauses=pauses.tolist())
    (waiting,) = simulated.waiting
    assert waiting.num_records == pytest.approx(arrived.sum())
    assert waiting.record_s == pytest.approx(simulated.lag_records_s[Case.LIKELY].sum(), rel=1e-6, abs=0.5)
    assert waiting.record_s_above_300s <= waiting.record_s_above_5s <= waiting.record_s


def test_merged_parts_measure_alike() -> None:
    chance = np.random.default_rng(3)
    low = chance.exponential(20.0, 5_000)
    waits = Waits(low, low * chance.uniform(1, 1.3, 5_000), chance.uniform(0, 5, 5_000))
    scenario = chance.integers(0, 2, 5_000)
    merged_scenario, merged = merge_alike(scenario, waits)
    assert len(merged.records) < 5_000
    for number in (0, 1):
        before, after = (
            measure_waiting(Waits(*(column[of == number] for column in columns)))
            for of, columns in ((scenario, waits), (merged_scenario, merged))
        )
        assert after[0] == pytest.approx(before[0])
        assert after[5] == pytest.approx(before[5])
        assert after[1:] == pytest.approx(before[1:], rel=0.02)
