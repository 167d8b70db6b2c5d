"""An erasure request: afterwards no live data file has the name, and what others have is as before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import (
    ALERTS,
    COMMITS,
    LAG,
    MEMBERS,
    MEMBERSHIPS,
    OFFSETS,
    OWNERSHIP,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    PLANS,
    RUNS,
    SNAPSHOTS,
    TABLES,
)
from evenlag.lake.upkeep.erasure import ERASED, Erasure
from spark_jobs.erase import erase
from spark_jobs.steps.audit_ownership import audit_assignments
from tests.spark_jobs.test_maintain import NOON, marker_at, named, rows_of, write
from tests.support.lakes.snapshots import commit, member, offset
from tests.truth.oracle.delta_files import live_files

if TYPE_CHECKING:
    from spark_jobs.runtime.delta_lake import Lake

pytestmark = [pytest.mark.extended, pytest.mark.jvm]

RANDOM: Final = "0f221b58-70ba-46c5-ade1-ff290d24d82f"
ALICE: Final = f"alice-{RANDOM}"
HOST: Final = "/192.0.2.77"


def write_world(lake: Lake) -> None:
    """Two groups, and what cycles write of them and their members; an audit follows."""
    snapshot: dict[str, Any] = {"snapshot_id": named(0), "read_at": NOON, "slot": NOON}
    names: list[dict[str, Any]] = [
        {"member_id": ALICE, "client_id": "alice", "client_host": HOST, "held": {"t": [0]}},
        {"member_id": "bob-1", "client_id": "bob", "client_host": "/192.0.2.7", "held": {"t": [1]}},
    ]
    names[0]["assignment_error"] = "the partition -1 of 'alice'"
    for group in ("billing", "billing-2"):
        write(lake, MEMBERS, [member(group=group, **one, **snapshot) for one in names])
        write(lake, COMMITS, [commit(0, 5, group=group, **snapshot)])
        write(lake, LAG, [commit(0, 5, group=group, owner_member_id=ALICE, status="OK", **snapshot)])
        head = {"plan_id": f"plan of {group}", "group_id": group, "snapshot_id": named(0)}
        moves = {"topic_id": "x", "topic": "t", "partition": 0, "owner_before": ALICE, "owner_after": "bob-1"}
        write(lake, PLAN_ASSIGNMENTS, [{**head, **moves, "owner_after_key": "i:alice", "moved": True}])
        payload = json.dumps({"members": {f"m:{ALICE}": {"t": [0]}, "m:bob-1": {"t": [1]}}})
        write(lake, PLANS, [{**head, "payload": payload, "slot": NOON}])
        write(lake, PLAN_EVENTS, [{**head, "event": "PROPOSED", "reason": "lag of alice", "actor": "alice"}])
        write(lake, ALERTS, [{"kind": "PLAN_REJECTED", "subject": group, "message": f"{group}: no"}])
    write(lake, OFFSETS, [offset(number, 10, snapshot_id=named(0)) for number in (0, 1)])
    problem = {"kind": "group", "name": "billing", "error": f"no answer from {HOST}; assignment of '{ALICE}'"}
    write(lake, SNAPSHOTS, [marker_at(0, problems=[problem])])
    summary = json.dumps({"failures": {"billing": "alice left", "billing-2": "no"}})
    write(lake, RUNS, [{"run_id": "r", "step": "decide", "slot": NOON, "summary": summary}])
    audit_assignments(lake, "c")


def files_with(lake: Lake, text: str) -> list[str]:
    """Return the live data files with a text, by an independent reader: of every column, as it is printed."""
    import pyarrow.parquet as pq

    root, found = lake.paths.local_root, []
    for name in TABLES:
        if not (root / name / "_delta_log").is_dir():
            continue
        for file in live_files(root / name):
            part = pq.ParquetFile(file.path)
            if text in str(part.read().to_pylist()) or text.encode() in file.path.read_bytes():
                found.append(name)
    return sorted(set(found))


def others(rows: list[dict[str, Any]], group: str) -> list[dict[str, Any]]:
    return [row for row in rows if row.get("group_id", row.get("subject")) != group]


def test_a_member_and_then_a_group_are_in_no_file_and_others_stay(lake: Lake) -> None:
    write_world(lake)
    everything = {name: rows_of(lake, table) for name, table in TABLES.items()}
    of_alice = {"members", "lag", "plan_assignments", "plans", "plan_events", "memberships", "ownership"}
    member_of = Erasure("alice", is_group=False)
    planned = erase(lake, member_of, is_dry_run=True)
    assert set(planned) == of_alice | {"runs", "snapshots"}
    assert planned["members"] == planned["plans"] == 2
    assert erase(lake, member_of, clusters=["other"]) == {}
    assert {name: rows_of(lake, table) for name, table in TABLES.items()} == everything
    assert erase(lake, member_of) == planned
    assert files_with(lake, "alice") == []
    assert erase(lake, member_of) == {}
    (after, _) = sorted(rows_of(lake, PLANS), key=lambda row: str(row["group_id"]))
    assert json.loads(after["payload"])["members"] == {f"m:{ERASED}": {"t": [0]}, "m:bob-1": {"t": [1]}}
    assert {row["member_id"] for row in rows_of(lake, OWNERSHIP)} == {ERASED, "bob-1"}
    for name, table in TABLES.items():
        assert len(rows_of(lake, table)) == len(everything[name]), name
    # The host is a name of its own.
    assert set(erase(lake, Erasure(HOST, is_group=False))) == {
        "members",
        "memberships",
        "ownership",
        "snapshots",
    }
    assert files_with(lake, HOST) == []
    before = {name: rows_of(lake, table) for name, table in TABLES.items()}
    erase(lake, Erasure("billing", is_group=True))
    assert files_with(lake, "billing") == files_with(lake, "billing-2") != []
    for table in (
        MEMBERS,
        COMMITS,
        LAG,
        PLANS,
        PLAN_ASSIGNMENTS,
        PLAN_EVENTS,
        MEMBERSHIPS,
        OWNERSHIP,
        ALERTS,
    ):
        assert rows_of(lake, table) == others(before[table.name], "billing"), table.name
    (marker,) = LakeReader(lake.paths.root).read(SNAPSHOTS).to_pylist()
    assert [one["name"] for one in marker["problems"]] == [ERASED]
    (run,) = (row for row in rows_of(lake, RUNS) if row["run_id"] == "r")
    assert json.loads(run["summary"]) == {"failures": {ERASED: f"{ERASED} left", "billing-2": "no"}}
    assert erase(lake, Erasure("billing", is_group=True)) == {}


def test_a_name_of_any_characters_is_erased_and_others_stay(lake: Lake) -> None:
    odd = "o'dd\"\\name$1 %_`{x}* -- ;\n\u2028\U0001f600"
    # What a pattern, a wildcard or an end of the text in the name would match too.
    groups = ("billing", "o", "o'dd", odd.replace("*", "}"), odd.replace("_", "x"), odd)
    for group in groups:
        head = {"group_id": group, "snapshot_id": named(0), "topic_id": "x", "topic": "t", "partition": 0}
        lag = commit(0, 5, group=group, owner_member_id=group, status="OK", snapshot_id=named(0))
        write(lake, LAG, [lag])
        rows = [{**head, "plan_id": group, "owner_before": group, "owner_after": odd, "moved": True}]
        write(lake, PLAN_ASSIGNMENTS, rows)
        write(lake, PLAN_EVENTS, [{"plan_id": group, "group_id": group, "event": "PROPOSED", "actor": group}])
    num = len(groups)
    member_of = Erasure(odd, is_group=False)
    assert erase(lake, member_of, is_dry_run=True) == {"lag": 1, "plan_assignments": num, "plan_events": 1}
    erase(lake, member_of)
    assert {row["owner_after"] for row in rows_of(lake, PLAN_ASSIGNMENTS)} == {ERASED}
    for table, column in (
        (LAG, "owner_member_id"),
        (PLAN_ASSIGNMENTS, "owner_before"),
        (PLAN_EVENTS, "actor"),
    ):
        assert {row[column] for row in rows_of(lake, table)} == {*groups, ERASED} - {odd}, table.name
        assert {row["group_id"] for row in rows_of(lake, table)} == set(groups), table.name
    erase(lake, Erasure(odd, is_group=True))
    for table in (LAG, PLAN_ASSIGNMENTS, PLAN_EVENTS):
        assert {row["group_id"] for row in rows_of(lake, table)} == set(groups) - {odd}, table.name
    assert erase(lake, Erasure(odd, is_group=True)) == erase(lake, member_of) == {}
