"""Masking of secret values in log records.

evenlag does not log secrets, but an error of a library may contain what it was given.
:meth:`~evenlag.policy.secrets.SecretRef.resolve` registers each value that it reads.
"""

import json
import re
from collections.abc import Callable
from typing import Final

BLOT: Final = "***"
# Masking shorter values would make the log unreadable.
_MIN_LENGTH: Final = 4

_secrets: set[str] = set()
_listeners: list[Callable[[str], object]] = []
_pattern: re.Pattern[str] | None = None


def remember_secret(value: str) -> None:
    """Register the value of a secret, to be masked in logs."""
    global _pattern  # noqa: PLW0603  # the process has one set of secrets, as it has one root logger
    if len(value) < _MIN_LENGTH or value in _secrets:
        return
    _secrets.update({value, repr(value)[1:-1], json.dumps(value)[1:-1]})
    # The longest first: one secret may be the prefix of another.
    _pattern = re.compile("|".join(map(re.escape, sorted(_secrets, key=lambda text: (-len(text), text)))))
    for tell in _listeners:
        tell(value)


def tell_secrets(tell: Callable[[str], object]) -> None:
    """Forward all secrets, registered so far and later, to another masker; a repeat does it again."""
    if tell not in _listeners:
        _listeners.append(tell)
    for value in sorted(_secrets):
        tell(value)


def redact(text: str) -> str:
    """Mask all registered secrets in a text."""
    return text if _pattern is None else _pattern.sub(BLOT, text)
