"""How long records wait: by hand, beside numpy's quantiles, and of curves beside single records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlag.simulation.waiting import Waiting, Waits, measure_waiting, waits_between


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
    assert waiting.shares_above() == pytest.approx((387.5 / 550, 100 / 550, 0))
    assert measure_waiting(waits_of((0, 10, 30))).p95_s == pytest.approx(9.5, abs=1e-5)


def test_without_records_all_is_zero() -> None:
    assert measure_waiting(waits_of()) == Waiting(*[0.0] * 9)
    assert measure_waiting(waits_of()).shares_above() == (0, 0, 0)


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
    st.lists(st.integers(0, 9), min_size=12, max_size=12),
    st.lists(st.sampled_from([0.0, 1.0, 4.0, 20.0]), min_size=12, max_size=12),
)
def test_curves_have_the_waits_of_their_small_parts(sent: list[int], served: list[float]) -> None:
    """Each of 400 parts of an interval's records is looked up in the curve of what is started."""
    arrived = np.append(0.0, np.cumsum(sent))
    started = [0.0]
    for at in range(12):
        started.append(min(started[-1] + served[at], float(arrived[at + 1])))
    at_s = np.arange(13) * 5.0
    found = measure_waiting(
        waits_between(at_s, arrived[:, None], np.array(started)[:, None], np.array(sent)[:, None])
    )
    parts = (np.arange(400) + 0.5) / 400
    positions = (arrived[:-1, None] + parts * np.diff(arrived)[:, None]).ravel()
    sent_s = (at_s[:-1, None] + parts * 5.0 + 0 * arrived[:-1, None]).ravel()
    place = np.searchsorted(started, positions, side="right")
    is_done = place < len(started)
    low, high = (np.array(started)[np.where(is_done, place - shift, 1 - shift)] for shift in (1, 0))
    begun_s = np.where(is_done, 5.0 * (place - 1) + 5.0 * (positions - low) / (high - low), 60.0)
    waited_s = np.maximum(begun_s - sent_s, 0.0)
    weight = np.repeat(np.array(sent) / 400, 400)
    expected = measure_waiting(Waits(waited_s, waited_s, weight))
    assert found[:1] == pytest.approx(expected[:1])
    # Of a part so many percent are equal to its neighbor's within a fourth of a hundredth of 60 s.
    assert found[1:5] == pytest.approx(expected[1:5], abs=0.2)
    assert found[5:] == pytest.approx(expected[5:], rel=0.01, abs=0.1)
