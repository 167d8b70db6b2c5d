"""The last line of defence: what was read as a secret is blotted out of every log record.

Nothing of ours logs a secret. A library's error may quote what it was given, though.
:meth:`~evenlag.policy.secrets.SecretRef.resolve` tells each value here as it reads it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

BLOT: Final = "***"
# A shorter one would blot out half of every line; it is no secret either.
_MIN_LENGTH: Final = 4

_secrets: set[str] = set()
_told: list[Callable[[str], object]] = []
_pattern: re.Pattern[str] | None = None


def remember_secret(value: str) -> None:
    """Take note of a secret's value, in the forms in which a message may quote it."""
    global _pattern  # noqa: PLW0603  # the process has one set of secrets, as it has one root logger
    if len(value) < _MIN_LENGTH or value in _secrets:
        return
    _secrets.update({value, repr(value)[1:-1], json.dumps(value)[1:-1]})
    # The longest first: one secret may be the beginning of another.
    _pattern = re.compile("|".join(map(re.escape, sorted(_secrets, key=lambda text: (-len(text), text)))))
    for tell in _told:
        tell(value)


def tell_secrets(tell: Callable[[str], object]) -> None:
    """Have each secret told to somebody else who hides them (Airflow's masker), those known so far too."""
    if tell not in _told:
        _told.append(tell)
    for value in sorted(_secrets):
        tell(value)


def redact(text: str) -> str:
    """Blot out every secret that a text quotes."""
    return text if _pattern is None else _pattern.sub(BLOT, text)
