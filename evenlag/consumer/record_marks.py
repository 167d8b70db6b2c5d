"""Which records of the hint topic count: newer ones than all before, and none from the future.

Pure: the current time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from assignor_core.hint import Hint
from assignor_core.loads import MAX_CLOCK_AHEAD_MS, Loads

_Record = TypeVar("_Record")


class Verdict(Enum):
    """What becomes of a valid record."""

    TAKEN = auto()
    REPEATED = auto()
    REPLAYED = auto()
    FUTURE = auto()


@dataclass(frozen=True, slots=True)
class NewerHint:
    """A hint in a newer format, which cannot be read: it replaces older hints, and is not followed."""

    plan_id: str
    sequence: int
    issued_at_ms: int


def is_from_future(time_ms: int, now_ms: int) -> bool:
    """Return whether a record's time is so far ahead that the record is not used yet.

    time_ms: When the record was issued or measured, in milliseconds since the epoch.
    """
    return time_ms > now_ms + MAX_CLOCK_AHEAD_MS


class RecordMarks(Generic[_Record]):
    """The newest accepted record of a key, and the greatest numbers of all accepted records.

    The marks are separate: each accepted record raises at least one of them, so replaying any set of
    records ends after each was accepted once.

    numbers_of: Returns the numbers of a record by which it is newer than another; the last is its time, in
        milliseconds since the epoch.
    identity_of: Returns what is equal of a record and its repeats: the publisher repeats a record after a
        crash.
    newest: The newest accepted record; kept when it is withdrawn, so that an older one does not come back.
    """

    def __init__(
        self, numbers_of: Callable[[_Record], tuple[int, ...]], identity_of: Callable[[_Record], object]
    ) -> None:
        self._numbers_of, self._identity_of = numbers_of, identity_of
        self.newest: _Record | None = None
        # A record from the future. It raises no mark until its time comes. One that is accepted after it
        # replaces it: the topic keeps the last record of a key.
        self._candidate: _Record | None = None
        self._marks: tuple[int, ...] = ()
        self._is_withdrawn = False

    def offer(self, record: _Record, now_ms: int) -> Verdict:
        """Decide on a record.

        Returns ``TAKEN`` if it is the newest one now, ``REPEATED`` if it is the current one again.
        """
        numbers = self._numbers_of(record)
        if is_from_future(numbers[-1], now_ms):
            self._candidate = record
            return Verdict.FUTURE
        marks = self._marks or (-1,) * len(numbers)
        if any(number > mark for number, mark in zip(numbers, marks, strict=True)):
            self._marks = tuple(map(max, numbers, marks))
            self.newest, self._is_withdrawn = record, False
            self._candidate = None
            return Verdict.TAKEN
        if self.newest is None or self._is_withdrawn:
            return Verdict.REPLAYED
        if self._identity_of(record) != self._identity_of(self.newest):
            return Verdict.REPLAYED
        self._candidate = None
        return Verdict.REPEATED

    def promote(self, now_ms: int) -> _Record | None:
        """Return the candidate if its time has come, once."""
        candidate = self._candidate
        if candidate is None or is_from_future(self._numbers_of(candidate)[-1], now_ms):
            return None
        self._candidate = None
        return candidate

    def withdraw(self) -> None:
        """Apply a tombstone."""
        self._is_withdrawn = True
        self._candidate = None


def hint_marks() -> RecordMarks[Hint | NewerHint]:
    """Return the marks of hints: one is newer by its sequence or its time."""
    return RecordMarks(
        lambda hint: (hint.sequence, hint.issued_at_ms),
        lambda hint: (type(hint), hint.plan_id, hint.sequence),
    )


def loads_marks() -> RecordMarks[Loads]:
    """Return the marks of loads: newer ones were measured later."""
    return RecordMarks(lambda loads: (loads.payload.measured_at_ms,), lambda loads: loads.payload_bytes)
