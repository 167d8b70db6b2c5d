"""`evenlag audit`: its answers as JSON, tables and files, and what it says when there is no answer."""

from __future__ import annotations

import csv
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.tables import (
    DECISIONS,
    LAG,
    OWNERSHIP,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    SNAPSHOTS,
)
from tests.support.lakes.audit_lake import STEP, TOPIC_ID, Seen, at, snapshot_id, write_audit
from tests.support.lakes.command_lake import write_rows
from tests.support.spark_tables import together, update_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.fixtures.command import Evenlag

PLAN = "c3" * 32
EVEN = Seen({"a1": (0, 1), "b1": (2, 3)})
MOVED = Seen({"a1": (0,), "b1": (1, 2, 3)})
BOTH = Seen({"a1": (0, 1), "b1": (1, 2, 3)})
HISTORY = [
    EVEN,
    EVEN,
    MOVED,  # a hint is followed, and the day ends later
    MOVED,
    Seen(None),
    BOTH,
    Seen({"a1": (0, 1, 2), "b1": ()}),  # 3 is nobody's, b1 holds nothing
    Seen({}),
    Seen({"c1": (0, 1, 2, 3)}, assignor="range"),
]


def lag(number: int, partition: int, **more: Any) -> dict[str, Any]:
    head = {"snapshot_id": snapshot_id(number), "slot": at(number), "day": at(number).date(), "cluster": "c"}
    what = {"group_id": "g", "topic_id": TOPIC_ID, "topic": "t", "partition": partition, "status": "OK"}
    return head | what | {"read_at": at(number), "lag_records": 0, "stalled": False} | more


