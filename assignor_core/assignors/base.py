"""What an assignor is, and how one is found by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from assignor_core.group import Assignment, Group

__all__ = ["COOPERATIVE", "EAGER", "Assignor"]

COOPERATIVE = "COOPERATIVE"
EAGER = "EAGER"


class Assignor(Protocol):
    """An algorithm under the name that it has on the wire; it keeps no state between calls."""

    @property
    def name(self) -> str:
        """The name, as Kafka or we call it."""

    @property
    def protocols(self) -> tuple[str, ...]:
        """The rebalance protocols it can be used with, the best first."""

    def assign(self, group: Group) -> Assignment:
        """Return who is to hold what: a new int32 [P], row → member index, -1 where nobody takes it."""
