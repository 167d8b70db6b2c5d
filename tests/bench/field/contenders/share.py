"""Share groups (``KafkaShareConsumer``, KIP-932): members take single records, not in order.

The coordinator's only assignor, ``simple``, gives each partition to one member where there are as many
partitions as members or more (``SimpleHomogeneousAssignmentBuilder`` of Kafka 4.3, and seen on a broker,
``docs/evidence.md``): members help each other only where there are fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.bench.field.contenders.group import WithoutGroup
from tests.bench.field.contenders.kafka_assignors import Uniform
from tests.bench.field.simulator import ANY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.bench.field.contenders.group import Observed
    from tests.bench.field.traces import Trace


class ShareGroup(Uniform):
    """As many partitions as the other contenders have: each has one member at a time, counts are even.

    A new assignment takes effect with a member's heartbeat, as in a KIP-848 group.
    """


class SharedPartition(WithoutGroup):
    """A topic of one partition, which all members work on.

    With at most ``group.share.partition.max.record.locks`` (2,000) by the number of members in each poll
    (``max.poll.records``), none of them waits for another one's locks.
    """

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace, num_partitions=1)

    def begin(self, running: Iterable[int], seen: Observed) -> None:
        """Start the processes of second 0."""
        del seen
        for pod in running:
            self._is_running[pod] = True
            self._set_up(pod)
        self.owner = np.full(len(self.owner), ANY, dtype=np.int32)
