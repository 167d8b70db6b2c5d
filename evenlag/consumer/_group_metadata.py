"""What a member says about its membership in transactions, so that a lost one cannot commit.

kafka-python's ``group_metadata()`` gives generation -1 and an empty member id after a loss. A broker takes
these for a client without a group, and accepts a transaction's offsets for partitions that other members own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.consumer.subscription_state import SubscriptionType

if TYPE_CHECKING:
    from collections.abc import Callable


class LastMembership:
    """The last membership of one consumer, which stays in its group metadata after a loss.

    coordinator, subscription: Those of the consumer; the coordinator's ``group_metadata`` is replaced.
    has_lost_all: Returns whether the partitions were lost although the membership continues.
    """

    def __init__(self, coordinator: Any, subscription: Any, has_lost_all: Callable[[], bool]) -> None:
        self._original = coordinator.group_metadata
        self._subscription = subscription
        self._has_lost_all = has_lost_all
        self._generation, self._member_id = -1, ""
        self._is_lost = False
        coordinator.group_metadata = self._group_metadata

    def joined(self, generation: int, member_id: str) -> None:
        """Record the coordinator's answer to a join."""
        if self._generation < 0:
            self._generation = generation
        if not self._is_lost:
            self._member_id = member_id

    def assigned(self, generation: int, member_id: str) -> None:
        """Record an assignment: from now on the current membership is shown again."""
        self._generation, self._member_id, self._is_lost = generation, member_id, False

    def lost(self) -> None:
        """Record that the membership ended."""
        self._is_lost = self._is_lost or bool(self._member_id)

    def _group_metadata(self) -> Any:
        """Return the group metadata; after a loss with the last generation, which the broker refuses."""
        current = self._original()
        # Partitions that the application assigned itself belong to no member.
        is_manual = self._subscription.subscription_type == SubscriptionType.USER_ASSIGNED
        if is_manual or not (self._is_lost or self._has_lost_all()):
            return current
        return current._replace(generation_id=self._generation, member_id=self._member_id)
