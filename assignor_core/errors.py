"""Everything that can go wrong in the core, as one small tree of exceptions.

The types differ by what a caller can do about them; the message holds the numbers.
"""

from typing import ClassVar


class AssignorError(Exception):
    """The root of all errors that ``assignor_core`` raises on purpose."""


class UnknownAssignorError(AssignorError, LookupError):
    """Raised when no assignor has the name asked for; the message names the nearest."""


class ForeignAssignorError(AssignorError):
    """Raised when an assignor of another package cannot be loaded or fails; the message names the package."""


class ProblemError(AssignorError, ValueError):
    """Raised when a group cannot be built from what was given; the message says what is wrong, and where."""


class SubscriptionsDifferError(ProblemError):
    """Raised when an assignor made for equal subscriptions meets unequal ones."""


class InvalidAssignmentError(AssignorError):
    """Raised when an assignment breaks a rule that it was checked against."""


class HintError(AssignorError):
    """The root of everything that makes a hint unusable.

    Attributes
    ----------
    reason
        A code that is stable over releases, for events and metrics.
    """

    reason: ClassVar[str] = "UNUSABLE"


class HintFormatError(HintError):
    """Raised when bytes are no hint, or one of a format that is not understood."""

    reason = "MALFORMED"


class HintVersionError(HintFormatError):
    """Raised when a hint has a newer format: its payload is not understood, its envelope is.

    Attributes
    ----------
    plan_id, sequence, issued_at_ms
        As those of a hint, by which it replaces older ones.
    """

    reason = "NEWER_FORMAT"

    def __init__(self, plan_id: str, sequence: int, issued_at_ms: int) -> None:
        super().__init__("the hint has a newer format than this reader knows")
        self.plan_id, self.sequence, self.issued_at_ms = plan_id, sequence, issued_at_ms


class HintSignatureError(HintError):
    """Raised when a signature is asked for and is missing or wrong."""

    reason = "BAD_SIGNATURE"


class HintForeignError(HintError):
    """Raised when a sound hint was made for another group or another cluster."""

    reason = "FOREIGN"


class HintMismatchError(HintError):
    """Raised when a sound hint does not fit the members and topics that are there."""

    reason = "MISMATCH"
