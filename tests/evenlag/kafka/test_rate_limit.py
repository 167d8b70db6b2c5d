"""How many requests a snapshot may send, and how they are distributed; needs no clock and no broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from evenlag.kafka.arrow_rows import Problem, find_problems, problem_rows
from evenlag.kafka.broker_requests import Deadline, RequestBudget

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def times_sent(rate: float, pauses: list[float]) -> NDArray[np.float64]:
    """When requests go out that are asked for one after another, with pauses in between."""
    clock = Clock()
    budget = RequestBudget(rate, clock=clock)
    sent = []
    for pause in pauses:
        clock.now += pause
        clock.now += budget.take()
        sent.append(clock.now)
    return np.array(sent)


@given(
    rate=st.floats(0.1, 1_000),
    pauses=st.lists(st.floats(0, 5) | st.just(0.0), min_size=1, max_size=80),
)
def test_no_stretch_of_time_has_more_requests_than_the_budget(rate: float, pauses: list[float]) -> None:
    sent = times_sent(rate, pauses)
    count = np.arange(len(sent))
    stretch = sent[None, :] - sent[:, None]
    requests = count[None, :] - count[:, None] + 1
    allowed = rate * stretch + max(rate, 1.0)
    assert (requests <= allowed + 1e-3)[np.triu_indices(len(sent))].all()


def test_what_is_saved_may_be_used_at_once_and_no_more() -> None:
    assert times_sent(10, [0.0] * 12).tolist()[9:] == [1000.0, 1000.1, 1000.2]


def test_a_deadline_is_put_off_by_what_was_waited_for_our_own_sake() -> None:
    clock = Clock()
    deadline = Deadline(10, clock=clock)
    clock.now += 9
    deadline.extend(5)
    clock.now += 5
    assert not deadline.is_over
    clock.now += 1
    assert deadline.is_over


def test_what_cannot_be_read_for_one_reason_is_one_problem() -> None:
    errors = ["broker 2 did not answer", None, "broker 2 did not answer", "UnknownTopicOrPartitionError"]
    problems = find_problems("offsets", ["b-1", "b-2", "a-0", "c-0"], errors)
    assert problem_rows([*problems, Problem("group", "g", "x", 1_235)]) == [
        {"kind": "offsets", "name": "a-0 and 1 more", "error": "broker 2 did not answer"},
        {"kind": "offsets", "name": "c-0", "error": "UnknownTopicOrPartitionError"},
        {"kind": "group", "name": "g and 1,234 more", "error": "x"},
    ]
    assert len(problem_rows([Problem("group", str(number), "x") for number in range(2_000)])) == 1_000
