"""The error of every step of a release."""

from __future__ import annotations


class ReleaseError(RuntimeError):
    """Raised when a release cannot be built or a check fails; the message says what to do."""
