"""Which assignor a group uses, and which protocol follows from it (KIP-726)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from assignor_core.assignors import COOPERATIVE, EAGER, get_assignor

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["common_assignors", "possible_selections", "protocol_of"]


def common_assignors(preferences: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the names that every member supports, sorted."""
    if not preferences:
        return ()
    return tuple(sorted(set(preferences[0]).intersection(*map(set, preferences[1:]))))


def possible_selections(preferences: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the assignors that the coordinator may select, sorted: more than one if votes are tied.

    Each member votes for the first of its list that all members support; the most votes win, and which of
    equals does is arbitrary. Empty if the members have none in common: then the coordinator refuses
    whoever joins last.

    Examples
    --------
    >>> possible_selections([["cooperative-sticky", "range"], ["range"]])
    ('range',)
    >>> possible_selections([["sticky", "range"], ["range", "sticky"]])
    ('range', 'sticky')
    """
    common = set(common_assignors(preferences))
    votes = Counter(next(name for name in names if name in common) for names in preferences if common)
    most = max(votes.values(), default=0)
    return tuple(sorted(name for name, count in votes.items() if count == most))


def protocol_of(assignor: str) -> str:
    """Return the protocol of a group that selected this assignor: COOPERATIVE if it can be used so.

    It follows the selected assignor, not the lists that members offer at start: an eager assignor in a list
    must not make a cooperative one eager.

    Raises
    ------
    UnknownAssignorError
        If there is no such assignor.
    """
    return COOPERATIVE if COOPERATIVE in get_assignor(assignor).protocols else EAGER
