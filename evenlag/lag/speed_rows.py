"""Rows of ``speeds``: what :mod:`evenlag.lag.speeds` knows of groups after a snapshot.

A member is known by its instance id, else by a client id that no other member of its group has; the other
members of a group have one speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.enums import GroupType, LagStatus
from evenlag.lag.arrays import (
    UNKNOWN,
    Bools,
    Floats,
    Int64s,
    Numbers,
    as_lists,
    as_structs,
    codes,
    find_places,
    flags,
    floats,
    integers,
    is_valid,
    parents,
)
from evenlag.lag.speeds import (
    COOPERATIVE_ASSIGNORS,
    FEWEST_BUSY_S,
    BusyReports,
    Interval,
    MeasuredSpeeds,
    SpeedState,
    estimate,
    reported_seconds,
    update,
)
from evenlag.lake.arrow_schema import arrow_schema, with_head
from evenlag.lake.tables import SPEEDS

LAG_COLUMNS: Final = (
    *("group_id", "topic_id", "topic", "partition", "status", "owner_member_id", "owner_problem"),
    *("committed_offset", "lag_records", "lag_bound"),
)
MEMBER_COLUMNS: Final = (
    *("group_id", "group_type", "assignor", "member_id", "group_instance_id", "client_id"),
)
COMMIT_COLUMNS: Final = ("group_id", "topic_id", "topic", "partition", "read_at", "busy_ms", "busy_since")
_MEASURED: Final = {
    "speed_records_per_s": "speed_records_per_s",
    "speed_is_bound": "is_bound",
    "speed_confidence": "confidence",
}
# A backlog at both ends of a longer interval may have been gone in between.
_LONGEST_S: Final = 900.0
# Of members that are away, so many of each group are remembered.
_MOST_AWAY: Final = 100
_IDENTITY: Final = ("group_instance_id", "client_id")


class SnapshotGroups(NamedTuple):
    """Rows of some groups in one snapshot, with at least the columns that this module names."""

    lag: pa.Table
    members: pa.Table
    commits: pa.Table


def build_speeds(
    now: SnapshotGroups,
    previous: pa.Table,
    previous_lag: pa.Table,
    previous_commits: pa.Table,
    marker: Mapping[str, Any],
) -> pa.Table:
    """Build the rows of ``speeds`` of some groups of a snapshot.

    previous, previous_lag, previous_commits: The groups' rows of the newest snapshot before it that has
        speeds.
    """
    is_left = pc.equal(now.lag["status"], LagStatus.NOT_SUBSCRIBED)
    lag = now.lag.filter(pc.invert(is_left)).combine_chunks()
    groups: list[str] = sorted(pc.unique(lag["group_id"]).to_pylist())
    known, parts = (explode(_only(previous, groups), name) for name in ("members", "partitions"))
    present = _only(now.members, groups)
    people = _People.of(_named(present.filter(pc.is_valid(present["member_id"]))), known, groups)
    old_lag = _only(previous_lag, groups)
    lag_keys, old_keys, part_keys = group_partition_keys(lag, old_lag, parts)
    group_of_lag = codes(lag["group_id"], groups)
    state = SpeedState.unknown(len(groups), people.identity_group, group_of_lag)
    state = _remember(state, people, (known, parts), find_places(part_keys, lag_keys))
    read_at = _read_at(now.commits, groups)
    both = _Both(lag, old_lag, find_places(lag_keys, old_keys), group_of_lag)
    passed_s = _passed_s(read_at, previous, groups)
    is_steady = _steady_members(both, people, known, groups) & (passed_s <= _LONGEST_S)[people.group]
    interval = _interval(both, _owners(lag, people), people.identity, is_steady, passed_s)
    before, after = (_reports(each, lag) for each in (_only(previous_commits, groups), now.commits))
    reported_s = reported_seconds(interval.owner, interval.processed, before, after, people.members.num_rows)
    interval = replace(interval, reported_s=reported_s)
    found = _rows(update(state, interval), people, lag, groups, read_at)
    # What is known of a group that could not be read stays.
    unread = previous.filter(pc.invert(pc.is_in(previous["group_id"], pa.array(groups, pa.string()))))
    return with_head(pa.concat_tables([found, unread.select(found.column_names)]), SPEEDS, marker)


def with_speeds(members: pa.Table, speeds: pa.Table) -> pa.Table:
    """Add ``speed_records_per_s, speed_is_bound, speed_confidence`` to rows of ``members``; null: unknown."""
    known = explode(speeds, "members")
    known = known.filter(pc.is_valid(known["member_id"]))
    wanted, keys = _member_keys(members, known)
    rows = known.take(_or_null(find_places(wanted, keys)))
    for name, field in _MEASURED.items():
        members = members.append_column(name, rows[field])
    return members


def with_owner_speeds(lag: pa.Table, speeds: pa.Table) -> pa.Table:
    """Add the speeds of their owners to rows of ``lag``, in the columns of :func:`with_speeds`."""
    owners = lag.select(["group_id", "owner_member_id"]).rename_columns(["group_id", "member_id"])
    found = with_speeds(owners, speeds)
    for name in _MEASURED:
        lag = lag.append_column(name, found[name])
    return lag


def with_costs(lag: pa.Table, speeds: pa.Table) -> pa.Table:
    """Add ``cost`` to rows of ``lag``; null where it is 1."""
    parts = explode(speeds, "partitions")
    wanted, keys = group_partition_keys(lag, parts)
    return lag.append_column("cost", parts.take(_or_null(find_places(wanted, keys)))["cost"])


@dataclass(frozen=True, slots=True)
class _People:
    """M members that are there and K identities, each ordered by group.

    members: Rows with the columns of their identity only, else null.
    group, identity: int64 [M].
    identities, identity_group: [K].
    of_known: int64 [N], the identity of each known row of members.
    """

    members: pa.Table
    group: Int64s
    identity: Int64s
    identities: pa.Table
    identity_group: Int64s
    of_known: Int64s

    @classmethod
    def of(cls, members: pa.Table, known: pa.Table, groups: list[str]) -> _People:
        both = pa.concat_tables([each.select(["group_id", *_IDENTITY]) for each in (members, known)])
        group = codes(both["group_id"], groups)
        instance, client = (_numbers(both[name]) + 1 for name in _IDENTITY)
        pair = _combine(_combine(group, instance), client)
        _, first, number = np.unique(pair, return_index=True, return_inverse=True)
        count = members.num_rows
        names = both.take(pa.array(first)).select(list(_IDENTITY))
        return cls(members, group[:count], number[:count], names, group[first], number[count:])


class _Both(NamedTuple):
    """Rows of ``lag`` now and in the previous snapshot; `place` of the same partition there, or -1: [P]."""

    now: pa.Table
    before: pa.Table
    place: Int64s
    group: Int64s

    def of_both(self, column: str) -> tuple[Any, Any]:
        return self.now[column], self.before[column].take(_or_null(self.place))


def _named(members: pa.Table) -> pa.Table:
    """Return members with the columns of their identity only, else null."""
    client, instance = (members[name].combine_chunks() for name in ("client_id", "group_instance_id"))
    pair = _combine(_numbers(members["group_id"]), _numbers(client) + 1)
    _, place, count = np.unique(pair, return_inverse=True, return_counts=True)
    is_known = (count[place] == 1) & ~is_valid(instance) & flags(pc.not_equal(client, ""))
    only = pc.if_else(pa.array(is_known), client, pa.scalar(None, pa.string()))
    return members.set_column(members.schema.get_field_index("client_id"), "client_id", only)


def _remember(
    state: SpeedState, people: _People, rows: tuple[pa.Table, pa.Table], place: Int64s
) -> SpeedState:
    """Return the state with what was known of members, and of partitions, each at a place now or -1."""
    known, parts = rows
    busy_s, at_least, cost = state.busy_s.copy(), state.at_least.copy(), state.cost.copy()
    busy_s[people.of_known] = _floats(known["busy_s"])
    at_least[people.of_known] = _floats(known["at_least_records_per_s"])
    old_cost = _floats(parts["cost"])
    cost[place[place >= 0]] = old_cost[place >= 0]
    lists = parts["processed"].combine_chunks()
    of_part = parents(lists)
    each = pc.list_flatten(lists)
    records = _floats(pc.struct_field(each, "records"))
    number = integers(pc.struct_field(each, "identity"))
    names = pa.concat_tables([known.select(["group_id"]), parts.select(["group_id"])])["group_id"]
    of_known, of_parts = np.split(_numbers(names), [known.num_rows])
    keys = _combine(np.append(of_known, of_parts[of_part]), np.append(integers(known["identity"]), number))
    row = find_places(keys[known.num_rows :], keys[: known.num_rows])
    is_known = row >= 0
    identity, at, records = people.of_known[row[is_known]], place[of_part[is_known]], records[is_known]
    # With partitions that are gone, their part of the busy seconds goes.
    work = old_cost[of_part[is_known]] * records
    total = np.bincount(identity, work, len(busy_s))
    left = np.bincount(identity[at >= 0], work[at >= 0], len(busy_s))
    return replace(
        state,
        busy_s=busy_s * np.divide(left, total, out=np.zeros(len(total)), where=total > 0),
        at_least=at_least,
        cost=cost,
        done_identity=identity[at >= 0],
        done_partition=at[at >= 0],
        done_records=records[at >= 0],
    )


def _same_members(people: _People, known: pa.Table, groups: list[str]) -> Bools:
    """Whether the members of each group are those of the previous snapshot: [G]."""
    before = known.filter(pc.is_valid(known["member_id"]))
    now_keys, old_keys = _member_keys(people.members, before)
    old_group = codes(before["group_id"], groups)
    is_same = np.ones(len(groups), dtype=np.bool_)
    is_same[people.group[find_places(now_keys, old_keys) < 0]] = False
    is_same[old_group[find_places(old_keys, now_keys) < 0]] = False
    return is_same


def _steady_members(both: _Both, people: _People, known: pa.Table, groups: list[str]) -> Bools:
    """Which members have the partitions that they had, and were in no rebalance that stopped all: [M]."""
    owner, before = both.of_both("owner_member_id")
    is_other = ~flags(pc.equal(owner, before)) & (is_valid(owner) | is_valid(before))
    old_group, old_owner = codes(both.before["group_id"], groups), _owners(both.before, people)
    is_gone = is_valid(both.before["owner_member_id"])
    is_gone[both.place[both.place >= 0]] = False
    keeps = np.ones(people.members.num_rows, dtype=np.bool_)
    lost = old_owner[both.place[is_other & (both.place >= 0)]]
    for members in (_owners(both.now, people)[is_other], lost, old_owner[is_gone]):
        keeps[members[members >= 0]] = False
    has_changed = ~_same_members(people, known, groups)
    has_changed[both.group[is_other]] = True
    has_changed[old_group[is_gone]] = True
    stops_moved_only = flags(pc.equal(people.members["group_type"], GroupType.CONSUMER)) | flags(
        pc.is_in(people.members["assignor"], pa.array(sorted(COOPERATIVE_ASSIGNORS)))
    )
    is_unknown = np.zeros(len(groups), dtype=np.bool_)
    is_unknown[both.group[is_valid(both.now["owner_problem"])]] = True
    return keeps & ~is_unknown[people.group] & (stops_moved_only | ~has_changed[people.group])


def _owners(lag: pa.Table, people: _People) -> Int64s:
    """The member that owns each row: [P]; -1 for none."""
    owners = lag.select(["group_id", "owner_member_id"]).rename_columns(["group_id", "member_id"])
    wanted, keys = _member_keys(owners, people.members)
    return np.where(is_valid(lag["owner_member_id"]), find_places(wanted, keys), UNKNOWN)


def _interval(both: _Both, owner: Int64s, identity: Int64s, is_steady: Bools, passed_s: Floats) -> Interval:
    is_known = np.ones(len(owner), dtype=np.bool_)
    for status in both.of_both("status"):
        is_known &= flags(pc.equal(status, LagStatus.OK))
    for bound in both.of_both("lag_bound"):
        is_known &= ~is_valid(bound)

    def numbers(column: str) -> tuple[Floats, Floats]:
        found = [Numbers.of(each.combine_chunks()) for each in both.of_both(column)]
        now, before = (np.where(is_known & each.known, each.values, np.nan) for each in found)
        return now, before

    committed, committed_before = numbers("committed_offset")
    after, before = numbers("lag_records")
    processed = committed - committed_before
    unknown_s = np.full(len(identity), np.nan)
    return Interval(passed_s, identity, is_steady, owner, processed, before, after, unknown_s)


def _reports(commits: pa.Table, lag: pa.Table) -> BusyReports:
    """What the commits of the rows of ``lag`` report."""
    commits = commits.filter(pc.and_(pc.is_valid(commits["busy_ms"]), pc.is_valid(commits["busy_since"])))
    rows = commits.take(_or_null(find_places(*group_partition_keys(lag, commits))))
    since_ms = rows["busy_since"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    return BusyReports(integers(rows["busy_ms"]), integers(since_ms))


def _read_at(commits: pa.Table, groups: list[str]) -> Any:
    """When the commits of each group were read; null: unknown."""
    first = commits.group_by("group_id").aggregate([("read_at", "min")])
    place = codes(pa.array(groups, pa.string()), first["group_id"].to_pylist())
    return first["read_at_min"].combine_chunks().take(_or_null(place))


def _passed_s(read_at: Any, previous: pa.Table, groups: list[str]) -> Floats:
    """Seconds since the commits of each group were read before: [G]; 0: unknown."""
    place = codes(pa.array(groups, pa.string()), previous["group_id"].to_pylist())
    now, before = (
        Numbers.of_moments(each)
        for each in (read_at, previous["read_at"].combine_chunks().take(_or_null(place)))
    )
    return np.where(now.known & before.known, (now.values - before.values) / 1e6, 0.0)


def _rows(state: SpeedState, people: _People, lag: pa.Table, groups: list[str], read_at: Any) -> pa.Table:
    """Rows of ``speeds`` without the snapshot columns."""
    is_kept = _kept_identities(state, people)
    is_done = is_kept[state.done_identity]
    number = np.cumsum(is_kept) - 1
    first = np.searchsorted(state.identity_group[is_kept], np.arange(len(groups)))
    number -= first[state.identity_group] if len(groups) else 0
    schema = arrow_schema(SPEEDS)
    kind = schema.field("partitions").type.value_type
    order = np.lexsort((state.done_identity, state.done_partition))
    order = order[is_done[order]]
    processed = {
        "identity": pa.array(number[state.done_identity[order]]),
        "records": pa.array(state.done_records[order]),
    }
    done = as_structs(processed, kind.field("processed").type.value_type)
    count = np.bincount(state.done_partition[is_done], minlength=lag.num_rows)
    rows = np.flatnonzero((count > 0) | (state.cost != 1.0))
    names = ("topic_id", "topic", "partition")
    columns = {name: lag[name].combine_chunks().take(pa.array(rows)) for name in names}
    columns |= {"cost": pa.array(state.cost[rows]), "processed": as_lists(done, count[rows])}
    parts = as_structs(columns, kind)
    by_group = np.argsort(state.partition_group[rows], kind="stable")
    sizes = np.bincount(state.partition_group[rows], minlength=len(groups))
    return pa.table(
        {
            "group_id": pa.array(groups, pa.string()),
            "read_at": read_at,
            "members": _member_lists(estimate(state), state, people, is_kept, number),
            "partitions": as_lists(parts.take(pa.array(by_group)), sizes),
        },
    )


def _kept_identities(state: SpeedState, people: _People) -> Bools:
    """Which identities are there, or are away and known: those with the most busy seconds."""
    is_here = np.zeros(len(state.busy_s), dtype=np.bool_)
    is_here[people.identity] = True
    away = np.flatnonzero(~is_here & (state.busy_s >= FEWEST_BUSY_S))
    away = away[np.lexsort((-state.busy_s[away], state.identity_group[away]))]
    group = state.identity_group[away]
    is_here[away[np.arange(len(away)) - np.searchsorted(group, group) < _MOST_AWAY]] = True
    return is_here


def _member_lists(
    found: MeasuredSpeeds, state: SpeedState, people: _People, is_kept: Bools, number: Int64s
) -> pa.ListArray:
    """The members of each group, and the identities that are away."""
    is_away = is_kept.copy()
    is_away[people.identity] = False
    identity = np.concatenate([people.identity, np.flatnonzero(is_away)])
    group = state.identity_group[identity]
    order = np.argsort(group, kind="stable")
    identity = identity[order]
    is_known = np.isfinite(found.speed[identity])
    kind = arrow_schema(SPEEDS).field("members").type.value_type
    ids = people.members["member_id"].combine_chunks()
    names = people.identities.take(pa.array(identity))
    columns = {
        "identity": pa.array(number[identity].astype(np.int32)),
        "member_id": ids.take(pa.array(order, mask=order >= len(ids))),
        **{name: names[name].combine_chunks() for name in _IDENTITY},
        "speed_records_per_s": pa.array(found.speed[identity], mask=~is_known),
        "is_bound": pa.array(found.is_bound[identity], mask=~is_known),
        "confidence": pa.array(found.confidence[identity], mask=~is_known),
        "busy_s": pa.array(state.busy_s[identity]),
        "at_least_records_per_s": pa.array(state.at_least[identity]),
    }
    return as_lists(as_structs(columns, kind), np.bincount(group, minlength=state.num_groups))


def explode(rows: pa.Table, name: str) -> pa.Table:
    """Return a row for each struct of a column of lists, with its ``group_id``."""
    lists = rows[name].combine_chunks()
    each = pc.list_flatten(lists)
    group = rows["group_id"].combine_chunks().take(pc.list_parent_indices(lists))
    fields = {field.name: pc.struct_field(each, field.name) for field in lists.type.value_type}
    return pa.table({"group_id": group, **fields})


def _only(rows: pa.Table, groups: list[str]) -> pa.Table:
    return rows.filter(pc.is_in(rows["group_id"], pa.array(groups, pa.string())))


def _floats(column: Any) -> Floats:
    """Numbers that another version may have left out: 0."""
    return np.nan_to_num(floats(column))


def _numbers(texts: Any) -> Int64s:
    """A number for each distinct text; -1 for null."""
    return codes(texts, pc.unique(texts).drop_null().to_pylist())


def _combine(first: Int64s, second: Int64s) -> Int64s:
    """A number for each distinct pair, in their order; of many rows it stays small."""
    least = int(second.min(initial=0))
    keys = first * (int(second.max(initial=0)) - least + 1) + second - least
    return np.asarray(np.unique(keys, return_inverse=True)[1], dtype=np.int64)


def _or_null(place: Int64s) -> pa.Array:
    return pa.array(place, mask=place < 0)


def group_partition_keys(*tables: pa.Table) -> list[Int64s]:
    """Return a number for each row that only the same partition of the same group has, in all tables."""
    names = ("group_id", "topic_id", "topic", "partition")
    rows = pa.concat_tables([each.select(names) for each in tables])
    topic = _combine(_numbers(rows["topic_id"]), _numbers(rows["topic"]))
    keys = _combine(_combine(_numbers(rows["group_id"]), topic), integers(rows["partition"]))
    return np.split(keys, np.cumsum([each.num_rows for each in tables[:-1]]))


def _member_keys(*tables: pa.Table) -> list[Int64s]:
    """A number for each row that only the same member of the same group has in all tables."""
    rows = pa.concat_tables([each.select(["group_id", "member_id"]) for each in tables])
    keys = _combine(_numbers(rows["group_id"]), _numbers(rows["member_id"]) + 1)
    return np.split(keys, np.cumsum([each.num_rows for each in tables[:-1]]))
