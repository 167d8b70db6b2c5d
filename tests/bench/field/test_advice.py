"""The queues of the bench of advice, against sums, and its oracle on a trace that needs a known number."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.field.advice import Case, serve, summary


def test_what_waits_longer_than_the_target_is_a_sum_of_seconds() -> None:
    # Two units a second at a member of one: after s seconds the last one waits s seconds.
    played = serve(np.full((60, 1), 2.0), np.zeros(1), np.zeros(1, dtype=np.int64), np.ones(1))
    assert played.total == pytest.approx(2 * sum(range(61)))
    assert played.above == pytest.approx(2 * sum(range(31)))
    assert played.backlog.tolist() == pytest.approx([60.0])


def test_members_that_do_all_leave_nothing_and_others_leave_more_and_more() -> None:
    case = Case("even", 0)
    rate = case.work.mean(axis=0).sum()
    enough = int(rate / 100.0) + 1
    above, _ = case.play([enough] * 21)
    assert above.sum() == 0
    above, _ = case.play([enough - 2] * 21)
    assert (np.diff(above) > 0).all()


def test_the_summary_counts_seeds() -> None:
    good = {"oracle_members": 5.0, "advised_members": 6.0, "above": 0.0, "above_with_one_fewer": 0.5}
    bad = {"oracle_members": 30.0, "advised_members": 34.0, "above": 0.02, "above_with_one_fewer": 0.0}
    assert set(summary([good, bad]).values()) == {0.5}
