"""Bulk requests to Kafka that fail as a whole because of a single bad item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from evenlag.kafka.rate_limit import Deadline

_Key = TypeVar("_Key", bound="Hashable")


def read_halving(
    read: Callable[[Sequence[_Key]], Mapping[_Key, Any]], items: Sequence[_Key], deadline: Deadline
) -> tuple[dict[_Key, Any], dict[_Key, str]]:
    """Read items in bulk; on an error halve, until what cannot be read stands alone.

    With k bad items among n this costs O(k log n) calls instead of n.

    Parameters
    ----------
    read
        The bulk request.
    items
        What to ask for.
    deadline
        When it is over, what has not been read yet counts as failed.

    Returns
    -------
    tuple of dict
        What was read, and why the others were not, by item.
    """
    import kafka.errors

    results: dict[_Key, Any] = {}
    failed: dict[_Key, str] = {}
    pending = [list(items)] if items else []
    while pending:
        part = pending.pop()
        try:
            if deadline.is_over:
                raise kafka.errors.KafkaTimeoutError("the time for this reading is over")
            results.update(read(part))
        except kafka.errors.KafkaError as error:
            if len(part) > 1 and not deadline.is_over:
                middle = len(part) // 2
                pending += [part[middle:], part[:middle]]
                continue
            failed.update(dict.fromkeys(part, f"{type(error).__name__}: {error}"[:300]))
    return results, failed
