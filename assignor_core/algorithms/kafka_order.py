"""The order in which Kafka's own `range` and `roundrobin` take the members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from assignor_core.members import utf16_key

if TYPE_CHECKING:
    from assignor_core.group import Group


def kafka_order(group: Group) -> NDArray[np.int32]:
    """Return the members: the static ones by instance id, then the dynamic ones by member id."""

    def key(index: int) -> tuple[bool, bytes]:
        instance = group.instance_ids[index]
        return instance is None, utf16_key(group.member_ids[index] if instance is None else instance)

    return np.array(sorted(range(group.num_members), key=key), dtype=np.int32)


def subscribers_by_topic(group: Group, order: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """Return, for each topic, who takes it, in the order given. O(S log S)."""
    if group.has_equal_subscriptions:
        nobody = order[:0]
        return [order if taken else nobody for taken in group.subscribed_by_first()]
    rank = np.empty(group.num_members, dtype=np.int64)
    rank[order] = np.arange(group.num_members)
    member = np.repeat(np.arange(group.num_members), np.diff(group.subscription_start))
    by_topic = np.lexsort((rank[member], group.subscription_topic))
    ends = np.cumsum(np.bincount(group.subscription_topic, minlength=group.num_topics))
    return np.split(member[by_topic].astype(np.int32), ends[:-1]) if group.num_topics else []
