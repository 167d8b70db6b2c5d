"""The history of one group over a period, as arrays: snapshots x partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignor_core.group import Group
from assignor_core.hint import member_key
from assignor_core.members import utf16_key
from evenlag.enums import GroupType
from evenlag.lag.arrays import Bools, Floats, Int32s, Int64s, codes, floats

# Sums of processed and of arrived records are compared: a smaller difference is a rounding error.
ROUNDING_RECORDS: Final = 1e-4


@dataclass(frozen=True, slots=True)
class SnapshotMembers:
    """The members of a group in one snapshot.

    members: (member id, instance id, subscribed topics) of each, in any order.
    blocker: Why subscriptions and owners are unknown (the group rebalances, was not read); else None.
    """

    members: tuple[tuple[str, str | None, tuple[str, ...]], ...]
    assignor: str | None = None
    blocker: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSnapshots:
    """Rows of ``lag`` of one group as columns, [N] in any order.

    snapshot: Snapshot of the row: index into ``at_s``.
    topic, topic_id: Index into ``topics``; a number that distinguishes topics of the same name.
    lag, start, end: Records, log start offset and end offset; NaN where unknown.
    age_s: Time lag in seconds; NaN where unknown.
    owner: Index into ``member_ids``, -1 for none.
    at_s: [S] times of the snapshots, in seconds since the epoch, ascending.
    topics, member_ids: Names; include all members of all snapshots.
    groups: [S] members.
    """

    snapshot: Int64s
    topic: Int64s
    topic_id: Int64s
    partition: Int64s
    lag: Floats
    start: Floats
    end: Floats
    age_s: Floats
    owner: Int64s
    at_s: Floats
    topics: tuple[str, ...]
    member_ids: tuple[str, ...]
    groups: tuple[SnapshotMembers, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """Snapshots with the same members, subscriptions and partitions.

    group: Without owners and lag; see :meth:`~assignor_core.group.Group.with_state`.
    rows: int64 [P_e]: its rows as rows of the history.
    member: int64 [M_e]: its members as members of the history.
    place: int32 [M + 1]: members of the history as members of the group, -1 for those outside it (and for
        -1).
    """

    group: Group
    rows: Int64s
    member: Int64s
    place: Int32s


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The history of one group: S snapshots, P rows, M members.

    A row is one lifetime of a partition: after a snapshot without it, it gets a new row. A member is
    identified by its instance id, or by its member id if it has none.

    at_s: [S] seconds since the epoch.
    live: bool [S, P]: the row exists, and a member subscribes to it or the group has no members.
    lag: [S, P] records; NaN where unknown.
    arrived: [S - 1, P] records that arrived in the interval after each snapshot.
    age_s: [S, P] measured time lag in seconds; NaN where unknown.
    retained: [S, P] records in the log; infinite where unknown.
    went_back: bool [S, P]: the offset where the group continues is lower than it was before.
    may_lose: bool [S, P]: the log begins after the offset where the group continued before.
    first_end: int64 [P], the first snapshot with a known end offset of the row; 0 if there is none.
    owner: int32 [S, P], index of a member, -1 for none. While owners are unknown, the last known ones. If a
        group without members has processed records by the next snapshot, those of that one.
    structure, structures: int64 [S], index into the structures; -1 without members. Likewise.
    """

    at_s: Floats
    live: Bools
    lag: Floats
    arrived: Floats
    age_s: Floats
    retained: Floats
    went_back: Bools
    may_lose: Bools
    first_end: Int64s
    owner: Int32s
    member_keys: tuple[str, ...]
    instance_ids: tuple[str | None, ...]
    structure: Int64s
    structures: tuple[Structure, ...]
    groups: tuple[SnapshotMembers, ...]

    @property
    def num_snapshots(self) -> int:
        """S."""
        return len(self.at_s)

    @property
    def interval_s(self) -> Floats:
        """[S - 1] lengths of the intervals."""
        return np.diff(self.at_s)

    @property
    def known(self) -> Bools:
        """Where the row exists and its lag is measured: bool [S, P]."""
        return self.live & np.isfinite(self.lag)

    @property
    def begun(self) -> Bools:
        """Where the row exists and its lag has been measured, so it is simulated: bool [S, P]."""
        return self.live & np.logical_or.accumulate(self.known, axis=0)

    @property
    def most_lag(self) -> int:
        """The snapshot with the largest measured lag: drain times start there."""
        return int(np.where(self.known, self.lag, 0.0).sum(axis=1).argmax())


