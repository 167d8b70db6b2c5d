"""Keys of records, and the partitions to which Kafka's default partitioner hashes them."""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from kafka.partitioner.default import murmur2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_KEYS_PER_CLASS = 2


def key_partitions(keys: Sequence[bytes], num_partitions: int) -> NDArray[np.int64]:
    """Return the partition of each key: the hash without its sign bit, modulo the partitions."""
    hashes = np.array([murmur2(key) & 0x7FFFFFFF for key in keys], dtype=np.int64)
    return hashes % num_partitions


def numbered_keys(num_keys: int) -> tuple[bytes, ...]:
    """Return keys that fall on the partitions as chance has it."""
    return tuple(b"key-%d" % number for number in range(num_keys))


@cache
def even_keys(num_partitions: int) -> tuple[bytes, ...]:
    """Return six keys for each of the partitions, of which four fall on each of 1.5 times the partitions.

    The hash modulo three times the partitions decides both, and each of its values has two keys.
    """
    num_classes = 3 * num_partitions
    missing = np.full(num_classes, _KEYS_PER_CLASS)
    chosen: list[bytes] = []
    for number in count():
        key = b"key-%d" % number
        wanted = (murmur2(key) & 0x7FFFFFFF) % num_classes
        if missing[wanted]:
            missing[wanted] -= 1
            chosen.append(key)
            if len(chosen) == num_classes * _KEYS_PER_CLASS:
                return tuple(chosen)
    raise AssertionError
