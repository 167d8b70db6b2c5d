"""KIP-169's leader as a contender: its greedy on a small example, and its rebalance every five minutes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.bench.field.contenders.kafka_assignors import LagGreedy
from tests.bench.field.contenders.test_group import small_trace

LAG = np.array([70, 0, 90, 10, 20, 0, 30, 40, 0, 50, 60, 110])
# Round 1: 11 to a, 2 to b, 0 to c (110, 90, 70). Round 2: c first with 60, then b with 50, then a with 40
# (150, 140, 130). Round 3: c 30, b 20, a 10 (160, 160, 160). Round 4, nothing left: a, b, c in turn.
ROUNDS = [[1, 3, 7, 11], [2, 4, 5, 9], [0, 6, 8, 10]]


def test_it_rebalances_every_five_minutes_by_the_lag_of_then() -> None:
    trace = replace(small_trace(((0, (0, 1, 2)),), (None,) * 3), duration_s=700)
    contender = LagGreedy(trace)
    assert np.bincount(contender.owner).tolist() == [4, 4, 4]
    now_s, settled_s = 0.0, []
    while now_s < 700:
        before = contender.counts.broker_requests
        contender.act(now_s, LAG, LAG)
        if contender.counts.broker_requests > before:
            settled_s.append(now_s)
            assert [np.flatnonzero(contender.owner == member).tolist() for member in range(3)] == ROUNDS
        now_s = contender.next_s
    assert contender.counts.rebalances == 2
    # Until the last of three heartbeats, at most 3 s.
    assert 300 < settled_s[0] < 303.2
    assert 600 < settled_s[1] < 603.2


def test_nobody_asks_for_a_rebalance_while_no_consumer_runs() -> None:
    trace = replace(small_trace(((0, (0, 1, 2)),), (None,) * 3), duration_s=400, outages=((290, 310),))
    contender = LagGreedy(trace)
    now_s, rebalances = 0.0, 0
    while now_s < 305:
        rebalances = contender.counts.rebalances if now_s < 299 else rebalances
        contender.act(now_s, LAG, LAG)
        now_s = contender.next_s
    assert not contender.members
    assert contender.counts.rebalances == rebalances
