"""`evenlag audit anomalies`, from members, lag and decisions."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tests.truth.oracle.expected.owners import rests_on
from tests.truth.oracle.forms import moment, number
from tests.truth.oracle.history import FREE, History, bounds, runs
from tests.truth.oracle.lake_rows import by
from tests.truth.oracle.session import compare_exports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from tests.truth.oracle.history import GroupState, Run
    from tests.truth.oracle.lake_rows import Row
    from tests.truth.oracle.session import Session

COMMAND: Final = "audit anomalies"
_KINDS: Final = (
    "OWNED_BY_TWO", "OWNED_BY_NOBODY", "DEAD_MEMBER_LAG", "UNSUBSCRIBED_LAG", "STALLED",
    "ASSIGNOR_NOT_POLICY", "MEMBER_IDLE",
)  # fmt: skip
_PRINTED: Final = {
    "DEAD_MEMBER_LAG": "its last holder is gone",
    "UNSUBSCRIBED_LAG": "its last holder is alive, and subscribes to the topic no longer",
}
_ABOUT: Final = ("topic", "topic_id", "partition", "member_id")
_BOUNDS: Final = (
    "first_snapshot_id", "first_seen_at", "last_snapshot_id", "last_seen_at", "previous_seen_at",
    "next_seen_at",
)  # fmt: skip
_HINTABLE: Final = frozenset({"classic", "consumer"})
OWN_ASSIGNOR: Final = "evenlag"


def check_anomalies(session: Session) -> None:
    """Compare the anomalies of all groups, of each one, and of a part of the time."""
    audited = session.rows.rows("audited_snapshots")
    until, begin = max(row["finished_at"] for row in audited), min(row["started_at"] for row in audited)
    middle = begin + (until - begin) / 2
    day_before = until - timedelta(days=1)
    _check(session, None, day_before, until, ())
    _check(session, None, begin, middle, ("--from", begin.isoformat(), "--to", middle.isoformat()))
    for group_id in History(session.rows, day_before, until).groups:
        _check(session, group_id, day_before, until, ())


def _check(
    session: Session, group_id: str | None, since: datetime, until: datetime, period: tuple[str, ...]
) -> None:
    history = History(session.rows, since, until)
    rows = find_anomalies(session, history, group_id)
    arguments = (*([group_id] if group_id else []), *period)
    name = " ".join(arguments)
    shown = session.ask(COMMAND, *arguments)
    expected = {"rests_on": rests_on(session, history), "group_id": group_id, "anomalies": rows}
    session.same(COMMAND, name, shown, expected)
    if group_id is not None:
        return
    tables, _ = session.printed(COMMAND, *arguments)
    printed = tables[0].rows if tables else None
    clients = session.rows.client_names()
    session.same(COMMAND, f"printed {name}", printed, [_cells(row, clients) for row in rows])
    if rows and not period:
        compare_exports(session, COMMAND, arguments, rows)


def find_anomalies(session: Session, history: History, group_id: str | None) -> list[Row]:
    """Return all anomalies of a period, in display order."""
    groups = history.groups if group_id is None else [group_id]
    found: list[Row] = []
    for name in groups:
        states = history.states(name)
        found += _owned_wrongly(history, name, states)
        found += _idle(history, name, states)
        found += _assignors(session, history, name, states)
    found += _lag(session, history, groups)
    inside = [r for r in found if r["last_seen_at"] >= history.since and r["first_seen_at"] <= history.until]
    return sorted(inside, key=_order)


def _order(row: Row) -> tuple[Any, ...]:
    number_of_it = -1 if row["partition"] is None else row["partition"]
    place = (row["group_id"], row["topic"] or "", number_of_it)
    return (_KINDS.index(row["kind"]), *place, row["member_id"] or "", row["first_seen_at"])


def _row(kind: str, group_id: str, detail: str, edges: Row, **about: Any) -> Row:
    return {
        "kind": kind,
        "group_id": group_id,
        **{name: about.get(name) for name in _ABOUT},
        "detail": detail,
        "lag_records": about.get("lag_records"),
        "num_snapshots": about["num_snapshots"],
        **{name: edges[name] for name in _BOUNDS},
    }


def _owned_wrongly(history: History, group_id: str, states: dict[int, GroupState]) -> Iterator[Row]:
    for partition in {each for state in states.values() for each in state.cells}:
        shown = {p: s.cells[partition] for p, s in states.items() if partition in s.cells}
        about: Row = dict(zip(("topic", "topic_id", "partition"), partition, strict=True))
        free = {place: cells for place, cells in shown.items() if cells[0]["reason"] == FREE}
        for run in runs(list(free), free):
            edges, count = bounds(history, states, run), run.last - run.first + 1
            detail = "members take the topic, and none holds the partition"
            yield _row("OWNED_BY_NOBODY", group_id, detail, edges, num_snapshots=count, **about)
        double = {place: cells for place, cells in shown.items() if len(cells) > 1}
        for run in runs(list(double), double):
            edges, count = bounds(history, states, run), run.last - run.first + 1
            names = ", ".join(sorted(cell["member_id"] for cell in double[run.first]))
            yield _row("OWNED_BY_TWO", group_id, f"owned by {names}", edges, num_snapshots=count, **about)


def _idle(history: History, group_id: str, states: dict[int, GroupState]) -> Iterator[Row]:
    idle: dict[str, list[int]] = {}
    for place, state in states.items():
        if not state.is_known:
            continue
        owned = {
            name: {t["topic"]: len(t["partitions"]) for t in m["assignment"] or () if t["partitions"]}
            for name, m in state.members.items()
        }
        to_spare = {topic for topics in owned.values() if sum(topics.values()) > 1 for topic in topics}
        for name, member in state.members.items():
            if not member["assignment"] and to_spare & set(member["subscription"] or ()):
                idle.setdefault(name, []).append(place)
    for member_id, places in idle.items():
        for run in runs(places, dict.fromkeys(places)):
            edges, count = bounds(history, states, run), run.last - run.first + 1
            detail = "holds nothing while another holds several"
            yield _row("MEMBER_IDLE", group_id, detail, edges, num_snapshots=count, member_id=member_id)


def _assignors(
    session: Session, history: History, group_id: str, states: dict[int, GroupState]
) -> Iterator[Row]:
    decided = {
        row["snapshot_id"]
        for row in session.rows.where("decisions", group_id=group_id)
        if row["policy_mode"] in {"approve", "auto"}
    }
    other = {
        place: state.head["assignor"]
        for place, state in states.items()
        if state.head["assignor"] not in {None, OWN_ASSIGNOR} and state.head["group_type"] in _HINTABLE
    }
    # An interval in which the group does not change counts if any of its snapshots has a decision.
    wrong: dict[int, str] = {}
    for run in runs(list(other), {place: states[place].content for place in other}):
        places = range(run.first, run.last + 1)
        if any(history.snapshots[place]["snapshot_id"] in decided for place in places):
            wrong |= {place: other[place] for place in places}
    for run in runs(list(wrong), wrong):
        detail = f"the group has selected {wrong[run.first]}, its policy hints {OWN_ASSIGNOR}"
        edges, count = bounds(history, states, run), run.last - run.first + 1
        yield _row("ASSIGNOR_NOT_POLICY", group_id, detail, edges, num_snapshots=count)


def _lag(session: Session, history: History, groups: Sequence[str]) -> Iterator[Row]:
    place_of = {row["snapshot_id"]: place for place, row in enumerate(history.snapshots)}
    rows = [
        row | {"place": place_of[row["snapshot_id"]]}
        for row in session.rows.rows("lag")
        if row["snapshot_id"] in place_of and row["group_id"] in groups
    ]
    stalled = [row for row in rows if row["stalled"]]
    key = ("group_id", "topic", "topic_id", "partition")
    for (group_id, topic, topic_id, one, owner), own in by(stalled, *key, "owner_member_id").items():
        for run, most in _stretches(own):
            about = {"topic": topic, "topic_id": topic_id, "partition": one, "member_id": owner}
            detail = "lag, records to read, and no commit moved"
            yield _from_lag("STALLED", group_id, detail, history, run, lag_records=most, **about)
    unowned = [
        r for r in rows if r["status"] in {"NO_MEMBERS", "NOT_SUBSCRIBED"} and (r["lag_records"] or 0) > 0
    ]
    for (group_id, topic, topic_id, one), own in by(unowned, *key).items():
        for run, most in _stretches(own):
            owner = _last_owner(history, group_id, (topic, topic_id, one), run.first)
            if owner is not None:
                about = {"topic": topic, "topic_id": topic_id, "partition": one, "member_id": owner}
                detail, kind = f"its last holder {owner} is gone", "DEAD_MEMBER_LAG"
                if _is_there(history, group_id, owner, run.last):
                    detail = f"its last holder {owner} is alive, and subscribes to the topic no longer"
                    kind = "UNSUBSCRIBED_LAG"
                yield _from_lag(kind, group_id, detail, history, run, lag_records=most, **about)


def _stretches(rows: Sequence[Row]) -> list[tuple[Run, int]]:
    by_place = {row["place"]: row["lag_records"] or 0 for row in rows}
    found = runs(list(by_place), dict.fromkeys(by_place))
    return [(run, max(by_place[place] for place in range(run.first, run.last + 1))) for run in found]


def _last_owner(
    history: History, group_id: str, partition: tuple[str, str | None, int], place: int
) -> str | None:
    """The last owner before an index; of several, the member with the greatest id."""
    states = history.states(group_id)
    began: list[tuple[int, str]] = []
    for member_id in {c["member_id"] for s in states.values() for c in s.cells.get(partition, ())} - {None}:
        cells = {
            p: next(cell for cell in s.cells[partition] if cell["member_id"] == member_id)
            for p, s in states.items()
            if any(cell["member_id"] == member_id for cell in s.cells.get(partition, ()))
        }
        began += [(run.first, member_id) for run in runs(list(cells), cells) if run.first < place]
    return max(began)[1] if began else None


def _is_there(history: History, group_id: str, member_id: str, place: int) -> bool:
    """Whether the newest state up to an index that shows the group has a member, or its instance id."""
    states = history.states(group_id)
    known = [state for p, state in sorted(states.items()) if p <= place and state.is_known]
    if not known:
        return False
    instances = {
        state.members[member_id]["group_instance_id"]
        for state in states.values()
        if member_id in state.members
    } - {None}
    now = known[-1].members
    return member_id in now or any(each["group_instance_id"] in instances for each in now.values())


def _from_lag(kind: str, group_id: str, detail: str, history: History, run: Run, **about: Any) -> Row:
    """An anomaly of the lag: its times are those of the snapshots."""
    snapshots = history.snapshots
    first, last = snapshots[run.first], snapshots[run.last]
    edges = {
        "first_snapshot_id": first["snapshot_id"],
        "first_seen_at": first["finished_at"],
        "last_snapshot_id": last["snapshot_id"],
        "last_seen_at": last["finished_at"],
        "previous_seen_at": snapshots[run.first - 1]["started_at"] if run.first else None,
        "next_seen_at": snapshots[run.last + 1]["finished_at"] if run.last + 1 < len(snapshots) else None,
    }
    return _row(kind, group_id, detail, edges, num_snapshots=run.last - run.first + 1, **about)


def _cells(row: Row, clients: Mapping[str, str]) -> list[str]:
    return [
        row["kind"],
        row["group_id"],
        "" if row["topic"] is None else f"{row['topic']}-{row['partition']}",
        row["member_id"] or "",
        clients[row["member_id"]] if row["member_id"] else "",
        number(row["lag_records"]),
        number(row["num_snapshots"]),
        moment(row["first_seen_at"]),
        moment(row["last_seen_at"]),
        _PRINTED.get(row["kind"], row["detail"]),
    ]
