"""The simulator of the field: calculated cases, single records event by event, and queueing theory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from tests.bench.field.keys import key_partitions, numbered_keys
from tests.bench.field.simulator import ANY, NOBODY, Bound, Counts, run
from tests.bench.field.traces import Pod, Trace
from tests.bench.field.waiting import measure_records, shares_above
from tests.support.each import for_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tests.bench.field.simulator import Outcome

    Floats = NDArray[np.float64]
    Int64s = NDArray[np.int64]

_NEVER = float("inf")


def trace_of(
    records: Sequence[Sequence[int]] | Int64s,
    speeds: Sequence[float],
    *,
    cost: Sequence[float] | Floats | None = None,
    outages: tuple[tuple[int, int], ...] = (),
    warm_up_s: int = 0,
) -> Trace:
    """Return a trace of these records by second and partition, with a key each partition."""
    counts = np.asarray(records, dtype=np.int64)
    size = counts.shape[1]
    keys = numbered_keys(100 * size)
    _, first = np.unique(key_partitions(keys, size), return_index=True)
    assert len(first) == size
    return Trace(
        name="even", seed=0, utilisation=0.75, duration_s=len(counts), warm_up_s=warm_up_s,
        keys=tuple(keys[number] for number in first), counts=counts,
        cost=np.ones(size) if cost is None else np.array(cost),
        pods=tuple(Pod(f"pod-{number}", None, speed) for number, speed in enumerate(speeds)),
        changes=((0, tuple(range(len(speeds)))),), outages=outages, num_partitions=size,
    )  # fmt: skip


class Step(NamedTuple):
    """What a script sets at a moment: owners, speeds, and from when partitions are processed."""

    at_s: float
    owner: Sequence[int]
    speed: Sequence[float]
    ready_s: Sequence[float]


@dataclass(eq=False)
class Script:
    """A contender that follows its steps, and notes what it sees: (second, lag, end offsets)."""

    steps: Sequence[Step]
    counts: Counts = field(default_factory=Counts)
    next_s: float = 0.0
    seen: list[tuple[float, list[int], list[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._take(self.steps[0])

    def _take(self, step: Step) -> None:
        self.owner = np.array(step.owner, dtype=np.int32)
        self.speed, self.ready_s = np.array(step.speed, dtype=float), np.array(step.ready_s, dtype=float)

    def act(self, now_s: float, lag: Int64s, end: Int64s) -> None:
        """Take the step of this moment."""
        self.seen.append((now_s, lag.tolist(), end.tolist()))
        later = [step for step in self.steps if step.at_s > now_s]
        self._take(self.steps[len(self.steps) - len(later) - 1])
        self.next_s = later[0].at_s if later else _NEVER


def run_script(trace: Trace, *steps: Step) -> tuple[Outcome, Script]:
    script = Script(steps)
    (outcome,) = run([trace], [script])
    return outcome, script


def test_a_rate_above_the_speed_waits_as_one_calculates() -> None:
    """10 records/s for 40 s over 8 units/s: the record of second t waits t / 4, and all are started at 50."""
    trace = trace_of([[10]] * 40 + [[0]] * 20, [8.0])
    outcome, script = run_script(
        trace, Step(0, [0], [8.0], [0.0]), Step(20.5, [0], [8.0], [0.0]), Step(45, [0], [8.0], [0.0])
    )
    measures = outcome.measures
    waiting = measures.waiting
    assert waiting.num_records == pytest.approx(400)
    assert (waiting.p50_s, waiting.p95_s, waiting.p99_s, waiting.worst_s) == pytest.approx(
        (5.0, 9.5, 9.9, 10.0), abs=1e-5
    )
    # The area under the lag: it grows by 2 a second to 80, and falls by 8. Above 5 s: a quarter of it.
    assert waiting.record_s == pytest.approx(80 * 50 / 2)
    assert shares_above(waiting) == pytest.approx((0.25, 0.0, 0.0))
    assert (measures.drain_s, measures.unfinished) == pytest.approx((10.0, 0.0))
    assert measures.lag[[0, 20, 40, 45, 50, 60]] == pytest.approx([0, 40, 80, 40, 0, 0])
    assert script.seen == [(0, [0], [0]), (20.5, [41], [205]), (45, [40], [400])]


def test_a_pause_makes_everything_wait_until_it_is_caught_up() -> None:
    """4 records/s, 8 units/s, no processing for 6 s: caught up 6 s later. The area is 4 * 6 * 12 / 2."""
    trace = trace_of([[4]] * 40, [8.0])
    outcome, _ = run_script(trace, Step(0, [0], [8.0], [0.0]), Step(10, [0], [8.0], [16.0]))
    waiting = outcome.measures.waiting
    assert (waiting.worst_s, waiting.record_s) == pytest.approx((6.0, 144.0))
    # Within a second, curves are straight.
    outcome, _ = run_script(trace, Step(0, [0], [8.0], [0.0]), Step(10.5, [0], [8.0], [16.5]))
    waiting = outcome.measures.waiting
    assert waiting.worst_s == pytest.approx(6.0, abs=0.5)
    assert waiting.record_s == pytest.approx(144, abs=2.0)
    assert outcome.measures.lag[[10, 16, 17, 19, 22, 23]] == pytest.approx([0, 22, 22, 14, 2, 0])
    assert (outcome.counts.unowned_s, outcome.counts.consumer_s) == pytest.approx((6.0, 40.0))


def test_two_partitions_share_a_pod_and_one_leaves_what_it_does_not_need() -> None:
    """Of 10 units/s one partition needs 2, the other gets 8 of the 12 that it receives."""
    trace = trace_of([[2, 12]] * 10 + [[2, 0]] * 10, [10.0])
    outcome, script = run_script(trace, Step(0, [0, 0], [10.0], [0, 0]), Step(10, [0, 0], [10.0], [0, 0]))
    assert script.seen[1][1:] == ([0, 40], [20, 120])
    assert outcome.measures.lag[[10, 15, 20]] == pytest.approx([40, 0, 0])
    assert outcome.measures.waiting.worst_s == pytest.approx(5.0)


def test_lag_is_in_records_where_they_cost_unequally() -> None:
    """Partition 0 costs 4 a record: of 8 units/s, 2 records/s."""
    trace = trace_of([[4, 4]] * 10, [8.0, 8.0], cost=[4.0, 1.0])
    outcome, script = run_script(
        trace, Step(0, [0, 1], [8.0, 8.0], [0, 0]), Step(9, [0, 1], [8.0, 8.0], [0, 0])
    )
    assert script.seen[1][1:] == ([18, 0], [36, 36])
    assert outcome.measures.unfinished == pytest.approx(20)


def test_nothing_is_processed_in_an_outage_by_nobody_and_by_a_stopped_pod() -> None:
    trace = trace_of([[2, 2, 2]] * 30, [6.0, 6.0], outages=((10, 15),))
    outcome, script = run_script(
        trace,
        Step(0, [0, 1, NOBODY], [6.0, 6.0], [0, 0, 0]),
        Step(20, [0, 1, 0], [6.0, 0.0], [0, 0, 0]),
        Step(28, [0, 1, 0], [6.0, 0.0], [0, 0, 0]),
    )
    # After the outage the first two have 10 each, and get 6 of which 4 catch up: 2.5 s.
    assert outcome.measures.lag[[10, 15, 16]] == pytest.approx([20, 50, 44])
    assert [lag for _, lag, _ in script.seen] == [[0, 0, 0], [0, 0, 40], [0, 16, 24]]
    # The third waits for 15 s of the first 20, then the second for 10 s.
    assert outcome.counts.unowned_s == pytest.approx(15 + 10)
    assert outcome.counts.consumer_s == pytest.approx(15 + 15 + 10)


def test_all_pods_of_a_share_group_work_on_one_partition() -> None:
    trace = trace_of([[8, 0]] * 10, [1.0, 2.0, 3.0])
    everybody, _ = run_script(trace, Step(0, [ANY, ANY], [1.0, 2.0, 3.0], [0, 0]))
    assert everybody.measures.lag[-1] == pytest.approx(20)


def test_the_warm_up_is_dropped_from_waiting_and_from_costs() -> None:
    trace = trace_of([[10]] * 10 + [[2]] * 20, [8.0], warm_up_s=10)
    outcome, script = run_script(trace, Step(0, [0], [8.0], [2.0]), Step(20, [0], [8.0], [21.0]))
    assert outcome.measures.waiting.num_records == pytest.approx(40)
    assert outcome.measures.lag[10] == pytest.approx(36)
    assert outcome.measures.waiting.worst_s == pytest.approx(36 / 8)
    assert (outcome.counts.unowned_s, script.counts.unowned_s) == pytest.approx((1.0, 3.0))
    assert outcome.counts.consumer_s == pytest.approx(20.0)


def random_case(seed: int, *, num_partitions: int = 4) -> tuple[Trace, list[Step]]:
    """Return a trace of equal or unequal cost, and random owners, speeds and pauses for it."""
    chance = np.random.default_rng([39, seed])
    speeds = chance.choice([5.0, 10.0, 20.0], 3)
    rates = chance.uniform(0.2, 1.0, num_partitions)
    rates *= 0.8 * speeds.sum() / rates.sum()
    records = chance.poisson(rates, (60, num_partitions))
    records[45:] = 0
    cost = chance.choice([0.5, 1.0, 2.0], num_partitions) if seed % 2 else None
    trace = trace_of(records, speeds.tolist(), cost=cost, outages=((20, 25),))
    steps = []
    for at_s in (0.0, *np.sort(chance.choice(np.arange(1, 160), 6, replace=False) / 4).tolist()):
        owner = chance.integers(0, 3, num_partitions)
        pause_s = chance.choice([0.0, 0.0, 1.5, 4.0], num_partitions)
        steps.append(Step(at_s, owner.tolist(), speeds.tolist(), (at_s + pause_s).tolist()))
    return trace, steps


def start_single_records(trace: Trace, steps: Sequence[Step], sent_s: Floats, partition: Int64s) -> Floats:
    """Return when each record starts, event by event: partitions of a pod share its speed equally."""
    queues: list[deque[int]] = [deque() for _ in range(trace.num_partitions)]
    left = trace.cost[partition].copy()
    started_s = np.full(len(sent_s), _NEVER)
    moments = sorted(
        {*sent_s.tolist(), *(step.at_s for step in steps), *(at_s for step in steps for at_s in step.ready_s)}
        | {float(at_s) for outage in trace.outages for at_s in outage} | {float(trace.duration_s)}
    )  # fmt: skip
    now_s, arrived = 0.0, 0
    while now_s < trace.duration_s:
        while arrived < len(sent_s) and sent_s[arrived] <= now_s:
            queues[partition[arrived]].append(arrived)
            arrived += 1
        step = [each for each in steps if each.at_s <= now_s][-1]
        is_up = not any(begin <= now_s < end for begin, end in trace.outages)
        busy = [p for p, queue in enumerate(queues) if queue and step.ready_s[p] <= now_s and is_up]
        sharing = np.bincount([step.owner[p] for p in busy], minlength=len(step.speed))
        rate = {p: step.speed[step.owner[p]] / sharing[step.owner[p]] for p in busy}
        for p in busy:
            started_s[queues[p][0]] = min(started_s[queues[p][0]], now_s)
        until_s = min(moment for moment in moments if moment > now_s)
        until_s = min([until_s, *(now_s + left[queues[p][0]] / rate[p] for p in busy)])
        for p in busy:
            left[queues[p][0]] -= rate[p] * (until_s - now_s)
            if left[queues[p][0]] <= 1e-9:
                queues[p].popleft()
        now_s = until_s
    return started_s


@for_each(range(12))
def test_it_is_what_single_records_come_to(seed: int) -> None:
    """Within a second, the resolution, and what a record's own work takes on half of a pod."""
    trace, steps = random_case(seed)
    simulated, _ = run_script(trace, *steps)
    second, key = np.nonzero(trace.counts)
    number = trace.counts[second, key]
    within = np.concatenate([(np.arange(n) + 0.5) / n for n in number])
    sent_s = np.repeat(second, number) + within
    order = np.argsort(sent_s, kind="stable")
    sent_s = sent_s[order]
    partition = np.asarray(key_partitions(trace.keys, trace.num_partitions))[np.repeat(key, number)[order]]
    started_s = start_single_records(trace, steps, sent_s, partition)
    is_started = np.isfinite(started_s)
    single = measure_records(trace, sent_s, np.flatnonzero(is_started), started_s[is_started])
    for name in ("p50_s", "p95_s", "p99_s", "worst_s"):
        assert getattr(simulated.measures.waiting, name) == pytest.approx(
            getattr(single.waiting, name), abs=1.0
        ), name
    assert simulated.measures.drain_s == pytest.approx(single.drain_s, abs=1.0)
    assert simulated.measures.waiting.record_s == pytest.approx(single.waiting.record_s, rel=0.05)
    assert simulated.measures.unfinished == pytest.approx(single.unfinished, abs=2 * trace.num_partitions)