def build_history(snapshots: GroupSnapshots) -> History:
    """Build a group's history as arrays; no loop over partitions.

    Unknown end offsets are interpolated between their neighbors; arrivals are never negative.
    """
    row_of, row_topic, num_rows = _number_lifetimes(snapshots)
    shape = (len(snapshots.at_s), num_rows)
    cell = (snapshots.snapshot, row_of)
    lag, start, end, age = (np.full(shape, np.nan) for _ in range(4))
    lag[cell], start[cell], end[cell], age[cell] = (
        snapshots.lag, snapshots.start, snapshots.end, snapshots.age_s
    )  # fmt: skip
    live = np.zeros(shape, dtype=np.bool_)
    live[cell] = True
    keys, instances, key_of = _member_keys(snapshots)
    owner = np.full(shape, -1, dtype=np.int32)
    owner[cell] = np.append(key_of, -1)[snapshots.owner]
    hidden = np.array([snapshot.blocker is not None for snapshot in snapshots.groups])
    owner = np.where(live, owner[_last_shown(hidden)], np.int32(-1))
    structure, structures = _structures(snapshots, keys, live, row_topic, hidden)
    position = end - lag
    earlier = _last_known(position)
    came_back = _came_back(structure, hidden, position > earlier)
    structure[:-1] = np.where(came_back, structure[1:], structure[:-1])
    owner[:-1] = np.where(came_back[:, None] & live[:-1], owner[1:], owner[:-1])
    return History(
        at_s=snapshots.at_s,
        live=live,
        lag=lag,
        arrived=_arrivals(end, live, snapshots.at_s),
        age_s=age,
        retained=np.nan_to_num(end - start, nan=np.inf).clip(min=0.0),
        went_back=position < earlier,
        may_lose=start > earlier,
        first_end=(live & np.isfinite(end)).argmax(axis=0),
        owner=owner,
        member_keys=tuple(keys),
        instance_ids=tuple(instances),
        structure=structure,
        structures=structures,
        groups=snapshots.groups,
    )


def _number_lifetimes(snapshots: GroupSnapshots) -> tuple[Int64s, Int64s, int]:
    """Number partition lifetimes by topic, partition, topic id and time: row of each, topic of each row."""
    by_name = sorted(range(len(snapshots.topics)), key=lambda index: utf16_key(snapshots.topics[index]))
    rank = np.empty(len(by_name), dtype=np.int64)
    rank[by_name] = np.arange(len(by_name))
    keys = (snapshots.snapshot, snapshots.topic_id, snapshots.partition, rank[snapshots.topic])
    order = np.lexsort(keys)
    begins = np.ones(len(order), dtype=np.bool_)
    snapshot, *others = (key[order] for key in keys)
    begins[1:] = np.diff(snapshot) != 1
    for other in others:
        begins[1:] |= np.diff(other) != 0
    row_of = np.empty(len(order), dtype=np.int64)
    row_of[order] = np.cumsum(begins) - 1
    return row_of, snapshots.topic[order][begins], int(begins.sum())


def _member_keys(snapshots: GroupSnapshots) -> tuple[list[str], list[str | None], Int32s]:
    """Keys of members, and the key of each member id; -1 for an id that is in no snapshot."""
    instance_of = {
        member: instance for snapshot in snapshots.groups for member, instance, _ in snapshot.members
    }
    keys: dict[str, int] = {}
    instances: list[str | None] = []
    key_of = np.full(len(snapshots.member_ids), -1, dtype=np.int32)
    for index, member in enumerate(snapshots.member_ids):
        if member not in instance_of:
            continue
        instance = instance_of[member]
        key = member_key(member, instance)
        if key not in keys:
            keys[key] = len(keys)
            instances.append(instance)
        key_of[index] = keys[key]
    return list(keys), instances, key_of


def _last_shown(hidden: Bools) -> Int64s:
    """For each snapshot the newest one up to it with known owners; itself if there is none."""
    places = np.arange(len(hidden))
    shown = np.maximum.accumulate(np.where(hidden, -1, places))
    return np.where(shown < 0, places, shown)


def _came_back(structure: Int64s, hidden: Bools, went_on: Bools) -> Bools:
    """Whether a group without members had some before the next snapshot, which processed records: [S - 1]."""
    is_empty = (structure < 0) & ~hidden
    return np.asarray(is_empty[:-1] & (structure[1:] >= 0) & went_on[1:].any(axis=1))


