"""The oracle's search against all assignments, and its waiting against the fluid model."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.bench.field.contenders.oracle import Horizon


def draw(chance: np.random.Generator) -> tuple[Horizon, np.ndarray]:
    backlog = chance.choice([0.0, 40.0], (6, 1)) * chance.random((6, 1))
    rates = chance.uniform(0.2, 3.0, (6, 1)) * chance.uniform(0.5, 1.5, (6, 12))
    inflow = np.concatenate([backlog, backlog + np.cumsum(10 * rates, axis=1)], axis=1)
    speed = chance.uniform(0.3, 0.6, 3) * rates.sum(axis=0).mean()
    return Horizon(inflow, speed, 10.0, np.full(6, 5.0)), chance.integers(0, 3, 6).astype(np.int32)


def test_the_search_is_near_the_best_of_all_assignments() -> None:
    chance = np.random.default_rng(39)
    gaps = []
    for _ in range(40):
        horizon, owner = draw(chance)
        best = min(
            horizon.value(np.array(each, dtype=np.int32), owner) for each in product(range(3), repeat=6)
        )
        found = horizon.value(horizon.search(owner, owner, chance, max_moves=6, count_slack=6), owner)
        assert found <= horizon.value(owner, owner)
        gaps.append(found / best - 1 if best else found)
    assert np.median(gaps) < 0.001
    assert np.mean(gaps) < 0.05


def test_limits_hold() -> None:
    chance = np.random.default_rng(40)
    for _ in range(20):
        horizon, _ = draw(chance)
        owner = np.array([0, 0, 1, 1, 2, 2], dtype=np.int32)
        found = horizon.search(owner, owner, chance, max_moves=2, count_slack=1)
        assert (found != owner).sum() <= 2
        counts = np.bincount(found, minlength=3)
        assert counts.max() - counts.min() <= 2


def test_waiting_of_one_member_by_hand() -> None:
    # Backlog 10, nothing arrives, 1 unit a second: a triangle of 10 * 10 / 2, then nothing waits.
    horizon = Horizon(np.full((1, 4), 10.0), np.array([1.0]), 10.0, np.zeros(1))
    assert horizon.value(np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)) == pytest.approx(50.0)
