"""`evenlag audit churn` and `evenlag audit adherence`, from members, plans and published hints."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tests.truth.oracle.expected.hints import Hint, read_hints, share
from tests.truth.oracle.expected.owners import is_same_client, rests_on
from tests.truth.oracle.expected.plans import SHORT_ID
from tests.truth.oracle.forms import between, number
from tests.truth.oracle.history import FREE, NOBODY, NOT_SHOWN, OWNED, GroupState, History, runs
from tests.truth.oracle.lake_rows import by
from tests.truth.oracle.session import compare_exports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from tests.truth.oracle.history import Partition, Run
    from tests.truth.oracle.lake_rows import LakeRows, Row
    from tests.truth.oracle.session import Session

CHURN: Final = "audit churn"
_COUNTS: Final = ("num_moved", "num_returned", "num_placed", "num_freed")
_MS: Final = timedelta(milliseconds=1)


# Rebalances ------------------------------------------------------------------------------------------------


def find_rebalances(
    rows: LakeRows, history: History, group_id: str | None = None
) -> tuple[list[Row], list[Row]]:
    """Return rebalances between neighboring snapshots, and partitions that changed owners."""
    hints = read_hints(rows, history, group_id)
    rebalances, moves = [], []
    for name in [group_id] if group_id is not None else history.groups:
        own_hints = [hint for hint in hints if hint.event["group_id"] == name]
        found = [
            each
            for each in _rebalances_of(history, name, own_hints)
            if history.since < each["seen_at"] and each["after_seen_at"] < history.until
        ]
        rebalances += found
        moves += _count_moves(history, name, {each["snapshot_id"]: each for each in found})
    return rebalances, moves


def _rebalances_of(history: History, group_id: str, hints: Sequence[Hint]) -> list[Row]:
    states = history.states(group_id)
    stretches = runs(list(states), {place: state.content for place, state in states.items()})
    known = [(n, run) for n, run in enumerate(stretches) if states[run.first].is_known]
    assignor = next((a for _, run in known if (a := states[run.first].head["assignor"])), None)
    found: list[Row] = []
    waiting: list[str] = []
    for (n, old_run), (m, new_run) in itertools.pairwise(known):
        old, new = states[old_run.first], states[new_run.first]
        change = _member_change(old, new)
        between_them = [states[run.first] for run in stretches[n + 1 : m]]
        was_seen = any(state.head["error"] is None for state in between_them)
        causes = [*waiting, *_causes(old, new, change)]
        if new.head["assignor"] and new.head["assignor"] != assignor:
            assignor = new.head["assignor"]
            causes.append("ASSIGNOR_CHANGED")
        if not was_seen and not _has_changed(old, new):
            waiting = causes
            continue
        waiting = []
        seen = _ends(history, states, old_run, new_run)
        plan_id = _followed_between(hints, old, new, seen)
        causes += ["HINT_APPLIED"] if plan_id else []
        found.append(
            {"group_id": group_id}
            | seen
            | {"causes": list(dict.fromkeys(causes)) or ["UNKNOWN"], "plan_id": plan_id}
            | change
            | {"assignor": new.head["assignor"], "num_members": len(new.members), **dict.fromkeys(_COUNTS, 0)}
            | {
                "was_seen": was_seen,
                "across_gap": (seen["seen_at"] - seen["after_seen_at"]) / _MS > history.max_gap_ms,
            }
        )
    return found


def _ends(history: History, states: Mapping[int, GroupState], old: Run, new: Run) -> Row:
    return {
        "after_snapshot_id": history.snapshots[old.last]["snapshot_id"],
        "after_seen_at": states[old.last].seen_at,
        "snapshot_id": history.snapshots[new.first]["snapshot_id"],
        "seen_at": states[new.first].seen_at,
    }


def _followed_between(hints: Sequence[Hint], old: GroupState, new: GroupState, seen: Row) -> str | None:
    for hint in reversed(hints):
        was_published = hint.event["at"] < seen["seen_at"]
        had_not_ended = hint.ending is None or hint.ending["at"] > seen["after_seen_at"]
        if was_published and had_not_ended and share(hint, new) == 1 > share(hint, old):
            return str(hint.event["plan_id"])
    return None


def _member_change(old: GroupState, new: GroupState) -> Row:
    gone = [old.members[name] for name in sorted(set(old.members) - set(new.members))]
    came = [new.members[name] for name in sorted(set(new.members) - set(old.members))]
    bounced = {}
    for member in gone:
        back = [each for each in came if is_same_client(member, each)]
        if back:
            came.remove(back[0])
            bounced[member["member_id"]] = back[0]["member_id"]
    left = [member["member_id"] for member in gone if member["member_id"] not in bounced]
    return {"joined": [member["member_id"] for member in came], "left": left, "bounced": bounced}


def _causes(old: GroupState, new: GroupState, change: Row) -> list[str]:
    both = [(old.topics[name], new.topics[name]) for name in new.topics if name in old.topics]
    sizes = [(one[1] or 0, other[1] or 0) for one, other in both if one[0] == other[0]]
    grown = [size for size in sizes if 0 < size[0] < size[1]]
    subscribed = {name: member["subscription"] for name, member in new.members.items()}
    resubscribed = [
        name
        for name, member in old.members.items()
        if subscribed.get(change["bounced"].get(name, name), member["subscription"]) != member["subscription"]
    ]
    found = {
        "MEMBER_JOINED": change["joined"],
        "MEMBER_LEFT": change["left"],
        "MEMBER_BOUNCED": change["bounced"],
        "SUBSCRIPTION_CHANGED": resubscribed,
        "PARTITIONS_ADDED": grown,
        "TOPIC_RECREATED": [one for one, other in both if one[0] != other[0]],
    }
    return [cause for cause, rows in found.items() if rows]


def _has_changed(old: GroupState, new: GroupState) -> bool:
    """Whether the members, their assignments, or the selected assignor differ."""
    owned = [{name: m["assignment"] for name, m in state.members.items()} for state in (old, new)]
    return owned[0] != owned[1] or old.head["assignor"] != new.head["assignor"]


def _count_moves(history: History, group_id: str, rebalances: Mapping[str, Row]) -> list[Row]:
    """Follow each partition over the snapshots, and count its moves by rebalance."""
    states = history.states(group_id)
    partitions = sorted(
        {each for state in states.values() for each in state.cells}, key=lambda p: (p[0], p[1] or "", p[2])
    )
    moves = []
    for partition in partitions:
        trail = [
            (place, states[place].cells[partition])
            for place in sorted(states)
            if partition in states[place].cells
        ]
        moved = _moves_of(history, group_id, partition, trail)
        known = {move["first_snapshot_id"] for move in moved}
        for move in moved:
            rebalance = rebalances.get(move["first_snapshot_id"])
            if rebalance is None:
                continue
            returned = rebalance["bounced"].get(move["from_member_id"]) == move["to_member_id"]
            rebalance["num_returned" if returned else "num_moved"] += 1
            kind = "RETURNED" if returned else "MOVED"
            moves.append(move | {"kind": kind, "causes": rebalance["causes"]})
        for name, snapshot_id in _freed_and_placed(history, trail):
            if snapshot_id in rebalances and snapshot_id not in known:
                rebalances[snapshot_id][name] += 1
    return moves


def _moves_of(
    history: History, group_id: str, partition: Partition, trail: Sequence[tuple[int, list[Row]]]
) -> list[Row]:
    states = history.states(group_id)
    last: tuple[str, int] | None = None
    moves = []
    for place, cells in trail:
        cell = cells[0]
        if cell["state"] == NOBODY and cell["reason"] != FREE:
            last = None
        if cell["state"] != OWNED or cell["num_owners"] != 1:
            continue
        if last is not None and last[0] != cell["member_id"]:
            topic, topic_id, number_of_it = partition
            moves.append(
                {
                    "group_id": group_id,
                    "topic": topic,
                    "topic_id": topic_id,
                    "partition": number_of_it,
                    "from_member_id": last[0],
                    "last_seen_at": states[last[1]].seen_at,
                    "last_snapshot_id": history.snapshots[last[1]]["snapshot_id"],
                    "to_member_id": cell["member_id"],
                    "first_seen_at": states[place].seen_at,
                    "first_snapshot_id": history.snapshots[place]["snapshot_id"],
                }
            )
        last = (cell["member_id"], place)
    return moves


def _freed_and_placed(history: History, trail: Sequence[tuple[int, list[Row]]]) -> list[tuple[str, str]]:
    found = []
    was_owned = False
    for place, cells in trail:
        if cells[0]["state"] == NOT_SHOWN:
            continue
        is_owned = cells[0]["state"] == OWNED
        if is_owned != was_owned:
            name = "num_placed" if is_owned else "num_freed"
            found.append((name, history.snapshots[place]["snapshot_id"]))
        was_owned = is_owned
    return found


def check_churn(session: Session) -> None:
    """Compare rebalances and moves of all groups and of each, over the complete time and a part of it."""
    ends = [row["finished_at"] for row in session.rows.rows("audited_snapshots")]
    until, begin = max(ends), min(row["started_at"] for row in session.rows.rows("audited_snapshots"))
    middle = begin + (until - begin) / 2
    _check_churn(session, None, until - timedelta(days=1), until, ())
    for group_id in History(session.rows, begin, until).groups:
        part = ("--from", begin.isoformat(), "--to", middle.isoformat())
        _check_churn(session, group_id, begin, middle, part)
        whole = ("--from", begin.isoformat(), "--to", until.isoformat())
        _check_churn(session, group_id, begin, until, whole)


def _check_churn(
    session: Session, group_id: str | None, since: datetime, until: datetime, period: tuple[str, ...]
) -> None:
    history = History(session.rows, since, until)
    if group_id is not None and group_id not in history.groups:
        return
    rebalances, moves = find_rebalances(session.rows, history, group_id)
    groups = _sum_up(rebalances)
    arguments = (*([group_id] if group_id else []), *period)
    name = " ".join(arguments)
    expected = {"rests_on": rests_on(session, history), "group_id": group_id, "groups": groups}
    shown = session.ask(CHURN, *arguments)
    session.same(CHURN, name, shown, expected | {"rebalances": rebalances, "moves": moves})
    if (
        period
        and period[3] != max(r["finished_at"] for r in session.rows.rows("audited_snapshots")).isoformat()
    ):
        return
    tables, _ = session.printed(CHURN, *arguments, "--moves")
    titles = ["Churn", "Rebalances", "Moves"] if group_id else ["Churn", "Moves"]
    session.same(CHURN, f"tables of {name}", [table.title.split(" ")[0] for table in tables], titles)
    by_title = {table.title.split(" ")[0]: table.rows for table in tables}
    session.same(CHURN, f"printed {name}", by_title.get("Churn"), [_group_cells(row) for row in groups])
    clients = session.rows.client_names()
    cells = [_move_cells(row, clients) for row in moves]
    session.same(CHURN, f"printed moves {name}", by_title.get("Moves"), cells)
    if group_id:
        cells = [_rebalance_cells(row) for row in rebalances]
        session.same(CHURN, f"printed rebalances {name}", by_title.get("Rebalances"), cells)
        if moves and session.is_first(CHURN):
            compare_exports(session, CHURN, arguments, moves)


def _sum_up(rebalances: Sequence[Row]) -> list[Row]:
    groups = [
        {
            "group_id": group_id,
            "num_rebalances": len(own),
            **{name: sum(each[name] for each in own) for name in _COUNTS},
            "by_cause": dict(Counter(cause for each in own for cause in each["causes"])),
        }
        for group_id, own in by(rebalances, "group_id").items()
    ]
    return sorted(groups, key=lambda row: (-row["num_moved"], -row["num_rebalances"], row["group_id"]))


def _group_cells(row: Row) -> list[str]:
    causes = ", ".join(f"{count} {cause}" for cause, count in sorted(row["by_cause"].items()))
    return [row["group_id"], *(number(row[name]) for name in ("num_rebalances", *_COUNTS)), causes]


def _rebalance_cells(row: Row) -> list[str]:
    gap = " (snapshots are missing: at least one)" if row["across_gap"] else ""
    plan = f" ({row['plan_id'][:SHORT_ID]})" if row["plan_id"] else ""
    return [
        between(row["after_seen_at"], row["seen_at"]) + gap,
        ", ".join(row["causes"]) + plan,
        ", ".join(row["joined"]),
        ", ".join(row["left"]),
        ", ".join(row["bounced"].values()),
        *(number(row[name]) for name in _COUNTS),
    ]


def _move_cells(row: Row, clients: Mapping[str, str]) -> list[str]:
    return [
        row["group_id"],
        row["topic"],
        number(row["partition"]),
        row["kind"],
        row["from_member_id"],
        clients[row["from_member_id"]],
        row["to_member_id"],
        clients[row["to_member_id"]],
        between(row["last_seen_at"], row["first_seen_at"]),
        ", ".join(row["causes"]),
    ]


# Adherence -------------------------------------------------------------------------------------------------
