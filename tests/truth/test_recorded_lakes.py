"""The recorded lakes have what the comparisons are for, and nothing of the machine that recorded them."""

from __future__ import annotations

import getpass
import re
import socket
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandbox.truth.delta_files import read_rows, table_names
from sandbox.workload.journal import read_journal
from tests.truth.recorded_lakes import FOLDER, RecordedLake, names
from tests.truth.recording import hints as record_hints
from tests.truth.recording import names as record_names

if TYPE_CHECKING:
    from collections.abc import Callable

    Get = Callable[[str], RecordedLake]

HINTS, BROKERS, NAMES = "hints", "brokers", "names"
_MAX_BYTES = 2_000_000


def rows(lake: RecordedLake, table: str, **wanted: Any) -> list[dict[str, Any]]:
    found = read_rows(lake.root, table)
    return [row for row in found if all(row[name] == value for name, value in wanted.items())]


def endings(lake: RecordedLake) -> Counter[str]:
    return Counter(row["event"] for row in rows(lake, "plan_events"))


def test_three_lakes_are_recorded_and_small() -> None:
    assert names() == (BROKERS, HINTS, NAMES)
    assert all(path.stat().st_size < _MAX_BYTES for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", [HINTS, BROKERS, NAMES])
def test_no_path_and_no_name_of_the_machine_is_in_a_lake(name: str, recorded_lake: Get) -> None:
    root = recorded_lake(name).root.parent
    told = [
        str(Path.home()),
        str(Path.cwd()),
        "/tmp/",
        "file:/",
        socket.gethostname(),
        f"/{getpass.getuser()}/",
    ]
    private = [text.encode() for text in told if len(text) > 2]
    for path in root.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [text for text in private if text in content], path


@pytest.mark.parametrize("name", [HINTS, BROKERS, NAMES])
def test_a_lake_has_every_table_of_a_cycle_and_of_what_comes_after_it(name: str, recorded_lake: Get) -> None:
    lake = recorded_lake(name)
    wanted = """snapshots offsets commits members lag plans plan_assignments plan_events
    gate_results decisions outcomes plan_evaluations policies runs ownership memberships audited_snapshots
    comparisons replays continuous_replays"""
    assert set(wanted.split()) <= set(table_names(lake.root))
    assert all(rows(lake, table) for table in wanted.split())
    assert {row["cluster"] for row in rows(lake, "snapshots")} == set(lake.clusters)
    assert all(read_journal(path)[0] for path in lake.journals.values())
    assert set(lake.journals) == set(lake.about["groups"])


@pytest.mark.parametrize("name", [HINTS, BROKERS, NAMES])
def test_snapshots_differ_in_slot_start_end_and_distance(name: str, recorded_lake: Get) -> None:
    markers = sorted(rows(recorded_lake(name), "snapshots"), key=lambda row: row["started_at"])
    assert len(markers) >= 10
    delays = [(row["started_at"] - row["slot"]).total_seconds() for row in markers]
    assert min(delays) >= 9
    assert all(row["started_at"] < row["finished_at"] for row in markers)
    gaps = [(later["started_at"] - one["started_at"]).total_seconds() for one, later in pairwise(markers)]
    assert max(gaps) > 3 * min(gaps)


@pytest.mark.parametrize("name", [HINTS, BROKERS, NAMES])
def test_the_newest_snapshot_first_shows_new_owners(name: str, recorded_lake: Get) -> None:
    lake = recorded_lake(name)
    cluster = {HINTS: record_hints.CLUSTER}.get(name, lake.clusters[0])
    markers = sorted(rows(lake, "snapshots", cluster=cluster), key=lambda row: row["started_at"])
    owners: list[dict[tuple[str, str, int], str | None]] = [
        {
            (row["group_id"], row["topic"], row["partition"]): row["owner_member_id"]
            for row in rows(lake, "lag", snapshot_id=marker["snapshot_id"])
        }
        for marker in markers[-2:]
    ]
    both = owners[0].keys() & owners[1].keys()
    assert any(owners[0][key] and owners[1][key] and owners[0][key] != owners[1][key] for key in both)


def test_every_ending_of_a_plan_is_there(recorded_lake: Get) -> None:
    lake = recorded_lake(HINTS)
    wanted = {"PROPOSED", "REJECTED", "APPROVED", "PUBLISHED", "APPLIED", "IGNORED", "EXPIRED", "WITHDRAWN"}
    assert set(endings(lake)) == wanted
    published = {row["plan_id"] for row in rows(lake, "plan_events", event="PUBLISHED")}
    expired = {row["plan_id"]: row["actor"] for row in rows(lake, "plan_events", event="EXPIRED")}
    # A hint that nobody followed in time, and a plan that never became one.
    assert {plan_id in published: actor == "observer" for plan_id, actor in expired.items()} == {
        True: True,
        False: False,
    }
    assert rows(lake, "outcomes", outcome="EXPIRED")
    assert rows(lake, "gate_results", passed=False)
    asked = {row["plan_id"] for row in rows(lake, "approval_requests", state="ASKED")}
    answered = {
        row["plan_id"]
        for row in rows(lake, "plan_events")
        if row["event"] in {"APPROVED", "REJECTED"} and "@" in row["actor"]
    }
    assert answered < asked


def test_lag_has_its_statuses(recorded_lake: Get) -> None:
    found = Counter(row["status"] for row in rows(recorded_lake(HINTS), "lag"))
    assert {"OK", "NO_COMMIT", "NO_MEMBERS", "NOT_SUBSCRIBED"} <= set(found)
    bare = rows(recorded_lake(HINTS), "lag", group_id="bare")
    assert {(row["status"], row["lag_records"]) for row in bare} == {("NO_COMMIT", None)}
    assert rows(recorded_lake(HINTS), "lag", stalled=True)


def test_an_outcome_is_settled_by_a_snapshot_that_knows_14_of_24_partitions(recorded_lake: Get) -> None:
    lake = recorded_lake(BROKERS)
    partly = {row["snapshot_id"] for row in rows(lake, "snapshots") if row["num_unread_partitions"]}
    settled = [row for row in rows(lake, "outcomes", group_id="billing") if row["snapshot_id"] in partly]
    assert settled
    lag = rows(lake, "lag", snapshot_id=settled[0]["snapshot_id"], group_id="billing")
    assert Counter(row["lag_records"] is None for row in lag) == {False: 14, True: 10}
    for group_id in ("edge", lake.about["groups"]["far"]["group_id"]):
        unknown = rows(lake, "lag", snapshot_id=settled[0]["snapshot_id"], group_id=group_id)
        assert {row["lag_records"] for row in unknown} <= {None}
    by_owner: dict[str | None, set[bool]] = {}
    for row in rows(lake, "lag", snapshot_id=settled[0]["snapshot_id"], group_id="ranges"):
        by_owner.setdefault(row["owner_member_id"], set()).add(row["lag_records"] is None)
    assert {True} in by_owner.values()


def test_slots_and_readings_lie_on_both_sides_of_midnight(recorded_lake: Get) -> None:
    markers = rows(recorded_lake(NAMES), "snapshots")
    days = {(row["day"], row["started_at"].date()) for row in markers}
    assert len(days) == 3


def test_odd_names_are_there(recorded_lake: Get) -> None:
    lake = recorded_lake(NAMES)
    groups = {row["group_id"] for row in rows(lake, "members")}
    assert {record_names.SCRIPT, record_names.MARKUP, record_names.LARGEST, *record_names.EMPTY} <= groups
    hinted = {row["group_id"] for row in rows(lake, "outcomes", outcome="APPLIED")}
    assert {record_names.SCRIPT, record_names.LARGEST} <= hinted
    assert re.search(r"\s", "".join(groups))