def _last_known(values: Floats) -> Floats:
    """The newest known value before each snapshot; NaN without one: [S, P]."""
    places = np.arange(len(values))[:, None]
    newest = np.maximum.accumulate(np.where(np.isfinite(values), places, -1), axis=0)
    earlier = np.full_like(values, np.nan)
    earlier[1:] = np.where(
        newest[:-1] < 0, np.nan, np.take_along_axis(values, newest[:-1].clip(min=0), axis=0)
    )
    return earlier


def _arrivals(end: Floats, live: Bools, at_s: Floats) -> Floats:
    """Records that arrived between snapshots: [S - 1, P]; nothing before the first and after the last end."""
    grown = np.nan_to_num(np.diff(interpolated(end, at_s), axis=0), nan=0.0).clip(min=0.0)
    return np.where(live[1:] & live[:-1], grown, 0.0)


def interpolated(values: Floats, at_s: Floats) -> Floats:
    """Fill unknown values by row: [S, P], linearly in time; beyond the known ones the nearest, else NaN."""
    num_snapshots = len(values)
    places = np.arange(num_snapshots)[:, None]
    known = np.isfinite(values)
    before = np.maximum.accumulate(np.where(known, places, -1), axis=0)
    after = np.minimum.accumulate(np.where(known, places, num_snapshots)[::-1], axis=0)[::-1]
    before, after = (
        np.where(before < 0, np.minimum(after, num_snapshots - 1), before),
        np.where(after == num_snapshots, np.maximum(before, 0), after),
    )
    columns = np.arange(values.shape[1])
    span = at_s[after] - at_s[before]
    share = np.divide(at_s[:, None] - at_s[before], span, out=np.zeros_like(span), where=span > 0)
    low, high = values[before, columns], values[after, columns]
    return np.asarray(low + share.clip(0.0, 1.0) * (high - low))


def first_lags(history: History) -> tuple[Floats, Int64s, Floats]:
    """The first measured lag of each row, its snapshot, and its time lag (NaN: unknown): [P] each."""
    known = history.known
    first, columns = known.argmax(axis=0), np.arange(known.shape[1])
    begins = np.where(known.any(axis=0), history.lag[first, columns], 0.0)
    return begins, first, history.age_s[first, columns]


def _structures(
    snapshots: GroupSnapshots, keys: Sequence[str], live: Bools, row_topic: Int64s, hidden: Bools
) -> tuple[Int64s, tuple[Structure, ...]]:
    """Group the snapshots by members, subscriptions and partitions."""
    index_of_key = {key: index for index, key in enumerate(keys)}
    shown = _last_shown(hidden)
    numbers: dict[tuple[object, bytes], int] = {}
    structure = np.full(len(snapshots.groups), -1, dtype=np.int64)
    built: list[Structure] = []
    for place in range(len(snapshots.groups)):
        snapshot = snapshots.groups[shown[place]]
        if not snapshot.members:
            continue
        # By key: a static member that returns with another member id causes no rebalance.
        members_by_key = {
            member_key(member, instance): (member, instance, topics)
            for member, instance, topics in sorted(snapshot.members)
        }
        subscriptions = tuple(
            sorted((key, tuple(sorted(person[2]))) for key, person in members_by_key.items())
        )
        signature = (subscriptions, np.packbits(live[place]).tobytes())
        number = numbers.get(signature)
        if number is None:
            number = numbers[signature] = len(built)
            built.append(
                _structure(snapshots, members_by_key, index_of_key, np.flatnonzero(live[place]), row_topic)
            )
        structure[place] = number
    return structure, tuple(built)


def _structure(
    snapshots: GroupSnapshots,
    members_by_key: dict[str, tuple[str, str | None, tuple[str, ...]]],
    index_of_key: dict[str, int],
    rows: Int64s,
    row_topic: Int64s,
) -> Structure:
    ordered = sorted(members_by_key.items(), key=lambda item: utf16_key(item[1][0]))
    topic_of_row = row_topic[rows]
    # Rows are sorted by topic, so the first row of each gives the order of the topics.
    _, first, counts = np.unique(topic_of_row, return_index=True, return_counts=True)
    by_place = np.argsort(first)
    names = [snapshots.topics[topic] for topic in topic_of_row[np.sort(first)].tolist()]
    topic_index = {name: index for index, name in enumerate(names)}
    pairs = [
        (member, topic_index[topic])
        for member, (_, (_, _, topics)) in enumerate(ordered)
        for topic in sorted(set(topics))
        if topic in topic_index
    ]
    pair_array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    group = Group.from_arrays(
        topics=names,
        num_partitions=counts[by_place],
        member_ids=[person[0] for _, person in ordered],
        instance_ids=[person[1] for _, person in ordered],
        subscriptions=(pair_array[:, 0], pair_array[:, 1]),
    )
    member = np.array([index_of_key[key] for key, _ in ordered], dtype=np.int64)
    place = np.full(len(index_of_key) + 1, -1, dtype=np.int32)
    place[member] = np.arange(len(member))
    return Structure(group, rows, member, place)


