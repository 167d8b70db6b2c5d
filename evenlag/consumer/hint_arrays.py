"""A hint's assignment as arrays, computed once when the hint arrives and not in each rebalance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assignor_core.hint import HintPayload


@dataclass(frozen=True, slots=True, eq=False)
class FlatHint:
    """An assignment with one entry per partition; N entries.

    Attributes
    ----------
    keys, topic_ids
        The member keys and topic ids that the hint names.
    key_of, topic_of, number
        int64 [N] each: index into `keys`, index into `topic_ids`, partition number.
    """

    keys: tuple[str, ...]
    topic_ids: tuple[str, ...]
    key_of: NDArray[np.int64]
    topic_of: NDArray[np.int64]
    number: NDArray[np.int64]

    @classmethod
    def of(cls, payload: HintPayload) -> Self:
        """Flatten a payload; duplicates stay.

        Parameters
        ----------
        payload
            The hint's payload.

        Returns
        -------
        FlatHint
            Entries in the order of the payload.
        """
        topics: dict[str, int] = {}
        keys: list[int] = []
        at_topics: list[int] = []
        sizes: list[int] = []
        numbers: list[int] = []
        for index, by_topic in enumerate(payload.assignment.values()):
            for topic_id, partitions in by_topic.items():
                keys.append(index)
                at_topics.append(topics.setdefault(topic_id, len(topics)))
                sizes.append(len(partitions))
                numbers.extend(partitions)
        lengths = np.array(sizes, dtype=np.int64)
        return cls(
            keys=tuple(payload.assignment),
            topic_ids=tuple(topics),
            key_of=np.repeat(np.array(keys, dtype=np.int64), lengths),
            topic_of=np.repeat(np.array(at_topics, dtype=np.int64), lengths),
            number=np.array(numbers, dtype=np.int64),
        )
