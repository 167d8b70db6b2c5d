"""Rebalances between snapshots, their causes, and the partitions that they moved.

A group that differs between two snapshots had at least one rebalance in between. The cause is derived from
the other differences; if there are none, it is UNKNOWN.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.audit.enums import OwnerChange, RebalanceCause
from evenlag.audit.interval_merge import FIRST_INDEX, same_as_next, same_key_as_next, sort_intervals
from evenlag.audit.owners import is_same_client
from evenlag.audit.period import AuditedPeriod
from evenlag.enums import OwnershipState

Interval = dict[str, Any]
# Returns the id of the plan whose hint was first applied between two known intervals, or None.
FindHint = Callable[[Interval, Interval], str | None]


_INTERVAL: Final = ("group_id", "first_snapshot_id")
_COUNTS: Final = ("num_moved", "num_returned", "num_placed", "num_freed")


@dataclass(frozen=True, slots=True)
class MemberChange:
    """Member ids without a counterpart in the other snapshot, and new by old id of returned clients."""

    joined: tuple[str, ...]
    left: tuple[str, ...]
    bounced: dict[str, str]


def compare_members(
    old: Iterable[Interval], new: Iterable[Interval], returned: Iterable[Interval] | None = None
) -> MemberChange:
    """Match the members of two snapshots: by member id, else by instance id, else by client id and host.

    returned: The matches, as found before the clients' names were removed. None: match by the names.
    """
    before = {member["member_id"]: member for member in old}
    after = {member["member_id"]: member for member in new}
    went = [before[name] for name in sorted(before.keys() - after.keys())]
    came = [after[name] for name in sorted(after.keys() - before.keys())]
    bounced: dict[str, str] = {}
    kept = None if returned is None else {each["member_id"]: each["next_member_id"] for each in returned}
    for member in went:
        matches = (
            is_same_client(member, each)
            if kept is None
            else kept.get(member["member_id"]) == each["member_id"]
            for each in came
        )
        match = next(compress(came, matches), None)
        if match is not None:
            came.remove(match)
            bounced[member["member_id"]] = match["member_id"]
    left = tuple(member["member_id"] for member in went if member["member_id"] not in bounced)
    return MemberChange(tuple(member["member_id"] for member in came), left, bounced)


def find_returned(memberships: pa.Table) -> list[dict[str, Any]]:
    """Find the clients that left a group and joined it again, between any two of its known intervals."""
    order = [("group_id", "ascending"), ("first_seen_at", "ascending")]
    rows = memberships.filter(memberships["is_known"]).sort_by(order).combine_chunks()
    members = rows["members"].combine_chunks()
    ids = pa.ListArray.from_arrays(members.offsets, pc.struct_field(members.values, "member_id")).to_pylist()
    groups = rows["group_id"].to_pylist()
    found = []
    for place in range(rows.num_rows - 1):
        if groups[place] != groups[place + 1] or set(ids[place]) <= set(ids[place + 1]):
            continue
        old, new = rows.slice(place, 2).to_pylist()
        bounced = compare_members(old["members"], new["members"]).bounced
        if bounced and old["returned"] is None:
            pairs = [{"member_id": one, "next_member_id": other} for one, other in bounced.items()]
            found.append({name: old[name] for name in _INTERVAL} | {"returned": pairs})
    return found


def find_rebalances(
    period: AuditedPeriod, *, find_hint: FindHint | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Find the rebalances of a period, by group and time, and the partitions that each of them moved.

    Partitions move from one member to another, return to a client that joined again, are placed (no owner
    before) or freed. ``was_seen``: a snapshot shows the rebalance itself; ``across_gap``: there may have been
    several.
    find_hint: See :func:`evenlag.audit.published_hints.hint_finder`.
    """
    by_group: dict[str, list[Interval]] = defaultdict(list)
    for interval in period.memberships.to_pylist():
        by_group[interval["group_id"]].append(interval)
    inside = (period.since, period.until)
    rebalances = [
        found
        for group_id in sorted(by_group)
        for found in _of_group(by_group[group_id], period.max_gap_ms, find_hint)
        if inside[0] < found["seen_at"] and found["after_seen_at"] < inside[1]
    ]
    by_snapshot = {(each["group_id"], each["snapshot_id"]): each for each in rebalances}
    moves = []
    for move in find_moves(period.ownership):
        rebalance = by_snapshot.get((move["group_id"], move["first_snapshot_id"]))
        if rebalance is None:
            continue
        returned = rebalance["bounced"].get(move["from_member_id"]) == move["to_member_id"]
        rebalance["num_returned" if returned else "num_moved"] += 1
        kind = OwnerChange.RETURNED if returned else OwnerChange.MOVED
        moves.append(move | {"kind": kind, "causes": rebalance["causes"]})
    moved = {_place(move) for move in moves}
    for name, rows in find_unheld(period.ownership).items():
        for row in rows:
            snapshot = (row["group_id"], row["first_snapshot_id"])
            if snapshot in by_snapshot and _place(row) not in moved:
                by_snapshot[snapshot][name] += 1
    return rebalances, moves


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*PARTITION_KEY, "first_snapshot_id"))


