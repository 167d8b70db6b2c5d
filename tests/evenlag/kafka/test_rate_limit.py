"""How many requests a snapshot may send, and how they are distributed; needs no clock and no broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenlag.kafka.arrow_rows import Problem, find_problems, problem_rows
from evenlag.kafka.rate_limit import Deadline, RequestBudget
from spark_jobs.steps.read_tasks import partition_work

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def times_sent(rate: float, pauses: list[float], *, is_full: bool) -> NDArray[np.float64]:
    """When requests go out that are asked for one after another, with pauses in between."""
    clock = Clock()
    budget = RequestBudget(rate, is_full=is_full, clock=clock)
    sent = []
    for pause in pauses:
        clock.now += pause
        clock.now += budget.take()
        sent.append(clock.now)
    return np.array(sent)


@given(
    rate=st.floats(0.1, 1_000),
    pauses=st.lists(st.floats(0, 5) | st.just(0.0), min_size=1, max_size=80),
    is_full=st.booleans(),
)
def test_no_stretch_of_time_has_more_requests_than_the_budget(
    rate: float, pauses: list[float], is_full: bool
) -> None:
    sent = times_sent(rate, pauses, is_full=is_full)
    count = np.arange(len(sent))
    stretch = sent[None, :] - sent[:, None]
    requests = count[None, :] - count[:, None] + 1
    allowed = rate * stretch + max(rate, 1.0)
    assert (requests <= allowed + 1e-3)[np.triu_indices(len(sent))].all()


def test_what_is_saved_may_be_used_at_once_and_no_more() -> None:
    assert times_sent(10, [0.0] * 12, is_full=True).tolist()[9:] == [1000.0, 1000.1, 1000.2]
    assert times_sent(10, [0.0] * 2, is_full=False).tolist() == [1000.1, 1000.2]


def test_a_deadline_is_put_off_by_what_was_waited_for_our_own_sake() -> None:
    clock = Clock()
    deadline = Deadline(10, clock=clock)
    clock.now += 9
    deadline.extend(5)
    clock.now += 5
    assert not deadline.is_over
    clock.now += 1
    assert deadline.is_over


@given(
    owner=st.lists(st.integers(-1, 6), max_size=200),
    num_tasks=st.integers(1, 9),
    max_shares=st.integers(1, 4),
    min_size=st.integers(1, 20),
)
def test_shares_hold_every_row_once_and_few_tasks_ask_the_same_broker(
    owner: list[int], num_tasks: int, max_shares: int, min_size: int
) -> None:
    owners = np.array(owner, dtype=np.int64)
    dealt = partition_work(owners, num_tasks, max_shares, min_size)
    assert len(dealt) <= num_tasks
    assert all(len(rows) for rows in dealt)
    assert sorted(row for rows in dealt for row in rows.tolist()) == list(range(len(owner)))
    for node in set(owner):
        assert sum(node in owners[rows] for rows in dealt) <= max_shares


def test_what_cannot_be_read_for_one_reason_is_one_problem() -> None:
    errors = ["broker 2 did not answer", None, "broker 2 did not answer", "UnknownTopicOrPartitionError"]
    problems = find_problems("offsets", ["b-1", "b-2", "a-0", "c-0"], errors)
    assert problem_rows([*problems, Problem("group", "g", "x", 1_235)]) == [
        {"kind": "offsets", "name": "a-0 and 1 more", "error": "broker 2 did not answer"},
        {"kind": "offsets", "name": "c-0", "error": "UnknownTopicOrPartitionError"},
        {"kind": "group", "name": "g and 1,234 more", "error": "x"},
    ]
    assert len(problem_rows([Problem("group", str(number), "x") for number in range(2_000)])) == 1_000
