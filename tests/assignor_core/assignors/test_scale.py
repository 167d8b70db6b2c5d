"""Large groups: little memory beside the group, and nothing but arrays on the way."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from assignor_core.assignors import get_assignor
from assignor_core.metrics import count_moves, member_counts
from assignor_core.verify import check_assignment
from tests.bench.support.cases import equal, incremental, one_odd, overlapping
from tests.support.improving_chain import has_improving_chain

MAKERS = {
    "equal": lambda: equal(200, 50, 2000, zipf_lags=True),
    "one odd": lambda: one_odd(200, 50, 2000),
    "overlapping": lambda: overlapping(200, 50, 2000, density=0.1),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", ["cooperative-sticky", "lag-aware", "range", "roundrobin"])
def test_peak_of_memory_is_200_bytes_a_partition_at_most(kind: str, name: str) -> None:
    group = MAKERS[kind]()
    group = incremental(group, get_assignor(name).assign(group))
    group._cache.clear()
    tracemalloc.start()
    get_assignor(name).assign(group)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 200 * group.num_partitions


@pytest.mark.parametrize("kind", MAKERS)
def test_member_that_joins_moves_only_its_share(kind: str) -> None:
    group = MAKERS[kind]()
    assignment = get_assignor("cooperative-sticky").assign(group)
    check_assignment(group, assignment)
    after = incremental(group, assignment)
    second = get_assignor("cooperative-sticky").assign(after)
    check_assignment(after, second)
    assert not has_improving_chain(after, second)
    share = member_counts(after, second)[-1]
    assert share >= np.floor(100_000 / 201)
    # With overlapping subscriptions others must pass on to those that it takes from.
    assert count_moves(after, second) == share or kind == "overlapping"
