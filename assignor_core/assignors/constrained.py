"""`constrained-cooperative-sticky`: KIP-615, for groups whose members subscribe to the same topics."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from assignor_core.algorithms.levels import even_one_class
from assignor_core.algorithms.partition_classes import assignment_of_counts, classes_of
from assignor_core.assignors.base import COOPERATIVE, COUNT_SLACK, EAGER, Assignor, Parameter
from assignor_core.errors import SubscriptionsDifferError
from assignor_core.group import Assignment, Group


@dataclass(frozen=True, slots=True)
class ConstrainedCooperativeStickyAssignor(Assignor):
    """Even counts by the fewest moves, in linear time, if all members subscribe to the same topics.

    Each member keeps what it owns up to its share; a member with less gets free partitions, then
    partitions of members with more; what is left is handed out one each.

    Parameters
    ----------
    count_slack
        As for `sticky`.

    Notes
    -----
    KIP-615. O(P + M log M). Counts and the number of moves are known before any partition is assigned: see
    `algorithms.levels.even_out`.
    """

    name: ClassVar[str] = "constrained-cooperative-sticky"
    protocols: ClassVar[tuple[str, ...]] = (COOPERATIVE, EAGER)
    parameters: ClassVar[tuple[Parameter, ...]] = (COUNT_SLACK,)
    count_slack: int = 0

    def assign(self, group: Group) -> Assignment:
        """Return the assignment; see the class for its promise.

        Raises
        ------
        SubscriptionsDifferError
            If two members do not subscribe to the same topics; the message names them.
        """
        if group.num_members and not group.has_equal_subscriptions:
            raise SubscriptionsDifferError(_difference(group))
        classes = classes_of(group)
        if not len(classes.size):
            return np.full(group.num_partitions, -1, dtype=np.int32)
        return assignment_of_counts(group, classes, even_one_class(classes, self.count_slack))


def _difference(group: Group) -> str:
    subscribed = group.subscribed
    other = int(np.flatnonzero((subscribed != subscribed[0]).any(axis=1))[0])
    topic = group.topics[int(np.flatnonzero(subscribed[other] != subscribed[0])[0])]
    return (
        f"constrained-cooperative-sticky needs equal subscriptions: of {group.member_ids[0]!r} and "
        f"{group.member_ids[other]!r} only one subscribes to {topic!r}; cooperative-sticky allows any"
    )
