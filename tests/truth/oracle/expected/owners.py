"""`evenlag audit owner` and `evenlag audit diff`, from the members that each snapshot lists."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Final

from tests.truth.oracle.expected.moments import Moment, interesting_moments
from tests.truth.oracle.forms import between, number
from tests.truth.oracle.history import NOT_SHOWN, GroupState, History, Run, bounds
from tests.truth.oracle.session import compare_exports

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from tests.truth.oracle.history import Partition
    from tests.truth.oracle.lake_rows import Row
    from tests.truth.oracle.session import Session

OWNER: Final = "audit owner"
DIFF: Final = "audit diff"
_CERTAINTY: Final = {
    "SEEN": "seen before and after",
    "GAP": "the snapshots are too far apart",
    "LAST_SEEN": "last seen; no later snapshot",
    "FIRST_SEEN": "first seen later",
}


def check_owners(session: Session) -> None:
    """Compare the owners of each group at times within, between, before and after snapshots."""
    moments = interesting_moments(session)
    for group_id in History(session.rows, moments[0], moments[-1]).groups:
        for number_of_it, at in enumerate(moments):
            history = History(session.rows, at, at)
            if group_id in history.groups:
                _check_owner(session, history, group_id, at, is_whole=number_of_it == 1)
        _check_newest(session, group_id)


def _check_newest(session: Session, group_id: str) -> None:
    """Without a time, the command uses the end of the newest snapshot."""
    at = max(row["finished_at"] for row in session.rows.rows("audited_snapshots"))
    history = History(session.rows, at - timedelta(days=1), at)
    if group_id in history.groups:
        shown = session.ask(OWNER, group_id)
        rows = _owner_rows(Moment(history, group_id, at))
        session.same(OWNER, f"{group_id} at the newest snapshot", shown and shown["partitions"], rows)


def _check_owner(session: Session, history: History, group_id: str, at: datetime, *, is_whole: bool) -> None:
    point = Moment(history, group_id, at)
    rows = _owner_rows(point)
    arguments = (group_id, "--at", at.isoformat())
    shown = session.ask(OWNER, *arguments)
    if shown is None:
        return
    expected = {"rests_on": rests_on(session, history), "group_id": group_id, "at": at}
    session.same(OWNER, " ".join(arguments), shown, expected | {"group": point.around(), "partitions": rows})
    if not is_whole:
        return
    tables, _ = session.printed(OWNER, *arguments)
    printed = tables[0].rows if tables else None
    session.same(OWNER, f"printed {' '.join(arguments)}", printed, [_owner_cells(row) for row in rows])
    if session.is_first(OWNER):
        compare_exports(session, OWNER, arguments, rows)


def rests_on(session: Session, history: History) -> Row:
    """Return the snapshots of a period, as every audit command describes them."""
    since, until = history.since, history.until
    inside = [s for s in history.snapshots if since <= s["started_at"] <= until]
    known = {row["snapshot_id"] for row in session.rows.rows("audited_snapshots")}
    days = range((until.date() - since.date()).days + 2)
    first_day = since.date() - timedelta(days=1)
    unaudited = [
        row
        for row in session.rows.snapshots
        if since <= row["started_at"] <= until
        and row["snapshot_id"] not in known
        and (row["day"] - first_day).days in days
    ]
    downsampled = {row["day"] for row in session.rows.rows("downsampled_days")}
    slots = {row["slot"].date() for row in history.snapshots}
    return {
        "cluster": session.rows.cluster,
        "since": since,
        "until": until,
        "num_snapshots": len(inside),
        "first_snapshot_id": inside[0]["snapshot_id"] if inside else None,
        "last_snapshot_id": inside[-1]["snapshot_id"] if inside else None,
        "num_snapshots_not_audited": len(unaudited),
        "max_gap_ms": history.max_gap_ms,
        "downsampled_days": sorted(day for day in downsampled if min(slots) <= day <= max(slots)),
        "input_hash_of_days": [
            {"day": day, "input_hash": input_hash}
            for day, input_hash in sorted(
                {row["day"]: row["input_hash"] for row in history.snapshots}.items()
            )
        ],
    }


def _owner_rows(point: Moment) -> list[Row]:
    found = []
    for partition in sorted(point.partitions(), key=lambda each: (each[0], each[2], each[1] or "")):
        stretches = _stretches(point, partition)
        is_changing = any(run.first > point.first or run.last < point.last for run, _ in stretches)
        certainty = "CHANGING" if is_changing else _certainty(point)
        topic, topic_id, number_of_it = partition
        head = {"topic": topic, "topic_id": topic_id, "partition": number_of_it, "certainty": certainty}
        in_order = sorted(stretches, key=lambda each: _time_order(point, each[0]))
        found += [
            head | {"side": _side(point, run)} | cell | bounds(point.history, point.states, run)
            for run, cell in in_order
        ]
    return found


def _certainty(point: Moment) -> str:
    if point.before is None:
        return "FIRST_SEEN"
    if point.after is None:
        return "LAST_SEEN"
    return "GAP" if point.is_gap() else "SEEN"


def _stretches(point: Moment, partition: Partition) -> list[tuple[Run, Row]]:
    """Each owner in the snapshots around a time, with all consecutive snapshots that show it."""
    found: dict[tuple[int, int, str], tuple[Run, Row]] = {}
    for place in range(point.first, point.last + 1):
        for cell in point.shown(place, partition):
            run = _run_of(point, partition, cell, place)
            found[run.first, run.last, str(cell["member_id"])] = (run, cell)
    return list(found.values())


def _run_of(point: Moment, partition: Partition, cell: Row, place: int) -> Run:
    first = last = place
    while cell in point.shown(first - 1, partition):
        first -= 1
    while cell in point.shown(last + 1, partition):
        last += 1
    return Run(first, last)


def _side(point: Moment, run: Run) -> str:
    is_before, is_after = (
        place is not None and run.first <= place <= run.last for place in (point.before, point.after)
    )
    return {(True, True): "both", (True, False): "before", (False, True): "after"}.get(
        (is_before, is_after), "during"
    )


def _time_order(point: Moment, run: Run) -> tuple[int, int]:
    return (("before", "both", "during", "after").index(_side(point, run)), run.first)


def _owner_cells(row: Row) -> list[str]:
    side = {"before": ", so before", "during": ", so in between", "after": ", so after"}.get(row["side"], "")
    sure = f"changed around then{side}" if row["certainty"] == "CHANGING" else _CERTAINTY[row["certainty"]]
    return [
        row["topic"],
        number(row["partition"]),
        row["member_id"] or f"{row['state'].lower()}: {row['reason']}",
        row["group_instance_id"] or row["client_id"] or "",
        between(row["previous_seen_at"], row["first_seen_at"]),
        between(row["last_seen_at"], row["next_seen_at"]),
        sure,
    ]


# Differences -----------------------------------------------------------------------------------------------


def check_diff(session: Session) -> None:
    """Compare the changes between neighboring times, and between the first and the last."""
    moments = interesting_moments(session)[1:]
    pairs = [*pairwise(moments), (moments[0], moments[-1])]
    for since, until in pairs:
        history = History(session.rows, since, until)
        for group_id in history.groups:
            is_whole = (since, until) == pairs[-1]
            _check_diff(session, history, group_id, (since, until), is_whole=is_whole)


def _check_diff(
    session: Session, history: History, group_id: str, asked: tuple[datetime, datetime], *, is_whole: bool
) -> None:
    ends = [Moment(history, group_id, at) for at in asked]
    if any(end.before is None for end in ends) or asked[0] > max(s["finished_at"] for s in history.snapshots):
        return
    partitions = sorted(
        ends[0].partitions() | ends[1].partitions(), key=lambda each: (each[0], each[2], each[1] or "")
    )
    everything = [row for each in partitions if (row := _difference(each, ends)) is not None]
    rows = [row for row in everything if row["change"] != "SAME"]
    arguments = (group_id, *(at.isoformat() for at in asked))
    expected = {
        "rests_on": rests_on(session, history),
        "group_id": group_id,
        "num_compared": len(everything),
        "before": ends[0].around(),
        "after": ends[1].around(),
        "partitions": rows,
    }
    shown = session.ask(DIFF, *arguments, "--all")
    session.same(DIFF, f"{' '.join(arguments)} --all", shown, expected | {"partitions": everything})
    if not is_whole:
        return
    tables, _ = session.printed(DIFF, *arguments)
    printed = tables[0].rows if tables else None
    session.same(DIFF, f"printed {' '.join(arguments)}", printed, [_diff_cells(row) for row in rows])
    counted = f"{len(rows)} of {len(everything)} partitions" if rows else f"all {len(everything)} the same"
    reported = tables[0].caption[: len(counted)] if tables else None
    session.same(DIFF, f"caption of {' '.join(arguments)}", reported, counted)
    if rows and session.is_first(DIFF):
        session.same(DIFF, " ".join(arguments), session.ask(DIFF, *arguments), expected)
        compare_exports(session, DIFF, arguments, rows)


def _difference(partition: Partition, ends: Sequence[Moment]) -> Row | None:
    old, new = (_candidates(end, partition) for end in ends)
    changes = {
        _change((one, ends[0].states.get(p)), (other, ends[1].states.get(q)))
        for (p, one), (q, other) in product(old, new)
    }
    if changes == {None}:
        return None
    topic, topic_id, number_of_it = partition
    change = changes.pop() if len(changes) == 1 else "CHANGING"
    row: Row = {"topic": topic, "topic_id": topic_id, "partition": number_of_it, "change": change}
    for name, end, found in (("before", ends[0], old), ("after", ends[1], new)):
        ids = end.history.snapshots
        members = [member for _, cells in found for member in _members(cells)]
        row |= {
            f"holder_{name}": list(dict.fromkeys(members)),
            f"state_{name}": found[0][1][0]["state"] if found[0][1] else None,
            f"certainty_{name}": "CHANGING" if len(found) > 1 else _certainty(end),
            f"snapshot_id_{name}": ids[end.first]["snapshot_id"],
            f"next_snapshot_id_{name}": None if end.last == end.first else ids[end.last]["snapshot_id"],
        }
    return row


def _candidates(end: Moment, partition: Partition) -> list[tuple[int, list[Row]]]:
    found: list[tuple[int, list[Row]]] = []
    for place in range(end.first, end.last + 1):
        cells = end.shown(place, partition)
        if all(_meaning(cells) != _meaning(other) for _, other in found):
            found.append((place, cells))
    return found


def _meaning(cells: Sequence[Row]) -> tuple[Any, ...]:
    return (cells[0]["state"] if cells else None, _members(cells))


def _members(cells: Iterable[Row]) -> list[str]:
    return sorted(cell["member_id"] for cell in cells if cell["member_id"] is not None)


def _change(
    one: tuple[list[Row], GroupState | None], other: tuple[list[Row], GroupState | None]
) -> str | None:
    (old, old_state), (new, new_state) = one, other
    if not old or not new:
        return "ADDED" if new else "REMOVED" if old else None
    if NOT_SHOWN in {old[0]["state"], new[0]["state"]}:
        return "UNKNOWN"
    was, now = _members(old), _members(new)
    if was == now:
        return "SAME"
    if not was or not now:
        return "PLACED" if now else "FREED"
    stayed = set(old_state.members) & set(new_state.members) if old_state and new_state else set()
    return "RETURNED" if is_same_client(old[0], new[0]) and not stayed & {*was, *now} else "MOVED"


def is_same_client(old: Row, new: Row) -> bool:
    """Return whether two members can be one consumer: same instance id, else same client id and host."""
    if old["group_instance_id"] or new["group_instance_id"]:
        return bool(old["group_instance_id"] == new["group_instance_id"])
    pairs = [(old[name], new[name]) for name in ("client_id", "client_host")]
    return all(one is not None and one == other for one, other in pairs)


def _diff_cells(row: Row) -> list[str]:
    cells = [row["topic"], number(row["partition"]), row["change"]]
    for end in ("before", "after"):
        together = " or " if row[f"certainty_{end}"] == "CHANGING" else ", "
        cells.append(together.join(row[f"holder_{end}"]) or (row[f"state_{end}"] or "not taken").lower())
    return cells
