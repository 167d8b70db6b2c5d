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

from sandbox.workload.journal import read_journal
from tests.truth.oracle.delta_files import read_rows, table_names
from tests.truth.recorded_lakes import FOLDER, RecordedLake, names
from tests.truth.recording import hints as record_hints
from tests.truth.recording import names as record_names

if TYPE_CHECKING:
    from collections.abc import Callable

    Get = Callable[[str], RecordedLake]

HINTS, BROKERS, NAMES, FOREIGN = "hints", "brokers", "names", "foreign"
_MAX_BYTES = 2_000_000


def rows(lake: RecordedLake, table: str, **wanted: Any) -> list[dict[str, Any]]:
    found = read_rows(lake.root, table)
    return [row for row in found if all(row[name] == value for name, value in wanted.items())]


def endings(lake: RecordedLake) -> Counter[str]:
    return Counter(row["event"] for row in rows(lake, "plan_events"))


def test_four_lakes_are_recorded_and_small() -> None:
    assert names() == (BROKERS, FOREIGN, HINTS, NAMES)
    assert all(path.stat().st_size < _MAX_BYTES for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", [HINTS, BROKERS, NAMES, FOREIGN])
def test_no_path_and_no_name_of_the_machine_is_in_a_lake(name: str, recorded_lake: Get) -> None:
    root = recorded_lake(name).root.parent
    shown = [
        str(Path.home()),
        str(Path.cwd()),
        "/tmp/",
        "file:/",
        socket.gethostname(),
        f"/{getpass.getuser()}/",
    ]
    private = [text.encode() for text in shown if len(text) > 2]
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


# The lag of each partition, calculated manually from records and commits of `tests.truth.recording.foreign`.
FOREIGN_LAG: dict[str, dict[tuple[str, int], tuple[str, int | None]]] = {
    # 40, 40, 40 and 10 records on `shared`; commits of 10 and 40; its owners cannot be read.
    "malformed": {
        ("shared", 0): ("OK", 30),
        ("shared", 1): ("OK", 0),
        ("shared", 2): ("NO_COMMIT", 40),
        ("shared", 3): ("NO_COMMIT", 10),
    },
    # Commits of 10, 15, 40 and 10; and of 0 on a topic of 90 records that it has left.
    "short-subscription": {
        ("shared", 0): ("OK", 30),
        ("shared", 1): ("OK", 25),
        ("shared", 2): ("OK", 0),
        ("shared", 3): ("OK", 0),
        ("left", 0): ("NOT_SUBSCRIBED", 90),
    },
    # 30, 0 and 30 records; commits of 10, 0 and 5.
    "by-expression": {
        ("rx-orders", 0): ("OK", 20),
        ("rx-orders", 1): ("OK", 0),
        ("rx-orders", 2): ("OK", 25),
    },
    "no-members": {("shared", 0): ("NO_MEMBERS", 40), ("left", 0): ("NO_MEMBERS", 70)},
    # The log starts and ends at 100, the commit is 30.
    "after-retention": {("emptied", 0): ("NO_MEMBERS", 0)},
    # A commit of 100 on a log of 10: from its start by the policy, else not known.
    "beyond-the-end": {("shared", 3): ("NO_MEMBERS", 10)},
    "without-policy-beyond": {("shared", 3): ("NO_MEMBERS", None)},
    # Commits of 7, 8 and 9, while it rebalances.
    "rebalancing": {("shared", 0): ("OK", 33), ("shared", 1): ("OK", 32), ("shared", 2): ("OK", 31)},
}


def test_groups_of_other_clients_are_counted_as_calculated_manually(recorded_lake: Get) -> None:
    lake = recorded_lake(FOREIGN)
    markers = sorted(rows(lake, "snapshots"), key=lambda row: row["slot"])
    found: dict[str, dict[tuple[str, int], tuple[str, int | None]]] = {}
    for row in rows(lake, "lag", snapshot_id=markers[-1]["snapshot_id"]):
        of_group = found.setdefault(row["group_id"], {})
        of_group[row["topic"], row["partition"]] = (row["status"], row["lag_records"])
    bursts = found.pop("burst")
    assert found == FOREIGN_LAG
    assert len(bursts) == 6
    # The only group of which something could not be read, in each snapshot.
    problems = {(each["kind"], each["name"]) for marker in markers for each in marker["problems"]}
    assert problems == {("group", "malformed")}
    behind = [
        sum(
            row["lag_records"] for row in rows(lake, "lag", snapshot_id=each["snapshot_id"], group_id="burst")
        )
        for each in markers
    ]
    assert sum(lag > 2_000 for lag in behind) >= 3
    assert sum(lag == 0 for lag in behind) >= 6
