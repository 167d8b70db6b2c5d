"""The judge of a soak finds what grows, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tests.soak.trend import trend

SEEDS = range(20)


def noise(seed: int, num: int = 250) -> np.ndarray:
    """Hundred, give or take five, and now and then a value that is far too large."""
    chance = np.random.default_rng(seed)
    values = 100 + chance.normal(0, 5, num)
    values[chance.random(num) < 0.05] += 80
    return values


@pytest.mark.parametrize("seed", SEEDS)
def test_what_stays_the_same_does_not_grow_for_all_its_noise(seed: int) -> None:
    assert not trend(noise(seed).tolist(), warm_up=0, allowance=10).is_growing


@pytest.mark.parametrize("seed", SEEDS)
def test_a_steady_leak_is_found_under_the_noise(seed: int) -> None:
    values = noise(seed) + np.linspace(0, 20, 250)
    found = trend(values.tolist(), warm_up=0, allowance=10)
    assert found.is_growing
    assert found.rise == pytest.approx(20, abs=6)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_saw_is_no_growth_and_a_growing_saw_is(seed: int) -> None:
    saw = np.arange(300) % 50
    assert not trend((noise(seed, 300) + saw).tolist(), warm_up=0, allowance=20).is_growing
    assert trend(
        (noise(seed, 300) + saw + np.linspace(0, 60, 300)).tolist(), warm_up=0, allowance=20
    ).is_growing


def test_neither_a_warm_up_nor_a_single_step_nor_a_fall_is_growth() -> None:
    rising = np.minimum(np.arange(250.0), 40)
    assert not trend(rising.tolist(), warm_up=50, allowance=1).is_growing
    step = np.where(np.arange(250) < 100, 0.0, 30.0)
    assert not trend(step.tolist(), warm_up=0, allowance=10).is_growing
    assert not trend((-rising).tolist(), warm_up=0, allowance=1).is_growing


def test_a_share_of_what_it_was_may_be_allowed() -> None:
    values = np.linspace(100, 130, 60).tolist()
    assert trend(values, warm_up=0, relative=0.2).is_growing
    assert not trend(values, warm_up=0, relative=0.4).is_growing


def test_too_few_values_say_nothing() -> None:
    with pytest.raises(ValueError, match="5 values after a warm-up of 3"):
        trend([1.0] * 8, warm_up=3)
