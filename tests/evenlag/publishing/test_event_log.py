"""Plan events: each (plan, event) is in the table once, whoever writes it, on whatever day."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import PLAN_EVENTS
from evenlag.lake.writer import append_once
from evenlag.publishing.event_log import append_plan_events

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
EVENT: dict[str, Any] = {
    "cluster": "c",
    "day": NOON.date(),
    "snapshot_id": "20260301T120000000Z-00000001",
    "plan_id": "p",
    "group_id": "g",
    "event": "EXPIRED",
    "reason": "the group has changed",
    "actor": "publisher",
    "at": NOON,
}


def events(root: Path) -> list[tuple[str, str, str]]:
    """Return (plan, event, actor) of a lake's events, sorted."""
    rows = LakeReader(str(root)).read(PLAN_EVENTS).to_pylist()
    return sorted((row["plan_id"], row["event"], row["actor"]) for row in rows)


def test_an_event_is_recorded_once_and_others_beside_it(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert append_plan_events(root, []) == 0
    assert append_plan_events(root, [EVENT]) == 1
    others = [EVENT | {"plan_id": "q"}, EVENT | {"event": "WITHDRAWN"}]
    assert append_plan_events(root, [EVENT | {"reason": "again"}, *others]) == 2
    assert [row[:2] for row in events(tmp_path)] == [("p", "EXPIRED"), ("p", "WITHDRAWN"), ("q", "EXPIRED")]


def test_what_a_later_snapshot_has_settled_is_not_recorded_again(tmp_path: Path) -> None:
    """An outcome has the day of the snapshot that settled the plan, which may be the next one."""
    settled = EVENT | {"day": NOON.date() + timedelta(days=1), "actor": "observer"}
    assert append_once(str(tmp_path), PLAN_EVENTS, [settled], None)
    assert append_plan_events(str(tmp_path), [EVENT]) == 0
    # Of another cluster, it is another plan.
    assert append_plan_events(str(tmp_path), [EVENT | {"cluster": "d"}]) == 1
    assert events(tmp_path) == [("p", "EXPIRED", "observer"), ("p", "EXPIRED", "publisher")]


def _record(root: str, actor: str, start: multiprocessing.synchronize.Barrier) -> None:
    start.wait()
    append_plan_events(root, [EVENT | {"actor": actor}])


def test_of_processes_that_record_one_event_at_once_one_does(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(3)
    processes = [
        context.Process(target=_record, args=(str(tmp_path), str(number), start)) for number in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(events(tmp_path)) == 1
