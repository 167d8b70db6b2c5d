"""Turns to compute: how many at once, in which order, and that nobody waits without end."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from spark_jobs.runtime.turns import Turns
from tests.support.waiting import wait_until


def test_turns_are_given_in_the_order_of_asking() -> None:
    turns, order = Turns(1, 60.0), list[int]()
    assert turns.take()

    def compute(number: int) -> None:
        with turns.turn():
            order.append(number)

    def is_waiting(num_threads: int) -> bool:
        return len(turns._waiting) == num_threads

    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=compute, args=(number,)))
        threads[-1].start()
        wait_until(partial(is_waiting, number + 1))
    assert order == []
    turns.give_back()
    for thread in threads:
        thread.join(60)
    assert order == [0, 1, 2, 3, 4]


def test_so_many_compute_at_once() -> None:
    turns, now, most = Turns(2, 60.0), list[int](), list[int]()
    two = threading.Barrier(2)

    def compute(number: int) -> None:
        with turns.turn():
            now.append(number)
            most.append(len(now))
            # Only with another one at the same time.
            two.wait(60)
            now.remove(number)

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert max(most) == 2
    assert now == []


def test_nobody_waits_longer_than_the_limit() -> None:
    turns = Turns(1, 0.01)
    assert turns.take()
    with turns.turn():
        pass
    assert not turns.take()
    turns.give_back()
    assert turns.take()


def test_a_turn_is_given_back_after_an_error() -> None:
    turns = Turns(1, 60.0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), turns.turn():
            raise ZeroDivisionError


def test_a_single_cycle_computes_at_once() -> None:
    with Turns().turn():
        pass