@for_each(range(20))
def test_what_is_sent_is_started_or_unfinished(seed: int) -> None:
    trace, steps = random_case(seed)
    outcome, script = run_script(trace, *steps, Step(59.5, *steps[-1][1:]))
    _, lag, end = script.seen[-1]
    assert sum(end) == trace.counts.sum()
    assert outcome.measures.waiting.num_records == pytest.approx(trace.counts.sum())
    assert outcome.measures.unfinished <= sum(lag) + trace.num_partitions
    # The area under the lag is the time that records wait, but for what happens within a second.
    area = float(np.trapezoid(outcome.measures.lag))
    assert outcome.measures.waiting.record_s == pytest.approx(area, rel=0.02)


@for_each(range(0, 40, 2))
def test_no_policy_is_below_the_bound(seed: int) -> None:
    trace, steps = random_case(seed)
    script, shared, bound = Script(steps), Script([Step(0, [ANY] * 4, steps[0].speed, [0] * 4)]), Bound(trace)
    of_script, of_shared, of_bound = (each.measures for each in run([trace] * 3, [script, shared, bound]))
    assert (of_script.lag >= of_bound.lag - 1e-6).all()
    assert of_shared.lag == pytest.approx(of_bound.lag, abs=1e-6)
    for measures in (of_script, of_shared):
        assert measures.drain_s >= of_bound.drain_s - 1e-6
        least = zip(measures.waiting[4:], of_bound.waiting[4:], strict=True)
        assert all(value >= bound_value - 1e-6 for value, bound_value in least)