def read_snapshots(
    lag: pa.Table, members: pa.Table, snapshot_ids: Sequence[str], at_s: Floats
) -> tuple[GroupSnapshots, Int64s]:
    """Convert a group's rows of ``lag`` and ``members`` to columns; all snapshots of the period are given."""
    lag_snapshot, member_snapshot = (codes(rows["snapshot_id"], snapshot_ids) for rows in (lag, members))
    shown = np.unique(np.concatenate([lag_snapshot, member_snapshot]))
    of_all = np.full(len(snapshot_ids), -1, dtype=np.int64)
    of_all[shown] = np.arange(len(shown))
    members_by_snapshot = _members_by_snapshot(members, of_all[member_snapshot], len(shown))
    topics, topic_ids = (_sorted_distinct(lag[name].combine_chunks()) for name in ("topic", "topic_id"))
    both = [lag["owner_member_id"].combine_chunks(), members["member_id"].combine_chunks()]
    owners = _sorted_distinct(pa.concat_arrays(both))
    snapshots = GroupSnapshots(
        snapshot=of_all[lag_snapshot],
        topic=codes(lag["topic"], topics),
        topic_id=codes(lag["topic_id"], topic_ids),
        partition=lag["partition"].to_numpy().astype(np.int64),
        lag=floats(lag["lag_records"]),
        start=floats(lag["log_start_offset"]),
        end=floats(lag["end_offset"]),
        age_s=floats(lag["time_lag_ms"]) / 1000.0,
        owner=codes(lag["owner_member_id"], owners),
        at_s=at_s[shown],
        topics=tuple(topics),
        member_ids=tuple(owners),
        groups=tuple(members_by_snapshot),
    )
    return snapshots, shown


def _sorted_distinct(values: pa.Array) -> list[str]:
    """Distinct values, sorted: rows come in any order, and no result may depend on it."""
    distinct: list[str] = pc.unique(values).drop_null().sort().to_pylist()
    return distinct


def _members_by_snapshot(members: pa.Table, place: Int64s, num_snapshots: int) -> list[SnapshotMembers]:
    """The members of each snapshot: a loop over members, not over partitions."""
    rows: list[list[dict[str, Any]]] = [[] for _ in range(num_snapshots)]
    for where, row in zip(place.tolist(), members.to_pylist(), strict=True):
        rows[where].append(row)
    return [_snapshot(found) for found in rows]


def _snapshot(rows: list[dict[str, Any]]) -> SnapshotMembers:
    if not rows:
        return SnapshotMembers((), blocker="the group was not read")
    first = rows[0]
    if first["error"] is not None:
        return SnapshotMembers((), blocker=f"the group could not be read: {first['error']}")
    present = [row for row in rows if row["member_id"] is not None]
    if not present and first["group_type"] != GroupType.CLASSIC:
        reason = f"the group speaks the {first['group_type']} protocol and does not show its members"
        return SnapshotMembers((), blocker=reason)
    if any(row["subscription"] is None for row in present):
        return SnapshotMembers(
            (),
            blocker=f"the group is {first['group_state']}: the subscriptions of its members are not reported",
        )
    member_tuples = tuple(
        (row["member_id"], row["group_instance_id"], tuple(sorted(row["subscription"]))) for row in present
    )
    return SnapshotMembers(tuple(sorted(member_tuples, key=lambda person: person[0])), first["assignor"])


def sum_by_member(owner: Int32s, chosen: Bools, values: Floats | None, num_members: int) -> Floats:
    """Sum the chosen values [R, P] by their owners, or count them: [R, M]."""
    cell = (np.arange(len(owner))[:, None] * num_members + owner)[chosen]
    summed = np.bincount(cell, None if values is None else values[chosen], len(owner) * num_members)
    return summed.reshape(len(owner), num_members).astype(np.float64)
