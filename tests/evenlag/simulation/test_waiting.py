"""How long records wait: calculated cases, quantiles of numpy, and curves beside single records."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlag.simulation.waiting import SentCurves, Waiting, Waits, measure_waiting
from tests.bench.field.waiting import shares_above

if TYPE_CHECKING:
    from numpy.typing import NDArray


def waits_of(*parts: tuple[float, float, float]) -> Waits:
    low, high, records = np.array(parts, dtype=np.float64).reshape(-1, 3).T
    return Waits(low, high, records)


def test_parts_are_spread_evenly_between_their_ends() -> None:
    """60 records do not wait, 30 wait 0 to 10 s, 10 wait 40 s."""
    waiting = measure_waiting(waits_of((0, 0, 60), (0, 10, 30), (40, 40, 10)))
    assert waiting.num_records == 100
    assert (waiting.p50_s, waiting.p95_s, waiting.p99_s, waiting.worst_s) == (0, 40, 40, 40)
    assert waiting.record_s == pytest.approx(30 * 5 + 10 * 40)
    # Above 5 s: 15 records with 2.5 s each on average, and ten with 35; above 30 s: ten with ten.
    assert waiting[6:] == pytest.approx((15 * 2.5 + 350, 100, 0))
    assert shares_above(waiting) == pytest.approx((387.5 / 550, 100 / 550, 0))
    assert measure_waiting(waits_of((0, 10, 30))).p95_s == pytest.approx(9.5, abs=1e-5)


def test_without_records_all_is_zero() -> None:
    assert measure_waiting(waits_of()) == Waiting(*[0.0] * 9)
    assert shares_above(measure_waiting(waits_of())) == (0, 0, 0)


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1_000), min_size=1, max_size=60))
def test_single_records_have_the_quantiles_of_numpy(seconds: list[float]) -> None:
    waited_s = np.array(seconds)
    waiting = measure_waiting(Waits(waited_s, waited_s, np.ones(len(waited_s))))
    expected = np.quantile(waited_s, [0.5, 0.95, 0.99, 1.0], method="inverted_cdf")
    assert waiting[1:5] == pytest.approx(expected, abs=1e-5)
    assert waiting.record_s == pytest.approx(waited_s.sum(), abs=1e-6)
    assert waiting.record_s_above_30s == pytest.approx(sum(max(0, each - 30) for each in seconds), abs=1e-6)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(*[st.integers(0, 9)] * 2), min_size=12, max_size=12),
    st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, 4.0, 20.0])] * 2), min_size=12, max_size=12),
)
def test_curves_have_the_waits_of_their_small_parts(
    sent: list[tuple[int, int]], served: list[tuple[float, float]]
) -> None:
    """Each of 400 parts of an interval's records is looked up in the curve of what is started."""
    arrived = np.cumsum([(0, 0), *sent], axis=0).astype(np.float64)
    started = np.zeros_like(arrived)
    for at in range(12):
        started[at + 1] = np.minimum(started[at] + served[at], arrived[at + 1])
    started = np.concatenate([started, arrived[-1:]])
    at_s = np.append(np.arange(13) * 5.0, 60.0)
    curves = SentCurves(arrived, np.tile(at_s[:-1, None], 2))
    queue = np.repeat([0, 1], 13)
    parts = [np.concatenate(started[begin : begin + 13].T) for begin in (0, 1)]
    moments_s = [np.tile(at_s[begin : begin + 13], 2) for begin in (0, 1)]
    _, waits = curves.waits(queue, np.stack(parts), np.stack(moments_s))
    found, expected = measure_waiting(waits), measure_waiting(small_parts(arrived, started, at_s))
    assert found[:1] == pytest.approx(expected[:1])
    assert found[1:5] == pytest.approx(expected[1:5], abs=0.2)
    assert found[5:] == pytest.approx(expected[5:], rel=0.01, abs=0.1)


def small_parts(
    arrived: NDArray[np.float64], started: NDArray[np.float64], at_s: NDArray[np.float64]
) -> Waits:
    waited_s, weight = [], []
    for sent_at, started_at in zip(arrived.T, started.T, strict=True):
        for interval, (low, high) in enumerate(pairwise(sent_at.tolist())):
            for share in (np.arange(400) + 0.5) / 400 if high > low else ():
                position = low + share * (high - low)
                place = int(np.searchsorted(started_at, position))
                begin, end = started_at[place - 1 : place + 1]
                within = (position - begin) / (end - begin)
                begun_s = at_s[place - 1] + within * (at_s[place] - at_s[place - 1])
                waited_s.append(max(begun_s - (at_s[interval] + 5.0 * share), 0.0))
                weight.append((high - low) / 400)
    waited = np.array(waited_s)
    return Waits(waited, waited, np.array(weight))