@pytest.fixture(scope="module")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with a history over midnight, a hint, and lag."""
    lake = tmp_path_factory.mktemp("audited")
    with together(spark):
        write_audit(lake, HISTORY)
        times = ("started_at", "log_start_read_at", "commits_read_at", "end_read_at", "finished_at")
        markers = [
            {"cluster": "c", "day": at(number).date(), "snapshot_id": snapshot_id(number), "slot": at(number)}
            | dict.fromkeys(times, at(number))
            for number in range(len(HISTORY) + 1)  # the last one is not audited yet
        ]
        write_rows(lake, SNAPSHOTS, markers)
        head = {
            "cluster": "c",
            "day": at(0).date(),
            "snapshot_id": snapshot_id(1),
            "plan_id": PLAN,
            "group_id": "g",
        }
        published = head | {"event": "PUBLISHED", "actor": "publisher", "at": at(1) + STEP / 2, "sequence": 4}
        write_rows(lake, PLAN_EVENTS, [published])
        hinted = {0: "m:a1", 1: "m:b1", 2: "m:b1", 3: "m:b1"}
        moves = [
            head | {"topic_id": TOPIC_ID, "topic": "t", "partition": partition, "owner_after_key": key}
            for partition, key in hinted.items()
        ]
        write_rows(lake, PLAN_ASSIGNMENTS, moves)
        rows = [
            *(lag(number, 2, stalled=True, lag_records=number, owner_member_id="b1") for number in (1, 2, 5)),
            *(lag(7, partition, status="NO_MEMBERS", lag_records=10) for partition in (0, 3)),
            lag(0, 0, status="NO_MEMBERS", lag_records=10),  # whose it was is not known
            lag(6, 2, status="NOT_SUBSCRIBED", lag_records=7),  # b1 had it, and is there
        ]
        write_rows(lake, LAG, rows)
        decided = {
            "cluster": "c",
            "group_id": "g",
            "policy_mode": "auto",
            "policy_hash": "p",
            "decision": "NO_CHANGE",
        }
        write_rows(
            lake,
            DECISIONS,
            [
                decided | {"snapshot_id": snapshot_id(n), "slot": at(n), "day": at(n).date()}
                for n in range(len(HISTORY))
            ],
        )
    return lake


def ask(evenlag: Evenlag, *arguments: object) -> dict[str, Any]:
    answer = evenlag("audit", *arguments, "--json")
    assert answer.exit_code == 0, answer.output
    content: dict[str, Any] = json.loads(answer.stdout)
    return content


def test_an_answer_names_the_readings_that_it_rests_on(evenlag: Evenlag, audited: Path) -> None:
    shown = ask(evenlag, "owner", "g", "--at", at(1).isoformat(), "--lake", audited)
    assert shown["group"]["before"]["snapshot_id"] == snapshot_id(1)
    assert [(row["partition"], row["member_id"]) for row in shown["partitions"]] == [
        (0, "a1"), (1, "a1"), (2, "b1"), (3, "b1"),
    ]  # fmt: skip
    assert {row["first_snapshot_id"] for row in shown["partitions"]} == {snapshot_id(0)}
    rests_on = ask(evenlag, "churn", "g", "--from", at(0).isoformat(), "--lake", audited)["rests_on"]
    assert (rests_on["first_snapshot_id"], rests_on["last_snapshot_id"]) == (snapshot_id(0), snapshot_id(8))
    assert rests_on["num_snapshots"] == len(HISTORY)
    assert [row["day"] for row in rests_on["input_hash_of_days"]] == ["2026-11-21", "2026-11-22"]


def test_churn_and_adherence_tell_of_the_hint(evenlag: Evenlag, audited: Path) -> None:
    churn = ask(evenlag, "churn", "--lake", audited)
    assert [row["causes"] for row in churn["rebalances"]] == [
        ["HINT_APPLIED"],
        ["UNKNOWN"],
        ["UNKNOWN"],
        ["MEMBER_LEFT"],
        ["MEMBER_JOINED", "ASSIGNOR_CHANGED"],
    ]
    assert churn["rebalances"][0]["plan_id"] == PLAN
    (hint,) = ask(evenlag, "adherence", "--lake", audited)["hints"]
    assert (hint["verdict"], hint["sequence"], hint["num_partitions"]) == ("FOLLOWED", 4, 4)
    assert hint["followed_from_snapshot_id"] == snapshot_id(2)
    assert hint["followed_until_snapshot_id"] == snapshot_id(3)
    assert hint["left_because"] == "the group held something else while it stood: UNKNOWN"


def test_anomalies_name_what_was_wrong_and_for_how_long(evenlag: Evenlag, audited: Path) -> None:
    rows = ask(evenlag, "anomalies", "--lake", audited)["anomalies"]
    shown = [(row["kind"], row["partition"], row["member_id"], row["num_snapshots"]) for row in rows]
    assert shown == [
        ("OWNED_BY_TWO", 1, None, 1),
        ("OWNED_BY_NOBODY", 3, None, 1),
        ("DEAD_MEMBER_LAG", 0, "a1", 1),
        ("DEAD_MEMBER_LAG", 3, "b1", 1),
        ("UNSUBSCRIBED_LAG", 2, "b1", 1),
        ("STALLED", 2, "b1", 2),
        ("STALLED", 2, "b1", 1),
        ("ASSIGNOR_NOT_POLICY", None, None, 1),
        ("MEMBER_IDLE", None, "b1", 1),
    ]
    assert rows[0]["detail"] == "owned by a1, b1"
    assert rows[3]["detail"] == "its last holder b1 is gone"
    assert rows[4]["detail"] == "its last holder b1 is alive, and subscribes to the topic no longer"
    assert rows[5]["lag_records"] == 2
    assert "selected range" in rows[7]["detail"]


def test_people_are_shown_tables(evenlag: Evenlag, audited: Path) -> None:
    shown = evenlag("audit", "owner", "g", "--at", "2026-11-21T23:37:30", "--lake", audited).stdout
    assert "changed around then, so before" in shown
    assert snapshot_id(1) in shown
    shown = evenlag("audit", "diff", "g", at(1).isoformat(), at(2).isoformat(), "--lake", audited).stdout
    assert "MOVED" in shown
    assert "1 of 4 partitions" in shown
    answer = evenlag("audit", "churn", "g", "--moves", "--to", at(20).isoformat(), "--lake", audited)
    assert "HINT_APPLIED" in answer.stdout
    assert "1 snapshots of the period are not audited yet: evenlag audit build" in answer.stderr
    # The same where it goes up to the newest one, or to a moment that one would tell more of.
    for arguments in (("churn",), ("owner", "g"), ("owner", "g", "--at", at(20).isoformat())):
        answer = evenlag("audit", *arguments, "--lake", audited)
        assert "1 snapshots of the period are not audited yet" in answer.stderr
    assert not evenlag("audit", "owner", "g", "--at", at(1).isoformat(), "--lake", audited).stderr
    assert "FOLLOWED" in evenlag("audit", "adherence", "--lake", audited).stdout
    assert "OWNED_BY_TWO" in evenlag("audit", "anomalies", "g", "--lake", audited).stdout


def test_an_answer_is_exported(evenlag: Evenlag, audited: Path, tmp_path: Path) -> None:
    file = tmp_path / "moves.csv"
    answer = evenlag("audit", "churn", "--lake", audited, "--export", file)
    assert answer.exit_code == 0, answer.output
    rows = list(csv.DictReader(file.open(encoding="utf-8")))
    assert (rows[0]["partition"], rows[0]["from_member_id"], rows[0]["to_member_id"]) == ("1", "a1", "b1")


def test_without_an_audit_it_says_what_to_run(evenlag: Evenlag, lake: Path) -> None:
    answer = evenlag("audit", "churn", "--lake", lake)
    assert answer.exit_code == 4
    assert f"evenlag audit build --cluster orders --lake {lake}" in answer.stderr
    assert "assignment_audit" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("owner", "gg"), 4, "did you mean 'g'?"),
        (("owner", "g", "--at", "noon"), 2, "is no moment"),
        (("churn", "--from", "2026-11-22", "--to", "2026-11-21"), 2, "ends"),
        (("diff", "g", "2026-11-20", "2026-11-22"), 4, "no snapshot that had ended by 2026-11-20"),
        (("adherence", "--to", "2026-11-21T23:31"), 4, "no hint was published"),
    ],
)
def test_what_cannot_be_answered_is_said(
    arguments: tuple[str, ...], code: int, said: str, evenlag: Evenlag, audited: Path
) -> None:
    answer = evenlag("audit", *arguments, "--lake", audited)
    assert answer.exit_code == code, answer.output
    assert said in answer.stderr


def test_a_day_that_is_half_written_is_not_answered_from(
    evenlag: Evenlag, audited: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(audited, copy)
    update_rows(copy, OWNERSHIP, {"input_hash": "'another'"}, "day = '2026-11-22'")
    answer = evenlag("audit", "churn", "--lake", copy)
    assert answer.exit_code == 3
    assert "the audit of 2026-11-22 is being rebuilt" in answer.stderr
