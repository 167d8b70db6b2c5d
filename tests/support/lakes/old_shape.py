"""Size of an old cluster, and the ids of its snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evenlag.audit.pending_days import hash_snapshots

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Shape:
    """Size of the cluster.

    step_s: Seconds between two snapshots.
    """

    groups: int = 100
    partitions: int = 4
    members: int = 2
    step_s: int = 300
    plans: int = 2


def snapshot_ids(slots: NDArray[np.datetime64]) -> list[str]:
    """Return the snapshot ids of slots."""
    texts = np.datetime_as_string(slots.astype("datetime64[s]"))
    return [text.replace("-", "").replace(":", "") + "000Z-0badcafe" for text in texts]


def input_hash(slots: NDArray[np.datetime64]) -> str:
    """Return the hash of a day's snapshots, as the audit has it."""
    return hash_snapshots(snapshot_ids(slots), 1)
