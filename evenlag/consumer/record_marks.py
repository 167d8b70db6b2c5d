"""Which records of the hint topic count: newer ones than all before, and none from the future.

Pure: the current time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from assignor_core.loads import MAX_CLOCK_AHEAD_MS, Loads

if TYPE_CHECKING:
    from assignor_core.hint import Hint


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


@dataclass(slots=True)
class HintMarks:
    """The newest accepted hint and the greatest sequence and time of all accepted hints.

    The two marks are separate: each accepted record raises at least one of them, so replaying any set of
    records ends after each was accepted once.

    newest: The newest accepted hint; kept when it is withdrawn, so that an older one does not come back.
    candidate: A hint from the future. It raises no mark until its time comes.
    """

    newest: Hint | NewerHint | None = None
    candidate: Hint | NewerHint | None = None
    max_sequence: int = -1
    max_issued_at_ms: int = -1
    is_withdrawn: bool = False

    def offer(self, hint: Hint | NewerHint, now_ms: int) -> Verdict:
        """Decide on a record.

        Returns ``TAKEN`` if it is the newest hint now, ``REPEATED`` if it is the current hint again.
        """
        if is_from_future(hint.issued_at_ms, now_ms):
            self.candidate = hint
            return Verdict.FUTURE
        if hint.sequence > self.max_sequence or hint.issued_at_ms > self.max_issued_at_ms:
            self.max_sequence = max(self.max_sequence, hint.sequence)
            self.max_issued_at_ms = max(self.max_issued_at_ms, hint.issued_at_ms)
            self.newest, self.is_withdrawn = hint, False
            return Verdict.TAKEN
        if self.newest is None or self.is_withdrawn:
            return Verdict.REPLAYED
        # The publisher repeats a record after a crash.
        before = self.newest
        again = (type(hint), hint.plan_id, hint.sequence) == (type(before), before.plan_id, before.sequence)
        return Verdict.REPEATED if again else Verdict.REPLAYED

    def promote(self, now_ms: int) -> Hint | NewerHint | None:
        """Return the candidate if its time has come, once."""
        candidate = self.candidate
        if candidate is None or is_from_future(candidate.issued_at_ms, now_ms):
            return None
        self.candidate = None
        return candidate

    def withdraw(self) -> None:
        """Apply a tombstone."""
        self.is_withdrawn = True
        self.candidate = None


@dataclass(slots=True)
class LoadsMarks:
    """The newest accepted loads and the greatest time of measurement of all accepted loads.

    newest: The newest accepted loads; kept when they are withdrawn.
    candidate: Loads from the future. They raise no mark until their time comes.
    """

    newest: Loads | None = None
    candidate: Loads | None = None
    max_measured_at_ms: int = -1
    is_withdrawn: bool = False

    def offer(self, loads: Loads, now_ms: int) -> Verdict:
        """Decide on a record.

        Returns ``TAKEN`` if these are the newest loads now, ``REPEATED`` if they are the current loads
        again.
        """
        measured_at_ms = loads.payload.measured_at_ms
        if is_from_future(measured_at_ms, now_ms):
            self.candidate = loads
            return Verdict.FUTURE
        if measured_at_ms > self.max_measured_at_ms:
            self.max_measured_at_ms = measured_at_ms
            self.newest, self.is_withdrawn = loads, False
            return Verdict.TAKEN
        if self.newest is None or self.is_withdrawn:
            return Verdict.REPLAYED
        again = loads.payload_bytes == self.newest.payload_bytes
        return Verdict.REPEATED if again else Verdict.REPLAYED

    def promote(self, now_ms: int) -> Loads | None:
        """Return the candidate if its time has come, once."""
        candidate = self.candidate
        if candidate is None or is_from_future(candidate.payload.measured_at_ms, now_ms):
            return None
        self.candidate = None
        return candidate

    def withdraw(self) -> None:
        """Apply a tombstone."""
        self.is_withdrawn = True
        self.candidate = None
