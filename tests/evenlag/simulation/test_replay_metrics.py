"""Means, percentiles and drain times, with snapshots 15 and 121 s apart: computed manually, and in steps."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evenlag.policy.settings import Pauses
from evenlag.simulation.fluid_model import simulate
from evenlag.simulation.replay_metrics import measure_scenarios, time_lags_s
from evenlag.simulation.scenarios import ObservedScenario
from tests.support.lakes.replay_histories import history_of, snapshot
from tests.support.simulated_scenarios import constant

if TYPE_CHECKING:
    from evenlag.simulation.fluid_model import Simulated
    from evenlag.simulation.history import History
    from evenlag.simulation.replay_metrics import ScenarioMetrics

AT_S = (0.0, 15.0, 136.0)


def simulated(history: History, capacity: list[float], pauses: Pauses | None = None) -> Simulated:
    scenario = ObservedScenario(history, pauses or Pauses(eager_s=0, moved_s=0, stall_s=0))
    return simulate(history, [scenario], constant(history, np.array(capacity)))


def measured(history: History, capacity: list[float], pauses: Pauses | None = None) -> ScenarioMetrics:
    return measure_scenarios(
        history, constant(history, np.array(capacity)), simulated(history, capacity, pauses)
    )


def one_partition(ends: list[float | None], lags: list[float | None]) -> History:
    return history_of(
        [[end] for end in ends],
        [[lag] for lag in lags],
        [["a"]] * len(ends),
        [snapshot("a")] * len(ends),
        at_s=AT_S,
    )


def test_mean_lag_is_over_time_and_the_drain_time_is_the_moment_within_the_interval() -> None:
    """100 records/s for 15 s, then 10; 40 processed: 0 to 900 in 15 s, and back to 0 in 30 s of the 121."""
    history = one_partition([0.0, 1500.0, 2710.0], [0.0, 900.0, 0.0])
    figures = measured(history, [40.0])
    assert figures.lag[0].tolist() == pytest.approx([0.0, 900.0, 0.0])
    assert figures.mean_lag[0] == pytest.approx((15 * 450 + 30 * 450) / 136)
    # The 900 of then are through after 900 / 40 s, whatever came after them.
    assert history.most_lag == 1
    assert figures.drain_time_ms[0] == pytest.approx(22_500.0)


def test_records_wait_until_those_before_them_are_processed() -> None:
    """The same: a record of second t waits 1.5 t, and after 15 s 22.5 - 0.75 (t - 15), until 45 s."""
    (waiting,) = simulated(one_partition([0.0, 1500.0, 2710.0], [0.0, 900.0, 0.0]), [40.0]).waiting
    # 80 records for each second of waiting up to 22.5 s, and 910 that do not wait.
    assert (waiting.num_records, waiting.worst_s) == pytest.approx((2_710, 22.5))
    shares = [22.5 - share * 2_710 / 80 for share in (0.5, 0.05, 0.01)]
    assert (waiting.p50_s, waiting.p95_s, waiting.p99_s) == pytest.approx(shares, abs=1e-4)
    above = [80 * (22.5 - limit) ** 2 / 2 for limit in (0.0, 5.0)]
    assert (waiting.record_s, waiting.record_s_above_5s) == pytest.approx(above)
    assert waiting.record_s_above_30s == waiting.record_s_above_300s == 0


def test_a_drain_that_goes_over_several_intervals_counts_all_of_them() -> None:
    """600 at first and nothing more: 150 in 15 s, the other 450 in 45 s."""
    figures = measured(one_partition([600.0] * 3, [600.0, 450.0, 0.0]), [10.0])
    assert figures.drain_time_ms[0] == pytest.approx(60_000.0)
    assert np.isnan(measured(one_partition([600.0] * 3, [600.0, 599.0, 590.0]), [4.0]).drain_time_ms[0])


def test_no_record_is_taken_to_be_older_than_what_was_measured() -> None:
    """One record in the first 15 s would make the 500 of the first snapshot two hours old."""
    history = one_partition([1000.0, 1001.0, 1001.0], [500.0, 501.0, 501.0])
    ages = time_lags_s(history, constant(history, np.ones(1)), np.array([[[500.0]], [[501.0]], [[501.0]]]))[
        :, 0, 0
    ]
    assert ages.tolist() == pytest.approx([0.0, 15.0, 136.0])


def test_an_age_that_is_known_only_when_the_lag_is_known_counts_from_there() -> None:
    """At 15 s 400 wait, the oldest for 20 s; 300 of them came after the first snapshot."""
    ends: list[float | None] = [0.0, 300.0, 300.0]
    lags: list[float | None] = [None, 400.0, 400.0]
    owners, groups = [["a"]] * 3, [snapshot("a")] * 3
    backlog = np.array([[[0.0]], [[400.0]], [[150.0]]])
    for age_s, oldest_s in ((20.0, 20.0), (None, 15.0)):
        columns = [[end] for end in ends], [[lag] for lag in lags]
        history = history_of(*columns, owners, groups, age_s=age_s, at_s=AT_S)
        ages = time_lags_s(history, constant(history, np.ones(1)), backlog)[:, 0, 0]
        assert ages[1] == pytest.approx(oldest_s)
        # 150 left of the 300 that came evenly in the first 15 s.
        assert ages[2] == pytest.approx(136.0 - 7.5)


@dataclass(frozen=True)
class Case:
    """A random group: intervals, arrivals by interval, owners by snapshot, first backlogs and their age."""

    gaps_s: list[float]
    rates: list[list[float]]
    owners: list[list[str]]
    capacity: dict[str, float]
    backlog: list[float]
    age_s: float
    pauses: Pauses


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows = draw(st.integers(1, 4))
    gaps_s = [15.0, draw(st.sampled_from([15.0, 60.0])), 121.0]

    def row(*choices: float) -> list[float]:
        return draw(st.lists(st.sampled_from(choices), min_size=rows, max_size=rows))

    names = st.lists(st.sampled_from(["a", "b"]), min_size=rows, max_size=rows)
    return Case(
        gaps_s,
        [row(0.0, 1.0, 4.0, 9.0) for _ in gaps_s],
        [draw(names) for _ in range(len(gaps_s) + 1)],
        {"a": draw(st.sampled_from([4.0, 11.0, 30.0])), "b": draw(st.sampled_from([6.0, 25.0]))},
        row(0.0, 30.0, 200.0, 900.0),
        draw(st.sampled_from([5.0, 44.0])),
        draw(
            st.sampled_from(
                [Pauses(eager_s=0, moved_s=0, stall_s=0), Pauses(eager_s=6, moved_s=3, stall_s=1)]
            )
        ),
    )


def history_from(case: Case) -> History:
    """What snapshots would have shown of it; the most lag is measured at the second one."""
    ends = np.cumsum(
        [case.backlog, *(np.array(r) * g for r, g in zip(case.rates, case.gaps_s, strict=True))], 0
    )
    lags = [case.backlog, [5_000.0] * len(case.backlog), *([[1.0] * len(case.backlog)] * 2)]
    at_s = np.concatenate([[0.0], np.cumsum(case.gaps_s)])
    groups = [snapshot("a", "b")] * len(case.owners)
    return history_of(ends.tolist(), lags, case.owners, groups, age_s=case.age_s, at_s=at_s.tolist())


class Steps:
    """The same group by steps of 20 ms: queues of records with the time at which they came."""

    STEP_S = 0.02
    PARTS = 400

    def __init__(self, case: Case) -> None:
        self.case, self.now_s, self.records_s, self.drained_s = case, 0.0, 0.0, np.inf
        self.total = sum(case.backlog)
        self.queues = [deque(self._first(records)) for records in case.backlog]
        self.lag, self.ages = [self._lag()], [self._ages()]
        for number, gap_s in enumerate(case.gaps_s):
            begins_s = self.now_s
            for _ in range(round(gap_s / self.STEP_S)):
                self._step(number, self.now_s - begins_s)
            self.lag.append(self._lag())
            self.ages.append(self._ages())

    def _first(self, records: float) -> list[list[float]]:
        each_s = self.case.age_s / self.PARTS
        came = [-self.case.age_s + part * each_s for part in range(self.PARTS)] if records else []
        return [[at_s, records / self.PARTS] for at_s in came]

    def _lag(self) -> float:
        return sum(part[1] for queue in self.queues for part in queue)

    def _ages(self) -> list[float]:
        return [self.now_s - queue[0][0] if queue else 0.0 for queue in self.queues]

    def _waits_s(self, number: int, row: int) -> float:
        """For how long a row stands still after a snapshot, in COOPERATIVE mode."""
        before, after = self.case.owners[max(number - 1, 0)], self.case.owners[number]
        if before == after:
            return 0.0
        return self.case.pauses.moved_s if before[row] != after[row] else self.case.pauses.stall_s

    def _step(self, number: int, since_s: float) -> None:
        before = self.total
        rates, owners = self.case.rates[number], self.case.owners[number]
        self.total = before + sum(rates) * self.STEP_S
        for queue, rate in zip(self.queues, rates, strict=True):
            if rate:
                queue.append([self.now_s, rate * self.STEP_S])
        for member, speed in self.case.capacity.items():
            ready = [
                queue
                for row, queue in enumerate(self.queues)
                if owners[row] == member and since_s >= self._waits_s(number, row) - 1e-9
            ]
            self.total -= speed * self.STEP_S - self._serve(ready, speed * self.STEP_S)
        self.records_s += self.STEP_S * (before + self.total) / 2
        self.now_s += self.STEP_S
        from_s = self.case.gaps_s[0]
        is_drained = all(not queue or queue[0][0] >= from_s - 1e-6 for queue in self.queues)
        if np.isinf(self.drained_s) and self.now_s > from_s - 1e-6 and is_drained:
            self.drained_s = max(self.now_s - from_s, 0.0)

    @staticmethod
    def _serve(queues: list[deque[list[float]]], left: float) -> float:
        """Give each an equal part of what is left until nothing is left, or nothing to do."""
        while left > 1e-12 and (queues := [queue for queue in queues if queue]):
            share, left = left / len(queues), 0.0
            for queue in queues:
                gives = share
                while queue and gives > 1e-15:
                    took = min(gives, queue[0][1])
                    queue[0][1] -= took
                    gives -= took
                    if queue[0][1] <= 1e-12:
                        queue.popleft()
                left += gives
        return left


@settings(max_examples=40, deadline=None)
@given(cases())
def test_all_figures_are_what_many_small_steps_come_to(case: Case) -> None:
    steps = Steps(case)
    period_s = sum(case.gaps_s)
    # What ends within a step or two of the period's end may fall on either side of it.
    assume(not np.isfinite(steps.drained_s) or steps.drained_s < period_s - case.gaps_s[0] - 1.0)
    figures = measured(history_from(case), list(case.capacity.values()), case.pauses)
    most = max(*steps.lag, 1.0)
    allowed = 0.01 * most + 0.1 * sum(case.capacity.values()) * Steps.STEP_S * len(case.backlog)
    assert figures.lag[0] == pytest.approx(steps.lag, abs=allowed)
    assert figures.mean_lag[0] == pytest.approx(steps.records_s / period_s, abs=allowed)
    oldest = [max(ages) for ages in steps.ages]
    assert figures.time_lag_ms[0] / 1000 == pytest.approx(oldest, abs=0.5)
    drained_s = figures.drain_time_ms[0] / 1000
    if np.isfinite(steps.drained_s):
        assert drained_s == pytest.approx(steps.drained_s, abs=0.3)
    else:
        assert np.isnan(drained_s)
