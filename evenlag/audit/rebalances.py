"""Churn: every rebalance that the readings show, why it came, and the partitions that it moved.

Two readings that show a group differently had a rebalance in between, at least one. What caused it is told
from what else is different; where nothing is, the cause is UNKNOWN and nothing is guessed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.moves import PARTITION_KEY, find_moves, find_unheld
from evenlag.audit.owners import is_same_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from evenlag.audit.period import AuditedPeriod

    Stretch = dict[str, Any]
    # Whether a hint was first followed between two known stretches; gives its plan's id.
    FindHint = Callable[[Stretch, Stretch], str | None]

MEMBER_JOINED: Final = "MEMBER_JOINED"
MEMBER_LEFT: Final = "MEMBER_LEFT"
MEMBER_BOUNCED: Final = "MEMBER_BOUNCED"
SUBSCRIPTION_CHANGED: Final = "SUBSCRIPTION_CHANGED"
PARTITIONS_ADDED: Final = "PARTITIONS_ADDED"
TOPIC_RECREATED: Final = "TOPIC_RECREATED"
ASSIGNOR_CHANGED: Final = "ASSIGNOR_CHANGED"
HINT_APPLIED: Final = "HINT_APPLIED"
UNKNOWN_CAUSE: Final = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class MemberChange:
    """How the members of a group differ between two readings.

    Attributes
    ----------
    joined, left
        Member ids that have no counterpart on the other side.
    bounced
        Member id before → after, of consumers that went and came back.
    """

    joined: tuple[str, ...]
    left: tuple[str, ...]
    bounced: dict[str, str]


def compare_members(old: Iterable[Stretch], new: Iterable[Stretch]) -> MemberChange:
    """Match the members of two readings: by id, else by instance id, else by client id and host.

    Several that share a client id and a host are matched in the order of their ids: one came back for each
    that went, whichever it was.
    """
    before = {member["member_id"]: member for member in old}
    after = {member["member_id"]: member for member in new}
    went = [before[name] for name in sorted(before.keys() - after.keys())]
    came = [after[name] for name in sorted(after.keys() - before.keys())]
    bounced: dict[str, str] = {}
    for member in went:
        match = next((each for each in came if is_same_client(member, each)), None)
        if match is not None:
            came.remove(match)
            bounced[member["member_id"]] = match["member_id"]
    left = tuple(member["member_id"] for member in went if member["member_id"] not in bounced)
    return MemberChange(tuple(member["member_id"] for member in came), left, bounced)


def find_rebalances(
    period: AuditedPeriod, *, find_hint: FindHint | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Find the rebalances of a period, and the partitions that each of them moved.

    Parameters
    ----------
    find_hint
        Called with two stretches of ``memberships`` that follow on each other; gives the plan that the group
        began to follow in between, if any. See :func:`evenlag.audit.adherence.hint_finder`.

    Returns
    -------
    rebalances
        By group and time: ``group_id``, the readings around (``after_snapshot_id, after_seen_at, snapshot_id,
        seen_at``: it happened between the two), ``causes``, ``plan_id``, who ``joined``, ``left`` and
        ``bounced``, ``num_moved`` (from one member to another), ``num_returned`` (to a consumer
        that came back), ``num_placed`` (nobody held them before), ``num_freed`` (nobody does now),
        ``was_seen`` (a reading fell into it) and ``across_gap`` (the readings lie too far apart: there may
        have been several).
    moves
        ``group_id, topic, topic_id, partition, from_member_id, to_member_id, kind`` (MOVED or RETURNED),
        ``last_seen_at, last_snapshot_id`` with the old holder, ``first_seen_at, first_snapshot_id`` with the
        new one, ``causes``.
    """
    by_group: dict[str, list[Stretch]] = defaultdict(list)
    for stretch in period.memberships.to_pylist():
        by_group[stretch["group_id"]].append(stretch)
    inside = (period.since, period.until)
    rebalances = [
        found
        for group_id in sorted(by_group)
        for found in _of_group(by_group[group_id], period.max_gap_ms, find_hint)
        if inside[0] < found["seen_at"] and found["after_seen_at"] < inside[1]
    ]
    by_reading = {(each["group_id"], each["snapshot_id"]): each for each in rebalances}
    moves = []
    for move in find_moves(period.ownership):
        rebalance = by_reading.get((move["group_id"], move["first_snapshot_id"]))
        if rebalance is None:
            continue
        returned = rebalance["bounced"].get(move["from_member_id"]) == move["to_member_id"]
        rebalance["num_returned" if returned else "num_moved"] += 1
        kind = "RETURNED" if returned else "MOVED"
        moves.append(move | {"kind": kind, "causes": rebalance["causes"]})
    moved = {_place(move) for move in moves}
    for name, rows in find_unheld(period.ownership).items():
        for row in rows:
            reading = (row["group_id"], row["first_snapshot_id"])
            if reading in by_reading and _place(row) not in moved:
                by_reading[reading][name] += 1
    return rebalances, moves


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*PARTITION_KEY, "first_snapshot_id"))


