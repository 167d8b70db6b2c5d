"""The measures of a run from journals: first starts, unfinished records, warm-up and drain, as calculated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.bench.field.waiting import measure_records

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Minute:
    """A trace of a minute, of which the first ten seconds are dropped."""

    duration_s: int = 60
    warm_up_s: int = 10
    outages: tuple[tuple[int, int], ...] = ()

    def arrivals(self, num_partitions: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return nothing: journals say what was sent."""
        return np.zeros((60, num_partitions), dtype=np.int64), np.zeros((60, num_partitions))


SENT_S = np.array([5.0, 12.0, 20.0, 21.0, 50.0])


def test_the_first_start_of_a_record_counts_once_and_the_warm_up_does_not() -> None:
    """Record 2 starts again later, record 3 before it should have been sent, record 0 is of the warm-up."""
    starts = ((0, 9.0), (2, 44.0), (1, 12.5), (2, 24.0), (3, 20.99), (4, 51.0), (2, 70.0))
    record, started_s = np.array([each[0] for each in starts]), np.array([each[1] for each in starts])
    measures = measure_records(Minute(), SENT_S, record, started_s)
    waiting = measures.waiting
    assert waiting.num_records == 4
    assert (waiting.p50_s, waiting.worst_s, waiting.record_s) == pytest.approx((0.5, 4.0, 5.5), abs=1e-5)
    assert measures.unfinished == 0
    assert measures.lag[[6, 10, 13, 22, 25]].tolist() == [1, 0, 0, 1, 0]


def test_what_is_not_started_or_only_after_the_end_waits_until_the_end() -> None:
    measures = measure_records(Minute(), SENT_S, np.array([0, 1, 3, 4]), np.array([9.0, 12.5, 21.0, 61.0]))
    assert measures.unfinished == 2
    assert measures.waiting.worst_s == pytest.approx(40.0)
    assert measures.waiting.record_s == pytest.approx(0.5 + 40 + 0 + 10)
    assert measures.figures()["above_5s"] == pytest.approx((35 + 5) / 50.5)


def test_the_drain_begins_with_the_end_of_the_outage_or_with_the_largest_lag() -> None:
    record, started_s = np.arange(5), np.array([9.0, 31.0, 32.0, 35.0, 50.0])
    after_outage = measure_records(Minute(outages=((12, 30),)), SENT_S, record, started_s)
    assert after_outage.drain_s == pytest.approx(5.0)
    # Two seconds after the third is sent, at 22, all three have not been started.
    assert measure_records(Minute(), SENT_S, record, started_s).drain_s == pytest.approx(35.0 - 22)
