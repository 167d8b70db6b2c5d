"""A hint's assignment as arrays of ranges: as small as the record, computed once when the hint arrives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from assignor_core.hint import HintPayload
from assignor_core.partition_spans import PartitionSpans


@dataclass(frozen=True, slots=True, eq=False)
class FlatHint:
    """An assignment with one entry per range of partitions; N entries.

    Ranges are expanded only against a group, whose partition counts bound them: a record of a few bytes can
    name millions of partitions.

    keys, topic_ids: The member keys and topic ids that the hint names.
    key_of, topic_of, first, last: int64 [N] each: index into `keys`, index into `topic_ids`, first and last
        partition number.
    """

    keys: tuple[str, ...]
    topic_ids: tuple[str, ...]
    key_of: NDArray[np.int64]
    topic_of: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    @classmethod
    def of(cls, payload: HintPayload) -> Self:
        """Flatten a payload.

        Returns entries in the order of the payload.
        """
        topics: dict[str, int] = {}
        shares: list[tuple[int, int]] = []
        parts: list[NDArray[np.int64]] = []
        for index, by_topic in enumerate(payload.assignment.values()):
            for topic_id, partitions in by_topic.items():
                shares.append((index, topics.setdefault(topic_id, len(topics))))
                parts.append(PartitionSpans.of(partitions).as_array())
        sizes = [len(part) for part in parts]
        key_of, topic_of = np.repeat(np.array(shares, dtype=np.int64).reshape(-1, 2), sizes, axis=0).T
        first, last = np.concatenate([np.empty((0, 2), dtype=np.int64), *parts]).T
        return cls(tuple(payload.assignment), tuple(topics), key_of, topic_of, first, last)

    def gives_to_another(self, key: str, partitions: Iterable[tuple[str, int]]) -> bool:
        """Return whether the hint gives one of the partitions to another member.

        partitions: (topic id, partition) pairs.
        """
        mine = self.keys.index(key) if key in self.keys else -1
        others = self.key_of != mine
        number_of = {topic_id: index for index, topic_id in enumerate(self.topic_ids)}
        return any(
            bool((others & (self.topic_of == number_of[t]) & (self.first <= p) & (p <= self.last)).any())
            for t, p in partitions
            if t in number_of
        )