def sum_up(rebalances: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum up rebalances group by group, the one that moved most first.

    Returns
    -------
    list of dict
        ``group_id, num_rebalances, num_moved, num_returned, num_placed, num_freed`` and ``by_cause``: how
        many rebalances had each cause (one may have several).
    """
    groups: dict[str, dict[str, Any]] = {}
    counts = ("num_moved", "num_returned", "num_placed", "num_freed")
    for each in rebalances:
        blank = {
            "group_id": each["group_id"],
            "num_rebalances": 0,
            **dict.fromkeys(counts, 0),
            "by_cause": {},
        }
        total = groups.setdefault(each["group_id"], blank)
        total["num_rebalances"] += 1
        for name in counts:
            total[name] += each[name]
        for cause in each["causes"]:
            total["by_cause"][cause] = total["by_cause"].get(cause, 0) + 1
    return sorted(
        groups.values(), key=lambda row: (-row["num_moved"], -row["num_rebalances"], row["group_id"])
    )


def _of_group(
    stretches: list[Stretch], max_gap_ms: float, find_hint: FindHint | None
) -> Iterator[dict[str, Any]]:
    known = [(place, stretch) for place, stretch in enumerate(stretches) if stretch["is_known"]]
    assignor = next((stretch["assignor"] for _, stretch in known if stretch["assignor"]), None)
    waiting: list[str] = []
    for (at, old), (then, new) in pairwise(known):
        # A failed reading shows no rebalance, a rebalancing state does.
        was_seen = any(stretch["error"] is None for stretch in stretches[at + 1 : then])
        change = compare_members(old["members"], new["members"])
        causes = [*waiting, *_causes(old, new, change)]
        # An empty group has no assignor: what counts is the one it had before.
        if new["assignor"] and assignor != new["assignor"]:
            assignor = new["assignor"]
            causes.append(ASSIGNOR_CHANGED)
        if not (was_seen or _is_different(old, new, change)):
            # Nothing has followed from it yet: new partitions wait for the rebalance that deals them out.
            waiting = causes
            continue
        waiting = []
        plan_id = find_hint(old, new) if find_hint is not None else None
        if plan_id is not None:
            causes.append(HINT_APPLIED)
        gap_ms = (new["first_seen_at"] - old["last_seen_at"]).total_seconds() * 1000
        yield {
            "group_id": new["group_id"],
            "after_snapshot_id": old["last_snapshot_id"],
            "after_seen_at": old["last_seen_at"],
            "snapshot_id": new["first_snapshot_id"],
            "seen_at": new["first_seen_at"],
            "causes": list(dict.fromkeys(causes)) or [UNKNOWN_CAUSE],
            "plan_id": plan_id,
            "joined": list(change.joined),
            "left": list(change.left),
            "bounced": change.bounced,
            "assignor": new["assignor"],
            "num_members": new["num_members"],
            "num_moved": 0,
            "num_returned": 0,
            "num_placed": 0,
            "num_freed": 0,
            "was_seen": was_seen,
            "across_gap": gap_ms > max_gap_ms,
        }


def _is_different(old: Stretch, new: Stretch, change: MemberChange) -> bool:
    return (
        bool(change.joined or change.left or change.bounced)
        or old["assignor"] != new["assignor"]
        or _assignments(old) != _assignments(new)
    )


def _causes(old: Stretch, new: Stretch, change: MemberChange) -> list[str]:
    """What is different besides who holds what, in a fixed order."""
    before = {topic["topic"]: topic for topic in old["topics"]}
    pairs = [(before[topic["topic"]], topic) for topic in new["topics"] if topic["topic"] in before]
    renewed = any(one["topic_id"] != other["topic_id"] for one, other in pairs)
    grown = any(
        one["topic_id"] == other["topic_id"]
        and None not in (one["num_partitions"], other["num_partitions"])
        and one["num_partitions"] < other["num_partitions"]
        for one, other in pairs
    )
    told = (
        (MEMBER_JOINED, change.joined),
        (MEMBER_LEFT, change.left),
        (MEMBER_BOUNCED, change.bounced),
        (SUBSCRIPTION_CHANGED, _resubscribed(old, new, change)),
        (PARTITIONS_ADDED, grown),
        (TOPIC_RECREATED, renewed),
    )
    return [cause for cause, holds in told if holds]


def _resubscribed(old: Stretch, new: Stretch, change: MemberChange) -> bool:
    """Whether a member that was there before and after takes other topics now."""
    after = {member["member_id"]: member["subscription"] for member in new["members"]}
    return any(
        after.get(change.bounced.get(name, name), member["subscription"]) != member["subscription"]
        for member in old["members"]
        for name in (member["member_id"],)
    )


def _assignments(stretch: Stretch) -> dict[str, Any]:
    return {member["member_id"]: member["assignment"] for member in stretch["members"]}
