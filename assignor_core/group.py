"""A consumer group as arrays: its members, what they subscribe to and own, and the lag of each partition.

A partition is a row number (topic-major: all of the first topic, then the second), a member an index, and
an assignment one ``int32`` array, row → member index, -1 for none. Members are ordered by their ids and
topics by their names, both compared as Kafka compares strings, so a smaller index is an earlier id and no
tie is ever broken by hash order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from assignor_core.group_arrays import arrays_from_columns, arrays_from_members

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assignor_core.members import Member, UnknownClaim

__all__ = ["Assignment", "Group"]

Assignment: TypeAlias = NDArray[np.int32]
"""Row → member index, -1 for none."""

_V = TypeVar("_V")
# Cached values that depend on members and subscriptions alone.
_STRUCTURAL = ("subscribed", "has_equal_subscriptions")


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A group, immutable; build one by `from_members` or `from_arrays`.

    With M members, T topics, P partitions, S subscriptions and C claims:

    Attributes
    ----------
    member_ids, instance_ids
        [M], in the order of the ids as UTF-16.
    topics
        [T], in the order of the names as UTF-16.
    topic_start
        int64 [T + 1]: topic t has the rows from ``topic_start[t]`` up to ``topic_start[t + 1]``.
    row_topic, row_partition
        int32 [P].
    subscription_start, subscription_topic
        int64 [M + 1] and int32 [S]: the topics of each member, ascending, as compressed rows.
    claim_row, claim_member, claim_generation
        int64, int32, int64 [C]: every claim on a row, conflicting ones too, ordered by row.
    owner
        int32 [P]: the member that claims the row in the newest generation, subscribed or not; -1 if none
        does, or two do.
    lag
        int64 [P], records, none negative.
    member_rack, row_racks
        int32 [M] (-1: none) and bool [P, R], which racks hold a replica; None without any racks.
    unknown_claims
        Claims on partitions that the group has no rows of: of unknown topics, or with larger numbers.
    """

    member_ids: tuple[str, ...]
    instance_ids: tuple[str | None, ...]
    topics: tuple[str, ...]
    topic_start: NDArray[np.int64]
    row_topic: NDArray[np.int32]
    row_partition: NDArray[np.int32]
    subscription_start: NDArray[np.int64]
    subscription_topic: NDArray[np.int32]
    claim_row: NDArray[np.int64]
    claim_member: NDArray[np.int32]
    claim_generation: NDArray[np.int64]
    owner: NDArray[np.int32]
    lag: NDArray[np.int64]
    member_rack: NDArray[np.int32] | None = None
    row_racks: NDArray[np.bool_] | None = None
    unknown_claims: tuple[UnknownClaim, ...] = ()
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_members(
        cls,
        topics: Mapping[str, int],
        members: Sequence[Member],
        *,
        lags: Mapping[str, Sequence[int]] | None = None,
        racks: Mapping[str, Sequence[Sequence[str]]] | None = None,
    ) -> Group:
        """Build a group from objects.

        Parameters
        ----------
        topics
            Number of partitions by topic.
        members
            In any order; their ids must differ.
        lags
            Records by topic and partition; what is missing is 0.
        racks
            The racks that hold a replica, by topic and partition; what is missing is none.

        Raises
        ------
        ProblemError
            If a number is out of its range or a member id is repeated.

        Examples
        --------
        >>> from assignor_core.members import Member
        >>> group = Group.from_members({"t": 2}, [Member("b", ("t",)), Member("a", ("t", "gone"))])
        >>> group.member_ids, group.num_partitions, group.owner.tolist()
        (('a', 'b'), 2, [-1, -1])
        """
        return cls(*arrays_from_members(topics, members, lags, racks))

    @classmethod
    def from_arrays(
        cls,
        *,
        topics: Sequence[str],
        num_partitions: NDArray[np.integer[Any]],
        member_ids: Sequence[str],
        subscriptions: tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]],
        instance_ids: Sequence[str | None] | None = None,
        claims: tuple[NDArray[np.integer[Any]], ...] | None = None,
        lags: NDArray[np.integer[Any]] | None = None,
    ) -> Group:
        """Build a group from columns, without a loop over partitions.

        Rows are numbered topic by topic in the order given. Topics and members that are not given in
        the order of `utf16_key` are renumbered; give them in that order to keep your order of rows in
        the result (`row_topic`, `row_partition`).

        Parameters
        ----------
        topics, num_partitions
            [T] names, all different, and the number of partitions of each.
        member_ids, instance_ids
            [M] ids, all different, and static ids.
        subscriptions
            Pairs (member index, topic index), in any order.
        claims
            Triples (row, member index, generation), in any order.
        lags
            [P] records by row; 0 without it.

        Raises
        ------
        ProblemError
            If an index or a number is out of its range, lengths differ, or an id is repeated.

        Examples
        --------
        >>> import numpy as np
        >>> pairs = np.array([0, 1]), np.array([0, 0])
        >>> held = np.array([2]), np.array([1]), np.array([5])
        >>> Group.from_arrays(topics=["t"], num_partitions=np.array([3]), member_ids=["a", "b"],
        ...                   subscriptions=pairs, claims=held).owner.tolist()
        [-1, -1, 1]
        """
        columns = arrays_from_columns(
            topics=topics,
            num_partitions=num_partitions,
            member_ids=member_ids,
            subscriptions=subscriptions,
            instance_ids=instance_ids,
            claims=claims,
            lags=lags,
        )
        return cls(*columns)

    @property
    def num_members(self) -> int:
        """M."""
        return len(self.member_ids)

    @property
    def num_topics(self) -> int:
        """T."""
        return len(self.topics)

    @property
    def num_partitions(self) -> int:
        """P."""
        return len(self.row_topic)

    @property
    def subscribed(self) -> NDArray[np.bool_]:
        """Which member subscribes to which topic: bool [M, T]."""
        return self._cached("subscribed", self._build_subscribed)

    @property
    def live_owner(self) -> NDArray[np.int32]:
        """As `owner`, but -1 where the owner does not subscribe to the topic (any more): int32 [P]."""
        return self._cached("live_owner", self._build_live_owner)

    @property
    def has_equal_subscriptions(self) -> bool:
        """Whether all members subscribe to the same topics, of those that exist."""
        return self._cached("has_equal_subscriptions", self._build_equal)

    def with_state(self, owner: NDArray[np.int32], lag: NDArray[np.int64]) -> Group:
        """Return the same members, topics and subscriptions with other owners and lags.

        Values that depend on the subscriptions alone stay cached: for many snapshots of one group.

        Parameters
        ----------
        owner
            [P], row → member index, -1 for none; all of one generation.
        lag
            [P], records, none negative. Neither array is copied, and neither may be changed afterwards.
        """
        rows = np.flatnonzero(owner >= 0)
        kept = {name: self._cache[name] for name in _STRUCTURAL if name in self._cache}
        return replace(
            self,
            claim_row=rows,
            claim_member=owner[rows],
            claim_generation=np.zeros(len(rows), dtype=np.int64),
            owner=owner,
            lag=lag,
            unknown_claims=(),
            _cache=kept,
        )

    def subscribes(
        self, members: NDArray[np.integer[Any]], topics: NDArray[np.integer[Any]]
    ) -> NDArray[np.bool_]:
        """Return, pair by pair, whether the member subscribes to the topic; False for member -1."""
        if not self.num_members or not self.num_topics:
            return np.zeros(len(members), dtype=np.bool_)
        if self.has_equal_subscriptions:
            return np.asarray(self.subscribed_by_first()[topics] & (members >= 0), dtype=np.bool_)
        return np.asarray(self.subscribed[members, topics] & (members >= 0), dtype=np.bool_)

    def subscribed_by_first(self) -> NDArray[np.bool_]:
        """Return the topics of the first member: bool [T]."""
        mask = np.zeros(self.num_topics, dtype=np.bool_)
        if self.num_members:
            mask[self.subscription_topic[: self.subscription_start[1]]] = True
        return mask

    def to_mapping(self, assignment: Assignment) -> dict[str, list[tuple[str, int]]]:
        """Return an assignment as (topic, partition) pairs by member id.

        Every member has an entry; members, and the pairs of each, are sorted.
        """
        rows = np.flatnonzero(assignment >= 0)
        rows = rows[np.argsort(assignment[rows], kind="stable")]
        ends = np.cumsum(np.bincount(assignment[rows], minlength=self.num_members)).tolist()
        names = [self.topics[topic] for topic in self.row_topic[rows].tolist()]
        pairs = list(zip(names, self.row_partition[rows].tolist(), strict=True))
        starts = [0, *ends[:-1]]
        return {m: pairs[a:b] for m, a, b in zip(self.member_ids, starts, ends, strict=False)}

    def _cached(self, name: str, build: Callable[[], _V]) -> _V:
        if name not in self._cache:
            self._cache[name] = build()
        value: _V = self._cache[name]
        return value

    def _build_subscribed(self) -> NDArray[np.bool_]:
        dense = np.zeros((self.num_members, self.num_topics), dtype=np.bool_)
        members = np.repeat(np.arange(self.num_members), np.diff(self.subscription_start))
        dense[members, self.subscription_topic] = True
        dense.flags.writeable = False
        return dense

    def _build_live_owner(self) -> NDArray[np.int32]:
        if self.has_equal_subscriptions and self.subscribed_by_first().all():
            return self.owner
        live = np.where(self.subscribes(self.owner, self.row_topic), self.owner, np.int32(-1))
        live.flags.writeable = False
        return live

    def _build_equal(self) -> bool:
        sizes = np.diff(self.subscription_start)
        if len(sizes) == 0 or (sizes != sizes[0]).any():
            return False
        rows = self.subscription_topic.reshape(len(sizes), -1)
        return bool((rows == rows[0]).all())
