"""A share group (``KafkaShareConsumer``, KIP-932): any process works on any record, not in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.bench.field.contenders.group import WithoutGroup
from tests.bench.field.simulator import ANY, MAX_RECORD_LOCKS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.bench.field.contenders.group import Observed

_MAX_POLL_RECORDS = 500


class ShareGroup(WithoutGroup):
    """Kafka's defaults: of one partition, as many processes work at once as its record locks serve.

    ``group.share.partition.max.record.locks`` is 2,000, and ``max.poll.records`` 500.
    """

    pods_per_partition = MAX_RECORD_LOCKS // _MAX_POLL_RECORDS

    def begin(self, running: Iterable[int], seen: Observed) -> None:
        """Start the processes of second 0."""
        del seen
        for pod in running:
            self._is_running[pod] = True
            self._set_up(pod)
        self.owner = np.full(len(self.owner), ANY, dtype=np.int32)
