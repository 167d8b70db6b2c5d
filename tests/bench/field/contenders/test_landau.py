"""Modified Worst Fit and the R-score on small examples, each step calculated."""

from __future__ import annotations

import numpy as np

from tests.bench.field.contenders.landau import modified_worst_fit, r_score
from tests.bench.field.simulator import NOBODY
from tests.support.each import for_each


@for_each(
    [
        # Consumer 0 is the fullest (9 of 10). Nothing exists yet, so it is kept with its partitions. Of
        # consumer 1 (2 + 3) nothing fits into the 1 that is left: it is kept.
        ([0, 0, 1, 1], [5, 4, 2, 3], [0, 0, 1, 1]),
        # Consumer 0 (6 + 5) is too full: the largest stays, 5 goes last. Consumer 1 (3): 3 fits into 6 + 3 <=
        # 10, so consumer 1 is not needed for it; 5 then fits nowhere and gets the lowest consumer that is
        # free.
        ([0, 0, 1], [6, 5, 3], [0, 1, 0]),
        # Consumer 2 (8) and 0 (6) are kept. The 1 of consumer 1 goes where most is free: to 0.
        ([0, 1, 2], [6, 1, 8], [0, 0, 2]),
        # Without a consumer: the largest first, each where most is free, and a new one when none has room.
        ([NOBODY] * 4, [4, 7, 3, 6], [1, 0, 0, 1]),
        # More than a consumer can take has one of its own.
        ([0, 0], [15, 2], [0, 1]),
    ]
)
def test_modified_worst_fit(case: tuple[list[int], list[int], list[int]]) -> None:
    owner, size, wanted = case
    found = modified_worst_fit(np.array(owner, dtype=np.int32), np.array(size, dtype=np.float64), 10.0)
    assert found.tolist() == wanted


def test_no_consumer_is_above_its_capacity_unless_one_partition_is() -> None:
    chance = np.random.default_rng(39)
    for _ in range(50):
        size = chance.uniform(0, 12, 30)
        owner = chance.integers(-1, 9, 30).astype(np.int32)
        found = modified_worst_fit(owner, size, 10.0)
        assert found.min() >= 0
        level, count = np.bincount(found, size), np.bincount(found)
        assert (level[count > 1] <= 10.0).all()


def test_r_score_is_the_rate_that_moves_in_consumers() -> None:
    before, after = np.array([0, 0, 1, NOBODY]), np.array([0, 1, 1, 0])
    assert r_score(before, after, np.array([5.0, 4.0, 3.0, 2.0]), 8.0) == 0.5
    assert r_score(before, before, np.array([5.0, 4.0, 3.0, 2.0]), 8.0) == 0.0
