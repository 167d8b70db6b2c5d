"""A consumer group as arrays: its members, what they subscribe to and own, and the lag of each partition.

A partition is a row number (topic-major: all of the first topic, then the second), a member an index, and
an assignment one ``int32`` array, row → member index, -1 for none. Members are ordered by their ids and
topics by their names, both compared as Kafka compares strings, so a smaller index is an earlier id and no
tie is ever broken by hash order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from assignor_core.errors import ProblemError
from assignor_core.members import Member, UnknownClaim, utf16_key

Assignment: TypeAlias = NDArray[np.int32]
"""Row → member index, -1 for none."""

_V = TypeVar("_V")
# Cached values that depend on members and subscriptions alone.
_STRUCTURAL = ("subscribed", "has_equal_subscriptions")
_MAX_PARTITIONS = 2**31 - 1
# Sums of lags over a group are int64 too; half of its range leaves room for any of them.
_MAX_LAG_SUM_RECORDS = 2**62


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
    rack_names
        [M], the rack of each member, None for none; empty without any. They are known without racks of rows.
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
    rack_names: tuple[str | None, ...] = ()
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
        return cls(**_arrays_from_members(topics, members, lags, racks))

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
        racks: tuple[NDArray[np.int32], NDArray[np.bool_]] | None = None,
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
        racks
            `member_rack` and `row_racks`, in the order of the members and the rows.

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
        counts = np.asarray(num_partitions, dtype=np.int64)
        instances = [None] * len(member_ids) if instance_ids is None else list(instance_ids)
        if len(counts) != len(topics) or len(instances) != len(member_ids):
            raise ProblemError(
                f"lengths differ: {len(topics)} topics, {len(counts)} partition counts, "
                f"{len(member_ids)} members, {len(instances)} instance ids"
            )
        topic_order = _order(topics, "topic")
        member_order = _order(member_ids, "member")
        topic_rank, member_rank = np.argsort(topic_order), np.argsort(member_order)
        sub_member = _index(subscriptions[0], len(member_ids), "a subscription's member")
        sub_topic = _index(subscriptions[1], len(topics), "a subscription's topic")
        start = _starts(counts)
        total = int(start[-1])
        lag = _checked_lags(np.zeros(total, dtype=np.int64) if lags is None else lags, total)
        row, member, generation = _checked_claims(claims, total, len(member_ids))
        member_rack, row_racks = (None, None) if racks is None else (racks[0][member_order], racks[1])
        if (topic_order[1:] < topic_order[:-1]).any():
            old_row = _old_rows(start, counts, topic_order)
            lag = lag[old_row]
            row_racks = None if row_racks is None else row_racks[old_row]
            new_row = np.empty(total, dtype=np.int64)
            new_row[old_row] = np.arange(total)
            row = new_row[row]
        return cls(
            member_ids=tuple(member_ids[i] for i in member_order),
            instance_ids=tuple(instances[i] for i in member_order),
            topics=tuple(topics[i] for i in topic_order),
            member_rack=member_rack,
            row_racks=row_racks,
            **_read_only_arrays(
                counts[topic_order],
                len(member_ids),
                pairs=(member_rank[sub_member], topic_rank[sub_topic]),
                claims=(row, member_rank[member].astype(np.int32), generation),
                lag=lag,
            ),
        )

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
        """Return, pair by pair, whether the member subscribes to the topic: bool [N].

        Parameters
        ----------
        members, topics
            [N], indices; False for member -1.
        """
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

        Parameters
        ----------
        assignment
            int32 [P], row → member index, -1 for none.
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


def _arrays_from_members(
    topics: Mapping[str, int],
    members: Sequence[Member],
    lags: Mapping[str, Sequence[int]] | None,
    racks: Mapping[str, Sequence[Sequence[str]]] | None,
) -> dict[str, Any]:
    names = sorted(topics, key=utf16_key)
    _order([member.member_id for member in members], "member")
    ordered = sorted(members, key=lambda member: utf16_key(member.member_id))
    for name in names:
        if type(topics[name]) is not int:
            raise ProblemError(f"topic {name!r}: {topics[name]!r} is no number of partitions")
    counts = np.array([topics[name] for name in names], dtype=np.int64)
    start = _starts(counts)
    topic_index = {name: index for index, name in enumerate(names)}
    pairs = [
        (index, topic_index[name])
        for index, member in enumerate(ordered)
        for name in sorted(set(member.topics) & topic_index.keys())
    ]
    pair_array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    claims, unknown = _member_claims(ordered, topic_index, start)
    total = int(start[-1])
    member_rack, row_racks = _racks(ordered, names, start, racks)
    arrays = _read_only_arrays(
        counts,
        len(ordered),
        pairs=(pair_array[:, 0], pair_array[:, 1]),
        claims=claims,
        lag=_checked_lags(_spread_lags(names, start, lags or {}), total),
    )
    return arrays | {
        "member_ids": tuple(member.member_id for member in ordered),
        "instance_ids": tuple(member.instance_id for member in ordered),
        "topics": tuple(names),
        "member_rack": member_rack,
        "row_racks": row_racks,
        "rack_names": tuple(member.rack for member in ordered),
        "unknown_claims": unknown,
    }


def _order(ids: Sequence[str], what: str) -> NDArray[np.int64]:
    if len(set(ids)) != len(ids):
        repeated = Counter(ids).most_common(1)[0][0]
        raise ProblemError(f"{what} {repeated!r} is repeated")
    # For ASCII a plain comparison gives the same order, several times faster.
    plain = all(map(str.isascii, ids))
    keys: list[Any] = list(ids) if plain else [utf16_key(i) for i in ids]
    return np.array(sorted(range(len(ids)), key=keys.__getitem__), dtype=np.int64)


def _starts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(counts) and int(counts.min()) < 0:
        raise ProblemError(f"a topic cannot have {int(counts.min())} partitions")
    start = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=start[1:])
    if float(counts.sum(dtype=np.float64)) > _MAX_PARTITIONS:
        raise ProblemError(f"more than {_MAX_PARTITIONS} partitions in one group")
    return start


def _index(values: NDArray[np.integer[Any]], size: int, what: str) -> NDArray[np.int64]:
    index = np.asarray(values, dtype=np.int64)
    if len(index) and not 0 <= int(index.min()) <= int(index.max()) < size:
        raise ProblemError(f"{what} is out of range: {int(index.min())} to {int(index.max())}, of {size}")
    return index


def _checked_claims(
    claims: tuple[NDArray[np.integer[Any]], ...] | None, total: int, num_members: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    if claims is None:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty
    row = _index(claims[0], total, "a claim's row")
    member = _index(claims[1], num_members, "a claim's member")
    generation = np.asarray(claims[2], dtype=np.int64)
    if not len(row) == len(member) == len(generation):
        raise ProblemError(f"claims differ in length: {len(row)}, {len(member)}, {len(generation)}")
    return row, member, generation


def _checked_lags(lags: NDArray[np.integer[Any]], total: int) -> NDArray[np.int64]:
    lag = np.array(lags, dtype=np.int64)  # a copy: the group freezes it, and must not freeze the caller's
    if len(lag) != total:
        raise ProblemError(f"{len(lag)} lags for {total} partitions")
    if total and int(lag.min()) < 0:
        raise ProblemError(f"a lag cannot be negative: {int(lag.min())}")
    if float(lag.sum(dtype=np.float64)) >= _MAX_LAG_SUM_RECORDS:
        raise ProblemError(f"the lags add up to {_MAX_LAG_SUM_RECORDS} records or more")
    return lag


def _old_rows(
    start: NDArray[np.int64], counts: NDArray[np.int64], order: NDArray[np.int64]
) -> NDArray[np.int64]:
    sizes = counts[order]
    ends = np.cumsum(sizes)
    shift = np.repeat(start[:-1][order] - (ends - sizes), sizes)
    return np.asarray(np.arange(int(sizes.sum())) + shift, dtype=np.int64)


def _spread_lags(
    names: Sequence[str], start: NDArray[np.int64], lags: Mapping[str, Sequence[int]]
) -> NDArray[np.int64]:
    spread = np.zeros(int(start[-1]), dtype=np.int64)
    for index, name in enumerate(names):
        values = lags.get(name, ())
        first, last = int(start[index]), int(start[index + 1])
        if len(values) > last - first:
            raise ProblemError(f"topic {name!r}: {len(values)} lags for {last - first} partitions")
        try:
            spread[first : first + len(values)] = values
        except (OverflowError, ValueError, TypeError) as error:
            raise ProblemError(f"topic {name!r}: lags must be whole numbers: {error}") from error
    return spread


def _member_claims(
    members: Sequence[Member], topic_index: Mapping[str, int], start: NDArray[np.int64]
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]], tuple[UnknownClaim, ...]]:
    starts = start.tolist()
    rows: list[int] = []
    claimants: list[int] = []
    unknown: list[UnknownClaim] = []
    for index, member in enumerate(members):
        for topic, partition in dict.fromkeys(member.owned):
            number = topic_index.get(topic)
            if number is None or partition >= starts[number + 1] - starts[number]:
                subscribed = topic in member.topics
                unknown.append(UnknownClaim(index, topic, partition, member.generation, subscribed))
            elif partition >= 0:
                rows.append(starts[number] + partition)
                claimants.append(index)
    claimant = np.array(claimants, dtype=np.int32)
    generations = np.array([member.generation for member in members], dtype=np.int64)
    row = np.array(rows, dtype=np.int64)
    return (row, claimant, generations[claimant] if len(claimant) else row), tuple(unknown)


def _racks(
    members: Sequence[Member],
    names: Sequence[str],
    start: NDArray[np.int64],
    racks: Mapping[str, Sequence[Sequence[str]]] | None,
) -> tuple[NDArray[np.int32] | None, NDArray[np.bool_] | None]:
    if not racks or all(member.rack is None for member in members):
        return None, None
    # Racks without a member count too: Kafka checks whether all partitions are in the same racks.
    found = {rack for name in names for replicas in racks.get(name, ()) for rack in replicas}
    known = sorted(found | {member.rack for member in members if member.rack is not None}, key=utf16_key)
    number = {rack: index for index, rack in enumerate(known)}
    held = np.zeros((int(start[-1]), len(known)), dtype=np.bool_)
    for index, name in enumerate(names):
        first, last = int(start[index]), int(start[index + 1])
        for row, replicas in zip(range(first, last), racks.get(name, ()), strict=False):
            held[row, [number[rack] for rack in replicas]] = True
    ours = [-1 if member.rack is None else number[member.rack] for member in members]
    return np.array(ours, dtype=np.int32), held


def _read_only_arrays(
    counts: NDArray[np.int64],
    num_members: int,
    *,
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]],
    claims: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]],
    lag: NDArray[np.int64],
) -> dict[str, Any]:
    """Arrays of a group by attribute."""
    start = _starts(counts)
    total, num_topics = int(start[-1]), len(counts)
    keys = pairs[0] * num_topics + pairs[1]
    if (keys[1:] <= keys[:-1]).any():
        keys = np.unique(keys)
    sub_member, sub_topic = np.divmod(keys, max(num_topics, 1))
    sub_start = np.zeros(num_members + 1, dtype=np.int64)
    np.cumsum(np.bincount(sub_member, minlength=num_members), out=sub_start[1:])
    by_row = np.argsort(claims[0], kind="stable")
    row, member, generation = claims[0][by_row], claims[1][by_row], claims[2][by_row]
    row_topic = np.repeat(np.arange(num_topics, dtype=np.int32), counts)
    arrays: dict[str, Any] = {
        "topic_start": start,
        "row_topic": row_topic,
        "row_partition": (np.arange(total) - start[:-1][row_topic]).astype(np.int32),
        "subscription_start": sub_start,
        "subscription_topic": sub_topic.astype(np.int32),
        "claim_row": row,
        "claim_member": member,
        "claim_generation": generation,
        "owner": _owners(row, member, generation, total),
        "lag": lag,
    }
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def _owners(
    row: NDArray[np.int64], member: NDArray[np.int32], generation: NDArray[np.int64], total: int
) -> NDArray[np.int32]:
    owner = np.full(total, -1, dtype=np.int32)
    if len(row) < 2 or (row[1:] != row[:-1]).all():  # noqa: PLR2004 - one claim cannot conflict
        owner[row] = member
        return owner
    newest = np.full(total, np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(newest, row, generation)
    top = generation == newest[row]
    row, member = row[top], member[top]
    owner[row] = member
    # The last writer remains; another member with an equally new claim leaves the row without an owner.
    owner[row[owner[row] != member]] = -1
    return owner
