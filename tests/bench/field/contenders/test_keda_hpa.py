"""The autoscaler's arithmetic by Kubernetes' documented examples, and KEDA's limits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.field.contenders.keda_hpa import Autoscaler, Trigger
from tests.support.each import for_each


@for_each(
    [
        # (replicas, average by replica, target, desired): 200m instead of 100m doubles, 50m halves.
        (3, 200, 100, 6),
        (4, 50, 100, 2),
        # 50 replicas at 90 % of a target of 75 % (kubernetes.io/blog/2025/04/28, "configurable tolerance").
        (50, 90, 75, 60),
        # Within the tolerance of 10 %, and just outside.
        (10, 110, 100, 10),
        (10, 90, 100, 10),
        (10, 111, 100, 12),
        (10, 89, 100, 9),
        # Rounded up.
        (3, 101, 75, 5),
        (1, 0, 100, 1),
    ]
)
def test_desired_replicas(case: tuple[int, int, int, int]) -> None:
    replicas, average, target, desired = case
    assert Autoscaler().desired(0.0, replicas, replicas * average, target) == desired


def test_it_goes_down_to_the_highest_recommendation_of_the_last_five_minutes() -> None:
    scaler = Autoscaler()
    assert scaler.desired(0.0, 8, 800, 100) == 8
    assert scaler.desired(15.0, 8, 500, 100) == 8
    assert scaler.desired(300.0, 8, 300, 100) == 8
    assert scaler.desired(301.0, 8, 300, 100) == 5
    assert scaler.desired(316.0, 5, 300, 100) == 3


def test_it_goes_up_by_four_or_by_as_many_as_there_are_in_a_period() -> None:
    scaler = Autoscaler()
    assert scaler.desired(0.0, 1, 9_900, 100) == 5
    assert scaler.desired(10.0, 5, 9_900, 100) == 5
    assert scaler.desired(15.0, 5, 9_900, 100) == 10
    assert scaler.desired(30.0, 10, 9_900, 100) == 20
    assert Autoscaler(max_replicas=12).desired(0.0, 10, 9_900, 100) == 12


LAG = np.array([500, 0, 25, 0])


@for_each(
    [
        (Trigger(), 40),
        (Trigger(allow_idle_consumers=True), 525),
        (Trigger(limit_to_partitions_with_lag=True), 20),
        (Trigger(lag_threshold=200), 525),
        # Of the divisors of 4 partitions the first that suffices for ceil(525 / 200) = 3 replicas.
        (Trigger(lag_threshold=200, ensure_even_distribution_of_partitions=True), 800),
        (Trigger(lag_threshold=300, ensure_even_distribution_of_partitions=True), 600),
        (Trigger(lag_threshold=10, ensure_even_distribution_of_partitions=True), 40),
    ]
)
def test_metric_is_limited_to_partitions(case: tuple[Trigger, int]) -> None:
    trigger, metric = case
    assert trigger.metric(LAG) == metric


def test_persistent_lag_is_left_out_only_if_asked_for() -> None:
    persists = np.array([True, False, False, False])
    assert Trigger(lag_threshold=1_000).metric(LAG, persists) == 525
    assert Trigger(lag_threshold=1_000, exclude_persistent_lag=True).metric(LAG, persists) == 25


@pytest.mark.parametrize(("threshold", "is_active"), [(0, True), (524, True), (525, False)])
def test_activation_needs_more_than_its_threshold(threshold: int, is_active: bool) -> None:
    assert Trigger(activation_lag_threshold=threshold).is_active(LAG) is is_active
