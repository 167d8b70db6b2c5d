"""Loads and their flow as whole numbers: in the units of the record, with little error."""

from __future__ import annotations

from typing import Any

import numpy as np

from assignor_core.algorithms.present_loads import present_loads
from assignor_core.loads import LoadsPayload
from assignor_core.objective import Load
from assignor_core.record import MAX_NUMBER
from evenlag.publishing.scaled_loads import Measured, scale_loads, scale_measured
from tests.bench.field.contenders.published import record_flow
from tests.support.each import for_each

TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"


def measured(
    lag: list[int], rate: list[float], owner: list[int], speed: list[float], **more: Any
) -> Measured:
    cost = more.get("cost", [1.0] * len(lag))
    return Measured(*map(np.array, (lag, rate, owner, speed, cost)))


def later(kind: Load, of: Measured, after_s: int) -> np.ndarray:
    """Return the shares of the loads, as a leader computes them from the record after a time."""
    load, flow = scale_measured(kind, of)
    assert flow is not None
    record, loads = record_flow(flow, TOPIC), {TOPIC: load.tolist()}
    payload = LoadsPayload("c", "g", "s", 0, 1, loads, {}, 1, 0, 0, flow=record)
    present = present_loads(LoadsPayload.decode(payload.encode()), 1000 * after_s).loads[TOPIC]
    return np.array(present, dtype=np.float64)


@for_each([1e-3, 1.0, 1e3, 1e6])
def test_lag_drains_and_grows_at_any_scale_of_records(scale: float) -> None:
    """After a minute 6,000 - 2,400 + 600 are left, 3,000 + 1,800, and what no commit shows."""
    size = 1_000_000 * scale
    of = measured(
        [round(6 * size), round(3 * size), 0],
        [0.01 * size, 0.03 * size, 0.001 * size],
        [0, -1, 1],
        [0.04 * size, 0.1 * size],
    )
    found = later(Load.LAG, of, 60)
    assert np.allclose(found / found[0], np.array([4.2, 4.8, 0.005]) / 4.2, rtol=0.01)


def test_a_group_without_a_backlog_has_the_loads_of_its_rates() -> None:
    """Lag that a commit explains is noise: 30 and 4 records at 10 and 20 a second."""
    load, _ = scale_measured(Load.LAG, measured([30, 4], [10.0, 20.0], [0, 0], [30.0]))
    assert load.tolist() == [500_000, 1_000_000]
    load, _ = scale_measured(Load.LAG, measured([30, 4], [np.nan, np.nan], [0, 0], [30.0]))
    assert load.tolist() == scale_loads(np.array([30.0, 4.0])).tolist()


def test_work_in_time_is_that_of_costs_and_near_arrivals() -> None:
    """Records of cost 3 are three times the work, and leave at a third of the rate."""
    of = measured([100, 100], [0.0, 0.0], [0, 1], [3.0, 3.0], cost=[1.0, 3.0])
    assert np.allclose(later(Load.TIME, of, 0), [333_333, 1e6], rtol=0.01)
    assert np.allclose(later(Load.TIME, of, 20), [133_333, 800_000], rtol=0.01)
    arriving = measured([0, 0], [1.0, 2.0], [0, 1], [9.0, 9.0])
    assert np.allclose(later(Load.TIME, arriving, 60), [500_000, 1e6], rtol=0.01)


def test_a_mix_keeps_the_share_of_arrivals_while_its_lag_drains() -> None:
    of = measured([600, 0], [10.0, 10.0], [0, 1], [20.0, 20.0])
    # Half of the first, and all of the second, are arrivals: shares of 1 and 1/2, and of 1/2.
    assert np.allclose(later(Load.MIX, of, 0), [1e6, 333_333], rtol=0.01)
    assert np.allclose(later(Load.MIX, of, 600), [333_333, 333_333], rtol=0.01)


@for_each(
    [
        (Load.RATE, [600, 0]),
        # Less than a commit's, and more than a day's arrivals.
        (Load.MIX, [40, 0]),
        (Load.MIX, [10_000_000, 0]),
        (Load.MIX, [0, 0]),
    ]
)
def test_loads_that_time_does_not_change_have_no_flow(case: tuple[Load, list[int]]) -> None:
    kind, lag = case
    assert scale_measured(kind, measured(lag, [10.0, 10.0], [0, 1], [20.0, 20.0]))[1] is None


@for_each(
    [
        measured([0, 0], [0.0, 0.0], [0, 1], [0.0, 0.0]),
        measured([0, 0], [np.nan, -1.0], [-1, -1], []),
        measured([2**62, 1], [1e18, 0.0], [0, 1], [1e300, 1e-300]),
        measured([1, 0], [1e-300, 0.0], [0, 1], [1e18, 0.0]),
        measured([], [], [], []),
    ]
)
def test_any_measurement_gives_a_record(of: Measured) -> None:
    for kind in Load:
        load, flow = scale_measured(kind, of)
        assert load.max(initial=0) <= 1_000_000
        for numbers in () if flow is None else (flow.arrivals, flow.speeds):
            assert numbers.min(initial=0) >= 0
            assert numbers.max(initial=0) <= MAX_NUMBER
