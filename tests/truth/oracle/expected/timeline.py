"""The report's table and chart of partition ownership over time, and of events in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.truth.oracle.expected.churn import find_rebalances
from tests.truth.oracle.expected.plans import SHORT_ID
from tests.truth.oracle.forms import page_moment
from tests.truth.oracle.history import OWNED, History, runs
from tests.truth.oracle.report_period import member_names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from tests.truth.oracle.history import GroupState, Partition
    from tests.truth.oracle.lake_rows import Row
    from tests.truth.oracle.report_period import Period

_HINTS: Final = {
    "PUBLISHED": "published",
    "APPLIED": "followed",
    "IGNORED": "not followed",
    "EXPIRED": "expired",
    "WITHDRAWN": "withdrawn",
}
_CAUSES: Final = {
    "MEMBER_JOINED": "a member joined",
    "MEMBER_LEFT": "a member left",
    "MEMBER_BOUNCED": "a member left and joined again",
    "SUBSCRIPTION_CHANGED": "a subscription changed",
    "PARTITIONS_ADDED": "partitions were added",
    "TOPIC_RECREATED": "a topic was created again",
    "ASSIGNOR_CHANGED": "the assignor changed",
    "HINT_APPLIED": "a hint was followed",
    "UNKNOWN": "the snapshots do not show why",
}
_COUNTS: Final = ("moved", "returned", "placed", "freed")


@dataclass(frozen=True, slots=True)
class Bar:
    """A partition with one owner (or none: `what`), from a snapshot to the one that no longer shows it."""

    partition: str
    what: str
    start: datetime
    end: datetime
    is_open: bool

    def cells(self) -> list[str]:
        """Return the row of the table."""
        until = page_moment(self.end) + (" or later" if self.is_open else "")
        return [self.partition, self.what, page_moment(self.start), until]


def read_history(period: Period) -> tuple[History, list[int]] | None:
    """Return the audited history of a period, and its snapshots' indices; None if there is none."""
    if not period.rows.rows("audited_snapshots"):
        return None
    history = History(period.rows, period.snapshots[0]["slot"], period.finished_at)
    inside = [p for p, row in enumerate(history.snapshots) if row["snapshot_id"] in period.ids]
    return (history, inside) if inside and history.states(period.group_id) else None


def read_bars(period: Period) -> list[Bar]:
    """Return all bars of a period, by partition and time."""
    known = read_history(period)
    if known is None:
        return []
    history, inside = known
    states, names = history.states(period.group_id), member_names(period)
    partitions = sorted(
        {each for state in states.values() for each in state.cells}, key=lambda p: (p[0], p[2], p[1] or "")
    )
    found = []
    for partition in partitions:
        found += _bars_of(period, history, states, partition, (inside[0], inside[-1]), names)
    return found


def _bars_of(
    period: Period,
    history: History,
    states: Mapping[int, GroupState],
    partition: Partition,
    inside: tuple[int, int],
    names: Mapping[str, str],
) -> list[Bar]:
    first, last = inside
    shown = {p: state.cells[partition] for p, state in states.items() if partition in state.cells}
    begin = min(row["started_at"] for row in period.snapshots)
    last_end = history.snapshots[last]["finished_at"]
    found = []
    # While it has two owners, each has a bar.
    for owner in dict.fromkeys(_key(cell) for cells in shown.values() for cell in cells):
        own = {p: cell for p, cells in shown.items() for cell in cells if _key(cell) == owner}
        for run in runs(list(own), own):
            if run.first > last or run.last < first:
                continue
            cell = own[run.first]
            is_open = run.last >= last
            start = max(states[run.first].seen_at, begin)
            end = last_end if is_open else min(_end(history, states, run.last), last_end)
            what = names.get(cell["member_id"], str(cell["member_id"]))
            what = what if cell["state"] == OWNED else f"({cell['reason']})"
            found.append(Bar(f"{partition[0]}-{partition[2]}", what, start, max(start, end), is_open))
    return sorted(found, key=lambda bar: bar.start)


def _key(cell: Row) -> tuple[str | None, str]:
    return (cell["member_id"], cell["state"] if cell["member_id"] is None else "")


def _end(history: History, states: Mapping[int, GroupState], last: int) -> datetime:
    """When the next snapshot read the group; the end of that snapshot if it does not list the group."""
    if last + 1 >= len(history.snapshots):
        return states[last].seen_at
    if last + 1 in states:
        return states[last + 1].seen_at
    end: datetime = history.snapshots[last + 1]["finished_at"]
    return end


def read_marks(period: Period) -> list[list[str]]:
    """Return rebalances and events of published hints, in order of time."""
    marks = []
    published = {
        e["plan_id"] for e in period.events if e["event"] == "PUBLISHED" or e["sequence"] is not None
    }
    for event in period.events:
        since = period.snapshots[0]["slot"]
        if event["event"] in _HINTS and event["plan_id"] in published and event["at"] >= since:
            because = f": {event['reason']}" if event["reason"] else ""
            text = f"plan {event['plan_id'][:SHORT_ID]}{because}"
            marks.append((event["at"], f"hint {_HINTS[event['event']]}", text))
    known = read_history(period)
    if known is not None:
        history, _ = known
        rebalances, _ = find_rebalances(period.rows, history, period.group_id)
        names = member_names(period)
        marks += [
            (row["seen_at"], "rebalance", _text(row, names))
            for row in rebalances
            if row["snapshot_id"] in period.ids
        ]
    return [[page_moment(at), kind, text] for at, kind, text in sorted(marks, key=lambda mark: mark[0])]


def _text(row: Row, names: Mapping[str, str]) -> str:
    parts = [", ".join(_CAUSES[cause] for cause in row["causes"])]
    parts += [
        f"{what}: {', '.join(names.get(member, member) for member in row[what])}"
        for what in ("joined", "left")
        if row[what]
    ]
    counts = [f"{row[f'num_{name}']} {name}" for name in _COUNTS if row[f"num_{name}"]]
    return "; ".join([*parts, ", ".join(counts) or "nothing moved"])