def sum_up(rebalances: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum up rebalances by group, with their causes, of which one may have several; the most moves first."""
    groups: dict[str, dict[str, Any]] = {}
    for each in rebalances:
        blank = {
            "group_id": each["group_id"],
            **dict.fromkeys(("num_rebalances", *_COUNTS), 0),
            "by_cause": {},
        }
        total = groups.setdefault(each["group_id"], blank)
        total["num_rebalances"] += 1
        for name in _COUNTS:
            total[name] += each[name]
        for cause in each["causes"]:
            total["by_cause"][cause] = total["by_cause"].get(cause, 0) + 1
    return sorted(
        groups.values(), key=lambda row: (-row["num_moved"], -row["num_rebalances"], row["group_id"])
    )


def _of_group(
    intervals: list[Interval], max_gap_ms: float, find_hint: FindHint | None
) -> Iterator[dict[str, Any]]:
    known = [(place, interval) for place, interval in enumerate(intervals) if interval["is_known"]]
    assignor = next((interval["assignor"] for _, interval in known if interval["assignor"]), None)
    waiting: list[RebalanceCause] = []
    for (at, old), (then, new) in pairwise(known):
        # A group that could not be described proves no rebalance; a rebalancing state does.
        was_seen = any(interval["error"] is None for interval in intervals[at + 1 : then])
        change = compare_members(old["members"], new["members"], old["returned"])
        causes = [*waiting, *_causes(old, new, change)]
        # An empty group has no assignor: compare with the last one it had.
        if new["assignor"] and assignor != new["assignor"]:
            assignor = new["assignor"]
            causes.append(RebalanceCause.ASSIGNOR_CHANGED)
        if not (was_seen or _is_different(old, new, change)):
            # No effect yet: new partitions belong to the later rebalance that assigns them.
            waiting = causes
            continue
        waiting = []
        plan_id = find_hint(old, new) if find_hint is not None else None
        if plan_id is not None:
            causes.append(RebalanceCause.HINT_APPLIED)
        gap_ms = (new["first_seen_at"] - old["last_seen_at"]).total_seconds() * 1000
        yield {
            "group_id": new["group_id"],
            "after_snapshot_id": old["last_snapshot_id"],
            "after_seen_at": old["last_seen_at"],
            "snapshot_id": new["first_snapshot_id"],
            "seen_at": new["first_seen_at"],
            "causes": list(dict.fromkeys(causes)) or [RebalanceCause.UNKNOWN],
            "plan_id": plan_id,
            "joined": list(change.joined),
            "left": list(change.left),
            "bounced": change.bounced,
            "assignor": new["assignor"],
            "num_members": new["num_members"],
            **dict.fromkeys(_COUNTS, 0),
            "was_seen": was_seen,
            "across_gap": gap_ms > max_gap_ms,
        }


def _is_different(old: Interval, new: Interval, change: MemberChange) -> bool:
    return (
        bool(change.joined or change.left or change.bounced)
        or old["assignor"] != new["assignor"]
        or _assignments(old) != _assignments(new)
    )


def _causes(old: Interval, new: Interval, change: MemberChange) -> list[RebalanceCause]:
    """Differences other than the assignment, in a fixed order."""
    before = {topic["topic"]: topic for topic in old["topics"]}
    pairs = [(before[topic["topic"]], topic) for topic in new["topics"] if topic["topic"] in before]
    renewed = any(one["topic_id"] != other["topic_id"] for one, other in pairs)
    grown = any(
        one["topic_id"] == other["topic_id"]
        and None not in (one["num_partitions"], other["num_partitions"])
        and one["num_partitions"] < other["num_partitions"]
        for one, other in pairs
    )
    candidates = (
        (RebalanceCause.MEMBER_JOINED, change.joined),
        (RebalanceCause.MEMBER_LEFT, change.left),
        (RebalanceCause.MEMBER_BOUNCED, change.bounced),
        (RebalanceCause.SUBSCRIPTION_CHANGED, _resubscribed(old, new, change)),
        (RebalanceCause.PARTITIONS_ADDED, grown),
        (RebalanceCause.TOPIC_RECREATED, renewed),
    )
    return [cause for cause, holds in candidates if holds]


def _resubscribed(old: Interval, new: Interval, change: MemberChange) -> bool:
    """Whether a member that is in both snapshots changed its subscription."""
    after = {member["member_id"]: member["subscription"] for member in new["members"]}
    return any(
        after.get(change.bounced.get(name, name), member["subscription"]) != member["subscription"]
        for member in old["members"]
        for name in (member["member_id"],)
    )


def _assignments(interval: Interval) -> dict[str, Any]:
    return {member["member_id"]: member["assignment"] for member in interval["members"]}


PARTITION_KEY: Final = ("group_id", "topic", "topic_id", "partition")
FREE_IN_A_LIVE_GROUP: Final = "no member holds it"
_FROM: Final = ("member_id", "last_seen_at", "last_snapshot_id")
_TO: Final = ("member_id", "first_seen_at", "first_snapshot_id")


def find_moves(ownership: pa.Table) -> list[dict[str, Any]]:
    """Find the changes from one owner to another, by partition, then time.

    A partition may be free between the two, as between the two phases of a cooperative rebalance. A group
    without members ends the history: the partition was freed, and placed again later. A partition with two
    owners at once is ignored: the move is from its last single owner to its next single owner.
    """
    is_held = pc.and_(
        pc.equal(ownership["state"], OwnershipState.OWNED), pc.equal(ownership["num_owners"], 1)
    )
    is_left = pc.and_kleene(
        pc.equal(ownership["state"], OwnershipState.NOBODY),
        pc.not_equal(ownership["reason"], FREE_IN_A_LIVE_GROUP),
    )
    held = sort_intervals(ownership.filter(pc.or_kleene(is_held, is_left)), PARTITION_KEY)
    rows = _followed(held)
    rows = rows[~same_as_next(held["member_id"], rows)]
    owned = np.asarray(pc.equal(held["state"], OwnershipState.OWNED).to_numpy(), dtype=bool)
    rows = rows[owned[rows] & owned[rows + 1]]
    before, after = held.take(pa.array(rows)), held.take(pa.array(rows + 1))
    columns = {name: before[name] for name in PARTITION_KEY}
    columns |= {f"from_{name}" if name == "member_id" else name: before[name] for name in _FROM}
    columns |= {f"to_{name}" if name == "member_id" else name: after[name] for name in _TO}
    return list(pa.table(columns).to_pylist())


def find_unheld(ownership: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """Find the partitions that were placed (no owner before) and freed (no owner after)."""
    is_known = pc.not_equal(ownership["state"], OwnershipState.UNKNOWN)
    known = sort_intervals(ownership.filter(is_known), PARTITION_KEY)
    is_owned = np.asarray(pc.equal(known["state"], OwnershipState.OWNED).to_numpy(), dtype=bool)
    has_previous = np.zeros(known.num_rows, dtype=bool)
    has_previous[_followed(known) + 1] = True
    was_owned = has_previous & np.roll(is_owned, 1)
    # A partition with two owners has two rows in one snapshot, but is placed once.
    first = known[FIRST_INDEX].to_numpy()
    is_new = ~(has_previous & (np.roll(first, 1) == first))
    chosen = {"num_placed": is_owned & ~was_owned & is_new, "num_freed": ~is_owned & was_owned}
    columns = known.select([*PARTITION_KEY, "first_snapshot_id"])
    return {name: columns.filter(pa.array(rows)).to_pylist() for name, rows in chosen.items()}


def _followed(in_order: pa.Table) -> np.ndarray:
    """Numbers of the rows whose next row has the same partition."""
    return same_key_as_next(in_order, PARTITION_KEY, np.arange(max(in_order.num_rows - 1, 0)))
