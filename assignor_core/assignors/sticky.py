"""`sticky` and `cooperative-sticky`: even first, then as little moved as that allows."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from assignor_core.algorithms.chains import balance
from assignor_core.algorithms.levels import even_one_class
from assignor_core.algorithms.partition_classes import (
    Classes,
    assignment_of_counts,
    classes_of,
    split_by_racks,
)
from assignor_core.assignors.base import COOPERATIVE, COUNT_SLACK, EAGER, Assignor, Parameter
from assignor_core.group import Assignment, Group


@dataclass(frozen=True, slots=True)
class StickyAssignor(Assignor):
    """The most even counts there are, and among these the fewest moves, for any subscriptions.

    The lexicographic optimum of (sum of squared counts, partitions taken from a live owner): counts are as
    even as moving along chains of members can make them, then the fewest partitions move.
    It follows that an unchanged group moves nothing, that one follow-up round settles a cooperative group,
    and that nothing given up comes back. A member never gets a topic it does not subscribe to.

    Parameters
    ----------
    count_slack
        With more than 0, a partition stays where it is as long as counts differ by 1 + `count_slack` at
        most: an ordinary rebalance then does not undo a plan that was made within that slack.

    Notes
    -----
    KIP-54 and KIP-341, conflicting claims by generation (KAFKA-12984); in two phases KIP-429. With equal
    subscriptions (KAFKA-9987) counts follow by arithmetic, O(P + M log M). Otherwise an exact flow over
    classes of topics, see `algorithms.chains`. Kafka's own general algorithm moves single partitions, not
    along chains, and can end less even. With racks given, rack matches come after evenness and before moves.
    """

    name: ClassVar[str] = "sticky"
    parameters: ClassVar[tuple[Parameter, ...]] = (COUNT_SLACK,)
    count_slack: int = 0

    def assign(self, group: Group) -> Assignment:
        """Return the assignment; see the class for its promise."""
        if not group.num_members or not group.num_partitions:
            return np.full(group.num_partitions, -1, dtype=np.int32)
        classes = classes_of(group)
        if not len(classes.size):
            return np.full(group.num_partitions, -1, dtype=np.int32)
        if group.row_racks is not None:
            return self._assign_by_racks(group, classes)
        if len(classes.size) == 1:
            return assignment_of_counts(group, classes, even_one_class(classes, self.count_slack))
        wanted = balance(classes.owned, classes.eligible, classes.size, count_slack=self.count_slack)
        return assignment_of_counts(group, classes, wanted)

    def _assign_by_racks(self, group: Group, classes: Classes) -> Assignment:
        finer, far = split_by_racks(group, classes)
        # No way round passes a member twice, so that this is more than all moves on it together.
        price = far * (2 * group.num_members + 1)
        wanted = balance(finer.owned, finer.eligible, finer.size, count_slack=self.count_slack, price=price)
        return assignment_of_counts(group, finer, wanted)


@dataclass(frozen=True, slots=True)
class CooperativeStickyAssignor(StickyAssignor):
    """The same as `sticky`, under the cooperative protocol: only partitions that move stop."""

    name: ClassVar[str] = "cooperative-sticky"
    protocols: ClassVar[tuple[str, ...]] = (COOPERATIVE, EAGER)
