"""Slots of repeated cycles: aligned, never taken twice, and never stalled, whatever the clock does."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlag.slot_clock import SlotClock

START = datetime(2026, 3, 1, 12, 0, 20, 500_000, UTC)
MINUTE = timedelta(minutes=1)


class Computer:
    """A computer whose wall clock can be set; a sleep takes exactly its time."""

    def __init__(self, at: datetime = START) -> None:
        self.at = at
        self.slept = timedelta(0)

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept += timedelta(seconds=seconds)
        self.at += timedelta(seconds=seconds)

    def clock(self, every: timedelta = MINUTE, offset: timedelta = timedelta(0)) -> SlotClock:
        return SlotClock(every, offset=offset, now=self.now, sleep=self.sleep)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-01T{text}+00:00")


def test_the_first_cycle_begins_at_once_and_the_others_at_multiples_of_the_interval() -> None:
    computer = Computer()
    clock = computer.clock()
    assert [clock.wait() for _ in range(3)] == [START, at("12:01:00"), at("12:02:00")]
    assert computer.at == at("12:02:00")


def test_later_slots_have_their_offset_from_the_multiples() -> None:
    computer = Computer(at("12:00:45"))
    clock = computer.clock(offset=timedelta(seconds=45))
    assert [clock.wait() for _ in range(3)] == [at("12:00:45"), at("12:01:45"), at("12:02:45")]
    clock.failed()
    clock.failed()
    assert clock.wait() == at("12:04:45")


def test_a_slot_soon_after_the_first_is_left_out() -> None:
    computer = Computer(at("12:00:31"))
    clock = computer.clock()
    assert [clock.wait(), clock.wait()] == [at("12:00:31"), at("12:02:00")]


def test_a_cycle_that_takes_longer_is_followed_at_once_by_the_newest_slot() -> None:
    computer = Computer(at("12:00:00"))
    clock = computer.clock()
    clock.wait()
    computer.at = at("12:03:10")
    computer.slept = timedelta(0)
    assert clock.wait() == at("12:03:00")
    assert computer.slept == timedelta(0)
    assert clock.wait() == at("12:04:00"), "12:01 and 12:02 are not repeated later"


def test_a_computer_that_slept_continues_with_the_newest_slot() -> None:
    computer = Computer(at("12:00:00"))
    clock = computer.clock()
    clock.wait()
    computer.at += timedelta(days=3, seconds=7)
    assert clock.wait() == at("12:00:00") + timedelta(days=3)


def test_a_clock_that_goes_back_a_little_is_waited_for() -> None:
    computer = Computer(at("12:05:00"))
    clock = computer.clock()
    clock.wait()
    computer.at = at("12:04:30")
    assert clock.wait() == at("12:06:00")
    assert computer.slept == timedelta(seconds=90)


def test_a_clock_that_goes_back_far_is_followed_without_a_slot_that_was() -> None:
    computer = Computer(at("12:05:00"))
    clock = computer.clock()
    slots = [clock.wait() for _ in range(3)]
    computer.at = at("12:05:10")
    computer.at -= timedelta(minutes=2)
    slots += [clock.wait() for _ in range(6)]
    assert slots[3:5] == [at("12:04:00.001"), at("12:05:00.001")]
    assert len(set(slots)) == len(slots)


def test_the_distance_doubles_with_each_failure_up_to_ten_minutes() -> None:
    computer = Computer(at("12:00:00"))
    clock = computer.clock()
    slots = [clock.wait()]
    for _ in range(6):
        shown = clock.failed()
        slots.append(clock.wait())
        assert shown == slots[-1]
    minutes = [(later - earlier) // MINUTE for earlier, later in itertools.pairwise(slots)]
    assert minutes == [1, 2, 4, 8, 10, 10]
    clock.succeeded()
    assert clock.wait() == slots[-1] + MINUTE


def test_a_long_interval_is_no_longer_after_failures() -> None:
    computer = Computer(at("12:00:00"))
    clock = computer.clock(timedelta(hours=1))
    clock.wait()
    for hour in (13, 14, 15):
        clock.failed()
        assert clock.wait() == at(f"{hour}:00:00")


@pytest.mark.parametrize("every_s", [1, 60, 3600])
@given(
    offset_share=st.sampled_from([0.0, 0.0, 0.37, 0.99]),
    steps=st.lists(
        st.tuples(
            st.integers(0, 20_000_000),
            st.one_of(st.just(0), st.integers(-100_000_000, 100_000_000), st.integers(-4_000, 4_000)),
            st.booleans(),
        ),
        max_size=12,
    ),
    start_ms=st.integers(0, 10_000_000),
)
def test_no_slot_is_taken_twice_and_no_wait_is_long(
    every_s: int, offset_share: float, steps: list[tuple[int, int, bool]], start_ms: int
) -> None:
    """Each step: how long a cycle takes, by how much the clock is set (both in ms), and whether it fails."""
    computer = Computer(START + timedelta(milliseconds=start_ms))
    every = timedelta(seconds=every_s)
    clock = computer.clock(every, offset_share * every)
    longest = max(every, timedelta(minutes=10)) + 2 * every
    slots = [clock.wait()]
    for took_ms, set_by_ms, fails in steps:
        computer.at += timedelta(milliseconds=took_ms)
        if fails:
            clock.failed()
        else:
            clock.succeeded()
        computer.at += timedelta(milliseconds=set_by_ms)
        computer.slept = timedelta(0)
        slots.append(clock.wait())
        assert computer.slept <= longest
        assert slots[-1] <= computer.at, "a slot is not in the future"
        assert computer.at - slots[-1] < every or fails, "the newest slot is taken"
    assert len(set(slots)) == len(slots)
