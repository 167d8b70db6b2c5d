"""Waiting for a condition: the one helper of all tests."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Found = TypeVar("_Found")


def wait_until(
    look: Callable[[], _Found],
    *,
    timeout_s: float = 600.0,
    what: str | Callable[[], object] = "",
    progress: Callable[[], object] | None = None,
) -> _Found:
    """Look until something true is found and return it, or fail the test with `what` is missing.

    The timeout is for parties that hang, not for slow ones, and costs nothing when the test passes: tests
    check that a condition becomes true, never how soon. It begins again when `progress` has changed.
    """
    last, since = None, time.monotonic()
    while True:
        began = time.monotonic()
        if found := look():
            return found
        if progress is not None and (latest := progress()) != last:
            last, since = latest, time.monotonic()
        now = time.monotonic()
        if now - since > timeout_s:
            shown = what() if callable(what) else what
            raise AssertionError(shown or f"not within {timeout_s} s")
        # Looking takes processor time, which those who are waited for need.
        time.sleep(min(1.0, max(0.05, 2 * (now - began))))
