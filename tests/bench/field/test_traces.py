"""The traces are what their descriptions say, and their keys fall where Kafka's clients put them."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from kafka.partitioner.default import DefaultPartitioner

from tests.bench.field.keys import even_keys, key_partitions, numbered_keys
from tests.bench.field.traces import NAMES, SIZES, UTILISATIONS, Pod, Size, Trace, departures, make_trace
from tests.support.each import for_each

SMOKE, BROKER, SIMULATION = SIZES["smoke"], SIZES["broker"], SIZES["simulation"]
# The hashes that Kafka's own test of its hash function expects (org.apache.kafka.common.utils.UtilsTest).
_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_the_sign_of_a_hash_is_cut_off() -> None:
    # 2**31 is no multiple of 7 or 36: a hash without its sign bit leaves another remainder than with it.
    assert {value < 0 for value in _HASHES.values()} == {True, False}
    for num_partitions in (7, 36):
        expected = [(value + 2**31 if value < 0 else value) % num_partitions for value in _HASHES.values()]
        assert key_partitions(list(_HASHES), num_partitions).tolist() == expected


def test_kafka_python_sends_to_the_same_partitions() -> None:
    class Cluster:
        def topics(self) -> set[str]:
            return {"records"}

        def partitions_for_topic(self, _: str) -> set[int]:
            return set(range(36))

        available_partitions_for_topic = partitions_for_topic

    keys, partitioner = numbered_keys(500), DefaultPartitioner()
    expected = [partitioner.partition("records", key, key, None, None, Cluster()) for key in keys]
    assert key_partitions(keys, 36).tolist() == expected


def test_librdkafka_sends_to_the_same_partitions() -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    sent: dict[bytes, int] = {}

    def keep(error: Any, message: Any) -> None:
        assert error is None
        sent[message.key()] = message.partition()

    # Its mock cluster makes topics of four partitions.
    producer = confluent_kafka.Producer(
        {"test.mock.num.brokers": 1, "partitioner": "murmur2_random", "log_level": 2}
    )
    keys = numbered_keys(500)
    for key in keys:
        producer.produce("records", key=key, on_delivery=keep)
    assert producer.flush(60) == 0
    assert key_partitions(keys, 4).tolist() == [sent[key] for key in keys]


@for_each(sorted({size.num_partitions for size in SIZES.values()}))
def test_even_keys_are_even_on_both_topics(num_partitions: int) -> None:
    keys = even_keys(num_partitions)
    assert len(set(keys)) == len(keys)
    for partitions, each in ((num_partitions, 6), (num_partitions * 3 // 2, 4)):
        found = np.bincount(key_partitions(keys, partitions), minlength=partitions)
        assert found.tolist() == [each] * partitions


def _written_by_hand() -> Trace:
    return Trace(
        name="even",
        seed=4,
        utilisation=0.6,
        duration_s=3,
        warm_up_s=1,
        keys=(b"21", b"foobar", b"abc"),
        counts=np.array([[1, 0, 2], [0, 0, 0], [0, 3, 1]]),
        cost=np.array([1.0, 0.5, 4.0]),
        pods=(Pod("a", None, 10.0), Pod("b", "1", 5.0)),
        changes=((0, (0, 1)), (2, (1,))),
        outages=(),
        num_partitions=4,
    )


def test_a_small_trace_by_hand() -> None:
    # Without the sign bit: 21 is 1173551340, foobar 1357151166 and abc 479470107; modulo 4: 0, 2 and 3.
    trace = _written_by_hand()
    records, work = trace.arrivals(4)
    assert records.tolist() == [[1, 0, 0, 2], [0, 0, 0, 0], [0, 0, 3, 1]]
    assert work.tolist() == [[1, 0, 0, 8], [0, 0, 0, 0], [0, 0, 1.5, 4]]
    # Modulo 5: 0, 1 and 2.
    assert trace.arrivals(5)[0].tolist() == [[1, 0, 2, 0, 0], [0, 0, 0, 0, 0], [0, 3, 1, 0, 0]]
    assert trace.running_speed().tolist() == [15.0, 15.0, 5.0]
    at_s, keys = trace.schedule()
    assert sorted(keys[:3].tolist()) == [0, 2, 2]
    assert sorted(keys[3:].tolist()) == [1, 1, 1, 2]
    assert np.floor(at_s).tolist() == [0, 0, 0, 2, 2, 2, 2]


@for_each(NAMES)
def test_a_seed_is_a_trace(name: str) -> None:
    first, again, other = (make_trace(name, seed, 0.75, SMOKE) for seed in (1, 1, 2))
    for field in ("counts", "cost"):
        assert np.array_equal(getattr(first, field), getattr(again, field))
    assert (first.keys, first.pods, first.changes) == (again.keys, again.pods, again.changes)
    (at_s, keys), (at_s_again, keys_again) = first.schedule(), again.schedule()
    assert np.array_equal(at_s, at_s_again)
    assert np.array_equal(keys, keys_again)
    assert not np.array_equal(first.counts, other.counts)


# The rates meet the utilisation exactly; the records are Poisson draws, so the tolerance is one of chance:
# 1,000 records are sent in the measured time of the smallest traces, 100,000 and 2,000,000 of the others.
_TOLERANCES = {"smoke": 0.15, "broker": 0.015, "simulation": 0.004}


@for_each(product(NAMES, UTILISATIONS))
def test_the_utilisation_is_met(case: tuple[str, float]) -> None:
    name, utilisation = case
    for size, seeds in (("smoke", 5), ("broker", 2), ("simulation", int(case == ("churn", 0.75)))):
        for seed in range(seeds):
            trace = make_trace(name, seed, utilisation, SIZES[size])
            measured = slice(trace.warm_up_s, None)
            work = trace.counts[measured].sum(axis=0) @ trace.cost
            found = work / trace.running_speed()[measured].sum()
            assert abs(found / utilisation - 1) < _TOLERANCES[size], (size, seed, found)


@for_each(NAMES)
def test_the_schedule_has_the_records_of_each_second(name: str) -> None:
    trace = make_trace(name, 3, 0.9, SMOKE)
    at_s, keys = trace.schedule()
    assert (np.diff(at_s) >= 0).all()
    counts = np.zeros_like(trace.counts)
    np.add.at(counts, (at_s.astype(int), keys), 1)
    assert np.array_equal(counts, trace.counts)
    # Uniform within the second: quarters have a quarter each, within five standard deviations.
    quarters = np.bincount((at_s % 1 * 4).astype(int), minlength=4)
    assert np.abs(quarters - len(at_s) / 4).max() < 5 * np.sqrt(len(at_s) * 3 / 16)


@for_each(NAMES)
def test_more_partitions_have_the_same_records(name: str) -> None:
    trace = make_trace(name, 3, 0.75, BROKER)
    work_sent = trace.counts @ trace.cost
    for num_partitions in (trace.num_partitions, trace.num_partitions * 3 // 2):
        records, work = trace.arrivals(num_partitions)
        assert records.shape == work.shape == (trace.duration_s, num_partitions)
        assert records.dtype == np.int64
        assert np.array_equal(records.sum(axis=1), trace.counts.sum(axis=1))
        np.testing.assert_allclose(work.sum(axis=1), work_sent)
        assert np.count_nonzero(records.sum(axis=0)) > 0.9 * num_partitions


@for_each(NAMES)
def test_pods_join_and_leave_in_order(name: str) -> None:
    for size in SIZES.values() if name == "churn" else [SMOKE]:
        _check_pods(make_trace(name, 5, 0.75, size), size)


def _check_pods(trace: Trace, size: Size) -> None:
    seconds = [second for second, _ in trace.changes]
    assert seconds == sorted(set(seconds))
    assert seconds[0] == 0
    assert seconds[-1] < trace.duration_s
    for _, running in trace.changes:
        assert len(running) == len(set(running)) > 0
        assert set(running) <= set(range(len(trace.pods)))
    assert len({pod.name for pod in trace.pods}) == len(trace.pods)
    if trace.name == "drawn":
        return
    if trace.name != "churn":
        assert trace.changes == ((0, tuple(range(size.num_pods))),)
        return
    assert seconds[1] >= size.warm_up_s
    for (_, before), (_, after) in pairwise(trace.changes):
        assert before != after
    for index, pod in enumerate(trace.pods):
        is_running = [index in running for _, running in trace.changes]
        times_started = is_running[0] + sum(not before and after for before, after in pairwise(is_running))
        if pod.instance_id is None:
            assert times_started == 1
        else:
            # The rolling deploy restarts it.
            assert times_started >= 2
            assert is_running[-1]
    # The rolling deploy replaces all others.
    first_dynamic = {index for index in trace.changes[0][1] if trace.pods[index].instance_id is None}
    assert first_dynamic
    assert first_dynamic.isdisjoint(trace.changes[-1][1])
    most = max(len(running) for _, running in trace.changes)
    assert most == size.num_pods + max(1, size.num_pods // 3)
    assert len(trace.changes[-1][1]) == size.num_pods


@for_each(product((0, 1, 2), UTILISATIONS))
def test_one_partition_is_hot_on_either_topic(case: tuple[int, float]) -> None:
    seed, utilisation = case
    trace = make_trace("hot", seed, utilisation, BROKER)
    for num_partitions in (24, 36):
        work = trace.arrivals(num_partitions)[1][trace.warm_up_s :] / BROKER.speed
        order = np.argsort(work.sum(axis=0))
        hot, next_hot = work[:, order[-1]], work[:, order[-2]]
        assert hot.sum() / BROKER.measured_s > 0.92
        assert next_hot.mean() < 0.3
    # More than a pod can do in the middle of the first half, and less in that of the second.
    work = trace.arrivals(24)[1][trace.warm_up_s :] / BROKER.speed
    hot = work[:, np.argmax(work.sum(axis=0))]
    quarter = BROKER.measured_s // 4
    assert hot[quarter - 50 : quarter + 50].mean() > 1.03
    assert hot[3 * quarter - 50 : 3 * quarter + 50].mean() < 0.87


def test_even_load_is_poisson_at_equal_cost() -> None:
    trace = make_trace("even", 0, 0.75, SIMULATION)
    assert (trace.cost == 1).all()
    for num_partitions in (48, 72):
        records = trace.arrivals(num_partitions)[0]
        # A Poisson count's variance is its mean: the mean ratio of many counts is one.
        assert abs((records.var(axis=0) / records.mean(axis=0)).mean() - 1) < 0.02
        totals = records.sum(axis=0)
        assert np.abs(totals - totals.mean()).max() < 5 * np.sqrt(totals.mean())


@for_each(range(3))
def test_speeds_and_costs_are_unequal(seed: int) -> None:
    trace = make_trace("unequal", seed, 0.75, BROKER)
    speeds = np.sort([pod.speed for pod in trace.pods])
    np.testing.assert_allclose(speeds / speeds[0], [1, 1, 2, 2, 4, 4])
    assert speeds.mean() == pytest.approx(BROKER.speed)
    assert np.median(np.repeat(trace.cost, trace.counts.sum(axis=0))) == pytest.approx(1, rel=0.05)
    records, work = trace.arrivals(24)
    by_partition = work.sum(axis=0) / records.sum(axis=0)
    assert by_partition.max() > 2.5 * by_partition.min()
    assert 0.2 < np.log(by_partition).std() < 0.8


def test_nobody_consumes_in_the_outage_of_a_backlog() -> None:
    for size in (SMOKE, BROKER):
        ((first, end),) = make_trace("backlog", 0, 0.75, size).outages
        assert first == size.warm_up_s + (size.duration_s - size.warm_up_s) // 12
        assert end - first == (size.duration_s - size.warm_up_s) // 12
    assert all(make_trace(name, 0, 0.75, SMOKE).outages == () for name in NAMES if name != "backlog")


# Rates, as good as without the noise of counts.
_CLEAR = SIMULATION._replace(speed=1e7)


def test_a_walk_steps_by_at_most_delta_within_its_bounds() -> None:
    records = make_trace("walks", 0, 0.75, _CLEAR).arrivals(48)[0]
    by_step = records.reshape(240, 30, 48)
    walk = by_step.mean(axis=1)
    walk *= 100 / walk.max()
    flat = by_step[:, :, walk.min(axis=0) > 5]
    assert len(flat.T) > 3
    assert np.abs(flat / flat.mean(axis=1, keepdims=True) - 1).max() < 0.02
    change = np.diff(walk, axis=0)
    assert np.abs(change).max() < 5.1
    inside = (walk[:-1] > 5) & (walk[:-1] < 95)
    # Uniform from -5 to 5.
    assert change[inside].mean() == pytest.approx(0, abs=0.15)
    assert np.abs(change[inside]).mean() == pytest.approx(2.5, abs=0.1)
    # It starts uniformly, reaches its bounds and keeps to them.
    assert np.quantile(walk[0], [0.25, 0.5, 0.75]) == pytest.approx([25, 50, 75], abs=15)
    assert walk.min() < 0.5
    assert np.count_nonzero(walk > 99) > 5


@for_each(("seasons", "backlog"))
def test_keys_are_skewed_by_zipf(name: str) -> None:
    totals = np.sort(make_trace(name, 0, 0.75, _CLEAR).counts.sum(axis=0))[::-1]
    ranks = np.arange(1, len(totals) + 1)
    exponent = -np.polyfit(np.log(ranks[:100]), np.log(totals[:100]), 1)[0]
    assert exponent == pytest.approx(0.8, abs=0.12 if name == "seasons" else 0.01)


def test_a_week_has_days_a_weekend_and_bursts() -> None:
    trace = make_trace("seasons", 0, 0.75, _CLEAR)
    counts = trace.counts.astype(float)
    second = np.arange(trace.duration_s)
    weekdays = second < trace.duration_s * 5 // 7
    # By half of the weekdays' days' Fourier coefficient, without the keys that had a burst.
    wave = np.exp(-2j * np.pi * 7 * second[weekdays] / trace.duration_s)
    swing = 2 * wave @ counts[weekdays] / counts[weekdays].sum(axis=0)
    is_calm = counts[weekdays].max(axis=0) < 1.6 * counts[weekdays].mean(axis=0)
    assert 0 < np.count_nonzero(~is_calm) < 20
    assert np.abs(swing[is_calm]) == pytest.approx(0.5, abs=0.02)
    thirds = np.bincount(np.round(np.angle(swing[is_calm]) * 3 / (2 * np.pi) + 0.75).astype(int) % 3)
    assert np.sort(thirds / thirds.sum()) == pytest.approx([0.2, 0.3, 0.5], abs=0.08)
    means = [counts[part][:, is_calm].sum(axis=1).mean() for part in (~weekdays, weekdays)]
    assert means[0] / means[1] == pytest.approx(0.75, abs=0.01)
    # All together swing less than a key.
    total = counts[:, is_calm].sum(axis=1)
    assert 0.05 < np.abs(2 * wave @ total[weekdays] / total[weekdays].sum()) < 0.25


def test_recorded_departures_are_those_of_the_source() -> None:
    routes, by_day = departures()
    # The source has 336,776 flights, of which 8,255 were cancelled; from JFK to LAX 11,262 and 66.
    assert by_day.shape == (len(routes), 365)
    assert by_day.sum() == 336_776 - 8_255
    assert by_day[routes.index("JFK-LAX")].sum() == 11_262 - 66


@for_each(range(3))
def test_recorded_rates_are_the_departures_of_successive_days(seed: int) -> None:
    trace = make_trace("recorded", seed, 0.75, SIMULATION._replace(duration_s=91 * 60, speed=1e7))
    routes, by_day = departures()
    assert [key.decode().rsplit("-", 1)[0] for key in trace.keys] == list(routes)
    sent = trace.counts.reshape(91, 60, -1).sum(axis=1).T
    shares = sent / sent.sum()
    starts = [
        first
        for first in range(365 - 90)
        if np.allclose(by_day[:, first : first + 91] / by_day[:, first : first + 91].sum(), shares, atol=1e-6)
    ]
    assert len(starts) == 1