def test_one_queue_is_lindleys_recursion() -> None:
    chance = np.random.default_rng(39)
    records = chance.poisson(8.0, (500, 1))
    outcome, _ = run_script(trace_of(records, [9.0]), Step(0, [0], [9.0], [0]))
    expected = [0.0]
    for sent in records[:, 0].tolist():
        expected.append(max(0.0, expected[-1] + sent - 9.0))
    assert outcome.measures.lag == pytest.approx(expected, abs=1e-6)


def test_the_mean_wait_of_poisson_arrivals_is_that_of_pollaczek_and_khinchine() -> None:
    """M/D/1: load * service / (2 * (1 - load)).

    A record is a fluid, sent within a second and started within its service: the mean of its parts is half
    of a service more, and half of a second less.
    """
    load, service_s, queues = 0.5, 20.0, 300
    chance = np.random.default_rng(39)
    records = chance.poisson(load / service_s, (4_000, queues))
    trace = trace_of(records, [1.0] * queues, cost=[service_s] * queues, warm_up_s=500)
    outcome, _ = run_script(trace, Step(0, range(queues), [1.0] * queues, [0.0] * queues))
    waiting = outcome.measures.waiting
    expected = load * service_s / (2 * (1 - load)) + service_s / 2 - 0.5
    assert waiting.record_s / waiting.num_records == pytest.approx(expected, rel=0.03)


def test_runs_do_not_depend_on_what_runs_beside_them() -> None:
    cases = [random_case(seed) for seed in range(4)]
    together = run([trace for trace, _ in cases], [Script(steps) for _, steps in cases])
    for (trace, steps), beside in zip(cases, together, strict=True):
        alone, _ = run_script(trace, *steps)
        assert alone.figures() == pytest.approx(beside.figures(), abs=1e-9)


def test_a_contender_that_asks_for_now_again_is_refused() -> None:
    class Stuck(Script):
        def act(self, now_s: float, *_: Int64s) -> None:
            self.next_s = now_s

    with pytest.raises(ValueError, match="Stuck wants to be asked at"):
        run([trace_of([[1]], [1.0])], [Stuck([Step(0, [0], [1.0], [0])])])
