"""`evenlag audit adherence`: which members followed each hint, and in which interval."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tests.truth.oracle.expected.churn import find_rebalances
from tests.truth.oracle.expected.hints import read_hints, share
from tests.truth.oracle.expected.owners import rests_on
from tests.truth.oracle.expected.plans import SHORT_ID
from tests.truth.oracle.forms import between, moment, percent
from tests.truth.oracle.history import History
from tests.truth.oracle.session import compare_exports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.truth.oracle.expected.hints import Hint
    from tests.truth.oracle.lake_rows import Row
    from tests.truth.oracle.session import Session

ADHERENCE: Final = "audit adherence"


def check_adherence(session: Session) -> None:
    """Compare the adherence of each hint."""
    ends = [row["finished_at"] for row in session.rows.rows("audited_snapshots")]
    until = max(ends)
    history = History(session.rows, until - timedelta(days=1), until)
    for group_id in (None, *history.groups):
        rebalances, _ = find_rebalances(session.rows, history, group_id)
        hints = read_hints(session.rows, history, group_id)
        rows = [_judge(history, hint, rebalances) for hint in hints]
        arguments = [group_id] if group_id else []
        if not rows:
            session.fails(ADHERENCE, *arguments, exit_code=4)
            continue
        shown = session.ask(ADHERENCE, *arguments)
        expected = {"rests_on": rests_on(session, history), "group_id": group_id, "hints": rows}
        session.same(ADHERENCE, str(group_id), shown, expected)
        tables, _ = session.printed(ADHERENCE, *arguments)
        printed = tables[0].rows if tables else None
        session.same(ADHERENCE, f"printed {group_id}", printed, [_hint_cells(row) for row in rows])
        if session.is_first(ADHERENCE):
            compare_exports(session, ADHERENCE, arguments, rows)


def _judge(history: History, hint: Hint, rebalances: Sequence[Row]) -> Row:
    event, ending, snapshots = hint.event, hint.ending, history.snapshots
    states = history.states(event["group_id"])
    shares = {place: share(hint, states[place]) for place in sorted(states) if states[place].is_known}
    before = [s for p, s in shares.items() if snapshots[p]["finished_at"] <= event["at"]]
    stood = [
        place
        for place in shares
        if snapshots[place]["started_at"] >= event["at"]
        and (ending is None or snapshots[place]["finished_at"] <= ending["at"])
    ]
    best = max((shares[place] for place in stood), default=None)
    share_before = before[-1] if before else None
    full = [place for place in stood if shares[place] == 1]
    verdict = "FOLLOWED" if full else "NOT_SEEN" if best is None else None
    ended_by = None
    if ending is not None:
        ended_by = "withdrawn" if ending["event"] == "WITHDRAWN" else ending["plan_id"]
    return {
        "group_id": event["group_id"],
        "plan_id": event["plan_id"],
        "sequence": event["sequence"],
        "approved_by": hint.approved_by,
        "published_at": event["at"],
        "expires_at": event["expires_at"],
        "ended_at": ending["at"] if ending else None,
        "ended_by": ended_by,
        "num_partitions": len(hint.owners),
        "share_before": share_before,
        "share_best": best,
        "num_snapshots": len(stood),
        "verdict": verdict or ("PARTLY" if (best or 0) > (share_before or 0) else "NOT_FOLLOWED"),
        **_followed(history, hint, shares, full[0] if full else None, rebalances),
    }


def _followed(
    history: History, hint: Hint, shares: Mapping[int, float], first: int | None, rebalances: Sequence[Row]
) -> Row:
    snapshots = history.snapshots

    def at(place: int | None, clock: str) -> Any:
        return None if place is None else snapshots[place][clock]

    earlier = [p for p, s in shares.items() if first is not None and p < first and s < 1]
    later = [p for p, s in shares.items() if first is not None and p > first and s < 1]
    end, not_yet = (later[0] if later else None), (earlier[-1] if earlier else None)
    full = [p for p, s in shares.items() if s == 1 and (end is None or p < end)]
    last = full[-1] if first is not None else None
    because = None
    if end is not None:
        because = "the group held something else while it stood"
        if hint.ending is not None and snapshots[end]["started_at"] > hint.ending["at"]:
            because = "the hint stood no longer"
        else:
            group_id = hint.event["group_id"]
            found = [
                r
                for r in rebalances
                if (r["group_id"], r["snapshot_id"]) == (group_id, snapshots[end]["snapshot_id"])
            ]
            because += f": {', '.join(found[0]['causes'])}" if found else ""
    followed_from = at(first, "finished_at")
    return {
        "not_yet_at": at(not_yet, "started_at"),
        "not_yet_snapshot_id": at(not_yet, "snapshot_id"),
        "followed_from": followed_from,
        "followed_from_snapshot_id": at(first, "snapshot_id"),
        "followed_until": None if last is None else max(followed_from, at(last, "started_at")),
        "followed_until_snapshot_id": at(last, "snapshot_id"),
        "no_longer_at": at(end, "finished_at"),
        "no_longer_snapshot_id": at(end, "snapshot_id"),
        "left_because": because,
    }


def _hint_cells(row: Row) -> list[str]:
    return [
        row["group_id"],
        row["plan_id"][:SHORT_ID],
        moment(row["published_at"]),
        row["verdict"],
        percent(row["share_before"]),
        percent(row["share_best"]),
        between(row["not_yet_at"], row["followed_from"]),
        between(row["followed_until"], row["no_longer_at"]),
        row["left_because"] or "",
    ]
