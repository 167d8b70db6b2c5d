"""The bootstrap beside SciPy's, its coverage of known distributions, and ranks computed manually."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from tests.bench.field.statistics import FEWEST_SEEDS, Interval, PairedBootstrap

if TYPE_CHECKING:
    from evenlag.lag.arrays import Floats

_SEEDS = 30


def draw(distribution: str, shape: tuple[int, ...]) -> Floats:
    chance = np.random.default_rng(5)
    drawn: Floats = getattr(chance, distribution)(2.0, 0.5, shape)
    return drawn


@pytest.mark.parametrize("statistic", [np.mean, np.median])
def test_the_interval_is_that_of_scipy(statistic: Any) -> None:
    values = draw("lognormal", (_SEEDS,))
    found = PairedBootstrap.of(_SEEDS, resamples=20_000).interval(values, statistic)
    theirs = stats.bootstrap(
        (values,), statistic, method="percentile", n_resamples=20_000, rng=np.random.default_rng(6)
    ).confidence_interval
    assert found.value == statistic(values)
    # Two sets of resamples: they differ by a few hundredths of the width.
    within = 0.05 * (theirs.high - theirs.low)
    assert found[1:] == pytest.approx((theirs.low, theirs.high), abs=within)


@pytest.mark.parametrize(
    ("distribution", "statistic", "truth"),
    [("normal", np.mean, 2.0), ("normal", np.median, 2.0), ("lognormal", np.median, np.exp(2.0))],
)
def test_the_interval_holds_the_truth_about_as_often_as_it_says(
    distribution: str, statistic: Any, truth: float
) -> None:
    bootstrap = PairedBootstrap.of(_SEEDS, resamples=1_000)
    samples = draw(distribution, (600, _SEEDS))
    held = [low <= truth <= high for _, low, high in (bootstrap.interval(s, statistic) for s in samples)]
    # Percentile intervals of 30 values are a little narrow: about 94 %. 600 samples tell it to 2 %.
    assert 0.91 <= np.mean(held) <= 0.975


def test_runs_of_one_seed_are_compared_with_each_other() -> None:
    base = draw("lognormal", (_SEEDS,))
    bootstrap = PairedBootstrap.of(_SEEDS)
    assert bootstrap.ratio(base / 2, base) == pytest.approx((0.5, 0.5, 0.5))
    assert bootstrap.difference(base + 3, base, np.mean) == pytest.approx((3, 3, 3))
    # In another order of the seeds nothing is left of it.
    _, low, high = bootstrap.ratio(base[::-1] / 2, base)
    assert high - low > 0.1


def test_the_same_seed_draws_the_same_interval() -> None:
    values = draw("normal", (_SEEDS,))
    first, again, other = (
        PairedBootstrap.of(_SEEDS, seed=seed).interval(values, np.mean) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_of_few_seeds_the_least_and_the_largest_are_given() -> None:
    bootstrap = PairedBootstrap.of(3)
    assert bootstrap.interval(np.array([4.0, 1.0, 2.0])) == (2, 1, 4)
    assert PairedBootstrap.of(FEWEST_SEEDS).draws is not None


def test_a_rank_counts_who_is_clearly_better() -> None:
    own = np.full(_SEEDS, 10.0)
    others = np.array([1.0, 9.7, 9.85, 10.0, 50.0])[:, None].repeat(_SEEDS, axis=1)
    bootstrap = PairedBootstrap.of(_SEEDS)
    # 1.0 and 9.7 are better by more than 2 %; of 9.85 and 10.0 nobody would notice it.
    assert bootstrap.rank(own, others) == (3, 3, 3)
    # A difference of 60 ms is none, however large a share it is.
    assert bootstrap.rank(np.full(_SEEDS, 0.07), np.full((1, _SEEDS), 0.01)) == (1, 1, 1)


def test_a_rank_that_depends_on_the_seeds_has_an_interval() -> None:
    own = np.array([1.0, 5.0] * (_SEEDS // 2))
    rank = PairedBootstrap.of(_SEEDS).rank(own, np.full((1, _SEEDS), 3.0))
    assert (rank.low, rank.high) == (1, 2)
    assert PairedBootstrap.of(3).rank(np.array([1.0, 5.0, 6.0]), np.full((1, 3), 3.0)) == Interval(2, 1, 2)
