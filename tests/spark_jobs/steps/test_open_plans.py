"""Which published plans an observe reads: all that are open, however long, and not the history."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from evenlag.lake.reader import LakeReader
from evenlag.lake.run_records import keep_policy, open_since
from evenlag.lake.tables import CONTROL_ACTIONS, PLAN_EVALUATIONS, PLAN_EVENTS, POLICIES, RUNS
from evenlag.planning.plan_history import failure_window, read_history
from evenlag.policy.loader import LoadedPolicy, parse_policy
from evenlag.publishing.hint_topic import TopicState
from evenlag.publishing.plan_outcomes import find_open_since, read_published
from evenlag.publishing.publish import read_last_sequences
from evenlag.publishing.revocation import last_action
from spark_jobs.steps.snapshot_rows import SnapshotRows
from tests.support.lakes.snapshots import HEAD, NOW, append_rows, marker

if TYPE_CHECKING:
    from pathlib import Path

DAY = timedelta(days=1)
POLICY = """
lake: /nowhere
clusters: {c: {bootstrap_servers: "localhost:9092"}}
groups: [{match: "*", mode: auto, back_off: {after: 2, rest_s: 3600}}]
"""


def published(root: Path, plan: str, at: datetime, *, ended: str | None = None, sequence: int = 1) -> None:
    head = {"day": at.date(), "plan_id": plan, "group_id": f"group of {plan}", "actor": "evenlag"}
    rows = [head | {"event": "PUBLISHED", "at": at, "sequence": sequence}]
    rows += [] if ended is None else [head | {"event": ended, "at": at + timedelta(minutes=5)}]
    append_rows(root, PLAN_EVENTS, rows)


def observed(root: Path, at: datetime, summary: dict[str, Any]) -> None:
    row = {
        "day": at.date(), "run_id": str(at), "step": "observe", "slot": at, "started_at": at,
        "finished_at": at + timedelta(seconds=9), "summary": json.dumps(summary, default=str),
    }  # fmt: skip
    append_rows(root, RUNS, [row])


def found(root: Path) -> list[str]:
    return sorted(plan.plan_id for plan in read_published(LakeReader(str(root)), "c"))


def test_plans_are_read_from_the_oldest_open_one_on(tmp_path: Path) -> None:
    for name, days in (("ancient", 400), ("older", 25), ("open", 20), ("recent", 2), ("new", 0)):
        ended = "APPLIED" if days > 20 else None
        published(tmp_path, name, NOW - days * DAY - timedelta(minutes=1), ended=ended)
    # No observe has ended: it may be the first one, or all were killed.
    assert found(tmp_path) == ["ancient", "new", "older", "open", "recent"]
    # Of an earlier version, which recorded nothing.
    observed(tmp_path, NOW - DAY, {"scored": 1})
    assert found(tmp_path) == ["new", "older", "open", "recent"]
    observed(tmp_path, NOW - 0.5 * DAY, {"open_since": NOW - 20 * DAY - timedelta(minutes=1)})
    assert found(tmp_path) == ["new", "open", "recent"]
    # All are done: a hint of a publisher that was killed may still be recorded late.
    observed(tmp_path, NOW, {"open_since": None})
    assert found(tmp_path) == ["new", "recent"]


def test_a_cluster_that_paused_for_months_finds_what_was_open_then(tmp_path: Path) -> None:
    pause = NOW - 200 * DAY
    published(tmp_path, "before", pause - 40 * DAY)
    published(tmp_path, "open", pause - timedelta(minutes=10))
    # Published after the last observe before the pause.
    published(tmp_path, "after", pause + timedelta(minutes=1))
    observed(tmp_path, pause, {"open_since": pause - timedelta(minutes=10)})
    assert found(tmp_path) == ["after", "open"]


def test_what_is_neither_settled_nor_evaluated_stays_open_for_a_month(tmp_path: Path) -> None:
    published(tmp_path, "evaluated", NOW - 3 * DAY, ended="APPLIED")
    published(tmp_path, "settled", NOW - 2 * DAY, ended="APPLIED")
    published(tmp_path, "waiting", NOW - DAY)
    score = {"plan_id": "evaluated", "group_id": "g", "slot": NOW, "settings": "{}", "published_at": NOW}
    score |= {"scored_after_ms": 1, "outcome": "APPLIED", "reason": "it did"}
    append_rows(tmp_path, PLAN_EVALUATIONS, [score])
    reader = LakeReader(str(tmp_path))
    rows = SnapshotRows(None, reader, HEAD | marker())  # type: ignore[arg-type]  # nothing here needs Spark
    assert find_open_since(rows, read_published(reader, "c")) == NOW - 2 * DAY
    assert find_open_since(rows, []) is None
    # A plan that no snapshot could settle is given up.
    observed(tmp_path, NOW, {"open_since": NOW - 90 * DAY})
    assert open_since(reader, "c") == NOW - 31 * DAY


def test_failures_count_as_far_back_as_rests_can_follow_each_other(tmp_path: Path) -> None:
    policy = parse_policy(POLICY, environ={}).policy
    settings = policy.group_settings("c", "g")
    # Twice: an hour of rest, half an hour of horizon, a quarter of a hint's life, ten minutes of cooldown.
    window = 2 * timedelta(minutes=60 + 30 + 15 + 10) + DAY
    assert failure_window(settings) == window
    rows = [
        {
            "plan_id": f"{group}-{number}", "group_id": group, "slot": slot, "published_at": slot,
            "settings": settings.canonical_json(), "scored_after_ms": 1, "outcome": "APPLIED",
            "paid_off": False, "reason": "no", "day": slot.date(),
        }
        for group, first in (("inside", window), ("outside", window + timedelta(seconds=1)))
        for number, slot in enumerate((NOW - first, NOW - timedelta(minutes=5)))
    ]  # fmt: skip
    append_rows(tmp_path, PLAN_EVALUATIONS, rows)
    assert set(read_history(LakeReader(str(tmp_path)), policy, "c", NOW)) == {"inside"}


def test_sequence_numbers_grow_without_the_history(tmp_path: Path) -> None:
    published(tmp_path, "a", NOW - DAY, sequence=7)
    young = read_last_sequences(str(tmp_path), "c", NOW)
    empty = TopicState(exists=True, hints={}, unreadable={}, num_partitions=1)
    assert (young.next_of("group of a", empty), young.next_of("another", empty)) == (8, 1)
    # Hints of long ago: a number above all of them, without reading them.
    published(tmp_path, "old", NOW - 400 * DAY, sequence=41)
    later = read_last_sequences(str(tmp_path), "c", NOW)
    assert later.by_group == {"group of a": 7}
    assert later.next_of("group of a", empty) == 8
    assert later.next_of("group of old", empty) == 1 + int(NOW.timestamp())
    much_later = read_last_sequences(str(tmp_path), "c", NOW + 30 * DAY)
    assert later.next_of("group of old", empty) < much_later.next_of("group of old", empty) < 2**53


def test_a_policy_text_and_the_last_action_are_found_however_old(tmp_path: Path) -> None:
    loaded: LoadedPolicy = parse_policy(POLICY, environ={})
    reader = LakeReader(str(tmp_path))
    for slot in (NOW - 400 * DAY, NOW):
        keep_policy(reader, "c", slot, loaded)
    keep_policy(reader, "c", NOW, parse_policy(POLICY + "# another\n", environ={}))
    keep_policy(reader, "c", NOW + DAY, loaded)
    assert len(reader.read(POLICIES)) == 2
    action = {"hint_topic": "hints", "reason": "r", "actor": "a"}
    append_rows(
        tmp_path,
        CONTROL_ACTIONS,
        [
            action | {"action_id": str(days), "action": name, "at": NOW - days * DAY}
            for days, name in ((300, "STOP_ALL"), (200, "RESUME"), (1, "WITHDRAW"))
        ],
    )
    last = last_action(reader, "c", ("STOP_ALL", "RESUME"))
    assert last is not None
    assert last["action"] == "RESUME"
