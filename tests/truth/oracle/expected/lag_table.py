"""The table ``lag``: computed again from offsets, commits and members, according to the design."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.truth.oracle.history import History
from tests.truth.oracle.lake_rows import by

if TYPE_CHECKING:
    from tests.truth.oracle.history import GroupState
    from tests.truth.oracle.lake_rows import Row
    from tests.truth.oracle.session import Session

TABLE: Final = "table lag"
# Computed from an existing commit.
_COUNTED: Final = frozenset({"OK", "NO_MEMBERS", "NOT_SUBSCRIBED"})
# Computed from the reset policy, which only the policy has: none, from the end, or from the start.
_BY_RESET_POLICY: Final = frozenset({"NO_COMMIT", "DATA_LOSS", "OUT_OF_RANGE"})


def check_lag_table(session: Session) -> None:
    """Compare the lag, offsets, status and owner of each row with the snapshot."""
    rows = session.rows
    offsets = by(rows.rows("offsets"), "snapshot_id", "topic_id", "partition")
    commits = by(rows.rows("commits"), "snapshot_id", "group_id", "topic_id", "partition")
    history = _history(session)
    places = {row["snapshot_id"]: place for place, row in enumerate(history.snapshots)} if history else {}
    for row in rows.rows("lag"):
        key = (row["snapshot_id"], row["topic_id"], row["partition"])
        name = f"{row['snapshot_id']} {row['group_id']} {row['topic']}-{row['partition']}"
        (read,) = offsets.get(key, [{}])
        (commit,) = commits.get((key[0], row["group_id"], *key[1:]), [{}])
        _check_row(session, name, row, read, commit.get("committed_offset"))
        place = places.get(row["snapshot_id"])
        state = history.states(row["group_id"]).get(place) if history and place is not None else None
        if state is not None and state.is_known:
            session.same(TABLE, f"{name}: owner", row["owner_member_id"], _owner(state, row))


def _history(session: Session) -> History | None:
    audited = session.rows.rows("audited_snapshots")
    if not audited:
        return None
    ends = [row["started_at"] for row in audited] + [row["finished_at"] for row in audited]
    return History(session.rows, min(ends), max(ends))


def _owner(state: GroupState, row: Row) -> str | None:
    cells = state.cells.get((row["topic"], row["topic_id"], row["partition"]), [])
    return cells[0]["member_id"] if cells else None


def _check_row(session: Session, name: str, row: Row, read: Row, committed: int | None) -> None:
    start, status = read.get("log_start_offset"), row["status"]
    if status in _COUNTED and committed is not None:
        # The isolation level in the policy determines which of the two it is.
        possible = {read["high_watermark"], read["last_stable_offset"]}
        session.same(TABLE, f"{name}: end", row["end_offset"] in possible, True)
        end = row["end_offset"]
        # A commit beyond the high watermark is reset by a policy that the lake does not have.
        if committed <= read["high_watermark"]:
            session.same(TABLE, f"{name}: lag", row["lag_records"], max(end - max(committed, start or 0), 0))
        session.same(TABLE, f"{name}: raw lag", row["raw_lag_records"], end - committed)
        session.same(TABLE, f"{name}: commit", row["committed_offset"], committed)
    elif status in _BY_RESET_POLICY:
        high = read["high_watermark"]
        possible = {None, 0, high - start, (read["last_stable_offset"] or high) - start}
        session.same(TABLE, f"{name}: by reset policy", row["lag_records"] in possible, True)
        is_lost = committed is not None and committed < (start or 0)
        is_beyond = committed is not None and committed > high
        expected = "DATA_LOSS" if is_lost else "OUT_OF_RANGE" if is_beyond else "NO_COMMIT"
        session.same(TABLE, f"{name}: status", status, expected)
        # Lakes that earlier versions recorded have no bounds, and null there.
        if start >= row["end_offset"] and "lag_bound" in row:
            session.same(TABLE, f"{name}: empty log", row["lag_records"], 0)
    elif status == "UNKNOWN":
        session.same(TABLE, f"{name}: not known", row["lag_records"], None)
