"""Members of a consumer group as objects, and the order in which Kafka compares their ids.

Objects exist at the edges only: a problem file, a join request, a test. `assignor_core.group` holds the
same as arrays.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

# User data of a member that joins a group only to make it rebalance: it subscribes to no topic.
TEMPORARY_MEMBER_MARK: Final = b"evenlag:temporary-member"


def utf16_key(text: str) -> bytes:
    """Return a sort key that orders strings as Java does, by UTF-16 code units.

    Examples
    --------
    >>> sorted([chr(0x1F600), chr(0xFFEE)], key=utf16_key) == [chr(0x1F600), chr(0xFFEE)]
    True
    """
    return text.encode("utf-16-be", "surrogatepass")


def is_temporary_member(topics: Collection[str] | None, user_data: bytes | None) -> bool:
    """Return whether a subscription is that of evenlag's temporary member, which no part of evenlag counts.

    Parameters
    ----------
    topics
        Names of the subscribed topics. A member that subscribes to one is a member, whatever its user data.
    user_data
        User data of the subscription.

    Examples
    --------
    >>> is_temporary_member([], TEMPORARY_MEMBER_MARK), is_temporary_member(["a"], TEMPORARY_MEMBER_MARK)
    (True, False)
    """
    return not topics and user_data is not None and bytes(user_data) == TEMPORARY_MEMBER_MARK


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group, as a join request or a problem file describes it.

    Attributes
    ----------
    member_id, instance_id
        Kafka's member id, and the static instance id if it has one.
    topics
        Names of the topics that it subscribes to; an unknown topic is no error.
    rack
        The rack it runs in, for rack-aware assignors.
    owned, generation
        The (topic, partition) pairs that it claims to own, and the generation of that claim (-1: none).
        A claim on a partition that does not exist (any more) is no error.
    """

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    rack: str | None = None
    owned: tuple[tuple[str, int], ...] = ()
    generation: int = -1


class UnknownClaim(NamedTuple):
    """A claim on a partition without a row: the topic's count is unknown, or was smaller when it was read."""

    member: int
    topic: str
    partition: int
    generation: int
    subscribed: bool
